// What the kernels of a linear with quantised weights share: y = f(x W^T + bias), W[n, k] = (code - zero) * scale. With
// `adds_y`, what y held is added before f.
//
// Codes lie in panels of 4 rows of W. A panel is a row of blocks of 4 words; word r of a block holds the codes of row
// r at BLOCK consecutive k, BITS each, signed, the first in the low bits. Codes past K are there, and not used.
// `side` holds, for each panel, for each group of blocks 4 scales and, with `has_zeros`, 4 zero points; then 4 biases.
// `x_vec4` says that rows of x come in vectors along k.
#ifndef CODES_GLSL
#define CODES_GLSL

#include "lib/access.glsl"

READS(1, codes, int)
#ifdef NEEDS_SHADER_INT64
// For Vulkan on the CPU, where each load of a lane costs the same whatever its width.
#include "lib/words.glsl"
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer CodeWords { uint64_t data[]; };
ivec4 load_codes4(BASE_TYPE base, uint at) {
    return ivec4(unpackUint2x32(CodeWords(base).data[at / 2u]), unpackUint2x32(CodeWords(base).data[at / 2u + 1u]));
}
#define LOAD_CODES4(at) load_codes4(codes_base, at)
#else
#define LOAD_CODES4(at) LOAD4(codes, at)
#endif
READS(0, x, T)
READS(2, side, float)
UPDATES(3, y, T)
PUSH(BASE(x) BASE(codes) BASE(side) BASE(y)
    uint m; uint n; uint k;
    uint blocks;         // of a panel
    uint groups;         // of a panel
    uint group_blocks;   // of a group
    float group_inverse; // 1 / group_blocks
    uint side_stride;    // floats of a panel
    uint x_row_stride; uint x_k_stride; uint y_row_stride;
    float act_a; float act_b;
)

#include "lib/epilogue.glsl"

const uint BLOCK = 32u / BITS;

// Codes number `i` of a block's 4 rows.
vec4 code4(ivec4 words, uint i) {
    return vec4((words << int(32u - BITS * (i + 1u))) >> int(32u - BITS));
}

// Where the scales of a panel's block are in `side`. Exact below 2^22 blocks, which lowering checks.
uint scales_at(uint panel, uint block) {
    uint group = groups > 1u ? uint((float(block) + 0.5) * group_inverse) : 0u;
    return panel * side_stride + group * (has_zeros != 0u ? 8u : 4u);
}

vec4 zeros_of(uint at) { return has_zeros != 0u ? LOAD4F(side, at + 4u) : vec4(0.0); }

// x at 4 consecutive k.
vec4 load_x4(uint at) {
    if (x_vec4 != 0u) return LOAD4F(x, at);
    return vec4(LOADF(x, at), LOADF(x, at + x_k_stride), LOADF(x, at + 2u * x_k_stride), LOADF(x, at + 3u * x_k_stride));
}

// Stores a result after what follows the product.
void finish(uint at, float v) {
    if (adds_y != 0u) v += LOADF(y, at);
    STOREF(y, at, activate(v));
}

#endif
