//! `copy` and `fill.Tensor`: the values of a tensor with the sizes and dtype of `self`, which is all that is read of it.
//!
//! What remains of `copy_` and `fill_` in a graph without writes. Every dtype; the values broadcast.

use crate::{
    base::{HostTensor, Result, shape},
    ops::{
        Args, Lowering, Meta, Op, Operand, Tensor,
        view::{Layout, elements},
    },
};

/// The family of copies.
pub struct Copy;

impl Op for Copy {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.copy.default", "aten.fill.Tensor"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (target, src) = (args.tensor("self")?, source(args)?);
        let src_strides = shape::contiguous_strides(&src.sizes);
        shape::broadcast_strides(&src.sizes, &src_strides, &target.sizes)
            .map_err(|error| error.at_operand(source_name(args)))?;
        Ok(vec![target.clone()])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let src = source(args)?;
        let src_strides = shape::contiguous_strides(src.sizes());
        let strides = shape::broadcast_strides(src.sizes(), &src_strides, &outs[0].sizes)?;
        let layout = Layout { sizes: outs[0].sizes.clone(), strides, offset: 0 };
        Ok(vec![elements(src, &layout)?.cast(outs[0].dtype)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let src = cx.live(source(args)?)?;
        if src.dtype == outs[0].dtype {
            return Ok(vec![src.broadcast_to(&outs[0].sizes)?]);
        }
        let out = cx.output(&outs[0])?;
        cx.copy(&src.broadcast_to(&outs[0].sizes)?, &out)?;
        Ok(vec![out])
    }
}

fn source_name<T>(args: &Args<T>) -> &'static str {
    if args.op().base() == "fill" { "value" } else { "src" }
}

fn source<T>(args: &Args<T>) -> Result<&T> {
    args.tensor(source_name(args))
}
