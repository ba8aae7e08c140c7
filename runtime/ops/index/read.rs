//! Reads: the elements that a call names become a new tensor.

use super::{
    launch::{self, Indexing},
    panels,
    space::{Space, index_operands, table_name},
};
use crate::{
    base::{HostTensor, Result},
    ops::{Args, Lowering, Meta, Op, Operand, Tensor},
};

/// The family of reads at positions that are data.
pub struct IndexRead;

impl Op for IndexRead {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten._unsafe_index.Tensor",
            "aten.embedding.default",
            "aten.gather.default",
            "aten.index.Tensor",
            "aten.index_select.default",
            "aten.take_along_dim.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let space = Space::of(args)?;
        let table = args.tensor(table_name(args.op().base()))?;
        let sizes = match args.op().base() {
            "gather" => args.tensor("index")?.sizes.clone(),
            "index_select" if table.sizes.is_empty() => Vec::new(),
            _ => space.sizes,
        };
        Ok(vec![Meta::new(table.dtype, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let space = Space::of(&args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?)?;
        let table = args.tensor(table_name(args.op().base()))?;
        let width = table.dtype().size_bytes();
        let mut bytes = Vec::new();
        for offset in space.offsets(&index_operands(args)?)? {
            bytes.extend_from_slice(&table.bytes()[offset * width..(offset + 1) * width]);
        }
        Ok(vec![HostTensor::new(table.dtype(), outs[0].sizes.clone(), bytes)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        if let (Some(Operand::Constant(table)), "embedding") = (args.opt_tensor("weight")?, args.op().base())
            && cx.has_panels(table)
        {
            let indices = cx.live(args.tensor("indices")?)?;
            let out = cx.output(&outs[0])?;
            panels::gather_rows(cx, table, &indices, &out)?;
            return Ok(vec![out]);
        }
        let space = Space::of(&args.try_map(|operand| Ok(operand.meta()))?)?;
        let table = cx.live(args.tensor(table_name(args.op().base()))?)?;
        let table = launch::with_dims(&table);
        let indices: Vec<Tensor> =
            index_operands(args)?.into_iter().map(|operand| cx.live(operand)).collect::<Result<_>>()?;
        let out = cx.output(&outs[0])?;
        launch::gather(cx, &Indexing { table, indices, space }, &out)?;
        Ok(vec![out])
    }
}
