//! Softmax: `y_c = exp(x_c - m) / sum_k exp(x_k - m)` along one dim, `m` being the largest `x`; and its logarithm
//! `x_c - m - log(sum_k exp(x_k - m))`.
//!
//! `aten._softmax`, `aten.softmax.int`, `aten._log_softmax`, `aten.log_softmax.int`, `aten._safe_softmax` (a row of
//! -inf gives zeros instead of NaN). Any rank, dim and strides; float16, bfloat16 and float32, computed in float32.
//! An integer tensor needs a `dtype`, as in PyTorch.

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    rows::{RowGrid, RowSplit},
};
use crate::{
    base::{DType, Error, HostTensor, Result},
    shader::kernels::softmax as kernel,
};

/// The softmax family.
pub struct Softmax;

impl Op for Softmax {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten._log_softmax.default",
            "aten._safe_softmax.default",
            "aten._softmax.default",
            "aten.log_softmax.int",
            "aten.softmax.int",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = args.tensor("self")?;
        args.dim_or("dim", -1, x.sizes.len())?;
        let dtype = match args.opt_dtype("dtype")? {
            Some(dtype) => dtype,
            None if args.bool_or("half_to_float", false)? => DType::F32,
            None => x.dtype,
        };
        if !dtype.is_float() {
            return Err(Error::unsupported(format!(
                "a softmax in {dtype} does not exist; give a float dtype"
            ))
            .at_operand("self"));
        }
        for dtype in [x.dtype, dtype] {
            if dtype == DType::F64 {
                return Err(Error::unsupported("float64 has no kernel; use float32").at_operand("self"));
            }
        }
        Ok(vec![Meta::new(dtype, x.sizes.clone())])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("self")?.cast(outs[0].dtype)?;
        let split = RowSplit::new(x.sizes().len(), &dims(args, x.sizes().len())?);
        let mut rows = split.gather(x.sizes(), &x.to_f64s());
        let function = function(args);
        for row in rows.chunks_mut(split.cols(x.sizes()).max(1)) {
            eval_row(row, function);
        }
        let values = split.scatter(x.sizes(), &rows);
        Ok(vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let mut x = cx.live(args.tensor("self")?)?;
        if x.dtype != outs[0].dtype {
            x = cx.converted(&x, outs[0].dtype)?;
        }
        let y = cx.output(&outs[0])?;
        if y.numel() == 0 {
            return Ok(vec![y]);
        }
        let split = RowSplit::new(x.sizes.len(), &dims(args, x.sizes.len())?);
        let mut grid = RowGrid::of(cx, &split, &mut x, &y)?;
        let width = if grid.takes_steps_of_4(cx.profile().class, [&x, &y]) {
            kernel::Width::Width4
        } else {
            kernel::Width::Width1
        };
        let axes = kernel::Axes { dtype: float_axis!(softmax, x.element)?, width };
        let spec = kernel::Spec {
            round_mode: cx.round_mode(y.dtype, y.element),
            op: function(args),
            ..kernel::Spec::default()
        };
        let params = kernel::Params {
            rows: grid.rows,
            cols: grid.cols,
            lanes: grid.lanes,
            x_col_stride: grid.col_strides[0][1],
            y_col_stride: grid.col_strides[1][1],
            row_sizes: grid.row_sizes,
            x_row_strides: grid.row_strides[0],
            y_row_strides: grid.row_strides[1],
        };
        let operands = kernel::Operands { x: x.region(), y: y.region() };
        let groups = grid.groups(cx)?;
        cx.emit(kernel::dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(vec![y])
    }
}

/// The dim, as a list; none for a 0-d tensor, whose one row has one element.
fn dims<T>(args: &Args<T>, rank: usize) -> Result<Vec<usize>> {
    let dim = args.dim_or("dim", -1, rank)?;
    Ok(if rank == 0 { vec![] } else { vec![dim] })
}

fn function<T>(args: &Args<T>) -> kernel::Op {
    match args.op().base() {
        "_log_softmax" | "log_softmax" => kernel::Op::LogSoftmax,
        "_safe_softmax" => kernel::Op::SafeSoftmax,
        _ => kernel::Op::Softmax,
    }
}

fn eval_row(row: &mut [f64], function: kernel::Op) {
    let largest = row
        .iter()
        .fold(f64::NEG_INFINITY, |m, &v| if v.is_nan() || m.is_nan() { f64::NAN } else { m.max(v) });
    if function == kernel::Op::SafeSoftmax && largest == f64::NEG_INFINITY {
        return row.fill(0.0);
    }
    let sum: f64 = row.iter().map(|v| (v - largest).exp()).sum();
    for v in row {
        *v = match function {
            kernel::Op::LogSoftmax => *v - largest - sum.ln(),
            _ => (*v - largest).exp() / sum,
        };
    }
}
