//! Element-wise functions of one tensor of rank up to 4, into a contiguous result.
//!
//! `op` chooses the function, `a`, `b` and `c` are its scalar arguments: clamp to [a, b]; leaky_relu with slope a;
//! elu is x > 0 ? b x : a b (exp(c x) - 1); softplus with beta a and threshold b; pow_scalar is x^a, scalar_pow is
//! a^x; round takes ties to even, round_to to multiples of 1 / a; affine is x a + b; hardshrink and softshrink with
//! lambda a; threshold is x > a ? x : b; nan_to_num makes NaN a, inf b and -inf c.
//!
//! NaN stays NaN, also through relu and clamp; sign makes it 0, as PyTorch does.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = identity neg abs exp log log1p expm1 sqrt rsqrt reciprocal square sin cos tanh sigmoid erf relu relu6 log_sigmoid gelu_erf gelu_tanh silu hardswish hardsigmoid clamp leaky_relu elu softplus pow_scalar scalar_pow floor ceil round trunc sign log2 affine tan log10 exp2 asin acos atan sinh cosh asinh acosh atanh mish frac hardshrink softshrink threshold nan_to_num round_to
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/pointwise.glsl"
#include "lib/unary.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) POINTWISE_PARAMS float a; float b; float c; uint x_strides[4];)

#define CASE(name, expression) case name: return expression;

float apply(float v) {
    switch (op) {
        UNARY_FUNCTIONS(CASE)
        default: return v;
    }
}

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    vec4 v = GATHERF(x, pointwise_offset(i, sizes, x_strides), x_strides[3]);
    vec4 result;
    FOUR(result, apply(v[k]))
    SCATTERF(y, i, result)
}
