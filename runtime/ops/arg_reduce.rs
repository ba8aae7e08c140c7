//! The largest or least element of a row with its position: `aten.max.dim`, `aten.min.dim`, `aten.argmax`,
//! `aten.argmin`.
//!
//! Any dim, or all of them at once for argmax and argmin; any strides and dtype but float64. A NaN wins over every
//! number; of equal elements the first wins.

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    rows::{self, RowSplit},
};
use crate::{
    base::{DType, Error, HostTensor, Result},
    shader::kernels::arg_reduce as kernel,
};

/// Reductions that give positions.
pub struct ArgReduce;

impl Op for ArgReduce {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.argmax.default", "aten.argmin.default", "aten.max.dim", "aten.min.dim"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = args.tensor("self")?;
        let split = split(args, x.sizes.len())?;
        if x.dtype == DType::F64 || (x.dtype == DType::Bool && !gives_values(args)) {
            let message = format!("{} of {} does not exist or has no kernel", args.op(), x.dtype);
            return Err(Error::unsupported(message).at_operand("self"));
        }
        if split.cols(&x.sizes) == 0 {
            let message = format!("sizes {:?} leave no elements to choose from", x.sizes);
            return Err(Error::invalid_input(message).at_operand("self"));
        }
        let sizes = split.reduced_sizes(&x.sizes, args.bool_or("keepdim", false)?);
        let indices = Meta::new(DType::I64, sizes.clone());
        Ok(if gives_values(args) { vec![Meta::new(x.dtype, sizes), indices] } else { vec![indices] })
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("self")?;
        let split = split(args, x.sizes().len())?;
        let cols = split.cols(x.sizes()).max(1);
        let wants_max = wants_max(args);
        let positions: Vec<usize> = if x.dtype().is_float() {
            let beats = |a: f64, b: f64| !b.is_nan() && (a.is_nan() || if wants_max { a > b } else { a < b });
            split.gather(x.sizes(), &x.to_f64s()).chunks(cols).map(|row| winner(row, beats)).collect()
        } else {
            let beats = |a: i64, b: i64| if wants_max { a > b } else { a < b };
            split.gather(x.sizes(), &x.to_i64s()).chunks(cols).map(|row| winner(row, beats)).collect()
        };
        let indices: Vec<i64> = positions.iter().map(|&position| position as i64).collect();
        let mut results = Vec::with_capacity(2);
        if gives_values(args) {
            results.push(picked(x, &split, &positions, &outs[0])?);
        }
        let sizes = outs[results.len()].sizes.clone();
        results.push(HostTensor::from_i64s(DType::I64, sizes, &indices)?);
        Ok(results)
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let x = cx.live(args.tensor("self")?)?;
        let split = split(args, x.sizes.len())?;
        let first = cx.output(&outs[0])?;
        let (values, indices) = match outs.get(1) {
            Some(out) => (first, cx.alloc(out.dtype, &out.sizes)?),
            None => (cx.alloc_as(x.dtype, x.element, &outs[0].sizes)?, first),
        };
        if indices.numel() > 0 {
            emit(cx, args, &x, &split, &values, &indices)?;
        }
        Ok(if outs.len() == 2 { vec![values, indices] } else { vec![indices] })
    }
}

fn emit(
    cx: &mut Lowering<'_>,
    args: &Args<Operand>,
    x: &Tensor,
    split: &RowSplit,
    values: &Tensor,
    indices: &Tensor,
) -> Result<()> {
    let (x, grid) = rows::gridded(cx, split, x)?;
    let op = if wants_max(args) { kernel::Op::Max } else { kernel::Op::Min };
    let params = kernel::Params {
        rows: grid.rows,
        cols: grid.cols,
        lanes: grid.lanes,
        inner: grid.inner,
        row_sizes: grid.row_sizes,
        x_row_strides: grid.row_strides[0],
        x_col_strides: grid.col_strides[0],
    };
    let operands = kernel::Operands { x: x.region(), values: values.region(), indices: indices.region() };
    let axes = kernel::Axes { dtype: element_axis!(arg_reduce, x.element) };
    let spec = kernel::Spec { op, ..kernel::Spec::default() };
    let groups = grid.groups(cx)?;
    cx.emit(kernel::dispatch(axes, spec, operands, params, groups, cx.label()))
}

fn gives_values<T>(args: &Args<T>) -> bool {
    matches!(args.op().base(), "max" | "min")
}

fn wants_max<T>(args: &Args<T>) -> bool {
    matches!(args.op().base(), "max" | "argmax")
}

/// Rows along `dim`; without one, the whole tensor is one row.
fn split<T>(args: &Args<T>, rank: usize) -> Result<RowSplit> {
    Ok(RowSplit::new(rank, &args.dims_or_all("dim", rank)?))
}

fn winner<V: Copy>(row: &[V], beats: impl Fn(V, V) -> bool) -> usize {
    let choose = |best: usize, position: usize| if beats(row[position], row[best]) { position } else { best };
    (1..row.len()).fold(0, choose)
}

fn picked(x: &HostTensor, split: &RowSplit, positions: &[usize], out: &Meta) -> Result<HostTensor> {
    let cols = split.cols(x.sizes());
    let at = |row: usize, position: usize| row * cols + position;
    if x.dtype().is_float() {
        let rows = split.gather(x.sizes(), &x.to_f64s());
        let values: Vec<f64> = positions.iter().enumerate().map(|(row, &p)| rows[at(row, p)]).collect();
        HostTensor::from_f64s(out.dtype, out.sizes.clone(), &values)
    } else {
        let rows = split.gather(x.sizes(), &x.to_i64s());
        let values: Vec<i64> = positions.iter().enumerate().map(|(row, &p)| rows[at(row, p)]).collect();
        HostTensor::from_i64s(out.dtype, out.sizes.clone(), &values)
    }
}
