//! Matrix product with tiles of `tile_m` rows and 4 columns an invocation, for Vulkan on the CPU: y = f(alpha a b + beta bias).
//!
//! There every load of a lane is a load of its own, even where all lanes read the same; so the lanes of a subgroup
//! share the loads of a and broadcast them. Sums go along k in order, whatever `lanes` and `local_x` are. Work groups:
//! x counts tiles of rows, y groups of `local_x` panels of 4 columns, z batches. Every subgroup is full and has at least
//! `lanes` invocations; `lanes` is 4 or 8. Only device addresses are worth it; one variant with descriptors names the
//! operands. Parameters: see `lib/product.glsl`.
//! axis dtype = f32 f16
//! axis out = f32 f16
//! axis tile_m = 1 4 8 16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 8
//! spec 2 a_vec4 = 0
//! spec 3 b_loads = 0
//! spec 4 has_bias = 0
//! spec 5 adds_y = 0
//! spec 6 activation = 0
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! spec 7 lanes = 8
//! local local_x
//! needs : shader_int64 subgroup
//! needs out=f16 : storage_16bit
//! skip dtype=f32 out=f16
//! skip access=ssbo dtype=f16
//! skip access=ssbo tile_m=4
//! skip access=ssbo tile_m=8
//! skip access=ssbo tile_m=16
#ifdef OUT_F16
#define Y float16_t
#else
#define Y float
#endif
#include "lib/product.glsl"
#include "lib/lanes.glsl"

// A turn of the loop takes STEPS vectors along k of each row. Lane i holds vectors i, i + lanes, ... of them, row by row.
const uint STEPS = TILE_M < 8 ? 8 / TILE_M : 1;
const uint HELD = TILE_M * STEPS;

uint row_at(uint row) { return a_batch() + min(row, m - 1u) * a_strides[2]; }

void main() {
    uint panel = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint first_row = gl_WorkGroupID.x * TILE_M;
    // Invocations past the last panel stay, as others need their loads.
    uvec4 columns = panel_columns(min(panel, (n - 1u) / 4u));
    uint b_at = b_batch();
    uint a_at[HELD / 4];
    for (uint i = 0u; i < HELD / lanes; i++) {
        uint vector = i * lanes + gl_SubgroupInvocationID % lanes;
        a_at[i] = row_at(first_row + vector / STEPS) + 4u * (vector % STEPS) * a_strides[3];
    }
    vec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) sums[r] = vec4(0.0);
    for (uint rest = k / (4u * STEPS); rest > 0u; rest--) {
        vec4 held[HELD / 4];
        for (uint i = 0u; i < HELD / lanes; i++) {
            held[i] = load_a4(a_at[i]);
            a_at[i] += 4u * STEPS * a_strides[3];
        }
        for (uint step = 0u; step < STEPS; step++) {
            mat4 w = load_b4(b_at, columns);
            b_at += 4u * b_strides[2];
            for (uint r = 0u; r < TILE_M; r++) {
                uint vector = r * STEPS + step;
                vec4 v = of_lane(held[vector / lanes], vector % lanes);
                sums[r] += v.x * w[0];
                sums[r] += v.y * w[1];
                sums[r] += v.z * w[2];
                sums[r] += v.w * w[3];
            }
        }
    }
    for (uint i = k - k % (4u * STEPS); i < k; i++) {
        vec4 w = load_b(b_at, columns);
        b_at += b_strides[2];
        for (uint r = 0u; r < TILE_M; r++) sums[r] += LOADF(a, row_at(first_row + r) + i * a_strides[3]) * w;
    }
    if (panel * 4u >= n) return;
    for (uint r = 0u; r < TILE_M; r++) {
        if (first_row + r < m) finish_panel(first_row + r, panel, sums[r]);
    }
}
