//! Product of few rows and a matrix, for few results or long sums: y = f(alpha a b + beta bias).
//!
//! 16 invocations share a tile of `tile_m` rows and 4 columns: each sums every 16th group of 4 consecutive k, and the 16
//! sums are added in order, as for the one row of `matmul_row`. The result depends neither on `local_x`, a multiple of
//! 16, nor on `tile_m`. Work groups: x counts tiles of rows, y groups of `local_x` / 16 panels of 4 columns, z batches.
//! Parameters: see `lib/product.glsl`.
//! axis dtype = f32 f16
//! axis out = f32 f16
//! axis tile_m = 2 4 8
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 a_vec4 = 0
//! spec 3 b_loads = 0
//! spec 4 has_bias = 0
//! spec 5 adds_y = 0
//! spec 6 activation = 0
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x
//! shared 8192
//! needs dtype=f16 : storage_16bit
//! skip dtype=f32 out=f16
#ifdef OUT_F16
#define Y float16_t
#else
#define Y float
#endif
#include "lib/product.glsl"

const uint SPLIT = 16u;
// Each of the 4 results of a row has a value of every invocation.
shared float partial_sums[4u * TILE_M * gl_WorkGroupSize.x];

void main() {
    uint part = gl_LocalInvocationID.x % SPLIT;
    uint panel = gl_WorkGroupID.y * (gl_WorkGroupSize.x / SPLIT) + gl_LocalInvocationID.x / SPLIT;
    uint first_row = gl_WorkGroupID.x * TILE_M;
    vec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) sums[r] = vec4(0.0);
    if (panel * 4u < n) {
        uvec4 columns = panel_columns(panel);
        uint b_at = b_batch();
        uint a_at[TILE_M];
        for (uint r = 0u; r < TILE_M; r++) a_at[r] = a_batch() + min(first_row + r, m - 1u) * a_strides[2];
        uint whole = k & ~3u;
        if (a_vec4 != 0u && b_loads == B_ALONG_COLUMNS) {
            uint a_vectors[TILE_M];
            for (uint r = 0u; r < TILE_M; r++) a_vectors[r] = VECTOR_AT(a, a_at[r]);
            uint step = b_strides[2] >> 2;
            uint b_vector = VECTOR_AT(b, b_at + columns.x) + 4u * part * step;
            for (uint along_k = part; along_k < k / 4u; along_k += SPLIT) {
                mat4 w;
                for (uint i = 0u; i < 4u; i++) w[i] = LOADV(b, b_vector + i * step);
                b_vector += 4u * SPLIT * step;
                for (uint r = 0u; r < TILE_M; r++) {
                    vec4 v = LOADV(a, a_vectors[r] + along_k);
                    sums[r] += v.x * w[0];
                    sums[r] += v.y * w[1];
                    sums[r] += v.z * w[2];
                    sums[r] += v.w * w[3];
                }
            }
        } else {
            for (uint i = 4u * part; i < whole; i += 4u * SPLIT) {
                mat4 w = load_b4(b_at + i * b_strides[2], columns);
                for (uint r = 0u; r < TILE_M; r++) {
                    vec4 v = load_a4(a_at[r] + i * a_strides[3]);
                    sums[r] += v.x * w[0];
                    sums[r] += v.y * w[1];
                    sums[r] += v.z * w[2];
                    sums[r] += v.w * w[3];
                }
            }
        }
        if (whole + part < k) {
            uint i = whole + part;
            vec4 w = load_b(b_at + i * b_strides[2], columns);
            for (uint r = 0u; r < TILE_M; r++) sums[r] += LOADF(a, a_at[r] + i * a_strides[3]) * w;
        }
    }
    for (uint r = 0u; r < TILE_M; r++) {
        for (uint c = 0u; c < 4u; c++) {
            partial_sums[(4u * r + c) * gl_WorkGroupSize.x + gl_LocalInvocationID.x] = sums[r][c];
        }
    }
    barrier();
    // Results in turn; each sum's parts lie side by side.
    uint first_part = gl_LocalInvocationID.x - part;
    for (uint result = part; result < 4u * TILE_M; result += SPLIT) {
        uint row = first_row + result / 4u;
        float total = 0.0;
        for (uint i = 0u; i < SPLIT; i++) total += partial_sums[result * gl_WorkGroupSize.x + first_part + i];
        if (row < m) finish(row, panel * 4u + result % 4u, total);
    }
}
