//! `cat` and `stack`: tensors side by side along a dim, old or new. Every dtype; dtypes promote.
//!
//! Each operand is copied into its own range of the output. A 1-d tensor without elements joins anything in
//! `cat`, as in PyTorch.

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    view::{Layout, tensor_at},
};
use crate::base::{DType, Error, HostTensor, Result, shape};

/// The family of joins.
pub struct Join;

/// Where the operands lie in the output.
struct Plan {
    out: Meta,
    /// Per operand its range of the output, with the operand's sizes; `None` for one without elements.
    parts: Vec<Option<Layout>>,
}

impl Op for Join {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.cat.default", "aten.concat.default", "aten.stack.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        Ok(vec![plan(args)?.out])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let plan = plan(&args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?)?;
        let width = plan.out.dtype.size_bytes();
        let mut bytes = vec![0; shape::numel(&outs[0].sizes)? * width];
        for (tensor, part) in args.tensors("tensors")?.iter().flatten().zip(&plan.parts) {
            let Some(part) = part else { continue };
            let tensor = tensor.cast(plan.out.dtype)?;
            let mut source = tensor.bytes().chunks_exact(width);
            shape::for_each_offset(&part.sizes, &part.strides, part.offset, |offset| {
                if let Some(element) = source.next() {
                    bytes[offset * width..(offset + 1) * width].copy_from_slice(element);
                }
            });
        }
        Ok(vec![HostTensor::new(plan.out.dtype, plan.out.sizes, bytes)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let plan = plan(&args.try_map(|operand| Ok(operand.meta()))?)?;
        let out = cx.output(&outs[0])?;
        for (operand, part) in args.tensors("tensors")?.iter().flatten().zip(&plan.parts) {
            if let Some(part) = part {
                let source = cx.live(operand)?;
                let target =
                    tensor_at(&out, &Layout { offset: out.offset_elems + part.offset, ..part.clone() });
                cx.copy(&source, &target)?;
            }
        }
        Ok(vec![out])
    }
}

fn plan(args: &Args<Meta>) -> Result<Plan> {
    let wrong = |text: String| Error::invalid_input(text).at_operand("tensors");
    let tensors: Vec<&Meta> = args.tensors("tensors")?.iter().flatten().collect();
    let first = tensors.first().ok_or_else(|| wrong("needs at least one tensor".to_string()))?;
    let dtype = tensors.iter().map(|meta| meta.dtype).fold(first.dtype, DType::promote);
    if args.op().base() == "stack" {
        if let Some(other) = tensors.iter().find(|meta| meta.sizes != first.sizes) {
            return Err(wrong(format!("sizes {:?} and {:?} cannot be stacked", first.sizes, other.sizes)));
        }
        let dim = args.dim_or("dim", 0, first.sizes.len() + 1)?;
        let mut sizes = first.sizes.clone();
        sizes.insert(dim, tensors.len());
        let whole = Layout::contiguous(&sizes);
        let parts = (0..tensors.len()).map(|index| Some(whole.selected(dim, index))).collect();
        return Ok(Plan { out: Meta::new(dtype, sizes), parts });
    }
    let counts = |meta: &&&Meta| meta.sizes != [0];
    let Some(model) = tensors.iter().find(counts).copied() else {
        return Ok(Plan { out: Meta::new(dtype, [0]), parts: vec![None; tensors.len()] });
    };
    if model.sizes.is_empty() {
        return Err(wrong("a tensor without dims cannot be joined".to_string()));
    }
    let dim = args.dim_or("dim", 0, model.sizes.len())?;
    let fits = |meta: &Meta| {
        meta.sizes.len() == model.sizes.len()
            && (0..model.sizes.len()).all(|other| other == dim || meta.sizes[other] == model.sizes[other])
    };
    let mut sizes = model.sizes.clone();
    sizes[dim] = 0;
    for meta in tensors.iter().filter(counts) {
        if !fits(meta) {
            return Err(wrong(format!(
                "sizes {:?} and {:?} differ in more than dim {dim}",
                model.sizes, meta.sizes
            )));
        }
        sizes[dim] = sizes[dim]
            .checked_add(meta.sizes[dim])
            .ok_or_else(|| wrong("the joined dim has too many elements".to_string()))?;
    }
    let whole = Layout::contiguous(&sizes);
    let mut start = 0;
    let parts = tensors
        .iter()
        .map(|meta| {
            counts(&meta).then(|| {
                let part = whole.sliced(dim, start, meta.sizes[dim], 1);
                start += meta.sizes[dim];
                part
            })
        })
        .collect();
    Ok(Plan { out: Meta::new(dtype, sizes), parts })
}
