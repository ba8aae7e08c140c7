//! Matrix product with tiles of 8 rows and 4 columns an invocation, of texel views: y = f(alpha a b + beta bias).
//!
//! Texture units turn halves into floats as they load them. Rows of a are vectors along k, b is panels or vectors along
//! the columns, k is a multiple of 4, and m at least 8. Work groups, results and parameters are those of `matmul`.
//! axis dtype = f32 f16
//! axis out = f32 f16
//! axis access = ssbo
//! spec 0 round_mode = 0
//! spec 1 local_x = 32
//! spec 2 has_bias = 0
//! spec 3 adds_y = 0
//! spec 4 activation = 0
//! spec 5 local_y = 1
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x local_y
//! needs dtype=f16 : storage_16bit
//! skip dtype=f32 out=f16
#ifdef OUT_F16
#define Y float16_t
#else
#define Y float
#endif
#define PRODUCT_OF_TEXELS
#include "lib/product.glsl"
#include "lib/tiles.glsl"

const uint TILE_M = 8u;

// Adds the products of rows `from` to `to` with 4 rows of b.
#define ADD_ROWS(from, to) \
    for (uint r = from; r < to; r++) { \
        vec4 v = TEXEL(a, rows_of_a[r] + along_k); \
        sums[r] += v.x * w[0]; \
        sums[r] += v.y * w[1]; \
        sums[r] += v.z * w[2]; \
        sums[r] += v.w * w[3]; \
    }

void main() {
    uint panel = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint own_row = tile_of_rows() * TILE_M;
    if (panel * 4u >= n || own_row >= m) return;
    // The last tile begins 8 rows before the end, so that rows are one step apart; the first `others` are of the tile before.
    uint first_row = min(own_row, m - TILE_M);
    uint others = own_row - first_row;
    uint rows_of_a[TILE_M];
    vec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) {
        rows_of_a[r] = TEXEL_AT(a, a_batch() + first_row * a_strides[2]) + r * (a_strides[2] >> 2);
        sums[r] = vec4(0.0);
    }
    uint b_step = b_strides[2] >> 2;
    uint b_texel = TEXEL_AT(b, b_batch() + panel * b_strides[3]);
    // 0, as there are fewer than 2^30 panels, in a way that keeps what is added to it out of scalar registers: fetches take
    // vector registers, and each sum would be moved to one.
    uint along_k = panel >> 30;
    for (uint rest = k / 4u; rest > 0u; rest--) {
        mat4 w;
        for (uint i = 0u; i < 4u; i++) w[i] = TEXEL(b, b_texel + i * b_step);
        // Compilers fetch ahead all that a block has. With three rows in a block an invocation takes 16 registers of
        // Adreno 7xx, with which 768 are in flight.
        ADD_ROWS(5u, 8u)
        if (others < 5u) {
            ADD_ROWS(2u, 5u)
            if (others < 2u) {
                ADD_ROWS(0u, 2u)
            }
        }
        b_texel += b_strides[2];
        along_k++;
    }
    for (uint r = 0u; r < TILE_M; r++) {
        if (r >= others) finish_panel(first_row + r, panel, sums[r]);
    }
}
