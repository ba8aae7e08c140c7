//! Comparisons (`eq`, `ne`, `lt`, `le`, `gt`, `ge`) and logical functions (`logical_and`, `or`, `xor`) of two operands,
//! element by element with broadcasting; the result is bool.
//!
//! All dtypes but float64, any rank; the right operand may be a number. Operands are first brought to their common
//! dtype, as in PyTorch; integers are compared as integers, so that those beyond 2^24 stay apart.

use super::{
    Args, InPlace, Lowering, Meta, Op, Operand, Tensor, elementwise,
    operands::{self, Input, Sides, Typed},
};
use crate::{
    base::{DType, HostTensor, Result, Scalar},
    shader::kernels::compare as kernel,
};

/// The family of comparisons.
pub struct Compare;

fn function(base: &str) -> kernel::Op {
    match base {
        "eq" => kernel::Op::Eq,
        "ne" => kernel::Op::Ne,
        "lt" => kernel::Op::Lt,
        "le" => kernel::Op::Le,
        "gt" => kernel::Op::Gt,
        "ge" => kernel::Op::Ge,
        "logical_and" => kernel::Op::LogicalAnd,
        "logical_or" => kernel::Op::LogicalOr,
        _ => kernel::Op::LogicalXor,
    }
}

/// One call: its function, operands, and the dtype in which they are compared; a float on the right is rounded to it.
pub(super) struct Comparison<'a, T> {
    pub op: kernel::Op,
    pub left: &'a T,
    pub right: Input<'a, T>,
    pub dtype: DType,
}

/// What `args` compare.
///
/// # Errors
/// An operand that is neither a tensor nor a number.
pub(super) fn comparison<T: Typed>(args: &Args<T>) -> Result<Comparison<'_, T>> {
    let left = operands::tensor(args, "self")?;
    let right = Input::of(args, "other")?;
    let dtype = operands::result_type(&[Input::Tensor(left), right]);
    let right = match right {
        Input::Number(number) if dtype.is_float() => {
            let rounded = HostTensor::scalar(dtype, number).to_f64s();
            Input::Number(Scalar::Float(rounded.first().copied().unwrap_or(f64::NAN)))
        }
        right => right,
    };
    Ok(Comparison { op: function(args.op().base()), left, right, dtype })
}

impl Op for Compare {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten.eq.Scalar",
            "aten.eq.Tensor",
            "aten.ge.Scalar",
            "aten.ge.Tensor",
            "aten.gt.Scalar",
            "aten.gt.Tensor",
            "aten.le.Scalar",
            "aten.le.Tensor",
            "aten.logical_and.default",
            "aten.logical_or.default",
            "aten.logical_xor.default",
            "aten.lt.Scalar",
            "aten.lt.Tensor",
            "aten.ne.Scalar",
            "aten.ne.Tensor",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let Comparison { left, right, .. } = comparison(args)?;
        let sizes = operands::broadcast_sizes(&[Input::Tensor(left), right])
            .map_err(|error| error.at_operand("other"))?;
        Ok(vec![Meta::new(DType::Bool, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let Comparison { op, left, right, dtype } = comparison(args)?;
        let (left, sizes) = (Input::Tensor(left), &outs[0].sizes);
        let holds: Vec<i64> = if dtype.is_float() {
            let pairs = left.f64s(dtype, sizes)?.into_iter().zip(right.f64s(dtype, sizes)?);
            pairs.map(|(a, b)| i64::from(holds(op, a, b, 0.0))).collect()
        } else {
            let right = match right {
                Input::Number(number) => vec![number.as_i64(); crate::base::shape::numel(sizes)?],
                Input::Tensor(_) => right.i64s(dtype, sizes)?,
            };
            let pairs = left.i64s(dtype, sizes)?.into_iter().zip(right);
            pairs.map(|(a, b)| i64::from(holds(op, a, b, 0))).collect()
        };
        Ok(vec![HostTensor::from_i64s(DType::Bool, sizes.clone(), &holds)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let Comparison { op, left, right, dtype } = comparison(args)?;
        let sides = Sides::new(cx, Input::Tensor(left), right, dtype)?;
        let out = cx.output(&outs[0])?;
        let (int_op, int_number) = within_32_bits(op, sides.number.as_i64());
        let op = if dtype.is_float() { op } else { int_op };
        let axes = kernel::Axes { dtype: element_axis!(compare, sides.left.element) };
        let spec = kernel::Spec { op, number_side: sides.number_side, ..Default::default() };
        let label = cx.label();
        elementwise::launch_quads(cx, &out, [&sides.left, &sides.right], |grid, binding| {
            let operands = kernel::Operands { a: binding.inputs[0], b: binding.inputs[1], y: binding.out };
            let params = kernel::Params {
                n_elems: grid.n_elems,
                quads: grid.quads,
                sizes: grid.sizes,
                number: sides.number.as_f64() as f32,
                int_number,
                a_strides: grid.strides[0],
                b_strides: grid.strides[1],
            };
            kernel::dispatch(axes, spec, operands, params, binding.groups, label.clone())
        })?;
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Elementwise
    }
}

/// Whether the comparison holds of two numbers.
pub(super) fn holds<V: PartialOrd>(op: kernel::Op, a: V, b: V, zero: V) -> bool {
    let (a_true, b_true) = (a != zero, b != zero);
    match op {
        kernel::Op::Eq => a == b,
        kernel::Op::Ne => a != b,
        kernel::Op::Lt => a < b,
        kernel::Op::Le => a <= b,
        kernel::Op::Gt => a > b,
        kernel::Op::Ge => a >= b,
        kernel::Op::LogicalAnd => a_true && b_true,
        kernel::Op::LogicalOr => a_true || b_true,
        kernel::Op::LogicalXor => a_true != b_true,
    }
}

/// A comparison with a number of 32 bits that holds for the same 32-bit integers as `op` with `number`.
pub(super) fn within_32_bits(op: kernel::Op, number: i64) -> (kernel::Op, i32) {
    use kernel::Op;
    if let Ok(number) = i32::try_from(number) {
        return (op, number);
    }
    let always = match op {
        Op::Ne => true,
        Op::Lt | Op::Le => number > 0,
        Op::Gt | Op::Ge => number < 0,
        Op::Eq => false,
        // Only whether the number is zero matters.
        Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor => return (op, 1),
    };
    if always { (Op::Le, i32::MAX) } else { (Op::Gt, i32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Op;

    #[test]
    fn numbers_beyond_32_bits_compare_as_they_are() {
        for number in [1i64 << 40, -(1i64 << 40), i64::MAX, i64::MIN, 7] {
            for op in [Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::LogicalAnd, Op::LogicalXor] {
                let (narrow_op, narrow) = within_32_bits(op, number);
                for v in [i32::MIN, -1, 0, 7, i32::MAX] {
                    let want = holds(op, i64::from(v), number, 0);
                    assert_eq!(holds(narrow_op, v, narrow, 0), want, "{op:?} {v} {number}");
                }
            }
        }
    }
}
