//! A chain or tree of element-wise functions into a contiguous result: what comes between stays in registers, as floats.
//!
//! A step is `function | left << 8 | right << 12 | (1 + slot) << 16 | third << 24`, with three numbers a, b and c. It is a
//! function of one operand, left, of two, or of three; the same as in `unary.comp`, `binary.comp`, `compare.comp`,
//! `predicate.comp` and `choose.comp`, so that each step gives what it would give alone (in 32 bits: only the last result is
//! rounded). Operands are the last result, the number b or c, an element of x, z or w, or one of four slots; the result
//! goes to a slot where the step says so. A truth value is 1 or 0. `round_f16` and `round_bf16` round to that dtype.
//!
//! x, z, w and y hold elements of `dtype`, ints (which includes truth values) or 32-bit floats: two bits each in `kinds`, 0,
//! 1 or 2. Ints are converted as they are read, but for comparisons of ints (`int_eq` and on), which take inputs and b only.
//!
//! Up to 16 steps are spec constants (`n_fixed` of them): step `s` is `step_s`, with the place of its numbers among
//! `number_0` and on in bits 20 to 23. Then a driver sees straight code, and the third input is w. Longer chains
//! (`n_fixed` 0) hold four words a step there, and read no w.
//!
//! More spec constants say what occurs in the steps, so that a pipeline has code for that only: a bit for each function,
//! for each kind of operand on the left, on the right and in third place, and for each slot.
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
//! spec 8 n_fixed = 0
//! spec 9 step_0 = 0
//! spec 10 step_1 = 0
//! spec 11 step_2 = 0
//! spec 12 step_3 = 0
//! spec 13 step_4 = 0
//! spec 14 step_5 = 0
//! spec 15 step_6 = 0
//! spec 16 step_7 = 0
//! spec 17 step_8 = 0
//! spec 18 step_9 = 0
//! spec 19 step_10 = 0
//! spec 20 step_11 = 0
//! spec 21 step_12 = 0
//! spec 22 step_13 = 0
//! spec 23 step_14 = 0
//! spec 24 step_15 = 0
//! spec 25 number_0 = 0
//! spec 26 number_1 = 0
//! spec 27 number_2 = 0
//! spec 28 number_3 = 0
//! spec 29 number_4 = 0
//! spec 30 number_5 = 0
//! spec 31 number_6 = 0
//! spec 32 number_7 = 0
//! spec 33 number_8 = 0
//! spec 34 number_9 = 0
//! spec 35 number_10 = 0
//! spec 36 number_11 = 0
//! spec 37 number_12 = 0
//! spec 38 number_13 = 0
//! spec 39 number_14 = 0
//! spec 40 number_15 = 0
//! spec 41 thirds = 0
//! spec 42 kinds = 0
//! names op = neg abs exp log log1p expm1 sqrt rsqrt reciprocal square sin cos tanh sigmoid erf relu relu6 log_sigmoid gelu_erf gelu_tanh silu hardswish hardsigmoid clamp leaky_relu elu softplus pow_scalar scalar_pow floor ceil round trunc sign log2 affine tan log10 exp2 asin acos atan sinh cosh asinh acosh atanh mish frac hardshrink softshrink threshold nan_to_num round_to add mul div div_trunc div_floor maximum minimum fmax fmin fmod remainder pow atan2 hypot copysign glu prelu root is_nonzero is_zero is_nan is_inf is_finite eq ne lt le gt ge logical_and logical_or logical_xor int_eq int_ne int_lt int_le int_gt int_ge choose round_f16 round_bf16
//! names source = last number x z slot_0 slot_1 slot_2 slot_3 w number_c
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/binary.glsl"
#include "lib/pointwise.glsl"
#include "lib/truth.glsl"
#include "lib/unary.glsl"

#extension GL_EXT_control_flow_attributes : require

// Each operand by each kind of elements, at one base; the first is what the operand is called.
#define x_ints_base x_base
#define z_ints_base z_base
#define w_ints_base w_base
#define y_ints_base y_base
#define x_floats_base x_base
#define z_floats_base z_base
#define w_floats_base w_base
#define y_floats_base y_base
#define steps_base w_base
READS(0, x, T)
READS(0, x_ints, int)
READS(0, x_floats, float)
READS(1, z, T)
READS(1, z_ints, int)
READS(1, z_floats, float)
READS(2, w, T)
READS(2, w_ints, int)
READS(2, w_floats, float)
READS(2, steps, uint)
WRITES(3, y, T)
WRITES(3, y_ints, int)
WRITES(3, y_floats, float)
PUSH(BASE(x) BASE(z) BASE(w) BASE(y) POINTWISE_PARAMS uint n_steps; uint x_strides[4]; uint z_strides[4]; uint w_strides[4];)

const uint KIND_INTS = 1u;
const uint KIND_FLOATS = 2u;
#define KIND(operand) ((kinds >> (2u * operand)) & 3u)

#define HAS_BIT(bits, n) (((bits) & (1u << (n))) != 0u)
#define HAS_FUNCTION(name) HAS_BIT(name < 32u ? functions_0 : (name < 64u ? functions_1 : functions_2), name & 31u)
#define HAS_SOURCE(name) HAS_BIT(lefts | rights | thirds, name)

// An element of input number `operand`, or four, as a float; `name_int` is what it is of ints.
#define GATHER(operand, name, at, inner_stride) \
    if (KIND(operand) == KIND_INTS) { \
        name##_int = GATHERI(name##_ints, at, inner_stride); \
        name##_value = vec4(name##_int); \
    } else if (KIND(operand) == KIND_FLOATS) { \
        name##_value = GATHERF(name##_floats, at, inner_stride); \
    } else { \
        name##_value = GATHERF(name, at, inner_stride); \
    }

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
    TAKE(operand, used, from, SOURCE_SLOT_3, slot_3) \
    TAKE(operand, used, from, SOURCE_W, w_value) \
    TAKE(operand, used, from, SOURCE_NUMBER_C, vec4(c))

// The same of ints: an input, or the number b.
#define TAKE_INTS(operand, used, from) \
    ivec4 operand = x_int; \
    TAKE(operand, used, from, SOURCE_NUMBER, ivec4(int(b))) \
    TAKE(operand, used, from, SOURCE_Z, z_int) \
    TAKE(operand, used, from, SOURCE_W, w_int)

#define PUT(n, slot) if (HAS_BIT(slots, n) && to == n + 1u) slot = last;

#define UNARY(name, expression) \
    case name: if (HAS_FUNCTION(name)) FOUR_OF(float v = left[k];, expression) break;
#define BINARY(name, expression) \
    case name: if (HAS_FUNCTION(name)) FOUR_OF(float u = left[k]; float v = right[k];, expression) break;
#define TEST(name, condition) UNARY(name, (condition) ? 1.0 : 0.0)
#define COMPARE(name, condition) BINARY(name, (condition) ? 1.0 : 0.0)
#define COMPARE_INTS(name, condition) \
    case name: if (HAS_FUNCTION(name)) FOUR_OF(int u = left_int[k]; int v = right_int[k];, (condition) ? 1.0 : 0.0) break;
#define FOUR_OF(operands, expression) \
    for (int k = 0; k < 4; k++) { operands last[k] = expression; if (quads == 0u) break; }

// Computes the step `head`, whose numbers are a, b and c.
#define RUN_STEP(head) \
    uint op = (head) & 255u; \
    uint to = ((head) >> 16) & 15u; \
    float alpha = a; \
    TAKE_OPERAND(left, lefts, (((head) >> 8) & 15u)) \
    TAKE_OPERAND(right, rights, (((head) >> 12) & 15u)) \
    TAKE_OPERAND(third, thirds, (((head) >> 24) & 15u)) \
    TAKE_INTS(left_int, lefts, (((head) >> 8) & 15u)) \
    TAKE_INTS(right_int, rights, (((head) >> 12) & 15u)) \
    switch (op) { \
        UNARY_FUNCTIONS(UNARY) \
        BINARY_FUNCTIONS(BINARY) \
        PREDICATES(TEST) \
        COMPARISONS(COMPARE, OP_) \
        LOGICAL_FUNCTIONS(COMPARE) \
        COMPARISONS(COMPARE_INTS, OP_INT_) \
        UNARY(OP_ROUND_F16, round_to_f16(v)) \
        UNARY(OP_ROUND_BF16, round_to_bf16(v)) \
        case OP_CHOOSE: if (HAS_FUNCTION(OP_CHOOSE)) FOUR_OF(, truth(left[k]) ? right[k] : third[k]) break; \
        default: break; \
    } \
    PUT(0u, slot_0) \
    PUT(1u, slot_1) \
    PUT(2u, slot_2) \
    PUT(3u, slot_3)

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    uvec3 at = pointwise_offsets(i, sizes, x_strides, z_strides, w_strides);
    vec4 x_value;
    ivec4 x_int = ivec4(0);
    GATHER(0u, x, at.x, x_strides[3])
    vec4 z_value = x_value;
    vec4 w_value = x_value;
    ivec4 z_int = x_int;
    ivec4 w_int = x_int;
    if (HAS_SOURCE(SOURCE_Z)) { GATHER(1u, z, at.y, z_strides[3]) }
    if (HAS_SOURCE(SOURCE_W)) { GATHER(2u, w, at.z, w_strides[3]) }
    vec4 slot_0 = x_value;
    vec4 slot_1 = x_value;
    vec4 slot_2 = x_value;
    vec4 slot_3 = x_value;
    // No step may be contracted with the next.
    precise vec4 last = x_value;
    if (n_fixed != 0u) {
        uint fixed_steps[16] = uint[16](
            step_0, step_1, step_2, step_3, step_4, step_5, step_6, step_7,
            step_8, step_9, step_10, step_11, step_12, step_13, step_14, step_15);
        uint numbers[16] = uint[16](
            number_0, number_1, number_2, number_3, number_4, number_5, number_6, number_7,
            number_8, number_9, number_10, number_11, number_12, number_13, number_14, number_15);
        [[unroll]] for (uint s = 0u; s < n_fixed; s++) {
            uint head = fixed_steps[s];
            uint number = (head >> 20) & 15u;
            float a = uintBitsToFloat(numbers[number]);
            float b = uintBitsToFloat(numbers[number + 1u]);
            float c = uintBitsToFloat(numbers[number + 2u]);
            RUN_STEP(head)
        }
    } else {
        for (uint s = 0u; s < n_steps; s++) {
            uvec4 words = LOAD4(steps, 4u * s);
            float a = uintBitsToFloat(words.y);
            float b = uintBitsToFloat(words.z);
            float c = uintBitsToFloat(words.w);
            RUN_STEP(words.x)
        }
    }
    if (KIND(3u) == KIND_INTS) {
        SCATTERF(y_ints, i, last)
    } else if (KIND(3u) == KIND_FLOATS) {
        SCATTERF(y_floats, i, last)
    } else {
        SCATTERF(y, i, last)
    }
}
