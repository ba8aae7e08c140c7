//! Batch norm by running statistics: `y = (x - mean) / sqrt(var + eps) * weight + bias`, per channel (dim 1).
//!
//! `aten._native_batch_norm_legit_no_training`, and `aten.batch_norm` and `aten.native_batch_norm` with `training` false; the
//! statistics of a batch are refused, as they belong to training. float16, bfloat16 and float32, computed in float32.

use super::{Args, Lowering, Meta, Op, Operand, Tensor};
use crate::{
    base::{DType, Error, HostTensor, Result, shape},
    ops::Element,
    shader::kernels::{batch_norm, batch_norm_side},
};

/// Batch norm at inference.
pub struct BatchNorm;

const PER_CHANNEL: [&str; 4] = ["running_mean", "running_var", "weight", "bias"];

impl Op for BatchNorm {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten._native_batch_norm_legit_no_training.default",
            "aten.batch_norm.default",
            "aten.native_batch_norm.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = args.tensor("input")?;
        if args.bool_or("training", false)? {
            let message = "normalises by the statistics of the batch; call `.eval()` before the export";
            return Err(Error::unsupported(message).at_operand("training"));
        }
        let &[_, channels, ..] = x.sizes.as_slice() else {
            let message = format!("a batch norm takes a batch and channels, not sizes {:?}", x.sizes);
            return Err(Error::invalid_input(message).at_operand("input"));
        };
        args.tensor("running_mean")?;
        args.tensor("running_var")?;
        for name in PER_CHANNEL.into_iter().chain(["input"]) {
            let Some(tensor) = args.opt_tensor(name)? else { continue };
            if !tensor.dtype.is_float() || tensor.dtype == DType::F64 {
                let message = format!("a norm of {} has no kernel; use float32 or float16", tensor.dtype);
                return Err(Error::unsupported(message).at_operand(name));
            }
            if name != "input" && tensor.sizes != [channels] {
                let message = format!("has sizes {:?} for {channels} channels", tensor.sizes);
                return Err(Error::invalid_input(message).at_operand(name));
            }
        }
        let mut outs = vec![x.clone()];
        if args.op().base() != "batch_norm" {
            // The statistics of the batch, which only training computes.
            outs.extend([Meta::new(x.dtype, [0]), Meta::new(x.dtype, [0])]);
        }
        Ok(outs)
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("input")?;
        let eps = args.float_or("eps", 1e-5)?;
        let per_channel = |name| -> Result<_> { Ok(args.opt_tensor(name)?.map(HostTensor::to_f64s)) };
        let [mean, var, weight, bias]: [Option<Vec<f64>>; 4] = [
            per_channel("running_mean")?,
            per_channel("running_var")?,
            per_channel("weight")?,
            per_channel("bias")?,
        ];
        let at = |values: &Option<Vec<f64>>, channel: usize, default: f64| {
            values.as_ref().map_or(default, |values| values[channel])
        };
        let (channels, inner) = (x.sizes()[1], shape::numel(&x.sizes()[2..])?);
        let mut values = x.to_f64s();
        for (position, v) in values.iter_mut().enumerate() {
            let channel = position / inner % channels;
            let scale = at(&weight, channel, 1.0) / (at(&var, channel, 1.0) + eps).sqrt();
            *v = (*v - at(&mean, channel, 0.0)) * scale + at(&bias, channel, 0.0);
        }
        let y = HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &values)?;
        let empty = outs[1..].iter().map(|out| HostTensor::from_f64s(out.dtype, out.sizes.clone(), &[]));
        std::iter::once(Ok(y)).chain(empty).collect()
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let x = cx.live(args.tensor("input")?)?;
        let x = cx.contiguous(&x)?;
        let y = cx.output(&outs[0])?;
        let mut tensors = vec![y.clone()];
        for out in &outs[1..] {
            tensors.push(cx.alloc(out.dtype, &out.sizes)?);
        }
        if y.numel() == 0 {
            return Ok(tensors);
        }
        let (weight, bias) = (args.opt_tensor("weight")?, args.opt_tensor("bias")?);
        let has_affine = weight.is_some() || bias.is_some();
        let side = side(cx, args, x.sizes[1], [weight, bias])?;
        // None of these is more than the elements of `x`, which fit 32 bits.
        let params = batch_norm::Params {
            n_elems: x.numel() as u32,
            inner: shape::numel(&x.sizes[2..])? as u32,
            channels: x.sizes[1] as u32,
        };
        let spec = batch_norm::Spec {
            round_mode: cx.round_mode(y.dtype, y.element),
            has_affine: u32::from(has_affine),
            ..batch_norm::Spec::default()
        };
        let operands = batch_norm::Operands { x: x.region(), side: side.region(), y: y.region() };
        let axes = batch_norm::Axes { dtype: float_axis!(batch_norm, x.element)? };
        let groups = cx.groups_1d(x.numel(), spec.local_x)?;
        cx.emit(batch_norm::dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(tensors)
    }
}

/// What `batch_norm` reads for each channel, in 32 bits whatever the tensors are stored in.
fn side(
    cx: &mut Lowering<'_>,
    args: &Args<Operand>,
    channels: usize,
    affine: [Option<&Operand>; 2],
) -> Result<Tensor> {
    let has_affine = affine.iter().any(Option::is_some);
    let side = cx.alloc_as(DType::F32, Element::F32, &[if has_affine { 4 } else { 2 }, channels])?;
    let pair = |first| side.restrided(vec![2, channels], vec![channels, 1], first * channels);
    let statistics = [Some(args.tensor("running_mean")?), Some(args.tensor("running_var")?)];
    emit_side(cx, args, batch_norm_side::Op::Statistics, statistics, &pair(0))?;
    if has_affine {
        emit_side(cx, args, batch_norm_side::Op::Affine, affine, &pair(2))?;
    }
    Ok(side)
}

fn emit_side(
    cx: &mut Lowering<'_>,
    args: &Args<Operand>,
    op: batch_norm_side::Op,
    pair: [Option<&Operand>; 2],
    side: &Tensor,
) -> Result<()> {
    let mut tensors = Vec::with_capacity(2);
    for operand in pair.into_iter().flatten() {
        let tensor = cx.live(operand)?;
        tensors.push(if tensor.dtype == DType::F32 {
            cx.contiguous(&tensor)?
        } else {
            cx.converted(&tensor, DType::F32)?
        });
    }
    let [Some(a), Some(b)] = [tensors.first(), tensors.last()] else {
        return Err(Error::internal("a batch norm without operands"));
    };
    let spec = batch_norm_side::Spec {
        op,
        has_a: u32::from(pair[0].is_some()),
        has_b: u32::from(pair[1].is_some()),
        ..batch_norm_side::Spec::default()
    };
    let channels = side.sizes[1];
    let params =
        batch_norm_side::Params { channels: channels as u32, eps: args.float_or("eps", 1e-5)? as f32 };
    let operands = batch_norm_side::Operands { a: a.region(), b: b.region(), side: side.region() };
    let axes = batch_norm_side::Axes { dtype: float_axis!(batch_norm_side, a.element)? };
    let groups = cx.groups_1d(channels, spec.local_x)?;
    cx.emit(batch_norm_side::dispatch(axes, spec, operands, params, groups, cx.label()))
}
