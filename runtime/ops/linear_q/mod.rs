//! `linear` with a quantised weight: `y = x W^T + bias` with `W[n, k] = (code[n, k] - zero) * scale`.
//!
//! No program holds these ops; the quantised rewrite makes them of a product and what dequantises its weight.
//!
//! | op | codes |
//! |---|---|
//! | `vkdelegate.linear_q8` | 8 bits each on the device |
//! | `vkdelegate.linear_q4` | 4 bits each on the device |
//! | `vkdelegate._weight_int8pack_mm` | as `linear_q8`, for the ATen op of that name |
//!
//! | operand or attribute | |
//! |---|---|
//! | `input` | floats, sizes `[..., K]` |
//! | `weight` | codes, a constant of int8 or uint8, sizes `[N, K]` |
//! | `side` | a constant of float32, sizes `[ceil(N / 4), S]`: what [`Side`] says |
//! | `offset` | subtracted from a code so that it fits as a signed number |
//! | `groups`, `has_zeros`, `has_bias` | what `side` holds |
//! | `residual`, `activation` and its arguments | what follows: see `epilogue` |
//!
//! K / `groups` is a multiple of the codes of a word where there are several groups. Sums are in 32 bits.

mod int_mm;
mod lower;
mod side;

pub use int_mm::IntMm;
pub use side::{Side, SideValues};

use super::{
    Args, InPlace, Lowering, Meta, Op, Operand, Tensor,
    epilogue::{self, Epilogue},
    linear::transposed,
    matmul::{self, Form},
};
use crate::base::{DType, Error, HostTensor, Result};

/// The family.
pub struct LinearQ;

/// Attributes of one call.
struct Call {
    bits: u8,
    offset: u8,
    side: Side,
}

impl Call {
    fn of<T>(args: &Args<T>) -> Result<Call> {
        let offset = args.int_or("offset", 0)?;
        let groups = usize::try_from(args.int("groups")?).ok().filter(|&groups| groups > 0);
        Ok(Call {
            bits: if args.op().base() == "linear_q4" { 4 } else { 8 },
            offset: u8::try_from(offset)
                .map_err(|_| Error::invalid_graph(format!("is {offset}")).at_operand("offset"))?,
            side: Side {
                groups: groups
                    .ok_or_else(|| Error::invalid_graph("there are no groups").at_operand("groups"))?,
                has_zeros: args.bool_or("has_zeros", false)?,
                has_bias: args.bool_or("has_bias", false)?,
            },
        })
    }
}

impl Op for LinearQ {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "vkdelegate._weight_int8pack_mm.default",
            "vkdelegate.linear_q4.default",
            "vkdelegate.linear_q8.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        let (input, weight, side) = (args.tensor("input")?, args.tensor("weight")?, args.tensor("side")?);
        if !matches!(input.dtype, DType::F32 | DType::F16 | DType::BF16) {
            let text = format!("is {}; takes float32, float16 and bfloat16", input.dtype);
            return Err(Error::unsupported(text).at_operand("input"));
        }
        let (&[n, k], DType::I8 | DType::U8) = (weight.sizes.as_slice(), weight.dtype) else {
            let text = format!("is {}{:?}; codes are a matrix of int8 or uint8", weight.dtype, weight.sizes);
            return Err(Error::unsupported(text).at_operand("weight"));
        };
        if input.sizes.last() != Some(&k) {
            let text =
                format!("has sizes {:?}; a weight of sizes [{n}, {k}] takes {k} features", input.sizes);
            return Err(Error::invalid_graph(text).at_operand("input"));
        }
        let whole_words = k.is_multiple_of(call.side.groups * (32 / usize::from(call.bits)));
        if call.side.groups > 1 && !whole_words {
            let text = format!("{} groups of {k} codes do not fill words", call.side.groups);
            return Err(Error::unsupported(text).at_operand("groups"));
        }
        if side.dtype != DType::F32 || side.sizes != call.side.sizes(n) {
            let text = format!("is {}{:?}; takes float32{:?}", side.dtype, side.sizes, call.side.sizes(n));
            return Err(Error::invalid_graph(text).at_operand("side"));
        }
        let mut sizes = input.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = n;
        }
        let out = Meta::new(input.dtype, sizes);
        epilogue::check(args, &out)?;
        Ok(vec![out])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let (input, weight, side) = (args.tensor("input")?, args.tensor("weight")?, args.tensor("side")?);
        let (n, k) = (weight.sizes()[0], weight.sizes()[1]);
        let side = call.side.read(&side.to_f32s(), n)?;
        let group = k.div_ceil(call.side.groups).max(1);
        let values: Vec<f64> = weight
            .to_i64s()
            .into_iter()
            .enumerate()
            .map(|(index, code)| {
                let at = index / k * call.side.groups + index % k / group;
                let difference = (code - i64::from(call.offset)) as f32 - side.zeros[at];
                f64::from(difference * side.scales[at])
            })
            .collect();
        let form = Form::new(input.sizes(), &[k, n])?;
        let columns = transposed(&values, n, k);
        let mut sums = matmul::product(&form, (&input.to_f64s(), input.sizes()), (&columns, &[k, n]))?;
        for row in sums.chunks_exact_mut(n.max(1)) {
            row.iter_mut().zip(&side.bias).for_each(|(sum, &bias)| *sum += f64::from(bias));
        }
        epilogue::finish(args, &mut sums)?;
        Ok(vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &sums)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let call = Call::of(args)?;
        let epilogue = Epilogue::of(args, cx)?;
        lower::lower(&call, args, &outs[0], epilogue, cx)
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Update("residual")
    }
}
