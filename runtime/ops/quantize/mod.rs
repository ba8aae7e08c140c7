//! Affine quantisation: `q = clamp(round(x / scale) + zero_point)` and `x = (q - zero_point) * scale`.
//!
//! | library | ops |
//! |---|---|
//! | `quantized_decomposed` | `quantize_*` and `dequantize_*` of `per_tensor` (`.default`, `.tensor`; `.tensor2` to dequantise only), `per_channel`, `per_channel_group`, `per_token`; `fake_quant_per_channel` |
//! | `torchao` | `quantize_affine`, `dequantize_affine` |
//! | `aten` | `fake_quantize_per_tensor_affine` and its `.tensor_qparams` and `_cachemask`, `fake_quantize_per_channel_affine` and its `_cachemask` |
//!
//! Halves round to even, and the zero point is added after the rounding, but before it per token and per channel
//! group: as PyTorch does, which there and per channel dequantises in the dtype of a half-precision scale. A scale is a float32 or float64 tensor, or a number; float64 ones are float32 on the device. Sizes
//! and blocks that do not fit each other are refused. Scale and zero point are chosen in [`choose`].

mod call;
mod choose;
mod eval;
mod fake;
mod lower;

pub use call::Call as QuantizeCall;
pub use choose::ChooseQparams;
pub use fake::FakeQuantize;
pub use lower::{float32, scaled};

use super::{Args, Lowering, Meta, Op, Operand, Tensor};
use crate::base::{Error, HostTensor, Result};
use call::Call;

/// The family that computes integers from floats.
pub struct Quantize;

/// The family that computes floats from integers.
pub struct Dequantize;

impl Op for Quantize {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "quantized_decomposed.quantize_per_channel.default",
            "quantized_decomposed.quantize_per_channel_group.default",
            "quantized_decomposed.quantize_per_tensor.default",
            "quantized_decomposed.quantize_per_tensor.tensor",
            "quantized_decomposed.quantize_per_token.default",
            "torchao.quantize_affine.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        call.check_floats()?;
        let name = if args.op().base() == "quantize_affine" { "output_dtype" } else { "dtype" };
        let dtype = args
            .opt_dtype(name)?
            .ok_or_else(|| Error::invalid_graph("names no dtype to quantise to").at_operand(name))?;
        call.check_range(dtype)?;
        Ok(vec![Meta::new(dtype, call.x.sizes.clone())])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let (values, _) = eval::quantized(&call, call.range(outs[0].dtype)?)?;
        Ok(vec![HostTensor::from_i64s(outs[0].dtype, outs[0].sizes.clone(), &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let call = Call::of(args)?;
        let params = lower::Params::of(cx, &call)?;
        let x = lower::as_stored(cx, call.x)?;
        let y = cx.output(&outs[0])?;
        lower::quantize(cx, &call, &params, &x, &y, call.range(outs[0].dtype)?, false)?;
        Ok(vec![y])
    }
}

impl Op for Dequantize {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "quantized_decomposed.dequantize_per_channel.default",
            "quantized_decomposed.dequantize_per_channel_group.default",
            "quantized_decomposed.dequantize_per_tensor.default",
            "quantized_decomposed.dequantize_per_tensor.tensor",
            "quantized_decomposed.dequantize_per_tensor.tensor2",
            "quantized_decomposed.dequantize_per_token.default",
            "torchao.dequantize_affine.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        let declared =
            args.opt_dtype(if args.op().base() == "dequantize_affine" { "input_dtype" } else { "dtype" })?;
        call.check_codes(declared)?;
        Ok(vec![Meta::new(call.float_dtype(args)?, call.x.sizes.clone())])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let values = eval::dequantized(&call, &call.x.to_i64s())?;
        let product = call.product_dtype().unwrap_or(outs[0].dtype);
        let products = HostTensor::from_f64s(product, outs[0].sizes.clone(), &values)?;
        Ok(vec![products.cast(outs[0].dtype)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let call = Call::of(args)?;
        let params = lower::Params::of(cx, &call)?;
        let x = cx.live(call.x)?;
        let y = cx.output(&outs[0])?;
        match call.product_dtype().filter(|&dtype| dtype != y.dtype) {
            None => lower::dequantize(cx, &call, &params, &x, &y)?,
            Some(dtype) => {
                let products = cx.alloc(dtype, &y.sizes)?;
                lower::dequantize(cx, &call, &params, &x, &products)?;
                cx.copy(&products, &y)?;
            }
        }
        Ok(vec![y])
    }
}
