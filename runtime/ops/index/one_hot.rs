//! `one_hot`: for every class id a row of zeros with a one at its place. Ids of int64, a given number of classes.

use super::{
    launch::{self, Indexing},
    space::Space,
};
use crate::{
    base::{DType, Error, HostTensor, Result, Scalar, shape},
    ops::{
        Args, Lowering, Meta, Op, Operand, Tensor,
        fill::{fill, repeated_scalar},
    },
};

/// The family of `aten.one_hot`.
pub struct OneHot;

impl Op for OneHot {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.one_hot.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let ids = args.tensor("self")?;
        if ids.dtype != DType::I64 {
            let text = format!("class ids are int64, not {}", ids.dtype);
            return Err(Error::invalid_input(text).at_operand("self"));
        }
        let classes = usize::try_from(args.int_or("num_classes", -1)?).ok().filter(|&classes| classes > 0);
        let classes = classes.ok_or_else(|| {
            Error::unsupported("a number of classes that only a run tells is not supported; give it")
                .at_operand("num_classes")
        })?;
        let sizes = [ids.sizes.as_slice(), &[classes]].concat();
        shape::numel(&sizes)?;
        Ok(vec![Meta::new(DType::I64, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let mut rows = vec![0i64; shape::numel(&outs[0].sizes)?];
        for offset in space(&outs[0]).offsets(&[args.tensor("self")?])? {
            rows[offset] = 1;
        }
        Ok(vec![HostTensor::from_i64s(DType::I64, outs[0].sizes.clone(), &rows)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let ids = cx.live(args.tensor("self")?)?;
        let out = cx.output(&outs[0])?;
        fill(cx, &out, Scalar::Int(0))?;
        let space = space(&outs[0]);
        let ones = repeated_scalar(cx, &out, &space.sizes, Scalar::Int(1))?;
        launch::scatter(cx, &Indexing { table: out.clone(), indices: vec![ids], space }, &ones)?;
        Ok(vec![out])
    }
}

/// One place in the last dim of `out` for each element of the other dims.
fn space(out: &Meta) -> Space {
    let rank = out.sizes.len() - 1;
    let sizes = out.sizes[..rank].to_vec();
    Space {
        walks: (0..rank).map(Some).collect(),
        runs: (0..rank).map(Some).collect(),
        index_sizes: sizes.clone(),
        sizes,
        indexed: vec![rank],
        table_sizes: out.sizes.clone(),
        wraps: false,
    }
}
