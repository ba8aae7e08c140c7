//! `clamp` to tensor bounds: `min(max(x, low), high)`, either bound left out; NaN on any side wins.

use super::{FloatCall, Function, apply_floats, apply_ints, float_op, lower_any};
use crate::{
    base::{DType, Error, HostTensor, Result, Scalar},
    ops::{
        Args, InPlace, Lowering, Meta, Op, Operand, Tensor,
        operands::{self, Input, Sides, Typed},
    },
};

/// The family of clamps to tensors.
pub struct TensorClamp;

/// The bounds that are there, each with its function.
fn bounds<T: Typed>(args: &Args<T>) -> Result<Vec<(Function, &T)>> {
    let mut bounds = Vec::new();
    for (name, function) in [("min", Function::Maximum), ("max", Function::Minimum)] {
        if args.has(name) {
            bounds.push((function, operands::tensor(args, name)?));
        }
    }
    if bounds.is_empty() {
        return Err(Error::invalid_graph("a clamp needs a bound").at_operand("min"));
    }
    Ok(bounds)
}

/// The dtype of the result, in which the bounds are compared.
fn dtype<T: Typed>(args: &Args<T>) -> Result<DType> {
    let mut inputs = vec![Input::Tensor(operands::tensor(args, "self")?)];
    inputs.extend(bounds(args)?.into_iter().map(|(_, bound)| Input::Tensor(bound)));
    Ok(operands::result_type(&inputs))
}

/// A clamp of floats by one bound, as the kernel for floats takes it; `None` for any other.
///
/// # Errors
/// A clamp without bounds, or of what is no tensor.
pub(in crate::ops) fn one_bound<T: Typed>(args: &Args<T>) -> Result<Option<FloatCall<'_, T>>> {
    let dtype = dtype(args)?;
    let &[(function, bound)] = bounds(args)?.as_slice() else { return Ok(None) };
    let (left, right) = (Input::Tensor(operands::tensor(args, "self")?), Input::Tensor(bound));
    let op = float_op(function).filter(|_| dtype.is_float());
    Ok(op.map(|op| FloatCall { op, left, right, alpha: 1.0, dtype }))
}

impl Op for TensorClamp {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.clamp.Tensor", "aten.clamp_max.Tensor", "aten.clamp_min.Tensor"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let mut inputs = vec![Input::Tensor(operands::tensor(args, "self")?)];
        inputs.extend(bounds(args)?.into_iter().map(|(_, bound)| Input::Tensor(bound)));
        let dtype = dtype(args)?;
        if dtype == DType::Bool {
            return Err(Error::unsupported("truth values cannot be clamped").at_operand("self"));
        }
        Ok(vec![Meta::new(dtype, operands::broadcast_sizes(&inputs)?)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let Meta { dtype, sizes } = &outs[0];
        let mut result = operands::tensor(args, "self")?.clone();
        for (function, bound) in bounds(args)? {
            let sides = (Input::Tensor(&result), Input::Tensor(bound));
            result = if dtype.is_float() {
                apply_floats(function, sides, Scalar::Int(1), *dtype, sizes)?
            } else {
                apply_ints(function, sides, Scalar::Int(1), *dtype, sizes)?
            };
        }
        Ok(vec![result])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let Meta { dtype, sizes } = &outs[0];
        let mut result = operands::live_as(cx, operands::tensor(args, "self")?, *dtype)?;
        let bounds = bounds(args)?;
        let last = bounds.len() - 1;
        for (position, (function, bound)) in bounds.into_iter().enumerate() {
            let right = operands::live_as(cx, bound, *dtype)?;
            let out = if position == last { cx.output(&outs[0])? } else { cx.alloc(*dtype, sizes)? };
            let sides = Sides { left: result, right, number: Scalar::Int(0), number_side: 0 };
            lower_any(cx, function, &sides, Scalar::Int(1), &out)?;
            result = out;
        }
        Ok(vec![result])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Elementwise
    }
}
