//! Sorted rows and the first of them: `aten.topk`, `aten.sort`, `aten.argsort`, along one dim.
//!
//! Any dtype but float64. The sort is stable, and NaN is above all numbers. Rows of up to [`SORTED_ELEMS`] elements are
//! sorted in a work group's memory; of longer rows the first [`SELECTED_ELEMS`] can be had, by looking through
//! the row once for each.

use std::cmp::Ordering;

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    rows::{RowGrid, RowSplit},
};
use crate::{
    base::{DType, Error, HostTensor, Result},
    shader::{
        DeviceClass, DeviceProfile,
        kernels::{sort, topk},
    },
};

/// The longest row that is sorted as a whole.
const SORTED_ELEMS: usize = 2048;
/// How many elements are selected from a row that is longer.
const SELECTED_ELEMS: usize = 256;
/// Up to that many elements, looking for one after the other beats a sort.
const FEW_ELEMS: usize = 8;

/// The sorting ops.
pub struct Sort;

impl Op for Sort {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten.argsort.default",
            "aten.argsort.stable",
            "aten.sort.default",
            "aten.sort.stable",
            "aten.topk.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = args.tensor("self")?;
        let call = Call::read(args, &x.sizes)?;
        let is_topk = args.op().base() == "topk";
        if x.dtype == DType::F64 || (is_topk && x.dtype == DType::Bool) {
            let message = format!("{} of {} does not exist or has no kernel", args.op(), x.dtype);
            return Err(Error::unsupported(message).at_operand("self"));
        }
        let len = call.split.cols(&x.sizes);
        if len > SORTED_ELEMS && call.k > SELECTED_ELEMS {
            let message = format!(
                "rows of {len} elements are too long: whole rows are sorted up to {SORTED_ELEMS} elements, and of longer ones the first {SELECTED_ELEMS}"
            );
            return Err(Error::unsupported(message).at_operand("self"));
        }
        let indices = Meta::new(DType::I64, call.out_sizes.clone());
        let values = Meta::new(x.dtype, call.out_sizes);
        Ok(if gives_values(args) { vec![values, indices] } else { vec![indices] })
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("self")?;
        let call = Call::read(args, x.sizes())?;
        if x.dtype().is_float() {
            let ranked = rank(&call, x.sizes(), &x.to_f64s(), compare_floats);
            results(args, outs, &ranked, |out, values| {
                HostTensor::from_f64s(out.dtype, out.sizes.clone(), values)
            })
        } else {
            let ranked = rank(&call, x.sizes(), &x.to_i64s(), |a, b| a.cmp(&b));
            results(args, outs, &ranked, |out, values| {
                HostTensor::from_i64s(out.dtype, out.sizes.clone(), values)
            })
        }
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let mut x = cx.live(args.tensor("self")?)?;
        let call = Call::read(args, &x.sizes)?;
        let first = cx.output(&outs[0])?;
        let (values, indices) = match outs.get(1) {
            Some(out) => (first, cx.alloc(out.dtype, &out.sizes)?),
            None => (cx.alloc_as(x.dtype, x.element, &outs[0].sizes)?, first),
        };
        if indices.numel() > 0 {
            // The results differ from `x` in the size of the sorted dim only, which is that of `x` here.
            let results = indices.restrided(x.sizes.clone(), indices.strides.clone(), 0);
            let grid = RowGrid::of(cx, &call.split, &mut x, &results)?;
            if call.k <= FEW_ELEMS || grid.cols as usize > SORTED_ELEMS {
                emit_topk(cx, &call, &grid, [&x, &values, &indices])?;
            } else {
                emit_sort(cx, &call, &grid, [&x, &values, &indices])?;
            }
        }
        Ok(if outs.len() == 2 { vec![values, indices] } else { vec![indices] })
    }
}

/// A call, read.
struct Call {
    split: RowSplit,
    /// Elements that are kept of each row.
    k: usize,
    descending: bool,
    out_sizes: Vec<usize>,
}

impl Call {
    fn read<T>(args: &Args<T>, sizes: &[usize]) -> Result<Call> {
        let rank = sizes.len();
        let dim = args.dim_or("dim", -1, rank)?;
        let split = RowSplit::new(rank, if rank == 0 { &[] } else { std::slice::from_ref(&dim) });
        let len = split.cols(sizes);
        let mut out_sizes = sizes.to_vec();
        if args.op().base() != "topk" {
            return Ok(Call { split, k: len, descending: args.bool_or("descending", false)?, out_sizes });
        }
        let k = args.int("k")?;
        let k = usize::try_from(k).ok().filter(|&k| k <= len).ok_or_else(|| {
            Error::invalid_input(format!("is {k}, but dim {dim} has {len} elements")).at_operand("k")
        })?;
        if let Some(size) = out_sizes.get_mut(dim) {
            *size = k;
        }
        Ok(Call { split, k, descending: args.bool_or("largest", true)?, out_sizes })
    }
}

fn emit_topk(cx: &mut Lowering<'_>, call: &Call, grid: &RowGrid<2>, tensors: [&Tensor; 3]) -> Result<()> {
    use topk::{Axes, Op, Operands, Params, Spec, dispatch};
    let [x, values, indices] = tensors;
    let params = Params {
        rows: grid.rows,
        cols: grid.cols,
        lanes: grid.lanes,
        k: call.k as u32,
        x_col_stride: grid.col_strides[0][1],
        y_col_stride: grid.col_strides[1][1],
        row_sizes: grid.row_sizes,
        x_row_strides: grid.row_strides[0],
        y_row_strides: grid.row_strides[1],
    };
    let op = if call.descending { Op::Descending } else { Op::Ascending };
    let spec = Spec { op, ..Spec::default() };
    let axes = Axes { dtype: element_axis!(topk, x.element) };
    let operands = Operands { x: x.region(), values: values.region(), indices: indices.region() };
    let groups = grid.groups(cx)?;
    cx.emit(dispatch(axes, spec, operands, params, groups, cx.label()))
}

fn emit_sort(cx: &mut Lowering<'_>, call: &Call, grid: &RowGrid<2>, tensors: [&Tensor; 3]) -> Result<()> {
    use sort::{Axes, Capacity, Op, Operands, Params, Spec, dispatch};
    let [x, values, indices] = tensors;
    let params = Params {
        rows: grid.rows,
        cols: grid.cols,
        padded: grid.cols.next_power_of_two(),
        k: call.k as u32,
        x_col_stride: grid.col_strides[0][1],
        y_col_stride: grid.col_strides[1][1],
        row_sizes: grid.row_sizes,
        x_row_strides: grid.row_strides[0],
        y_row_strides: grid.row_strides[1],
    };
    let op = if call.descending { Op::Descending } else { Op::Ascending };
    let spec = Spec { op, local_x: sort_invocations(cx.profile(), params.padded) };
    let axes = Axes {
        dtype: element_axis!(sort, x.element),
        capacity: match grid.cols {
            0..=256 => Capacity::Capacity256,
            257..=512 => Capacity::Capacity512,
            _ => Capacity::Capacity2048,
        },
    };
    let operands = Operands { x: x.region(), values: values.region(), indices: indices.region() };
    let groups = cx.groups_1d(grid.rows as usize, 1)?;
    cx.emit(dispatch(axes, spec, operands, params, groups, cx.label()))
}

/// Invocations for a row of `padded` elements: one a pair where the device allows that, so that what the row takes of
/// shared memory leaves no GPU idle. A CPU gains nothing from more than its lanes.
fn sort_invocations(profile: &DeviceProfile, padded: u32) -> u32 {
    const LANES: u32 = 64;
    const MOST: u32 = 512;
    let most = if profile.class == DeviceClass::Cpu { LANES } else { MOST };
    (padded / 2).clamp(LANES, most.min(profile.max_invocations).max(LANES))
}

fn gives_values<T>(args: &Args<T>) -> bool {
    args.op().base() != "argsort"
}

/// NaN above all numbers, zeros equal.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Values and positions of the kept elements, in the order of a contiguous result.
fn rank<V: Copy + Default>(
    call: &Call,
    sizes: &[usize],
    values: &[V],
    compare: impl Fn(V, V) -> Ordering,
) -> (Vec<V>, Vec<i64>) {
    let rows = call.split.gather(sizes, values);
    let (mut kept, mut positions) = (Vec::new(), Vec::new());
    for row in rows.chunks(call.split.cols(sizes).max(1)) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| {
            let ordering = compare(row[a], row[b]);
            if call.descending { ordering.reverse() } else { ordering }
        });
        order.truncate(call.k);
        kept.extend(order.iter().map(|&position| row[position]));
        positions.extend(order.iter().map(|&position| position as i64));
    }
    (call.split.scatter(&call.out_sizes, &kept), call.split.scatter(&call.out_sizes, &positions))
}

fn results<V>(
    args: &Args<HostTensor>,
    outs: &[Meta],
    ranked: &(Vec<V>, Vec<i64>),
    make: impl Fn(&Meta, &[V]) -> Result<HostTensor>,
) -> Result<Vec<HostTensor>> {
    let mut results = Vec::with_capacity(2);
    if gives_values(args) {
        results.push(make(&outs[0], &ranked.0)?);
    }
    let out = &outs[results.len()];
    results.push(HostTensor::from_i64s(out.dtype, out.sizes.clone(), &ranked.1)?);
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::{ErrorKind, Scalar},
        ir::OpName,
        ops::ArgValue,
    };

    fn infer(target: &str, len: usize, k: i64) -> Result<Vec<Meta>> {
        let items = vec![
            ("self".to_string(), ArgValue::Tensor(Meta::new(DType::F32, [2, len]))),
            ("k".to_string(), ArgValue::Scalar(Scalar::Int(k))),
        ];
        Sort.infer(&Args::new(OpName::new(target), items))
    }

    #[test]
    fn rows_that_no_kernel_takes_are_refused() {
        assert_eq!(infer("aten.sort.default", 2048, 0).unwrap()[0].sizes, [2, 2048]);
        let error = infer("aten.sort.default", 2049, 0).unwrap_err();
        assert_eq!((error.kind(), error.operand()), (ErrorKind::Unsupported, Some("self")));
        assert_eq!(infer("aten.topk.default", 50_000, 256).unwrap()[1].sizes, [2, 256]);
        assert!(infer("aten.topk.default", 50_000, 257).is_err());
    }
}
