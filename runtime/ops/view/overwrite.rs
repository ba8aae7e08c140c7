//! `slice_scatter`, `select_scatter`, `diagonal_scatter`: a tensor with one of its views overwritten by `src`.
//!
//! Every dtype; `src` has the view's sizes and is converted to the tensor's dtype. The tensor is updated in
//! place where nobody needs its old value.

use crate::{
    base::{Error, HostTensor, Result, shape},
    ops::{
        Args, InPlace, Lowering, Meta, Op, Operand, Tensor,
        view::{Layout, layout_of, select_of, slice_of, tensor_at},
    },
};

/// The family of tensors with an overwritten view.
pub struct Overwrite;

impl Op for Overwrite {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.diagonal_scatter.default", "aten.select_scatter.default", "aten.slice_scatter.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (operand, src) = (args.tensor("self")?, args.tensor("src")?);
        let part = part(args, &Layout::contiguous(&operand.sizes))?;
        if part.sizes != src.sizes {
            let text = format!("sizes {:?} do not fill a view of sizes {:?}", src.sizes, part.sizes);
            return Err(Error::invalid_input(text).at_operand("src"));
        }
        Ok(vec![operand.clone()])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let operand = args.tensor("self")?;
        let src = args.tensor("src")?.cast(operand.dtype())?;
        let part = part(
            &args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?,
            &Layout::contiguous(operand.sizes()),
        )?;
        let width = operand.dtype().size_bytes();
        let mut bytes = operand.bytes().to_vec();
        let mut source = src.bytes().chunks_exact(width);
        shape::for_each_offset(&part.sizes, &part.strides, part.offset, |offset| {
            if let Some(element) = source.next() {
                bytes[offset * width..(offset + 1) * width].copy_from_slice(element);
            }
        });
        Ok(vec![HostTensor::new(operand.dtype(), outs[0].sizes.clone(), bytes)?])
    }

    fn lower(&self, args: &Args<Operand>, _outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let metas = args.try_map(|operand| Ok(operand.meta()))?;
        let (base, src) = (cx.live(args.tensor("self")?)?, cx.live(args.tensor("src")?)?);
        let out = cx.updated(&base)?;
        let part = part(&metas, &layout_of(&out))?;
        cx.copy(&src, &tensor_at(&out, &part))?;
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Update("self")
    }
}

/// The view of `whole` that is overwritten.
fn part(args: &Args<Meta>, whole: &Layout) -> Result<Layout> {
    match args.op().base() {
        "slice_scatter" => slice_of(args, whole),
        "select_scatter" => select_of(args, whole),
        _ => {
            let rank = whole.rank();
            let (dim1, dim2) = (args.dim_or("dim1", 0, rank)?, args.dim_or("dim2", 1, rank)?);
            whole.diagonal(args.int_or("offset", 0)?, dim1, dim2)
        }
    }
}
