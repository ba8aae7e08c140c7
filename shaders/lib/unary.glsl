// The functions of one float, as a table: UNARY_FUNCTIONS(F) is F(name, expression) for each, where the expression has the
// float `v` and the numbers `a`, `b` and `c`. Shared by the kernel for one function and by the one for chains.
#ifndef UNARY_GLSL
#define UNARY_GLSL

#include "lib/activation.glsl"
#include "lib/trigonometry.glsl"

#define UNARY_FUNCTIONS(F) \
    F(OP_NEG, -v) \
    F(OP_ABS, abs(v)) \
    F(OP_EXP, safe_exp(v)) \
    F(OP_LOG, safe_log(v)) \
    F(OP_LOG1P, safe_log1p(v)) \
    F(OP_EXPM1, safe_expm1(v)) \
    F(OP_SQRT, v < 0.0 ? NAN : sqrt(v)) \
    F(OP_RSQRT, v < 0.0 ? NAN : 1.0 / sqrt(v)) \
    F(OP_RECIPROCAL, 1.0 / v) \
    F(OP_SQUARE, v * v) \
    F(OP_SIN, safe_sin(v)) \
    F(OP_COS, safe_cos(v)) \
    F(OP_TANH, safe_tanh(v)) \
    F(OP_SIGMOID, safe_sigmoid(v)) \
    F(OP_ERF, safe_erf(v)) \
    F(OP_RELU, nan_max(v, 0.0)) \
    F(OP_RELU6, nan_clamp(v, 0.0, 6.0)) \
    F(OP_LOG_SIGMOID, log_sigmoid(v)) \
    F(OP_GELU_ERF, gelu_erf(v)) \
    F(OP_GELU_TANH, gelu_tanh(v)) \
    F(OP_SILU, silu(v)) \
    F(OP_HARDSWISH, hardswish(v)) \
    F(OP_HARDSIGMOID, hardsigmoid(v)) \
    F(OP_CLAMP, nan_clamp(v, a, b)) \
    F(OP_LEAKY_RELU, is_nan(v) || v > 0.0 ? v : v * a) \
    F(OP_ELU, is_nan(v) ? v : (v > 0.0 ? b * v : a * b * safe_expm1(c * v))) \
    F(OP_SOFTPLUS, softplus(v, a, b)) \
    F(OP_POW_SCALAR, safe_pow(v, a)) \
    F(OP_SCALAR_POW, safe_pow(a, v)) \
    F(OP_FLOOR, floor(v)) \
    F(OP_CEIL, ceil(v)) \
    F(OP_ROUND, roundEven(v)) \
    F(OP_TRUNC, trunc(v)) \
    F(OP_SIGN, v > 0.0 ? 1.0 : (v < 0.0 ? -1.0 : 0.0)) \
    F(OP_LOG2, safe_log(v) * 1.4426950408889634) \
    F(OP_AFFINE, v * a + b) \
    F(OP_TAN, safe_sin(v) / safe_cos(v)) \
    F(OP_LOG10, safe_log(v) * 0.4342944819032518) \
    F(OP_EXP2, safe_exp(v * 0.6931471805599453)) \
    F(OP_ASIN, safe_asin(v)) \
    F(OP_ACOS, safe_acos(v)) \
    F(OP_ATAN, safe_atan(v)) \
    F(OP_SINH, safe_sinh(v)) \
    F(OP_COSH, safe_cosh(v)) \
    F(OP_ASINH, safe_asinh(v)) \
    F(OP_ACOSH, safe_acosh(v)) \
    F(OP_ATANH, safe_atanh(v)) \
    F(OP_MISH, v * safe_tanh(softplus(v, 1.0, 20.0))) \
    F(OP_FRAC, v - trunc(v)) \
    F(OP_HARDSHRINK, v >= -a && v <= a ? 0.0 : v) \
    F(OP_SOFTSHRINK, is_nan(v) ? v : (v > a ? v - a : (v < -a ? v + a : 0.0))) \
    F(OP_THRESHOLD, is_nan(v) || v > a ? v : b) \
    F(OP_NAN_TO_NUM, is_nan(v) ? a : (is_inf(v) ? (sign_bit(v) ? c : b) : v)) \
    F(OP_ROUND_TO, roundEven(v * a) / a)

#endif
