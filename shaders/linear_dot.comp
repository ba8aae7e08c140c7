//! Products in integers of 8-bit activations with 8- and 4-bit codes: tiles of `tile_m` rows and 4 columns an invocation.
//!
//! `outcome` floats scales the sums, codes quantises them after that, ints stores them as they are. `x_vec4` says that
//! groups begin at multiples of 4 words of x; `wide` (with tile_m = 1) that sums take 64 bits; `one_group` that there is one,
//! which saves the registers of the scaled sums. Work groups: x counts groups of `local_y` tiles of rows, y groups of
//! `local_x` panels of 4 columns. Parameters and layouts: see `lib/dots.glsl`.
//! axis dtype = f32 f16
//! axis dot = packed plain
//! axis bits = 4 8
//! axis tile_m = 1 4 8
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 32
//! spec 2 x_vec4 = 0
//! spec 3 has_factors = 0
//! spec 4 has_zeros = 0
//! spec 5 has_bias = 0
//! spec 6 outcome = 0
//! spec 7 wide = 0
//! spec 8 one_group = 0
//! spec 9 adds_y = 0
//! spec 10 activation = 0
//! spec 11 local_y = 1
//! values outcome = floats codes ints
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x local_y
//! needs dtype=f16 : storage_16bit
//! needs dot=packed : integer_dot
#extension GL_EXT_control_flow_attributes : require
#include "lib/dots.glsl"
#include "lib/tiles.glsl"

const uint STEP = 4u / BLOCK_WORDS;         // blocks that meet 4 words of x
const uint PIECE = 65536u / BLOCK;          // blocks whose products' sum fits 32 bits

uvec4 load_x4(uint at) {
    if (x_vec4 != 0u) return uvec4(LOAD4(x, at));
    return uvec4(LOAD(x, at), LOAD(x, at + 1u), LOAD(x, at + 2u), LOAD(x, at + 3u));
}

// Of x; rows past the end repeat the last.
uint row_of(uint r) { return first_row + min(tile_of_rows() * TILE_M + r, m - 1u); }

void main() {
    uint panel = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint tile_row = tile_of_rows() * TILE_M;
    if (panel * 4u >= n || tile_row >= m) return;
    uint x_at[TILE_M];
    vec4 totals[TILE_M];
    uvec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) {
        x_at[r] = row_of(r) * row_words;
        totals[r] = vec4(0.0);
    }
    uint codes_at = 4u * panel * blocks;
    uvec4 highs;
    for (uint group = 0u; group < (one_group != 0u ? 1u : groups); group++) {
        for (uint r = 0u; r < TILE_M; r++) sums[r] = uvec4(0u);
        uvec4 lows = uvec4(0u);
        highs = uvec4(0u);
        for (uint left = group_blocks; left > 0u;) {
            uint run = wide != 0u ? min(left, PIECE) : left;
            left -= run;
            for (uint rest = run / STEP; rest > 0u; rest--) {
#if BITS == 8
                uvec4 w0 = load_codes(codes_at, 0u), w1 = load_codes(codes_at + 4u, 0u);
                uvec4 w2 = load_codes(codes_at + 8u, 0u), w3 = load_codes(codes_at + 12u, 0u);
#else
                uvec4 w0 = load_codes(codes_at, 0u), w1 = load_codes(codes_at, 1u);
                uvec4 w2 = load_codes(codes_at + 4u, 0u), w3 = load_codes(codes_at + 4u, 1u);
#endif
                codes_at += 4u * STEP;
                for (uint r = 0u; r < TILE_M; r++) {
                    uvec4 v = load_x4(x_at[r]);
                    x_at[r] += 4u;
                    sums[r] = dots(v.x, w0, sums[r]);
                    sums[r] = dots(v.y, w1, sums[r]);
                    sums[r] = dots(v.z, w2, sums[r]);
                    sums[r] = dots(v.w, w3, sums[r]);
                }
            }
            for (uint rest = run % STEP; rest > 0u; rest--) {
                for (uint i = 0u; i < BLOCK_WORDS; i++) {
                    uvec4 w = load_codes(codes_at, i);
                    for (uint r = 0u; r < TILE_M; r++) {
                        sums[r] = dots(uint(LOAD(x, x_at[r])), w, sums[r]);
                        x_at[r]++;
                    }
                }
                codes_at += 4u;
            }
#if TILE_M == 1
            if (wide != 0u) {
                uvec4 carry;
                lows = uaddCarry(lows, sums[0], carry);
                highs += carry;
                sums[0] = left > 0u ? uvec4(0u) : lows;
            }
#endif
        }
        if (outcome != OUTCOME_INTS && one_group == 0u) {
            // One copy of a long text, with the rows moved past it: unrolled it takes too many registers.
            [[dont_unroll]] for (uint r = 0u; r < TILE_M; r++) {
                precise vec4 total = totals[0] + scaled(sums[0], highs, row_of(r), panel, group);
                for (uint i = 1u; i < TILE_M; i++) {
                    totals[i - 1u] = totals[i];
                    sums[i - 1u] = sums[i];
                }
                totals[TILE_M - 1u] = total;
            }
        }
    }
    [[dont_unroll]] for (uint r = 0u; r < TILE_M; r++) {
        uint row = tile_row + r;
        if (row >= m) return;
        if (outcome != OUTCOME_INTS && one_group != 0u) {
            precise vec4 total = vec4(0.0) + scaled(sums[0], highs, row_of(r), panel, 0u);
            totals[0] = total;
        }
        vec4 bias = biases(panel);
        float scale = row_scale(row_of(r));
#ifndef DTYPE_F16
        ivec4 ints = outcome == OUTCOME_INTS ? exact(sums[0], row_of(r), panel) : ivec4(0);
#endif
        for (uint c = 0u; c < 4u; c++) {
            uint column = panel * 4u + c;
            if (column >= n) continue;
            uint at = row * y_row_stride + column;
#ifndef DTYPE_F16
            if (outcome == OUTCOME_INTS) {
                STORE(y, at, ints[c]);
                continue;
            }
#endif
            store_result(at, totals[0][c], scale, bias[c]);
        }
        for (uint i = 1u; i < TILE_M; i++) {
            totals[i - 1u] = totals[i];
            sums[i - 1u] = sums[i];
        }
    }
}
