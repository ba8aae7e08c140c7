//! Fake quantisation: quantise and dequantise at once, as a program in training form holds it.

use super::{call::Call, eval, lower};
use crate::{
    base::{DType, HostTensor, Result},
    ops::{Args, Lowering, Meta, Op, Operand, Tensor},
};

/// The family; `_cachemask` ops also tell which elements the clamp left alone.
pub struct FakeQuantize;

impl Op for FakeQuantize {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten.fake_quantize_per_channel_affine.default",
            "aten.fake_quantize_per_channel_affine_cachemask.default",
            "aten.fake_quantize_per_tensor_affine.default",
            "aten.fake_quantize_per_tensor_affine.tensor_qparams",
            "aten.fake_quantize_per_tensor_affine_cachemask.default",
            "quantized_decomposed.fake_quant_per_channel.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        call.check_floats()?;
        call.check_range(DType::I32)?;
        let mut outs = vec![call.x.clone()];
        if args.op().base().ends_with("cachemask") {
            outs.push(Meta::new(DType::Bool, call.x.sizes.clone()));
        }
        Ok(outs)
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let (codes, in_range) = eval::quantized(&call, call.range(DType::I32)?)?;
        let values = eval::dequantized(&call, &codes)?;
        let mut tensors = vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &values)?];
        if let Some(mask) = outs.get(1) {
            let mask_values: Vec<i64> = in_range.into_iter().map(i64::from).collect();
            tensors.push(HostTensor::from_i64s(mask.dtype, mask.sizes.clone(), &mask_values)?);
        }
        Ok(tensors)
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let call = Call::of(args)?;
        let params = lower::Params::of(cx, &call)?;
        let x = lower::as_stored(cx, call.x)?;
        let y = cx.output(&outs[0])?;
        let codes = cx.alloc(DType::I32, &y.sizes)?;
        let range = call.range(DType::I32)?;
        lower::quantize(cx, &call, &params, &x, &codes, range, false)?;
        lower::dequantize(cx, &call, &params, &codes, &y)?;
        let mut tensors = vec![y];
        if let Some(mask) = outs.get(1) {
            let mask = cx.alloc(mask.dtype, &mask.sizes)?;
            lower::quantize(cx, &call, &params, &x, &mask, range, true)?;
            tensors.push(mask);
        }
        Ok(tensors)
    }
}
