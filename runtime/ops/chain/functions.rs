//! What the functions of a chain are: of how many operands, and what they give on the host.

use crate::{
    base::{DType, HostTensor, Scalar},
    ops::{binary, compare, unary},
    shader::kernels::{self, pointwise_chain::Op},
};

/// Which function of another kernel one is, or what it is besides.
pub(super) enum Function {
    Unary(kernels::unary::Op),
    Binary(kernels::binary::Op),
    Test(kernels::predicate::Op),
    Compare(kernels::compare::Op),
    CompareInts(kernels::compare::Op),
    /// The second operand where the first is true, else the third.
    Choose,
    /// To the nearest number of a narrower dtype.
    Round(DType),
}

/// The function of `op`; `None` only where the kernel has one that nothing else has.
pub(super) fn function(op: Op) -> Option<Function> {
    match op {
        Op::Choose => Some(Function::Choose),
        Op::RoundF16 => Some(Function::Round(DType::F16)),
        Op::RoundBf16 => Some(Function::Round(DType::BF16)),
        op => {
            let name = op.name();
            let of_ints =
                || kernels::compare::Op::named(name.strip_prefix("int_")?).map(Function::CompareInts);
            let unary = || kernels::unary::Op::named(name).map(Function::Unary);
            let test = || kernels::predicate::Op::named(name).map(Function::Test);
            let binary = || kernels::binary::Op::named(name).map(Function::Binary);
            let compare = || kernels::compare::Op::named(name).map(Function::Compare);
            unary().or_else(binary).or_else(test).or_else(compare).or_else(of_ints)
        }
    }
}

/// Whether it compares inputs as ints.
pub(super) fn takes_ints(op: Op) -> bool {
    matches!(function(op), Some(Function::CompareInts(_)))
}

/// Whether it rounds to a narrower dtype, and does nothing else.
pub(super) fn is_rounding(op: Op) -> bool {
    matches!(function(op), Some(Function::Round(_)))
}

/// How many operands it takes.
pub(super) fn arity(op: Op) -> usize {
    match function(op) {
        Some(Function::Choose) => 3,
        Some(Function::Binary(_) | Function::Compare(_) | Function::CompareInts(_)) => 2,
        Some(Function::Unary(_) | Function::Test(_) | Function::Round(_)) | None => 1,
    }
}

/// The numbers of a function that says nothing about them: alpha is 1.
pub(super) fn default_numbers(op: Op) -> [f32; 3] {
    [if matches!(function(op), Some(Function::Binary(_))) { 1.0 } else { 0.0 }, 0.0, 0.0]
}

/// What one element of an operand is: a float, and where it is one of an input of ints, that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Element {
    /// As functions of floats take it.
    pub float: f64,
    /// As comparisons of ints take it.
    pub int: i64,
}

impl From<f64> for Element {
    fn from(float: f64) -> Element {
        Element { float, int: float as i64 }
    }
}

/// The value of `op` on the host, before it is rounded to float32.
pub(super) fn eval(op: Op, [a, b, c]: [f64; 3], [left, right, third]: [Element; 3]) -> f64 {
    let truth = |holds| f64::from(u8::from(holds));
    match function(op) {
        Some(Function::Unary(op)) => unary::eval_float(op, [a, b, c], left.float),
        Some(Function::Binary(op)) => binary::eval_float(op, left.float, right.float, a),
        Some(Function::Test(op)) => truth(unary::eval_test(op, left.float)),
        Some(Function::Compare(op)) => truth(compare::holds(op, left.float, right.float, 0.0)),
        Some(Function::CompareInts(op)) => truth(compare::holds(op, left.int, right.int, 0)),
        Some(Function::Choose) if left.float != 0.0 => right.float,
        Some(Function::Choose) => third.float,
        Some(Function::Round(dtype)) => {
            let rounded = HostTensor::scalar(dtype, Scalar::Float(left.float)).to_f64s();
            rounded.first().copied().unwrap_or(f64::NAN)
        }
        None => f64::NAN,
    }
}
