//! Element-wise functions of three tensors, into a contiguous result.
//!
//! addcmul is a + value b c, addcdiv a + value b / c, lerp a + c (b - a), lerp_number a + value (b - a); the operand
//! slot of c then still takes a tensor, which is not read.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = addcmul addcdiv lerp lerp_number
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/pointwise.glsl"

READS(0, a, T)
READS(1, b, T)
READS(2, c, T)
WRITES(3, y, T)
PUSH(BASE(a) BASE(b) BASE(c) BASE(y) POINTWISE_PARAMS float value; uint a_strides[4]; uint b_strides[4]; uint c_strides[4];)

// From the nearer end, so that a weight of 1 gives v exactly.
float lerp(float u, float v, float weight) {
    return abs(weight) < 0.5 ? u + weight * (v - u) : v - (v - u) * (1.0 - weight);
}

float apply(float u, float v, float w) {
    switch (op) {
        case OP_ADDCMUL: return u + value * v * w;
        case OP_ADDCDIV: return u + value * v / w;
        case OP_LERP: return lerp(u, v, w);
        default: return lerp(u, v, value);
    }
}

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    uvec3 at = pointwise_offsets(i, sizes, a_strides, b_strides, c_strides);
    vec4 u = GATHERF(a, at.x, a_strides[3]);
    vec4 v = GATHERF(b, at.y, b_strides[3]);
    vec4 w = op == OP_LERP_NUMBER ? vec4(value) : GATHERF(c, at.z, c_strides[3]);
    vec4 result;
    FOUR(result, apply(u[k], v[k], w[k]))
    SCATTERF(y, i, result)
}
