//! Running sums and products along one dim: `aten.cumsum`, `aten.cumprod`.
//!
//! Any dim and strides. Floats accumulate in float32; integers and bools give int64 unless a `dtype` says otherwise, and
//! a result that leaves the 32 bits of the device is reported.

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    rows::{RowGrid, RowSplit},
};
use crate::{
    base::{DType, Error, HostTensor, Result},
    ops::Element,
    shader::kernels::{scan_float, scan_int},
};

/// The scans.
pub struct Scan;

impl Op for Scan {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.cumprod.default", "aten.cumsum.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = args.tensor("self")?;
        split(args, x.sizes.len())?;
        let default = if x.dtype.is_float() { x.dtype } else { DType::I64 };
        let dtype = args.opt_dtype("dtype")?.unwrap_or(default);
        if x.dtype == DType::F64 || dtype == DType::F64 {
            return Err(Error::unsupported("float64 has no kernel; use float32").at_operand("self"));
        }
        if dtype == DType::Bool {
            return Err(Error::unsupported("a running sum in bool does not exist").at_operand("dtype"));
        }
        Ok(vec![Meta::new(dtype, x.sizes.clone())])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("self")?.cast(outs[0].dtype)?;
        let split = split(args, x.sizes().len())?;
        let (cols, product) = (split.cols(x.sizes()).max(1), is_product(args));
        let (dtype, sizes) = (outs[0].dtype, outs[0].sizes.clone());
        let result = if dtype.is_float() {
            let mut rows = split.gather(x.sizes(), &x.to_f64s());
            rows.chunks_mut(cols).for_each(|row| run(row, |a, b| if product { a * b } else { a + b }));
            HostTensor::from_f64s(dtype, sizes, &split.scatter(x.sizes(), &rows))?
        } else {
            let mut rows = split.gather(x.sizes(), &x.to_i64s());
            let combine = if product { i64::wrapping_mul } else { i64::wrapping_add };
            rows.chunks_mut(cols).for_each(|row| run(row, combine));
            HostTensor::from_i64s(dtype, sizes, &split.scatter(x.sizes(), &rows))?
        };
        Ok(vec![result])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let mut x = match args.tensor("self")? {
            // As it is: floats that are kept in 32 bits for being counts must not pass through half precision.
            Operand::Live(x) if x.dtype != outs[0].dtype => x.clone(),
            operand => cx.live(operand)?,
        };
        if x.dtype != outs[0].dtype {
            x = cx.converted(&x, outs[0].dtype)?;
        }
        let y = cx.output(&outs[0])?;
        if y.numel() == 0 {
            return Ok(vec![y]);
        }
        let split = split(args, x.sizes.len())?;
        let grid = RowGrid::of(cx, &split, &mut x, &y)?;
        if x.element == Element::I32 {
            emit_int(cx, is_product(args), &grid, &x, &y)?;
        } else {
            emit_float(cx, is_product(args), &grid, &x, &y)?;
        }
        Ok(vec![y])
    }
}

fn emit_float(cx: &mut Lowering<'_>, product: bool, grid: &RowGrid<2>, x: &Tensor, y: &Tensor) -> Result<()> {
    use scan_float::{Axes, Op, Operands, Params, Spec, dispatch};
    let spec = Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        op: if product { Op::Prod } else { Op::Sum },
        ..Spec::default()
    };
    let params = Params {
        rows: grid.rows,
        cols: grid.cols,
        lanes: grid.lanes,
        x_col_stride: grid.col_strides[0][1],
        y_col_stride: grid.col_strides[1][1],
        row_sizes: grid.row_sizes,
        x_row_strides: grid.row_strides[0],
        y_row_strides: grid.row_strides[1],
    };
    let axes = Axes { dtype: float_axis!(scan_float, x.element)? };
    let operands = Operands { x: x.region(), y: y.region() };
    let groups = grid.groups(cx)?;
    cx.emit(dispatch(axes, spec, operands, params, groups, cx.label()))
}

fn emit_int(cx: &mut Lowering<'_>, product: bool, grid: &RowGrid<2>, x: &Tensor, y: &Tensor) -> Result<()> {
    use scan_int::{Axes, Op, Operands, Params, Spec, dispatch};
    let spec = Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        op: if product { Op::Prod } else { Op::Sum },
        checked: u32::from(y.dtype == DType::I64),
        ..Spec::default()
    };
    let params = Params {
        rows: grid.rows,
        cols: grid.cols,
        lanes: grid.lanes,
        node: cx.node_id(),
        x_col_stride: grid.col_strides[0][1],
        y_col_stride: grid.col_strides[1][1],
        row_sizes: grid.row_sizes,
        x_row_strides: grid.row_strides[0],
        y_row_strides: grid.row_strides[1],
    };
    let operands = Operands { x: x.region(), y: y.region(), status: cx.status() };
    let groups = grid.groups(cx)?;
    cx.emit(dispatch(Axes {}, spec, operands, params, groups, cx.label()))
}

fn is_product<T>(args: &Args<T>) -> bool {
    args.op().base() == "cumprod"
}

fn split<T>(args: &Args<T>, rank: usize) -> Result<RowSplit> {
    let dim = args.dim_or("dim", 0, rank)?;
    Ok(RowSplit::new(rank, if rank == 0 { &[] } else { std::slice::from_ref(&dim) }))
}

fn run<V: Copy>(row: &mut [V], combine: impl Fn(V, V) -> V) {
    for position in 1..row.len() {
        row[position] = combine(row[position - 1], row[position]);
    }
}
