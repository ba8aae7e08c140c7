//! The functions of one number, on the host.

use super::call::{FloatFunction, IntFunction};
use crate::shader::kernels::{predicate, unary::Op, unary_int};

/// The answer to a question about `v`.
pub(super) fn test(op: predicate::Op, v: f64) -> bool {
    match op {
        predicate::Op::IsNonzero => v != 0.0,
        predicate::Op::IsZero => v == 0.0,
        predicate::Op::IsNan => v.is_nan(),
        predicate::Op::IsInf => v.is_infinite(),
        predicate::Op::IsFinite => v.is_finite(),
    }
}

/// A function of an integer; 64 bits wrap.
pub(super) fn of_int(function: &IntFunction, v: i64) -> i64 {
    match function.op {
        unary_int::Op::Neg => v.wrapping_neg(),
        unary_int::Op::Abs => v.wrapping_abs(),
        unary_int::Op::Sign => v.signum(),
        unary_int::Op::Clamp => v.max(function.low).min(function.high),
        unary_int::Op::BitwiseNot => !v,
        unary_int::Op::Square => v.wrapping_mul(v),
    }
}

/// A function of a float.
pub(super) fn of_float(function: &FloatFunction, v: f64) -> f64 {
    let &FloatFunction { op, a, b, c } = function;
    match op {
        Op::Identity => v,
        Op::Neg => -v,
        Op::Abs => v.abs(),
        Op::Exp => v.exp(),
        Op::Exp2 => v.exp2(),
        Op::Expm1 => v.exp_m1(),
        Op::Log => v.ln(),
        Op::Log1p => v.ln_1p(),
        Op::Log2 => v.log2(),
        Op::Log10 => v.log10(),
        Op::Sqrt => v.sqrt(),
        Op::Rsqrt => v.sqrt().recip(),
        Op::Reciprocal => v.recip(),
        Op::Square => v * v,
        Op::PowScalar => v.powf(a),
        Op::ScalarPow => a.powf(v),
        Op::Affine => v * a + b,
        Op::Sin => v.sin(),
        Op::Cos => v.cos(),
        Op::Tan => v.tan(),
        Op::Asin => v.asin(),
        Op::Acos => v.acos(),
        Op::Atan => v.atan(),
        Op::Sinh => v.sinh(),
        Op::Cosh => v.cosh(),
        Op::Tanh => v.tanh(),
        Op::Asinh => v.asinh(),
        Op::Acosh => v.acosh(),
        Op::Atanh => v.atanh(),
        Op::Erf => erf(v),
        Op::Floor => v.floor(),
        Op::Ceil => v.ceil(),
        Op::Round => v.round_ties_even(),
        Op::RoundTo => (v * a).round_ties_even() / a,
        Op::Trunc => v.trunc(),
        Op::Frac => v - v.trunc(),
        Op::Sign => f64::from(i8::from(v > 0.0) - i8::from(v < 0.0)),
        Op::NanToNum if v.is_nan() => a,
        Op::NanToNum if v.is_infinite() => {
            if v > 0.0 {
                b
            } else {
                c
            }
        }
        Op::NanToNum => v,
        _ => activation(function, v),
    }
}

fn activation(function: &FloatFunction, v: f64) -> f64 {
    let &FloatFunction { op, a, b, c } = function;
    match op {
        Op::Relu => clamp(v, 0.0, f64::INFINITY),
        Op::Relu6 => clamp(v, 0.0, 6.0),
        Op::Clamp => clamp(v, a, b),
        Op::LeakyRelu => {
            if v > 0.0 {
                v
            } else {
                v * a
            }
        }
        Op::Elu => {
            if v > 0.0 {
                v * b
            } else {
                a * b * (v * c).exp_m1()
            }
        }
        Op::Sigmoid => sigmoid(v),
        Op::LogSigmoid => v.min(0.0) - (-v.abs()).exp().ln_1p() + nan_of(v),
        Op::Silu => v * sigmoid(v),
        Op::Mish => v * softplus(v, 1.0, 20.0).tanh(),
        Op::Softplus => softplus(v, a, b),
        Op::Hardsigmoid => clamp(v + 3.0, 0.0, 6.0) / 6.0,
        Op::Hardswish => v * (clamp(v + 3.0, 0.0, 6.0) / 6.0),
        Op::GeluErf => 0.5 * v * (1.0 + erf(v * std::f64::consts::FRAC_1_SQRT_2)),
        Op::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044_715 * v * v * v);
            0.5 * v * (1.0 + inner.tanh())
        }
        Op::Hardshrink => {
            if (-a..=a).contains(&v) {
                0.0
            } else {
                v
            }
        }
        Op::Softshrink if v > a => v - a,
        Op::Softshrink if v < -a => v + a,
        Op::Softshrink => v * 0.0,
        Op::Threshold => {
            if v <= a {
                b
            } else {
                v
            }
        }
        _ => f64::NAN,
    }
}

/// 0 for a number, NaN for NaN.
fn nan_of(v: f64) -> f64 {
    if v.is_nan() { v } else { 0.0 }
}

/// As `torch.clamp`: NaN stays, a NaN bound wins, and so does the upper bound where they cross.
fn clamp(v: f64, low: f64, high: f64) -> f64 {
    if v.is_nan() || low.is_nan() || high.is_nan() { f64::NAN } else { v.max(low).min(high) }
}

fn sigmoid(v: f64) -> f64 {
    1.0 / (1.0 + (-v).exp())
}

fn softplus(v: f64, beta: f64, threshold: f64) -> f64 {
    if v * beta > threshold { v } else { (v * beta).exp().ln_1p() / beta }
}

/// The error function to 1e-12: its Maclaurin series near zero, beyond it the continued fraction of its complement.
pub(super) fn erf(v: f64) -> f64 {
    let x = v.abs();
    if v.is_nan() || x > 6.0 {
        return if v.is_nan() { v } else { v.signum() };
    }
    if x < 2.5 {
        let (mut term, mut sum, mut n) = (v, v, 0.0);
        while term.abs() > 1e-18 {
            n += 1.0;
            term *= -v * v / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..=60).rev().fold(x, |below, k| x + f64::from(k) / 2.0 / below);
    let complement = (-x * x).exp() / fraction * std::f64::consts::FRAC_2_SQRT_PI / 2.0;
    (1.0 - complement).copysign(v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_continuous_and_right() {
        for (x, want) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
            (-3.0, -0.999_977_909_503_001_4),
        ] {
            assert!((erf(x) - want).abs() < 1e-12, "erf({x}) = {}", erf(x));
        }
        assert!((erf(2.5 - 1e-13) - erf(2.5 + 1e-13)).abs() < 1e-12);
        assert!(erf(f64::NAN).is_nan());
    }
}
