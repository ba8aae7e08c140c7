//! Linear with quantised weights: tiles of `tile_m` rows and 4 columns an invocation.
//!
//! With `scales_last` there is one group, and sums are scaled at the end; else each weight is, or for one row each
//! group's sum. Work groups: x counts groups of `local_y` tiles of rows, y groups of `local_x` panels of 4
//! columns. Parameters and layouts: see `lib/codes.glsl`.
//! axis dtype = f32 f16
//! axis bits = 4 8
//! axis tile_m = 1 4 16
//! axis load_bits = 32 64
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 32
//! spec 2 x_vec4 = 0
//! spec 3 has_zeros = 0
//! spec 4 has_bias = 0
//! spec 5 scales_last = 0
//! spec 6 adds_y = 0
//! spec 7 activation = 0
//! spec 8 local_y = 1
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x local_y
//! needs dtype=f16 : storage_16bit
//! needs load_bits=64 : shader_int64
//! skip load_bits=64 access=ssbo
//! skip load_bits=64 tile_m=4
//! skip load_bits=64 tile_m=16
#extension GL_EXT_control_flow_attributes : require
#include "lib/codes.glsl"
#include "lib/tiles.glsl"

vec4 weight4(ivec4 words, uint i, vec4 zeros, vec4 scales) {
    vec4 w = code4(words, i) - zeros;
    return scales_last != 0u || TILE_M == 1u ? w : w * scales;
}

void main() {
    uint panel = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint first_row = tile_of_rows() * TILE_M;
    if (panel * 4u >= n || first_row >= m) return;
    uint x_at[TILE_M];
    vec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) {
        x_at[r] = min(first_row + r, m - 1u) * x_row_stride;
        sums[r] = vec4(0.0);
    }
    uint codes_at = 4u * panel * blocks;
    uint side_at = panel * side_stride;
    vec4 total = vec4(0.0);
    uint whole = k / BLOCK;
    for (uint group = 0u; group < groups; group++) {
        vec4 scales = LOAD4F(side, side_at);
        vec4 zeros = zeros_of(side_at);
        side_at += has_zeros != 0u ? 8u : 4u;
        for (uint rest = min(whole, group_blocks); rest > 0u; rest--) {
            ivec4 words = LOAD_CODES4(codes_at);
            codes_at += 4u;
            // Unrolled, the loads of x of both halves of 4-bit words would take too many registers.
            [[dont_unroll]] for (uint i = 0u; i < BLOCK; i += 4u) {
                vec4 w0 = weight4(words, 0u, zeros, scales);
                vec4 w1 = weight4(words, 1u, zeros, scales);
                vec4 w2 = weight4(words, 2u, zeros, scales);
                vec4 w3 = weight4(words, 3u, zeros, scales);
                if (BITS == 4) words >>= 16;
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
        // A block that K does not fill: there is one group then.
        if (whole < blocks) {
            ivec4 words = LOAD4(codes, codes_at);
            for (uint i = 0u; i < k - whole * BLOCK; i++) {
                vec4 w = weight4(words, i, zeros, scales);
                for (uint r = 0u; r < TILE_M; r++) {
                    sums[r] += LOADF(x, x_at[r]) * w;
                    x_at[r] += x_k_stride;
                }
            }
        }
        if (scales_last != 0u) {
            for (uint r = 0u; r < TILE_M; r++) sums[r] *= scales;
        } else if (TILE_M == 1u) {
            total += sums[0] * scales;
            sums[0] = vec4(0.0);
        }
    }
    if (scales_last == 0u && TILE_M == 1u) sums[0] = total;
    vec4 bias = has_bias != 0u ? LOAD4F(side, side_at) : vec4(0.0);
    // One copy of the epilogue, with the rows moved past it: it is long, and compiles slowly.
    [[dont_unroll]] for (uint r = 0u; r < TILE_M; r++) {
        uint row = first_row + r;
        if (row >= m) return;
        for (uint c = 0u; c < 4u; c++) {
            uint column = panel * 4u + c;
            if (column < n) finish(row * y_row_stride + column, sums[0][c] + bias[c]);
        }
        for (uint i = 1u; i < TILE_M; i++) sums[i - 1u] = sums[i];
    }
}
