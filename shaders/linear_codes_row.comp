//! Linear with quantised weights for one row of x.
//!
//! 16 invocations share a panel of 4 columns: each takes every 16th block of codes, and the 16 sums are added in
//! order, so the result does not depend on `local_x`, a multiple of 16. A sum is scaled once a block where there
//! are groups, else once at the end. Work groups: x and y count groups of `local_x` / 16 panels. Parameters and
//! layouts: see `lib/codes.glsl`.
//! axis dtype = f32 f16
//! axis bits = 4 8
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
//! shared 1024
//! needs dtype=f16 : storage_16bit
#include "lib/codes.glsl"

const uint SPLIT = 16u;
shared float partial_sums[4u * gl_WorkGroupSize.x];

void main() {
    uint part = gl_LocalInvocationID.x % SPLIT;
    uint panel = flat_group_id() * (gl_WorkGroupSize.x / SPLIT) + gl_LocalInvocationID.x / SPLIT;
    vec4 sum = vec4(0.0);
    if (panel * 4u < n) {
        uint whole = k / BLOCK;
        vec4 zeros = zeros_of(scales_at(panel, 0u));
        for (uint block = part; block < whole; block += SPLIT) {
            ivec4 words = LOAD4(codes, 4u * (panel * blocks + block));
            uint x_at = block * BLOCK * x_k_stride;
            vec4 scales = vec4(1.0);
            if (groups > 1u) {
                uint at = scales_at(panel, block);
                scales = LOAD4F(side, at);
                zeros = zeros_of(at);
            }
            vec4 block_sum = vec4(0.0);
            for (uint i = 0u; i < BLOCK; i += 4u) {
                vec4 v = load_x4(x_at);
                x_at += 4u * x_k_stride;
                block_sum += v.x * (code4(words, i) - zeros);
                block_sum += v.y * (code4(words, i + 1u) - zeros);
                block_sum += v.z * (code4(words, i + 2u) - zeros);
                block_sum += v.w * (code4(words, i + 3u) - zeros);
            }
            sum += block_sum * scales;
        }
        if (whole < blocks && part == whole % SPLIT) {
            ivec4 words = LOAD4(codes, 4u * (panel * blocks + whole));
            vec4 scales = vec4(1.0);
            if (groups > 1u) {
                uint at = scales_at(panel, whole);
                scales = LOAD4F(side, at);
                zeros = zeros_of(at);
            }
            for (uint i = 0u; i < k - whole * BLOCK; i++) {
                sum += LOADF(x, (whole * BLOCK + i) * x_k_stride) * (code4(words, i) - zeros) * scales;
            }
        }
    }
    uint slot = 4u * gl_LocalInvocationID.x;
    partial_sums[slot] = sum.x;
    partial_sums[slot + 1u] = sum.y;
    partial_sums[slot + 2u] = sum.z;
    partial_sums[slot + 3u] = sum.w;
    barrier();
    // The first 4 of the 16 finish a column each.
    uint column = panel * 4u + part;
    if (part < 4u && column < n) {
        uint first = 4u * (gl_LocalInvocationID.x - part) + part;
        float total = 0.0;
        for (uint i = 0u; i < SPLIT; i++) total += partial_sums[first + 4u * i];
        float scale = groups == 1u ? LOADF(side, panel * side_stride + part) : 1.0;
        float bias = has_bias != 0u ? LOADF(side, panel * side_stride + groups * (has_zeros != 0u ? 8u : 4u) + part) : 0.0;
        finish(column, total * scale + bias);
    }
}
