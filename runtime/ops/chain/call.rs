//! From a call of an element-wise op to a step of a chain. Knows no graph: values are of any type.

use crate::{
    base::{DType, HostTensor, Result, Scalar},
    ops::{
        Args, Op as _, binary, cast, choose, compare,
        operands::{Input, Typed},
        unary,
    },
    shader::kernels::pointwise_chain::Op,
};

/// An operand of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term<V> {
    /// A tensor.
    Value(V),
    /// The number b of the call.
    Number,
    /// The number c of the call.
    NumberC,
}

/// One element-wise call as a step takes it.
#[derive(Clone, Debug)]
pub struct Call<V> {
    /// The function; `None` where the result is the operand.
    pub op: Option<Op>,
    /// The numbers a, b and c.
    pub numbers: [f32; 3],
    /// One operand, two or three.
    pub operands: Vec<Term<V>>,
}

impl<V> Call<V> {
    /// The call that gives its operand.
    pub fn same(value: V) -> Call<V> {
        Call { op: None, numbers: [0.0; 3], operands: vec![Term::Value(value)] }
    }

    /// A function of one tensor, without numbers.
    fn plain(op: Op, value: V) -> Call<V> {
        Call { op: Some(op), ..Call::same(value) }
    }

    /// The same call of other values.
    pub fn map<W>(self, mut map: impl FnMut(V) -> W) -> Call<W> {
        let term = |operand| match operand {
            Term::Value(value) => Term::Value(map(value)),
            Term::Number => Term::Number,
            Term::NumberC => Term::NumberC,
        };
        let operands = self.operands.into_iter().map(term).collect();
        Call { op: self.op, numbers: self.numbers, operands }
    }

    /// The values that it reads.
    pub fn values(&self) -> impl Iterator<Item = V> + '_
    where
        V: Copy,
    {
        self.operands.iter().filter_map(|operand| match operand {
            Term::Value(value) => Some(*value),
            Term::Number | Term::NumberC => None,
        })
    }
}

/// What the element-wise call `args` is as a step of a chain; `None` for any other call, and where a step would not give
/// what the call gives: arithmetic of integers, and operands that are converted to half precision.
///
/// # Errors
/// What the family of the op refuses.
pub fn call<T: Typed>(args: &Args<T>) -> Result<Option<Call<&T>>> {
    let target = args.op().as_str();
    let is_of = |targets: &[&str]| targets.contains(&target);
    if is_of(unary::Unary.targets()) {
        return of_unary(args);
    }
    if is_of(binary::Binary.targets()) {
        return of_binary(args);
    }
    if is_of(binary::TensorClamp.targets()) {
        return Ok(binary::one_bound(args)?.and_then(of_floats));
    }
    if is_of(compare::Compare.targets()) {
        return of_comparison(args);
    }
    if is_of(choose::Choose.targets()) {
        return of_choice(args);
    }
    if is_of(cast::Cast.targets()) {
        return of_cast(args);
    }
    Ok(None)
}

/// Whether operands become floats of `dtype` without being rounded.
fn are_exact<T: Typed>(inputs: &[Input<'_, T>], dtype: DType) -> bool {
    inputs.iter().all(|input| match input {
        Input::Tensor(x) => dtype == DType::F32 || x.dtype() == dtype || x.dtype() == DType::Bool,
        Input::Number(_) => true,
    })
}

fn of_unary<T: Typed>(args: &Args<T>) -> Result<Option<Call<&T>>> {
    let Some(unary::StepCall { x, function }) = unary::step_call(args)? else { return Ok(None) };
    Ok(match function {
        unary::StepFunction::Same => Some(Call::same(x)),
        unary::StepFunction::Float(op, numbers) => {
            Op::named(op.name()).map(|op| Call { numbers, ..Call::plain(op, x) })
        }
        unary::StepFunction::Test(op) => Op::named(op.name()).map(|op| Call::plain(op, x)),
    })
}

fn of_binary<T: Typed>(args: &Args<T>) -> Result<Option<Call<&T>>> {
    if let Some(binary::LogicalCall { name, left, right }) = binary::logical_call(args)? {
        return Ok(Op::named(name).map(|op| of_two(op, 0.0, left, right)));
    }
    Ok(binary::float_call(args)?.and_then(of_floats))
}

fn of_floats<T: Typed>(call: binary::FloatCall<'_, T>) -> Option<Call<&T>> {
    let binary::FloatCall { op, left, right, alpha, dtype } = call;
    let op = Op::named(op.name()).filter(|_| are_exact(&[left, right], dtype));
    op.map(|op| of_two(op, alpha, left, right))
}

fn of_two<'a, T>(op: Op, alpha: f32, left: Input<'a, T>, right: Input<'a, T>) -> Call<&'a T> {
    let number = [left, right].iter().find_map(|input| match input {
        Input::Number(number) => Some(number.as_f64() as f32),
        Input::Tensor(_) => None,
    });
    let operands = [left, right].map(|input| match input {
        Input::Tensor(tensor) => Term::Value(tensor),
        Input::Number(_) => Term::Number,
    });
    Call { op: Some(op), numbers: [alpha, number.unwrap_or(0.0), 0.0], operands: operands.into() }
}

fn of_comparison<T: Typed>(args: &Args<T>) -> Result<Option<Call<&T>>> {
    let compare::Comparison { op, left, right, dtype } = compare::comparison(args)?;
    let left = Input::Tensor(left);
    if dtype.is_float() {
        let op = Op::named(op.name()).filter(|_| are_exact(&[left, right], dtype));
        return Ok(op.map(|op| of_two(op, 0.0, left, right)));
    }
    let is_bool = |input: &Input<'_, T>| match input {
        Input::Tensor(x) => x.dtype() == DType::Bool,
        Input::Number(_) => true,
    };
    use crate::shader::kernels::compare::Op as Compare;
    let is_logical = matches!(op, Compare::LogicalAnd | Compare::LogicalOr | Compare::LogicalXor);
    // Truth values, and whether an integer is zero, are the same as floats.
    if is_logical || [left, right].iter().all(is_bool) {
        return Ok(Op::named(op.name()).map(|op| of_two(op, 0.0, left, right)));
    }
    let (op, right) = match right {
        Input::Number(number) => {
            let (op, number) = compare::within_32_bits(op, number.as_i64());
            if i64::from(number) != number as f32 as i64 {
                return Ok(None);
            }
            (op, Input::Number(Scalar::Int(number.into())))
        }
        right => (op, right),
    };
    Ok(Op::named(&format!("int_{}", op.name())).map(|op| of_two(op, 0.0, left, right)))
}

fn of_choice<T: Typed>(args: &Args<T>) -> Result<Option<Call<&T>>> {
    let choose::Call { condition, chosen, other, dtype } = choose::Call::of(args)?;
    if dtype.is_int() || !are_exact(&[chosen, other], dtype) {
        return Ok(None);
    }
    let number = |input: Input<'_, T>| input.number().map(|number| rounded(number, dtype));
    let (first, second) = (number(chosen), number(other));
    let operand = |input, number| match input {
        Input::Tensor(tensor) => Term::Value(tensor),
        Input::Number(_) => number,
    };
    // b is the first number, c the second where both are numbers.
    let last = if first.is_some() { Term::NumberC } else { Term::Number };
    let operands = vec![Term::Value(condition), operand(chosen, Term::Number), operand(other, last)];
    let numbers = [0.0, first.or(second).unwrap_or(0.0), first.and(second).unwrap_or(0.0)];
    Ok(Some(Call { op: Some(Op::Choose), numbers, operands }))
}

/// A number as a tensor of `dtype` holds it.
fn rounded(number: Scalar, dtype: DType) -> f32 {
    HostTensor::scalar(dtype, number).to_f32s().first().copied().unwrap_or(f32::NAN)
}

fn of_cast<T: Typed>(args: &Args<T>) -> Result<Option<Call<&T>>> {
    let (x, dtype) = cast::call(args)?;
    let from = x.dtype();
    Ok(match dtype {
        // What is stored is an integer in any case: only floats and truth values become one here.
        _ if dtype.is_int() && from.is_int() => None,
        _ if dtype == from || dtype.is_int() || dtype == DType::F32 => Some(Call::same(x)),
        DType::F16 if from == DType::Bool => Some(Call::same(x)),
        DType::BF16 if from == DType::Bool => Some(Call::same(x)),
        DType::F16 => Some(Call::plain(Op::RoundF16, x)),
        DType::BF16 => Some(Call::plain(Op::RoundBf16, x)),
        DType::Bool => Some(Call::plain(Op::IsNonzero, x)),
        _ => None,
    })
}
