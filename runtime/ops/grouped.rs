//! Products of groups of rows, each with a matrix of its own: what a mixture of experts computes once its rows are sorted.
//!
//! | target | result |
//! |---|---|
//! | `transformers.grouped_mm_fallback` | rows `offs[g - 1]..offs[g]` of `input [S, K]` times `weight[g]` of `weight [G, K, N]` |
//! | `aten._grouped_mm` | the same of `self` and `mat2`, in this one of its forms, without bias and in its own dtype |
//!
//! `offs [G]` is int32, or int64 for the first, and data: offsets that fall, or go past the rows, are an error of the run.
//! Rows behind the last offset are zeros (PyTorch's own op leaves them undefined). Floats of one dtype, with sums in
//! 32 bits. The weight may be constant or live, with any strides; a constant one is laid out as it is.

use super::{
    Args, Element, Lowering, Meta, Op, Operand, Tensor,
    elementwise::LOCAL_X,
    fill::{fill, u32_of},
    matmul::check_floats,
    product::vectors_along,
};
use crate::{
    base::{DType, Error, ErrorKind, HostTensor, Result, Scalar},
    shader::kernels::{grouped_mm, grouped_rows},
};

/// The family.
pub struct GroupedMm;

/// A group has this many rows on average before an invocation takes several.
const ROWS_FOR_TILES: usize = 4;

/// Names of the rows and of the matrices in a call of `aten._grouped_mm` or of the other.
fn names<T>(args: &Args<T>) -> [&'static str; 2] {
    if args.op().base() == "_grouped_mm" { ["self", "mat2"] } else { ["input", "weight"] }
}

impl Op for GroupedMm {
    fn targets(&self) -> &'static [&'static str] {
        &["aten._grouped_mm.default", "transformers.grouped_mm_fallback.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let [rows_name, matrices_name] = names(args);
        let (rows, matrices) = (args.tensor(rows_name)?, args.tensor(matrices_name)?);
        for (name, meta, rank) in [(rows_name, rows, 2), (matrices_name, matrices, 3)] {
            if meta.sizes.len() != rank {
                let text =
                    format!("has sizes {:?}; rows [S, K] times matrices [G, K, N] are taken", meta.sizes);
                return Err(Error::unsupported(text).at_operand(name));
            }
        }
        check_floats(rows.dtype, matrices.dtype).map_err(|error| error.at_operand(matrices_name))?;
        if rows.sizes[1] != matrices.sizes[1] {
            let text =
                format!("has {} rows a matrix, `{rows_name}` {} columns", matrices.sizes[1], rows.sizes[1]);
            return Err(Error::invalid_graph(text).at_operand(matrices_name));
        }
        let offs = args
            .opt_tensor("offs")?
            .ok_or_else(|| Error::unsupported("is left out; groups of rows need it").at_operand("offs"))?;
        let takes_i64 = args.op().base() != "_grouped_mm";
        if offs.dtype != DType::I32 && !(takes_i64 && offs.dtype == DType::I64) {
            return Err(
                Error::invalid_graph(format!("is {}; offsets are int32", offs.dtype)).at_operand("offs")
            );
        }
        if offs.sizes != [matrices.sizes[0]] {
            let text = format!("has sizes {:?} for {} matrices", offs.sizes, matrices.sizes[0]);
            return Err(Error::invalid_graph(text).at_operand("offs"));
        }
        if args.opt_tensor("bias")?.is_some() {
            return Err(Error::unsupported("is not taken here; add it to the result").at_operand("bias"));
        }
        if args.opt_dtype("out_dtype")?.is_some_and(|dtype| dtype != rows.dtype) {
            return Err(
                Error::unsupported(format!("differs from the rows' {}", rows.dtype)).at_operand("out_dtype")
            );
        }
        Ok(vec![Meta::new(rows.dtype, [rows.sizes[0], matrices.sizes[2]])])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let [rows_name, matrices_name] = names(args);
        let (rows, matrices) = (args.tensor(rows_name)?, args.tensor(matrices_name)?);
        let (k, n) = (matrices.sizes()[1], matrices.sizes()[2]);
        let (a, b) = (rows.to_f64s(), matrices.to_f64s());
        let mut sums = vec![0.0; rows.sizes()[0] * n];
        let mut start = 0;
        for (group, end) in args.tensor("offs")?.to_i64s().into_iter().enumerate() {
            let end = checked_end(end, start, rows.sizes()[0])?;
            for row in start..end {
                for i in 0..k {
                    let (factor, from) = (a[row * k + i], (group * k + i) * n);
                    let terms = sums[row * n..(row + 1) * n].iter_mut().zip(&b[from..from + n]);
                    terms.for_each(|(sum, term)| *sum += factor * term);
                }
            }
            start = end;
        }
        Ok(vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &sums)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let [rows_name, matrices_name] = names(args);
        let a = cx.live(args.tensor(rows_name)?)?;
        let b = cx.live(args.tensor(matrices_name)?)?;
        let offs = cx.live(args.tensor("offs")?)?;
        let y = cx.output(&outs[0])?;
        if offs.numel() == 0 {
            fill(cx, &y, Scalar::Float(0.0))?;
            return Ok(vec![y]);
        }
        let groups = groups_of_rows(cx, &offs, a.sizes[0])?;
        if a.sizes[1] == 0 {
            fill(cx, &y, Scalar::Float(0.0))?;
        } else if y.numel() > 0 {
            products(cx, [&a, &b, &groups], &y)?;
        }
        Ok(vec![y])
    }
}

/// The end of a group that starts at `start`, of `rows` rows in all.
fn checked_end(end: i64, start: usize, rows: usize) -> Result<usize> {
    usize::try_from(end).ok().filter(|end| (start..=rows).contains(end)).ok_or_else(|| {
        let text =
            format!("the index {end} is out of range: a group starts at {start} and there are {rows} rows");
        Error::new(ErrorKind::BadData, text).at_operand("offs")
    })
}

/// The group of each row; -1 for rows behind the last one. Reports offsets that are no ends of groups.
fn groups_of_rows(cx: &mut Lowering<'_>, offs: &Tensor, rows: usize) -> Result<Tensor> {
    // Offsets are checked where there are no rows too, and the kernel then stores nothing.
    let groups = cx.alloc_as(DType::I32, Element::I32, &[rows.max(1)])?;
    let count = offs.numel();
    let params = grouped_rows::Params {
        rows: u32_of(rows)?,
        groups: u32_of(count)?,
        offs_stride: u32_of(offs.strides[0])?,
        node: cx.node_id(),
    };
    let operands = grouped_rows::Operands { offs: offs.region(), y: groups.region(), status: cx.status() };
    let work_groups = cx.groups_1d(rows.max(count), LOCAL_X)?;
    let (axes, spec) = (grouped_rows::Axes {}, grouped_rows::Spec::default());
    cx.emit(grouped_rows::dispatch(axes, spec, operands, params, work_groups, cx.label()))?;
    Ok(groups)
}

/// Emits `y`, of at least one element, from rows, matrices and the group of each row.
fn products(cx: &mut Lowering<'_>, [a, b, groups]: [&Tensor; 3], y: &Tensor) -> Result<()> {
    let (m, [count, k, n]) = (a.sizes[0], [b.sizes[0], b.sizes[1], b.sizes[2]]);
    let (tile_m, rows) = if m >= ROWS_FOR_TILES * count {
        (grouped_mm::TileM::TileM4, 4)
    } else {
        (grouped_mm::TileM::TileM1, 1)
    };
    let spec = grouped_mm::Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        a_vec4: u32::from(k.is_multiple_of(4) && vectors_along(a, 1)),
        b_loads: match () {
            () if n.is_multiple_of(4) && vectors_along(b, 2) => 1,
            () if k.is_multiple_of(4) && vectors_along(b, 1) => 2,
            () => 0,
        },
        ..grouped_mm::Spec::default()
    };
    let params = grouped_mm::Params {
        m: u32_of(m)?,
        n: u32_of(n)?,
        k: u32_of(k)?,
        a_strides: [u32_of(a.strides[0])?, u32_of(a.strides[1])?],
        b_strides: [u32_of(b.strides[0])?, u32_of(b.strides[1])?, u32_of(b.strides[2])?],
    };
    let operands =
        grouped_mm::Operands { a: a.region(), b: b.region(), groups: groups.region(), y: y.region() };
    let axes = grouped_mm::Axes { dtype: float_axis!(grouped_mm, y.element)?, tile_m };
    let invocations = m.div_ceil(rows).saturating_mul(n.div_ceil(4));
    let work_groups = cx.groups_1d(invocations, spec.local_x)?;
    let dispatch = grouped_mm::dispatch(axes, spec, operands, params, work_groups, cx.label());
    cx.emit(dispatch.of_ops(2 * (m * n) as u64 * k as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_end_where_they_start_or_later_and_within_the_rows() {
        assert_eq!(checked_end(2, 2, 5).unwrap(), 2);
        assert_eq!(checked_end(5, 2, 5).unwrap(), 5);
        for end in [1, 6, -1] {
            assert_eq!(checked_end(end, 2, 5).unwrap_err().kind(), ErrorKind::BadData);
        }
    }
}
