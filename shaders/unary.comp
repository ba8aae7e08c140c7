//! Element-wise functions of one tensor of rank up to 4, into a contiguous result.
//!
//! `sizes` and `x_strides` are in elements, dim 0 outermost; unused leading dims have size 1 and stride 0.
//! `op` chooses the function, `a` and `b` are its scalar arguments: clamp to [a, b]; leaky_relu with slope a;
//! elu is x > 0 ? b x : a b (exp(x) - 1); softplus with beta a and threshold b; pow_scalar is x^a, scalar_pow is
//! a^x; round takes ties to even; affine is x a + b.
//!
//! NaN stays NaN, also through relu and clamp; sign makes it 0, as PyTorch does.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = identity neg abs exp log log1p expm1 sqrt rsqrt reciprocal square sin cos tanh sigmoid erf relu relu6 log_sigmoid gelu_erf gelu_tanh silu hardswish hardsigmoid clamp leaky_relu elu softplus pow_scalar scalar_pow floor ceil round trunc sign log2 affine tan
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/activation.glsl"
#include "lib/strided.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) uint n_elems; float a; float b; uint sizes[4]; uint x_strides[4];)

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
        case OP_ELU: return is_nan(v) ? v : (v > 0.0 ? b * v : a * b * safe_expm1(v));
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
        default: return v;
    }
}

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    STOREF(y, i, apply(LOADF(x, strided_offset(i, sizes, x_strides))));
}
