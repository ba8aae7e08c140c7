//! Products in integers of one row of 8-bit activations with 8- and 4-bit codes.
//!
//! 16 invocations share a panel of 4 columns. Up to 8 groups take equally many of them, which take turns at the blocks
//! of their group; where there are more, each takes every 16th group. Sums of a group are integers; the scaled ones are
//! added in order, so the result does not depend on `local_x`, a multiple of 16. `outcome` is as in `linear_dot`. Work
//! groups: x and y count groups of `local_x` / 16 panels. Parameters and layouts: see `lib/dots.glsl`.
//! axis dtype = f32 f16
//! axis dot = packed plain
//! axis bits = 4 8
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 3 has_factors = 0
//! spec 4 has_zeros = 0
//! spec 5 has_bias = 0
//! spec 6 outcome = 0
//! spec 7 adds_y = 0
//! spec 8 activation = 0
//! values outcome = floats codes ints
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x
//! shared 1024
//! needs dtype=f16 : storage_16bit
//! needs dot=packed : integer_dot
#include "lib/access.glsl"

const uint wide = 0u;
#include "lib/dots.glsl"

const uint SPLIT = 16u;
shared uint partial_sums[4u * gl_WorkGroupSize.x];

// Over the blocks `first`, `first + sharers`, .. of a group.
uvec4 group_sums(uint panel, uint group, uint first, uint sharers) {
    uvec4 sums = uvec4(0u);
    uint x_row = first_row * row_words;
    for (uint i = first; i < group_blocks; i += sharers) {
        uint block = group * group_blocks + i;
        for (uint word = 0u; word < BLOCK_WORDS; word++) {
            uint v = uint(LOAD(x, x_row + block * BLOCK_WORDS + word));
            sums = dots(v, load_codes(4u * (panel * blocks + block), word), sums);
        }
    }
    return sums;
}

void put(uint slot, uvec4 values) {
    partial_sums[slot] = values.x;
    partial_sums[slot + 1u] = values.y;
    partial_sums[slot + 2u] = values.z;
    partial_sums[slot + 3u] = values.w;
}

void main() {
    uint part = gl_LocalInvocationID.x % SPLIT;
    uint panel = flat_group_id() * (gl_WorkGroupSize.x / SPLIT) + gl_LocalInvocationID.x / SPLIT;
    uint sharers = groups > 8u ? 1u : groups > 4u ? 2u : groups > 2u ? 4u : groups > 1u ? 8u : 16u;
    uint group = part / sharers;
    bool has_work = panel * 4u < n && group < groups;
    uint slot = 4u * gl_LocalInvocationID.x;
    uvec4 sums = uvec4(0u);
    if (has_work) sums = group_sums(panel, group, part % sharers, sharers);
    put(slot, sums);
    barrier();
    uvec4 bits = uvec4(0u);
    if (has_work && part % sharers == 0u) {
        for (uint i = 4u; i < 4u * sharers; i += 4u) {
            sums += uvec4(partial_sums[slot + i], partial_sums[slot + i + 1u], partial_sums[slot + i + 2u], partial_sums[slot + i + 3u]);
        }
        if (outcome == OUTCOME_INTS) {
            bits = uvec4(exact(sums, first_row, panel));
        } else {
            precise vec4 total = scaled(sums, uvec4(0u), first_row, panel, group);
            for (group += SPLIT; group < groups; group += SPLIT) {
                total += scaled(group_sums(panel, group, 0u, 1u), uvec4(0u), first_row, panel, group);
            }
            bits = floatBitsToUint(total);
        }
    }
    barrier();
    put(slot, bits);
    barrier();
    // The first 4 of the 16 finish a column each.
    uint column = panel * 4u + part;
    if (part < 4u && column < n) {
        uint first = 4u * (gl_LocalInvocationID.x - part) + part;
#ifndef DTYPE_F16
        if (outcome == OUTCOME_INTS) STORE(y, column, int(partial_sums[first]));
#endif
        if (outcome != OUTCOME_INTS) {
            precise float total = 0.0;
            for (uint i = 0u; i < SPLIT; i += sharers) total += uintBitsToFloat(partial_sums[first + 4u * i]);
            float bias = has_bias != 0u ? intBitsToFloat(LOAD(side, side_at(panel, groups) + part)) : 0.0;
            store_result(column, total, row_scale(first_row), bias);
        }
    }
}
