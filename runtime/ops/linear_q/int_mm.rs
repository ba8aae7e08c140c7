//! `_int_mm` with codes that stay packed: `y = x W^T`, exact in 32 bits, x being int8 or uint8 and W int8.

use super::{Side, lower};
use crate::{
    base::{DType, Error, HostTensor, Result},
    ops::{Args, DotSide, Lowering, Meta, Op, Operand, Tensor, linear_a8::int_product},
};

/// The family of the one op `vkdelegate._int_mm`, which the quantised rewrite makes of `aten._int_mm`: `self` of sizes
/// `[M, K]`, `weight`, a constant of sizes `[N, K]`, and `side`, a constant that [`IntMm::side`] describes, with sums of
/// the codes. With it, a device whose packed dot products are fast takes those.
pub struct IntMm;

impl IntMm {
    /// The layout of the side table: one group, with scales of 1.
    pub fn side() -> DotSide {
        DotSide(Side { groups: 1, has_zeros: false, has_bias: false })
    }
}

impl Op for IntMm {
    fn targets(&self) -> &'static [&'static str] {
        &["vkdelegate._int_mm.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (x, weight) = (args.tensor("self")?, args.tensor("weight")?);
        if let (Some(side), Some(&n)) = (args.opt_tensor("side")?, weight.sizes.first())
            && (side.dtype != DType::I32 || side.sizes != IntMm::side().sizes(n))
        {
            let text = format!("is {}{:?}; takes int32{:?}", side.dtype, side.sizes, IntMm::side().sizes(n));
            return Err(Error::invalid_graph(text).at_operand("side"));
        }
        match (x.sizes.as_slice(), weight.sizes.as_slice()) {
            (&[m, k], &[n, weight_k]) if k == weight_k && weight.dtype == DType::I8 => {
                Ok(vec![Meta::new(DType::I32, [m, n])])
            }
            _ => {
                let text = format!("is {}{:?}; `self` has sizes {:?}", weight.dtype, weight.sizes, x.sizes);
                Err(Error::invalid_graph(text).at_operand("weight"))
            }
        }
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let (x, weight) = (args.tensor("self")?, args.tensor("weight")?);
        let k = weight.sizes()[1];
        let (x_values, codes) = (x.to_i64s(), weight.to_i64s());
        let mut sums = Vec::with_capacity(x.sizes()[0] * weight.sizes()[0]);
        for row in 0..x.sizes()[0] {
            let x_row = &x_values[row * k..][..k];
            for n in 0..weight.sizes()[0] {
                let terms = x_row.iter().zip(&codes[n * k..][..k]);
                sums.push(terms.map(|(a, b)| a * b).sum::<i64>() as i32 as i64);
            }
        }
        Ok(vec![HostTensor::from_i64s(DType::I32, outs[0].sizes.clone(), &sums)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        match args.opt_tensor("side")? {
            Some(side) if cx.profile().packed_dot => {
                let constant = |operand: &'static str| {
                    args.tensor(operand)?.constant().map_err(|error| error.at_operand(operand))
                };
                let (weight, side) = (constant("weight")?, side.constant()?);
                let y = cx.output(&outs[0])?;
                if y.numel() > 0 {
                    int_product(cx, args.tensor("self")?, weight, side, &y)?;
                }
                Ok(vec![y])
            }
            _ => lower::lower_ints(args, &outs[0], cx),
        }
    }
}
