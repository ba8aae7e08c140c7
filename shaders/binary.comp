//! Element-wise functions of two tensors, or of a tensor and a number, into a contiguous result.
//!
//! `number_side` 0: both are tensors; 1: the left one is `number`; 2: the right one is. A number's operand slot still
//! takes a tensor, which is not read. add is a + alpha b; glu is a sigmoid(b); prelu is a > 0 ? a : a b.
//!
//! root is a^b for a b of 0.5 or -0.5, as a square root: NaN of -inf.
//!
//! maximum and minimum give NaN when either is NaN, fmax and fmin the other one. fmod and remainder are exact.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! spec 3 number_side = 0
//! values op = add mul div div_trunc div_floor maximum minimum fmax fmin fmod remainder pow atan2 hypot copysign glu prelu root
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/division.glsl"
#include "lib/pointwise.glsl"
#include "lib/trigonometry.glsl"

READS(0, a, T)
READS(1, b, T)
WRITES(2, y, T)
PUSH(BASE(a) BASE(b) BASE(y) POINTWISE_PARAMS float number; float alpha; uint a_strides[4]; uint b_strides[4];)

float hypotenuse(float u, float v) {
    if (is_inf(u) || is_inf(v)) return INFINITY;
    float large = nan_max(abs(u), abs(v));
    float ratio = nan_min(abs(u), abs(v)) / large;
    return large == 0.0 ? 0.0 : large * sqrt(1.0 + ratio * ratio);
}

float apply(float u, float v) {
    switch (op) {
        case OP_ADD: return u + alpha * v;
        case OP_MUL: return u * v;
        case OP_DIV: return u / v;
        case OP_DIV_TRUNC: return trunc(exact_quotient(u, v));
        case OP_DIV_FLOOR: return floor_quotient(u, v);
        case OP_MAXIMUM: return nan_max(u, v);
        case OP_MINIMUM: return nan_min(u, v);
        case OP_FMAX: return is_nan(u) ? v : (is_nan(v) ? u : nan_max(u, v));
        case OP_FMIN: return is_nan(u) ? v : (is_nan(v) ? u : nan_min(u, v));
        case OP_FMOD: return exact_fmod(u, v);
        case OP_REMAINDER: return floor_mod(u, v);
        case OP_POW: return safe_pow(u, v);
        case OP_ATAN2: return safe_atan2(u, v);
        case OP_HYPOT: return hypotenuse(u, v);
        case OP_COPYSIGN: return uintBitsToFloat(magnitude_bits(u) | (floatBitsToUint(v) & 0x80000000u));
        case OP_GLU: return u * safe_sigmoid(v);
        case OP_ROOT: {
            if (u < 0.0) return NAN;
            float root = sqrt(u);
            return v < 0.0 ? 1.0 / root : root;
        }
        default: return is_nan(u) || u > 0.0 ? u : u * v;
    }
}

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    uvec2 at = pointwise_offsets(i, sizes, a_strides, b_strides);
    vec4 u = number_side == NUMBER_LEFT ? vec4(number) : GATHERF(a, at.x, a_strides[3]);
    vec4 v = number_side == NUMBER_RIGHT ? vec4(number) : GATHERF(b, at.y, b_strides[3]);
    vec4 result;
    FOUR(result, apply(u[k], v[k]))
    SCATTERF(y, i, result)
}
