//! Matrix product with tiles of `tile_m` rows and 4 columns an invocation: y = f(alpha a b + beta bias).
//!
//! Work groups: x counts groups of `local_y` tiles of rows, y groups of `local_x` panels of 4 columns, z
//! batches. Invocations of a group with the same y read the same rows of a. Tiles of 8 rows take only `a_vec4` = 1 and
//! `b_loads` = 1, for which phones have the registers. Parameters: see `lib/product.glsl`.
//! axis dtype = f32 f16
//! axis out = f32 f16
//! axis tile_m = 4 8 16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 32
//! spec 2 a_vec4 = 0
//! spec 3 b_loads = 0
//! spec 4 has_bias = 0
//! spec 5 adds_y = 0
//! spec 6 activation = 0
//! spec 7 local_y = 1
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x local_y
//! needs dtype=f16 : storage_16bit
//! skip dtype=f32 out=f16
#ifdef OUT_F16
#define Y float16_t
#else
#define Y float
#endif
#include "lib/product.glsl"
#include "lib/tiles.glsl"

// Adreno's compiler takes what a whole wave loads to scalar registers, halves by a move and a conversion each. What it
// does not know to be 0 for all (there are fewer than 2^30 panels) keeps halves in vectors.
#if defined(DTYPE_F16) && TILE_M < 16
#define FIRST_ALONG_K (panel >> 30)
#else
#define FIRST_ALONG_K 0u
#endif

void main() {
    uint panel = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint first_row = tile_of_rows() * TILE_M;
    if (panel * 4u >= n || first_row >= m) return;
    uvec4 columns = TILE_M == 8 ? uvec4(panel * b_strides[3]) : panel_columns(panel);
    uint b_at = b_batch();
    uint a_at[TILE_M];
    vec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) {
        a_at[r] = a_batch() + min(first_row + r, m - 1u) * a_strides[2];
        sums[r] = vec4(0.0);
    }
    if (TILE_M == 8 || a_vec4 != 0u && b_loads != B_ELEMENTS) {
        // Rows have numbers of vectors of their own, and one count along k is common to them.
        uint a_vectors[TILE_M];
        for (uint r = 0u; r < TILE_M; r++) a_vectors[r] = VECTOR_AT(a, a_at[r]);
        uint along_k = FIRST_ALONG_K;
        uvec4 b_vectors = VECTOR_AT(b, b_at + columns);
        for (uint rest = k / 4u; rest > 0u; rest--) {
            mat4 w;
            if (TILE_M == 8 || b_loads == B_ALONG_COLUMNS) {
                for (uint i = 0u; i < 4u; i++) {
                    w[i] = LOADV(b, b_vectors.x);
                    b_vectors.x += b_strides[2] >> 2;
                }
            } else {
                for (uint i = 0u; i < 4u; i++) w[i] = LOADV(b, b_vectors[i] + along_k);
                w = transpose(w);
            }
            for (uint r = 0u; r < TILE_M; r++) {
                vec4 v = LOADV(a, a_vectors[r] + along_k);
                sums[r] += v.x * w[0];
                sums[r] += v.y * w[1];
                sums[r] += v.z * w[2];
                sums[r] += v.w * w[3];
            }
            along_k++;
        }
    } else {
        for (uint rest = k / 4u; rest > 0u; rest--) {
            mat4 w = load_b4(b_at, columns);
            b_at += 4u * b_strides[2];
            for (uint r = 0u; r < TILE_M; r++) {
                vec4 v = load_a4(a_at[r]);
                a_at[r] += 4u * a_strides[3];
                sums[r] += v.x * w[0];
                sums[r] += v.y * w[1];
                sums[r] += v.z * w[2];
                sums[r] += v.w * w[3];
            }
        }
    }
    for (uint rest = k % 4u; rest > 0u; rest--) {
        vec4 w = load_b(b_at, columns);
        b_at += b_strides[2];
        for (uint r = 0u; r < TILE_M; r++) {
            sums[r] += LOADF(a, a_at[r]) * w;
            a_at[r] += a_strides[3];
        }
    }
    for (uint r = 0u; r < TILE_M; r++) {
        if (first_row + r < m) finish_panel(first_row + r, panel, sums[r]);
    }
}
