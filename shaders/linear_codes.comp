//! Linear with quantised weights: tiles of `tile_m` rows and 4 columns an invocation.
//!
//! Weights are dequantised in registers, once a tile. Work groups: x counts tiles of rows, y groups of `local_x`
//! panels of 4 columns. Parameters and layouts: see `lib/codes.glsl`.
//! axis dtype = f32 f16
//! axis bits = 4 8
//! axis tile_m = 4 16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 32
//! spec 2 x_vec4 = 0
//! spec 3 has_zeros = 0
//! spec 4 has_bias = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/codes.glsl"

void main() {
    uint panel = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (panel * 4u >= n) return;
    uint first_row = gl_WorkGroupID.x * TILE_M;
    uint x_at[TILE_M];
    vec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) {
        x_at[r] = min(first_row + r, m - 1u) * x_row_stride;
        sums[r] = vec4(0.0);
    }
    uint codes_at = 4u * panel * blocks;
    uint whole = k / BLOCK;
    for (uint block = 0u; block < whole; block++) {
        ivec4 words = LOAD4(codes, codes_at);
        codes_at += 4u;
        uint at = scales_at(panel, block);
        vec4 scales = LOAD4F(side, at);
        vec4 zeros = zeros_of(at);
        for (uint i = 0u; i < BLOCK; i += 4u) {
            vec4 w0 = (code4(words, i) - zeros) * scales;
            vec4 w1 = (code4(words, i + 1u) - zeros) * scales;
            vec4 w2 = (code4(words, i + 2u) - zeros) * scales;
            vec4 w3 = (code4(words, i + 3u) - zeros) * scales;
            for (uint r = 0u; r < TILE_M; r++) {
                vec4 v = load_x4(x_at[r]);
                x_at[r] += 4u * x_k_stride;
                sums[r] += v.x * w0;
                sums[r] += v.y * w1;
                sums[r] += v.z * w2;
                sums[r] += v.w * w3;
            }
        }
    }
    if (whole < blocks) {
        ivec4 words = LOAD4(codes, codes_at);
        uint at = scales_at(panel, whole);
        vec4 scales = LOAD4F(side, at);
        vec4 zeros = zeros_of(at);
        for (uint i = 0u; i < k - whole * BLOCK; i++) {
            vec4 w = (code4(words, i) - zeros) * scales;
            for (uint r = 0u; r < TILE_M; r++) {
                sums[r] += LOADF(x, x_at[r]) * w;
                x_at[r] += x_k_stride;
            }
        }
    }
    vec4 bias = biases(panel);
    for (uint r = 0u; r < TILE_M; r++) {
        uint row = first_row + r;
        if (row >= m) return;
        for (uint c = 0u; c < 4u; c++) {
            uint column = panel * 4u + c;
            if (column < n) STOREF(y, row * y_row_stride + column, sums[r][c] + bias[c]);
        }
    }
}
