//! `tril` and `triu`: one triangle of the last two dims kept, the other zero. Every dtype.

use super::{Args, Lowering, Meta, Op, Operand, Tensor, elementwise, fill::u32_of};
use crate::{
    base::{Error, HostTensor, Result},
    shader::kernels::triangle,
};

/// The family of triangles.
pub struct Triangle;

impl Op for Triangle {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.tril.default", "aten.triu.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let operand = args.tensor("self")?;
        matrix(&operand.sizes)?;
        args.int_or("diagonal", 0)?;
        Ok(vec![operand.clone()])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let operand = args.tensor("self")?;
        let (rows, columns) = matrix(operand.sizes())?;
        let (diagonal, upper) = (diagonal(args, rows, columns)?, args.op().base() == "triu");
        let width = operand.dtype().size_bytes();
        let mut bytes = operand.bytes().to_vec();
        for (i, slot) in bytes.chunks_exact_mut(width).enumerate() {
            let right = (i % columns) as i64 - ((i / columns) % rows) as i64;
            let keeps = if upper { right >= diagonal } else { right <= diagonal };
            if !keeps {
                slot.fill(0);
            }
        }
        Ok(vec![HostTensor::new(operand.dtype(), outs[0].sizes.clone(), bytes)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let operand = cx.live(args.tensor("self")?)?;
        let operand = cx.contiguous(&operand)?;
        let out = cx.output(&outs[0])?;
        let (rows, columns) = matrix(&operand.sizes)?;
        let diagonal = i32::try_from(diagonal(args, rows, columns)?);
        let params = triangle::Params {
            n_elems: u32_of(out.numel())?,
            rows: u32_of(rows)?,
            columns: u32_of(columns)?,
            diagonal: diagonal.map_err(|_| Error::unsupported("the matrix has too many rows or columns"))?,
            upper: u32::from(args.op().base() == "triu"),
        };
        let axes = triangle::Axes { dtype: move_axis!(triangle, out.element) };
        let operands = triangle::Operands { x: operand.region(), y: out.region() };
        let groups = cx.groups_1d(out.numel(), elementwise::LOCAL_X)?;
        cx.emit(triangle::dispatch(axes, triangle::Spec::default(), operands, params, groups, cx.label()))?;
        Ok(vec![out])
    }
}

/// Rows and columns of the last two dims.
fn matrix(sizes: &[usize]) -> Result<(usize, usize)> {
    match sizes {
        [.., rows, columns] => Ok((*rows, *columns)),
        _ => Err(Error::invalid_input(format!("needs rows and columns, not rank {}", sizes.len()))
            .at_operand("self")),
    }
}

/// The diagonal, no further out than the matrix is large.
fn diagonal<T>(args: &Args<T>, rows: usize, columns: usize) -> Result<i64> {
    Ok(args.int_or("diagonal", 0)?.clamp(-(rows as i64), columns as i64))
}
