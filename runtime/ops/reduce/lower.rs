//! Dispatches of reductions.

use super::{Call, Function, eval};
use crate::{
    base::{DType, Error, Result, Scalar},
    ops::{
        Element, Lowering, Meta, Tensor, fill,
        rows::{self, RowSplit},
    },
    shader::kernels::{reduce_float, reduce_int},
};

/// Emits what reduces the rows of `x` by `function` into `y`, which is contiguous and has an element a row.
/// Both hold the same kind of element.
///
/// # Errors
/// When the device cannot bind a tensor, or does not take so many groups.
pub fn emit(
    cx: &mut Lowering<'_>,
    x: &Tensor,
    split: &RowSplit,
    function: Function,
    y: &Tensor,
) -> Result<()> {
    if y.numel() == 0 {
        return Ok(());
    }
    if split.cols(&x.sizes) == 0 {
        return fill::fill(cx, y, of_nothing(x.dtype, function));
    }
    if x.element == Element::I32 {
        emit_int(cx, x, split, function, y)
    } else {
        emit_float(cx, x, split, function, y)
    }
}

/// What `function` gives for no elements of `dtype`.
fn of_nothing(dtype: DType, function: Function) -> Scalar {
    if dtype.is_float() {
        Scalar::Float(eval::float(&[], function))
    } else {
        Scalar::Int(eval::int(&[], function))
    }
}

fn emit_float(
    cx: &mut Lowering<'_>,
    x: &Tensor,
    split: &RowSplit,
    function: Function,
    y: &Tensor,
) -> Result<()> {
    let (x, mut grid) = rows::gridded(cx, split, x)?;
    let width = if grid.takes_steps_of_4(cx.profile().class, [&x]) {
        reduce_float::Width::Width4
    } else {
        reduce_float::Width::Width1
    };
    let spec = reduce_float::Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        op: float_op(function)?,
        ..reduce_float::Spec::default()
    };
    let params = reduce_float::Params {
        rows: grid.rows,
        cols: grid.cols,
        lanes: grid.lanes,
        inner: grid.inner,
        divisor: function.divisor(grid.cols as usize) as f32,
        eps: function.eps() as f32,
        row_sizes: grid.row_sizes,
        x_row_strides: grid.row_strides[0],
        x_col_strides: grid.col_strides[0],
    };
    let operands = reduce_float::Operands { x: x.region(), y: y.region() };
    let axes = reduce_float::Axes { dtype: float_axis!(reduce_float, x.element)?, width };
    let groups = grid.groups(cx)?;
    cx.emit(reduce_float::dispatch(axes, spec, operands, params, groups, cx.label()))
}

fn emit_int(
    cx: &mut Lowering<'_>,
    x: &Tensor,
    split: &RowSplit,
    function: Function,
    y: &Tensor,
) -> Result<()> {
    let (x, grid) = rows::gridded(cx, split, x)?;
    let op = match function {
        Function::Sum | Function::CountNonzero => reduce_int::Op::Sum,
        Function::Prod => reduce_int::Op::Prod,
        Function::Amax => reduce_int::Op::Amax,
        Function::Amin => reduce_int::Op::Amin,
        Function::Any => reduce_int::Op::Any,
        Function::All => reduce_int::Op::All,
        _ => return Err(Error::internal(format!("{function:?} of integers was not refused"))),
    };
    let spec = reduce_int::Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        op,
        checked: u32::from(y.dtype == DType::I64),
        ..reduce_int::Spec::default()
    };
    let params = reduce_int::Params {
        rows: grid.rows,
        cols: grid.cols,
        lanes: grid.lanes,
        inner: grid.inner,
        node: cx.node_id(),
        row_sizes: grid.row_sizes,
        x_row_strides: grid.row_strides[0],
        x_col_strides: grid.col_strides[0],
    };
    let operands = reduce_int::Operands { x: x.region(), y: y.region(), status: cx.status() };
    let groups = grid.groups(cx)?;
    cx.emit(reduce_int::dispatch(reduce_int::Axes {}, spec, operands, params, groups, cx.label()))
}

fn float_op(function: Function) -> Result<reduce_float::Op> {
    use reduce_float::Op;
    Ok(match function {
        Function::Sum => Op::Sum,
        Function::Mean => Op::Mean,
        Function::Prod => Op::Prod,
        Function::Amax => Op::Amax,
        Function::Amin => Op::Amin,
        Function::Var { .. } => Op::Var,
        Function::Std { .. } => Op::Std,
        Function::Rstd { .. } => Op::Rstd,
        Function::Rrms { .. } => Op::Rrms,
        Function::NonZeros => Op::Norm0,
        Function::SumOfMagnitudes => Op::Norm1,
        Function::Euclidean => Op::Norm2,
        Function::LargestMagnitude => Op::NormMax,
        Function::LeastMagnitude => Op::NormMin,
        Function::LogSumExp => Op::Logsumexp,
        Function::Any | Function::All | Function::CountNonzero => {
            return Err(Error::internal(format!("{function:?} takes truth values")));
        }
    })
}

/// All outputs of a call on `x`.
pub(super) fn lower(cx: &mut Lowering<'_>, call: &Call, x: &Tensor, outs: &[Meta]) -> Result<Vec<Tensor>> {
    let x = if x.dtype == call.compute { x.clone() } else { cx.converted(x, call.compute)? };
    let split = RowSplit::new(x.sizes.len(), &call.dims);
    let mut tensors = Vec::with_capacity(outs.len());
    for (index, (&function, out)) in call.functions.iter().zip(outs).enumerate() {
        let y = if index == 0 { cx.output(out)? } else { cx.alloc(out.dtype, &out.sizes)? };
        emit(cx, &x, &split, function, &y)?;
        tensors.push(y);
    }
    Ok(tensors)
}
