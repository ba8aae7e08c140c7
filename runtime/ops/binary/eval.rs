//! The functions of two numbers, on the host.

use super::Function;
use crate::base::{Error, ErrorKind, Result};

/// `function` of two floats.
pub(super) fn of_floats(function: Function, a: f64, b: f64, alpha: f64) -> f64 {
    match function {
        Function::Add => a + alpha * b,
        Function::Mul => a * b,
        Function::Div => a / b,
        // PyTorch rounds the quotient to float32 before it truncates.
        Function::DivTrunc => f64::from((a / b) as f32).trunc(),
        Function::DivFloor => floor_quotient(a, b),
        Function::Maximum if a.is_nan() || b.is_nan() => f64::NAN,
        Function::Minimum if a.is_nan() || b.is_nan() => f64::NAN,
        Function::Maximum | Function::Fmax => a.max(b),
        Function::Minimum | Function::Fmin => a.min(b),
        Function::Fmod => a % b,
        Function::Remainder => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        Function::Pow => a.powf(b),
        Function::Root => {
            if b < 0.0 {
                a.sqrt().recip()
            } else {
                a.sqrt()
            }
        }
        Function::Atan2 => a.atan2(b),
        Function::Hypot => a.hypot(b),
        Function::Copysign => a.copysign(b),
        Function::Glu => a / (1.0 + (-b).exp()),
        Function::Prelu => {
            if a > 0.0 {
                a
            } else {
                a * b
            }
        }
        Function::BitwiseAnd
        | Function::BitwiseOr
        | Function::BitwiseXor
        | Function::ShiftLeft
        | Function::ShiftRight => f64::NAN,
    }
}

fn floor_quotient(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if b == 0.0 || !quotient.is_finite() {
        return quotient;
    }
    let rest = a % b;
    let whole = ((a - rest) / b).round();
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { whole - 1.0 } else { whole }
}

/// `function` of two integers; 64 bits wrap.
///
/// # Errors
/// A division by zero.
pub(super) fn of_ints(function: Function, a: i64, b: i64, alpha: i64) -> Result<i64> {
    let divides = matches!(
        function,
        Function::Div | Function::DivTrunc | Function::DivFloor | Function::Fmod | Function::Remainder
    );
    if divides && b == 0 {
        return Err(Error::new(ErrorKind::BadData, format!("{a} is divided by zero")).at_operand("other"));
    }
    Ok(match function {
        Function::Add => a.wrapping_add(b.wrapping_mul(alpha)),
        Function::Mul => a.wrapping_mul(b),
        Function::Div | Function::DivTrunc => a.wrapping_div(b),
        Function::DivFloor => {
            let quotient = a.wrapping_div(b);
            quotient - i64::from(a.wrapping_rem(b) != 0 && (a < 0) != (b < 0))
        }
        Function::Maximum | Function::Fmax => a.max(b),
        Function::Minimum | Function::Fmin => a.min(b),
        Function::Fmod => a.wrapping_rem(b),
        Function::Remainder => {
            let rest = a.wrapping_rem(b);
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        Function::Pow => power(a, b),
        Function::BitwiseAnd => a & b,
        Function::BitwiseOr => a | b,
        Function::BitwiseXor => a ^ b,
        Function::ShiftLeft if (0..64).contains(&b) => a << b,
        Function::ShiftLeft => 0,
        Function::ShiftRight if (0..64).contains(&b) => a >> b,
        Function::ShiftRight => a >> 63,
        Function::Root
        | Function::Atan2
        | Function::Hypot
        | Function::Copysign
        | Function::Glu
        | Function::Prelu => {
            return Err(Error::internal("a float function of integers has a float result"));
        }
    })
}

fn power(base: i64, exponent: i64) -> i64 {
    match (base, exponent) {
        (1, _) => 1,
        (-1, _) => 1 - 2 * (exponent & 1),
        (_, ..=-1) => 0,
        _ => {
            let (mut result, mut square, mut rest) = (1i64, base, exponent);
            while rest > 0 {
                if rest & 1 == 1 {
                    result = result.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                rest >>= 1;
            }
            result
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_edges_do_not_panic() {
        for function in [Function::DivTrunc, Function::DivFloor] {
            assert_eq!(of_ints(function, i64::MIN, -1, 1).unwrap(), i64::MIN);
        }
        assert_eq!(of_ints(Function::Remainder, i64::MIN, -1, 1).unwrap(), 0);
        assert_eq!(of_ints(Function::ShiftLeft, 1, 64, 1).unwrap(), 0);
        assert_eq!(of_ints(Function::ShiftRight, -8, -1, 1).unwrap(), -1);
        assert!(of_ints(Function::Fmod, 1, 0, 1).is_err());
    }

    #[test]
    fn powers_of_integers() {
        assert_eq!([power(-1, -3), power(-1, 4), power(2, -1), power(0, 0)], [-1, 1, 0, 1]);
        assert_eq!(power(3, 1 << 40), 3i64.wrapping_pow(1 << 20).wrapping_pow(1 << 20));
    }
}
