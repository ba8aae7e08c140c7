//! `copy`: the values of `src` with the sizes and dtype of `self`, which is all that is read of it.
//!
//! What remains of `copy_` in a graph without writes. Every dtype; `src` broadcasts.

use crate::{
    base::{HostTensor, Result, shape},
    ops::{
        Args, Lowering, Meta, Op, Operand, Tensor,
        view::{Layout, elements},
    },
};

/// The family of `aten.copy`.
pub struct Copy;

impl Op for Copy {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.copy.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (target, src) = (args.tensor("self")?, args.tensor("src")?);
        let src_strides = shape::contiguous_strides(&src.sizes);
        shape::broadcast_strides(&src.sizes, &src_strides, &target.sizes)
            .map_err(|error| error.at_operand("src"))?;
        Ok(vec![target.clone()])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let src = args.tensor("src")?;
        let src_strides = shape::contiguous_strides(src.sizes());
        let strides = shape::broadcast_strides(src.sizes(), &src_strides, &outs[0].sizes)?;
        let layout = Layout { sizes: outs[0].sizes.clone(), strides, offset: 0 };
        Ok(vec![elements(src, &layout)?.cast(outs[0].dtype)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let src = cx.live(args.tensor("src")?)?;
        if src.dtype == outs[0].dtype {
            return Ok(vec![src.broadcast_to(&outs[0].sizes)?]);
        }
        let out = cx.output(&outs[0])?;
        cx.copy(&src.broadcast_to(&outs[0].sizes)?, &out)?;
        Ok(vec![out])
    }
}
