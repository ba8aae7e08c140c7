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
#include "lib/binary.glsl"
#include "lib/pointwise.glsl"

READS(0, a, T)
READS(1, b, T)
WRITES(2, y, T)
PUSH(BASE(a) BASE(b) BASE(y) POINTWISE_PARAMS float number; float alpha; uint a_strides[4]; uint b_strides[4];)

#define CASE(name, expression) case name: return expression;

float apply(float u, float v) {
    switch (op) {
        BINARY_FUNCTIONS(CASE)
        default: return u;
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
