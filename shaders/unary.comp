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
#include "lib/activation.glsl"
#include "lib/pointwise.glsl"
#include "lib/trigonometry.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) POINTWISE_PARAMS float a; float b; float c; uint x_strides[4];)

float apply(float v) {
    switch (op) {
        case OP_NEG: return -v;
        case OP_ABS: return abs(v);
        case OP_EXP: return safe_exp(v);
        case OP_LOG: return safe_log(v);
        case OP_LOG1P: return safe_log1p(v);
        case OP_EXPM1: return safe_expm1(v);
        case OP_SQRT: return v < 0.0 ? NAN : sqrt(v);
        case OP_RSQRT: return v < 0.0 ? NAN : 1.0 / sqrt(v);
        case OP_RECIPROCAL: return 1.0 / v;
        case OP_SQUARE: return v * v;
        case OP_SIN: return safe_sin(v);
        case OP_COS: return safe_cos(v);
        case OP_TANH: return safe_tanh(v);
        case OP_SIGMOID: return safe_sigmoid(v);
        case OP_ERF: return safe_erf(v);
        case OP_RELU: return nan_max(v, 0.0);
        case OP_RELU6: return nan_clamp(v, 0.0, 6.0);
        case OP_LOG_SIGMOID: return log_sigmoid(v);
        case OP_GELU_ERF: return gelu_erf(v);
        case OP_GELU_TANH: return gelu_tanh(v);
        case OP_SILU: return silu(v);
        case OP_HARDSWISH: return hardswish(v);
        case OP_HARDSIGMOID: return hardsigmoid(v);
        case OP_CLAMP: return nan_clamp(v, a, b);
        case OP_LEAKY_RELU: return is_nan(v) || v > 0.0 ? v : v * a;
        case OP_ELU: return is_nan(v) ? v : (v > 0.0 ? b * v : a * b * safe_expm1(c * v));
        case OP_SOFTPLUS: return softplus(v, a, b);
        case OP_POW_SCALAR: return safe_pow(v, a);
        case OP_SCALAR_POW: return safe_pow(a, v);
        case OP_FLOOR: return floor(v);
        case OP_CEIL: return ceil(v);
        case OP_ROUND: return roundEven(v);
        case OP_TRUNC: return trunc(v);
        case OP_SIGN: return v > 0.0 ? 1.0 : (v < 0.0 ? -1.0 : 0.0);
        case OP_LOG2: return safe_log(v) * 1.4426950408889634;
        case OP_AFFINE: return v * a + b;
        case OP_TAN: return safe_sin(v) / safe_cos(v);
        case OP_LOG10: return safe_log(v) * 0.4342944819032518;
        case OP_EXP2: return safe_exp(v * 0.6931471805599453);
        case OP_ASIN: return safe_asin(v);
        case OP_ACOS: return safe_acos(v);
        case OP_ATAN: return safe_atan(v);
        case OP_SINH: return safe_sinh(v);
        case OP_COSH: return safe_cosh(v);
        case OP_ASINH: return safe_asinh(v);
        case OP_ACOSH: return safe_acosh(v);
        case OP_ATANH: return safe_atanh(v);
        case OP_MISH: return v * safe_tanh(softplus(v, 1.0, 20.0));
        case OP_FRAC: return v - trunc(v);
        case OP_HARDSHRINK: return v >= -a && v <= a ? 0.0 : v;
        case OP_SOFTSHRINK: return is_nan(v) ? v : (v > a ? v - a : (v < -a ? v + a : 0.0));
        case OP_THRESHOLD: return is_nan(v) || v > a ? v : b;
        case OP_NAN_TO_NUM: return is_nan(v) ? a : (is_inf(v) ? (sign_bit(v) ? c : b) : v);
        case OP_ROUND_TO: return roundEven(v * a) / a;
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
