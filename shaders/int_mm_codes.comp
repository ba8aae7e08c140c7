//! Product of integers with packed 8-bit codes: y[m, n] = sum over k of x[m, k] code[n, k], exact in 32 bits.
//!
//! Tiles of `tile_m` rows and 4 columns an invocation. Codes lie as `lib/codes.glsl` says, with 8 bits each. Work
//! groups: x counts groups of `local_y` tiles of rows, y groups of `local_x` panels of 4 columns. Sums wrap at 32 bits.
//! axis tile_m = 1 4 16
//! axis access = ssbo bda
//! spec 1 local_x = 32
//! spec 2 x_vec4 = 0
//! spec 3 local_y = 1
//! local local_x local_y
#include "lib/access.glsl"
#include "lib/tiles.glsl"

READS(0, x, int)
READS(1, codes, int)
WRITES(2, y, int)
PUSH(BASE(x) BASE(codes) BASE(y)
    uint m; uint n; uint k;
    uint blocks; // of 4 k, of a panel
    uint x_row_stride; uint x_k_stride; uint y_row_stride;
)

ivec4 code4(ivec4 words, uint i) { return (words << int(24u - 8u * i)) >> 24; }

ivec4 load_x4(uint at) {
    if (x_vec4 != 0u) return LOAD4(x, at);
    return ivec4(LOAD(x, at), LOAD(x, at + x_k_stride), LOAD(x, at + 2u * x_k_stride), LOAD(x, at + 3u * x_k_stride));
}

void main() {
    uint panel = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint first_row = tile_of_rows() * TILE_M;
    if (panel * 4u >= n || first_row >= m) return;
    uint x_at[TILE_M];
    ivec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) {
        x_at[r] = min(first_row + r, m - 1u) * x_row_stride;
        sums[r] = ivec4(0);
    }
    uint codes_at = 4u * panel * blocks;
    for (uint rest = k / 4u; rest > 0u; rest--) {
        ivec4 words = LOAD4(codes, codes_at);
        codes_at += 4u;
        for (uint r = 0u; r < TILE_M; r++) {
            ivec4 v = load_x4(x_at[r]);
            x_at[r] += 4u * x_k_stride;
            sums[r] += v.x * code4(words, 0u);
            sums[r] += v.y * code4(words, 1u);
            sums[r] += v.z * code4(words, 2u);
            sums[r] += v.w * code4(words, 3u);
        }
    }
    if (k % 4u > 0u) {
        ivec4 words = LOAD4(codes, codes_at);
        for (uint i = 0u; i < k % 4u; i++) {
            for (uint r = 0u; r < TILE_M; r++) {
                sums[r] += LOAD(x, x_at[r]) * code4(words, i);
                x_at[r] += x_k_stride;
            }
        }
    }
    for (uint r = 0u; r < TILE_M; r++) {
        uint row = first_row + r;
        if (row >= m) return;
        for (uint c = 0u; c < 4u; c++) {
            uint column = panel * 4u + c;
            if (column < n) STORE(y, row * y_row_stride + column, sums[r][c]);
        }
    }
}
