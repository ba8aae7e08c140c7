//! Linear with quantised weights for one row of x, or few.
//!
//! 16 invocations share a tile of `tile_m` rows and a panel of 4 columns: each takes every 16th block of codes, and the 16
//! sums are added in order, so the result does not depend on `local_x`, a multiple of 16; nor, from 2 rows on, on `tile_m`.
//! Where there are groups, the sum of one row is scaled once a block, and for more rows each weight is; else sums are
//! scaled once at the end. Work groups: x and y count groups of `local_x` / 16 panels, z tiles of rows. Parameters and
//! layouts: see `lib/codes.glsl`.
//! axis dtype = f32 f16
//! axis bits = 4 8
//! axis tile_m = 1 2 4
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 x_vec4 = 0
//! spec 3 has_zeros = 0
//! spec 4 has_bias = 0
//! spec 5 adds_y = 0
//! spec 6 activation = 0
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x
//! shared 4096
//! needs dtype=f16 : storage_16bit
#extension GL_EXT_control_flow_attributes : require
#include "lib/codes.glsl"

const uint SPLIT = 16u;
// Each of the 4 results of a row has a value of every invocation.
shared float partial_sums[4u * TILE_M * gl_WorkGroupSize.x];

void main() {
    uint part = gl_LocalInvocationID.x % SPLIT;
    uint panel = flat_group_id() * (gl_WorkGroupSize.x / SPLIT) + gl_LocalInvocationID.x / SPLIT;
    // One row needs no registers for where rows are.
    uint first_row = TILE_M == 1 ? 0u : gl_WorkGroupID.z * TILE_M;
    vec4 sums[TILE_M];
    for (uint r = 0u; r < TILE_M; r++) sums[r] = vec4(0.0);
    if (panel * 4u < n) {
        uint row_at[TILE_M];
        for (uint r = 0u; r < TILE_M; r++) row_at[r] = TILE_M == 1 ? 0u : min(first_row + r, m - 1u) * x_row_stride;
        uint whole = k / BLOCK;
        vec4 zeros = zeros_of(scales_at(panel, 0u));
        for (uint block = part; block < whole; block += SPLIT) {
            ivec4 words = LOAD4(codes, 4u * (panel * blocks + block));
            uint along_k = block * BLOCK * x_k_stride;
            vec4 scales = vec4(1.0);
            if (groups > 1u) {
                uint at = scales_at(panel, block);
                scales = LOAD4F(side, at);
                zeros = zeros_of(at);
            }
#if TILE_M == 1
            vec4 block_sum = vec4(0.0);
            for (uint i = 0u; i < BLOCK; i += 4u) {
                vec4 v = load_x4(along_k);
                along_k += 4u * x_k_stride;
                block_sum += v.x * (code4(words, i) - zeros);
                block_sum += v.y * (code4(words, i + 1u) - zeros);
                block_sum += v.z * (code4(words, i + 2u) - zeros);
                block_sum += v.w * (code4(words, i + 3u) - zeros);
            }
            sums[0] += block_sum * scales;
#else
            // Unrolled, the loads of x of both halves of 4-bit words would take too many registers.
            [[dont_unroll]] for (uint i = 0u; i < BLOCK; i += 4u) {
                mat4 w;
                for (uint c = 0u; c < 4u; c++) w[c] = (code4(words, c) - zeros) * scales;
                if (BITS == 4) words >>= 16;
                for (uint r = 0u; r < TILE_M; r++) {
                    vec4 v = load_x4(row_at[r] + along_k);
                    sums[r] += v.x * w[0];
                    sums[r] += v.y * w[1];
                    sums[r] += v.z * w[2];
                    sums[r] += v.w * w[3];
                }
                along_k += 4u * x_k_stride;
            }
#endif
        }
        // A block that K does not fill: there is one group then.
        if (whole < blocks && part == whole % SPLIT) {
            ivec4 words = LOAD4(codes, 4u * (panel * blocks + whole));
            for (uint i = 0u; i < k - whole * BLOCK; i++) {
                vec4 w = code4(words, i) - zeros;
                uint along_k = (whole * BLOCK + i) * x_k_stride;
                for (uint r = 0u; r < TILE_M; r++) sums[r] += LOADF(x, row_at[r] + along_k) * w;
            }
        }
    }
    for (uint r = 0u; r < TILE_M; r++) {
        for (uint c = 0u; c < 4u; c++) {
            partial_sums[(4u * r + c) * gl_WorkGroupSize.x + gl_LocalInvocationID.x] = sums[r][c];
        }
    }
    barrier();
    // Each of the 16 finishes one result at most; its parts lie side by side.
    uint row = TILE_M == 1 ? 0u : first_row + part / 4u;
    uint column = panel * 4u + part % 4u;
    if (part < 4u * TILE_M && row < m && column < n) {
        uint first = part * gl_WorkGroupSize.x + gl_LocalInvocationID.x - part;
        float total = 0.0;
        for (uint i = 0u; i < SPLIT; i++) total += partial_sums[first + i];
        uint of_column = panel * side_stride + part % 4u;
        float scale = groups == 1u ? LOADF(side, of_column) : 1.0;
        float bias = has_bias != 0u ? LOADF(side, of_column + groups * (has_zeros != 0u ? 8u : 4u)) : 0.0;
        finish(row * y_row_stride + column, total * scale + bias);
    }
}
