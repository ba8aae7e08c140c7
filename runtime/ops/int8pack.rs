//! `_weight_int8pack_mm`: `y = (x W^T) * scales`, with codes W of sizes `[N, K]` in int8 and a scale for each row.
//!
//! x of sizes `[M, K]` and scales of `[N]` are floats of one dtype.

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    matmul::{self, Form},
    product::{Columns, Product, transposed},
    quantize::{float32, scaled},
};
use crate::base::{DType, Error, HostTensor, Result};

/// The family.
pub struct Int8Pack;

impl Op for Int8Pack {
    fn targets(&self) -> &'static [&'static str] {
        &["aten._weight_int8pack_mm.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (x, weight, scales) = (args.tensor("self")?, args.tensor("mat2")?, args.tensor("scales")?);
        matmul::check_floats(x.dtype, scales.dtype).map_err(|error| error.at_operand("scales"))?;
        if weight.dtype != DType::I8 {
            return Err(
                Error::invalid_graph(format!("is {}; codes are int8", weight.dtype)).at_operand("mat2")
            );
        }
        let (&[m, k], &[n, weight_k]) = (x.sizes.as_slice(), weight.sizes.as_slice()) else {
            let text = format!("has sizes {:?}, `self` {:?}; both are matrices", weight.sizes, x.sizes);
            return Err(Error::invalid_graph(text).at_operand("mat2"));
        };
        if k != weight_k {
            let text = format!("has {weight_k} columns; `self` has {k}");
            return Err(Error::invalid_graph(text).at_operand("mat2"));
        }
        if scales.sizes != [n] {
            let text = format!("has sizes {:?}; {n} rows take [{n}]", scales.sizes);
            return Err(Error::invalid_graph(text).at_operand("scales"));
        }
        Ok(vec![Meta::new(x.dtype, [m, n])])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let (x, weight, scales) = (args.tensor("self")?, args.tensor("mat2")?, args.tensor("scales")?);
        let (n, k) = (weight.sizes()[0], weight.sizes()[1]);
        let columns = super::linear::transposed(&weight.to_f64s(), n, k);
        let form = Form::new(x.sizes(), &[k, n])?;
        let mut sums = matmul::product(&form, (&x.to_f64s(), x.sizes()), (&columns, &[k, n]))?;
        let scales = scales.to_f64s();
        for row in sums.chunks_exact_mut(n.max(1)) {
            row.iter_mut().zip(&scales).for_each(|(sum, scale)| *sum *= scale);
        }
        Ok(vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &sums)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let x = cx.live(args.tensor("self")?)?;
        let codes = cx.live(args.tensor("mat2")?)?;
        let scales = float32(cx, args.tensor("scales")?)?;
        let weight = cx.alloc(x.dtype, &codes.sizes)?;
        let column = scales.restrided(vec![scales.sizes[0], 1], vec![scales.strides[0], 0], 0);
        scaled(cx, &codes, column, &weight)?;
        let y = cx.output(&outs[0])?;
        Product::new(x, Columns::Live(transposed(&weight))).emit(cx, &y)?;
        Ok(vec![y])
    }
}
