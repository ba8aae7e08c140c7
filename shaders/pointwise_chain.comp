//! A chain or tree of element-wise functions of floats, into a contiguous result: what comes between stays in registers.
//!
//! `steps` holds four words a step: `function | left << 8 | right << 12 | (1 + slot) << 16`, then the numbers a, b and c
//! as floats. A step is a function of one operand, left, or of two; it is the same as in `unary.comp` and `binary.comp`,
//! so that each step gives what it would give alone (in 32 bits: only the last result is rounded). Operands are the last
//! result, the number b, an element of x or z, or one of four slots; the result goes to a slot where the step says so.
//!
//! The spec constants say what occurs in the steps, so that a pipeline has code for that only: a bit for each function,
//! for each kind of operand on the left and on the right, and for each slot.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 functions_0 = 0
//! spec 3 functions_1 = 0
//! spec 4 functions_2 = 0
//! spec 5 lefts = 0
//! spec 6 rights = 0
//! spec 7 slots = 0
//! names op = neg abs exp log log1p expm1 sqrt rsqrt reciprocal square sin cos tanh sigmoid erf relu relu6 log_sigmoid gelu_erf gelu_tanh silu hardswish hardsigmoid clamp leaky_relu elu softplus pow_scalar scalar_pow floor ceil round trunc sign log2 affine tan log10 exp2 asin acos atan sinh cosh asinh acosh atanh mish frac hardshrink softshrink threshold nan_to_num round_to add mul div div_trunc div_floor maximum minimum fmax fmin fmod remainder pow atan2 hypot copysign glu prelu root
//! names source = last number x z slot_0 slot_1 slot_2 slot_3
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/binary.glsl"
#include "lib/pointwise.glsl"
#include "lib/unary.glsl"

READS(0, x, T)
READS(1, z, T)
READS(2, steps, uint)
WRITES(3, y, T)
PUSH(BASE(x) BASE(z) BASE(steps) BASE(y) POINTWISE_PARAMS uint n_steps; uint x_strides[4]; uint z_strides[4];)

#define HAS_BIT(bits, n) (((bits) & (1u << (n))) != 0u)
#define HAS_FUNCTION(name) HAS_BIT(name < 32u ? functions_0 : (name < 64u ? functions_1 : functions_2), name & 31u)
#define HAS_SOURCE(name) HAS_BIT(lefts | rights, name)

// The operand in `from`, where `used` says which ones occur.
#define TAKE(operand, used, from, name, value) if (HAS_BIT(used, name) && from == name) operand = value;
#define TAKE_OPERAND(operand, used, from) \
    vec4 operand = last; \
    TAKE(operand, used, from, SOURCE_NUMBER, vec4(b)) \
    TAKE(operand, used, from, SOURCE_X, x_value) \
    TAKE(operand, used, from, SOURCE_Z, z_value) \
    TAKE(operand, used, from, SOURCE_SLOT_0, slot_0) \
    TAKE(operand, used, from, SOURCE_SLOT_1, slot_1) \
    TAKE(operand, used, from, SOURCE_SLOT_2, slot_2) \
    TAKE(operand, used, from, SOURCE_SLOT_3, slot_3)

#define PUT(n, slot) if (HAS_BIT(slots, n) && to == n + 1u) slot = last;

#define UNARY(name, expression) \
    case name: if (HAS_FUNCTION(name)) FOUR_OF(float v = left[k];, expression) break;
#define BINARY(name, expression) \
    case name: if (HAS_FUNCTION(name)) FOUR_OF(float u = left[k]; float v = right[k];, expression) break;
#define FOUR_OF(operands, expression) \
    for (int k = 0; k < 4; k++) { operands last[k] = expression; if (quads == 0u) break; }

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    uvec2 at = pointwise_offsets(i, sizes, x_strides, z_strides);
    vec4 x_value = GATHERF(x, at.x, x_strides[3]);
    vec4 z_value = x_value;
    if (HAS_SOURCE(SOURCE_Z)) z_value = GATHERF(z, at.y, z_strides[3]);
    vec4 slot_0 = x_value;
    vec4 slot_1 = x_value;
    vec4 slot_2 = x_value;
    vec4 slot_3 = x_value;
    // No step may be contracted with the next.
    precise vec4 last = x_value;
    for (uint s = 0u; s < n_steps; s++) {
        uvec4 words = LOAD4(steps, 4u * s);
        uint op = words.x & 255u;
        uint to = (words.x >> 16) & 15u;
        float a = uintBitsToFloat(words.y);
        float b = uintBitsToFloat(words.z);
        float c = uintBitsToFloat(words.w);
        float alpha = a;
        TAKE_OPERAND(left, lefts, ((words.x >> 8) & 15u))
        TAKE_OPERAND(right, rights, ((words.x >> 12) & 15u))
        switch (op) {
            UNARY_FUNCTIONS(UNARY)
            BINARY_FUNCTIONS(BINARY)
            default: break;
        }
        PUT(0u, slot_0)
        PUT(1u, slot_1)
        PUT(2u, slot_2)
        PUT(3u, slot_3)
    }
    SCATTERF(y, i, last)
}
