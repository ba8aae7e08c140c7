//! Element-wise functions of one tensor of rank up to 4, into a contiguous result.
//!
//! `sizes` and `x_strides` are in elements, dim 0 outermost; unused leading dims have size 1 and stride 0.
//! `op` chooses the function; `a` and `b` are its scalar arguments:
//!
//! | op | function | op | function |
//! |---|---|---|---|
//! | 0 | x | 20 | gelu, by tanh |
//! | 1 | -x | 21 | silu |
//! | 2 | abs | 22 | hardswish |
//! | 3 | exp | 23 | hardsigmoid |
//! | 4 | log | 24 | clamp to [a, b] |
//! | 5 | log1p | 25 | leaky relu, slope a |
//! | 6 | expm1 | 26 | elu: x > 0 ? b x : a b (exp(x) - 1) |
//! | 7 | sqrt | 27 | softplus, beta a, threshold b |
//! | 8 | 1 / sqrt(x) | 28 | x^a |
//! | 9 | 1 / x | 29 | a^x |
//! | 10 | x^2 | 30 | floor |
//! | 11 | sin | 31 | ceil |
//! | 12 | cos | 32 | round, ties to even |
//! | 13 | tanh | 33 | trunc |
//! | 14 | sigmoid | 34 | sign |
//! | 15 | erf | 35 | log2 |
//! | 16 | relu | 36 | not x |
//! | 17 | relu6 | 37 | is NaN |
//! | 18 | log sigmoid | 38 | is infinite |
//! | 19 | gelu, by erf | 39 | x a + b |
//!
//! Every NaN stays NaN, also through relu, clamp and sign. 36 to 38 give 0 or 1.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/activation.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) uint n_elems; float a; float b; uint sizes[4]; uint x_strides[4];)

float apply(float v) {
    switch (op) {
        case 1u: return -v;
        case 2u: return abs(v);
        case 3u: return safe_exp(v);
        case 4u: return safe_log(v);
        case 5u: return safe_log1p(v);
        case 6u: return safe_expm1(v);
        case 7u: return v < 0.0 ? NAN : sqrt(v);
        case 8u: return v < 0.0 ? NAN : 1.0 / sqrt(v);
        case 9u: return 1.0 / v;
        case 10u: return v * v;
        case 11u: return safe_sin(v);
        case 12u: return safe_cos(v);
        case 13u: return safe_tanh(v);
        case 14u: return safe_sigmoid(v);
        case 15u: return safe_erf(v);
        case 16u: return nan_max(v, 0.0);
        case 17u: return nan_clamp(v, 0.0, 6.0);
        case 18u: return log_sigmoid(v);
        case 19u: return gelu_erf(v);
        case 20u: return gelu_tanh(v);
        case 21u: return silu(v);
        case 22u: return hardswish(v);
        case 23u: return hardsigmoid(v);
        case 24u: return nan_clamp(v, a, b);
        case 25u: return is_nan(v) || v > 0.0 ? v : v * a;
        case 26u: return is_nan(v) ? v : (v > 0.0 ? b * v : a * b * safe_expm1(v));
        case 27u: return softplus(v, a, b);
        case 28u: return safe_pow(v, a);
        case 29u: return safe_pow(a, v);
        case 30u: return floor(v);
        case 31u: return ceil(v);
        case 32u: return roundEven(v);
        case 33u: return trunc(v);
        case 34u: return is_nan(v) ? v : sign(v);
        case 35u: return safe_log(v) * 1.4426950408889634;
        case 36u: return magnitude_bits(v) == 0u ? 1.0 : 0.0;
        case 37u: return is_nan(v) ? 1.0 : 0.0;
        case 38u: return is_inf(v) ? 1.0 : 0.0;
        case 39u: return v * a + b;
        default: return v;
    }
}

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint rest = i;
    uint from = 0u;
    for (int d = 3; d >= 0; d--) {
        uint outer = rest / sizes[d];
        from += (rest - outer * sizes[d]) * x_strides[d];
        rest = outer;
    }
    STOREF(y, i, apply(LOADF(x, from)));
}
