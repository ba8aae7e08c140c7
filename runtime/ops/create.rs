//! Tensors from numbers: `full`, `zeros`, `ones`, `empty` (as zeros, however it is to lie), their `_like` and `new_` forms, `scalar_tensor`,
//! `fill.Scalar`, `eye`, `arange`, `linspace`. Every dtype but complex ones; the sizes are concrete.
//!
//! `arange` gives `start + i * step`, rounded once; `linspace` counts from both ends, as PyTorch does.

use super::{
    Args, Element, Lowering, Meta, Op, Operand, Tensor, elementwise,
    fill::{fill, filled, u32_of},
};
use crate::{
    base::{DType, Error, HostTensor, Result, Scalar, shape},
    shader::kernels::arange,
};

/// The family of tensors made from numbers.
pub struct Create;

/// What the elements are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Same(Scalar),
    Eye,
    /// `start + i * step`
    Line {
        start: Scalar,
        step: Scalar,
    },
    /// From `start` on in the first half, back from `end` in the second.
    Between {
        start: f64,
        end: f64,
    },
}

impl Op for Create {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten.arange.default",
            "aten.arange.start",
            "aten.arange.start_step",
            "aten.empty.memory_format",
            "aten.empty_like.default",
            "aten.empty_permuted.default",
            "aten.empty_strided.default",
            "aten.eye.default",
            "aten.eye.m",
            "aten.fill.Scalar",
            "aten.full.default",
            "aten.full_like.default",
            "aten.linspace.default",
            "aten.new_empty.default",
            "aten.new_empty_strided.default",
            "aten.new_full.default",
            "aten.new_ones.default",
            "aten.new_zeros.default",
            "aten.ones.default",
            "aten.ones_like.default",
            "aten.scalar_tensor.default",
            "aten.zeros.default",
            "aten.zeros_like.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        Ok(vec![plan(args)?.0])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let (out, content) = plan(&args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?)?;
        let len = shape::numel(&outs[0].sizes)?;
        let tensor = match content {
            Content::Same(value) => filled(out.dtype, &out.sizes, value)?,
            Content::Eye => {
                let columns = out.sizes[1];
                let on_diagonal = |i: usize| i64::from(i / columns == i % columns);
                HostTensor::from_i64s(out.dtype, out.sizes, &(0..len).map(on_diagonal).collect::<Vec<_>>())?
            }
            Content::Line { start, step } if out.dtype.is_float() => {
                let at = |i: usize| start.as_f64() + i as f64 * step.as_f64();
                HostTensor::from_f64s(out.dtype, out.sizes, &(0..len).map(at).collect::<Vec<_>>())?
            }
            Content::Line { start, step } => {
                let at = |i: usize| start.as_i64().wrapping_add((i as i64).wrapping_mul(step.as_i64()));
                HostTensor::from_i64s(out.dtype, out.sizes, &(0..len).map(at).collect::<Vec<_>>())?
            }
            Content::Between { start, end } => {
                let step = step_between(start, end, len);
                let at = |i: usize| {
                    if i < len / 2 { start + i as f64 * step } else { end - (len - 1 - i) as f64 * step }
                };
                HostTensor::from_f64s(out.dtype, out.sizes, &(0..len).map(at).collect::<Vec<_>>())?
            }
        };
        Ok(vec![tensor])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let (_, content) = plan(&args.try_map(|operand| Ok(operand.meta()))?)?;
        let out = cx.output(&outs[0])?;
        match content {
            Content::Same(value) => fill(cx, &out, value)?,
            Content::Eye => {
                fill(cx, &out, Scalar::Int(0))?;
                let (rows, columns) = (out.sizes[0], out.sizes[1]);
                let diagonal = out.restrided(vec![rows.min(columns)], vec![columns + 1], 0);
                fill(cx, &diagonal, Scalar::Int(1))?;
            }
            Content::Line { start, step } => line(cx, &out, start, step, 0)?,
            Content::Between { start, end } => {
                let len = out.numel();
                let step = Scalar::Float(step_between(start, end, len));
                let half = len / 2;
                let part = |first: usize, len: usize| out.restrided(vec![len], vec![1], first);
                line(cx, &part(0, half), Scalar::Float(start), step, 0)?;
                line(cx, &part(half, len - half), Scalar::Float(end), step, half as i64 + 1 - len as i64)?;
            }
        }
        Ok(vec![out])
    }
}

/// Emits `out[i] = start + (i + first) * step`.
fn line(cx: &mut Lowering<'_>, out: &Tensor, start: Scalar, step: Scalar, first: i64) -> Result<()> {
    let n_elems = out.numel();
    if n_elems == 0 {
        return Ok(());
    }
    let params = if out.element == Element::I32 {
        let (start, step) = (start.as_i64(), step.as_i64());
        let last = step.checked_mul(n_elems as i64 - 1).and_then(|way| start.checked_add(way));
        let fits = |value: i64| i32::try_from(value).is_ok();
        if !fits(start) || !last.is_some_and(fits) {
            return Err(Error::unsupported(format!(
                "numbers from {start} on, {step} apart, do not fit the 32 bits that integers have on the device"
            )));
        }
        let (start, step) = (start as u32, step as u32);
        arange::Params {
            n_elems: u32_of(n_elems)?,
            start,
            start_low: 0,
            step_high: step,
            step_low: 0,
            first: 0,
        }
    } else {
        let (start, start_low) = high_and_low(start.as_f64());
        let (step_high, step_low) = high_and_low(step.as_f64());
        let first = i32::try_from(first)
            .map_err(|_| Error::unsupported(format!("{n_elems} numbers are too many for a kernel")))?;
        arange::Params { n_elems: u32_of(n_elems)?, start, start_low, step_high, step_low, first }
    };
    let spec = arange::Spec { round_mode: cx.round_mode(out.dtype, out.element), ..arange::Spec::default() };
    let axes = arange::Axes { dtype: element_axis!(arange, out.element) };
    let groups = cx.groups_1d(n_elems, elementwise::LOCAL_X)?;
    cx.emit(arange::dispatch(axes, spec, arange::Operands { y: out.region() }, params, groups, cx.label()))
}

/// Bits of the nearest 32-bit float, and of the nearest one to the rest.
fn high_and_low(value: f64) -> (u32, u32) {
    let high = value as f32;
    let low = if high.is_finite() { (value - f64::from(high)) as f32 } else { 0.0 };
    (high.to_bits(), low.to_bits())
}

fn step_between(start: f64, end: f64, len: usize) -> f64 {
    if len > 1 { (end - start) / (len - 1) as f64 } else { 0.0 }
}

fn sizes_arg(args: &Args<Meta>, name: &str) -> Result<Vec<usize>> {
    let size = |size: i64| {
        usize::try_from(size).map_err(|_| Error::invalid_input(format!("{size} is no size")).at_operand(name))
    };
    let sizes: Vec<usize> = args.ints(name)?.into_iter().map(size).collect::<Result<_>>()?;
    shape::numel(&sizes).map_err(|error| error.at_operand(name))?;
    Ok(sizes)
}

fn plan(args: &Args<Meta>) -> Result<(Meta, Content)> {
    let base = args.op().base();
    let asked = args.opt_dtype("dtype")?;
    match base {
        "arange" => return arange_plan(args, asked),
        "linspace" => return linspace_plan(args, asked),
        "eye" => {
            let rows = sizes_arg(args, "n")?;
            let columns = if args.has("m") { sizes_arg(args, "m")? } else { rows.clone() };
            let sizes = [rows, columns].concat();
            shape::numel(&sizes)?;
            return Ok((Meta::new(asked.unwrap_or(DType::F32), sizes), Content::Eye));
        }
        _ => {}
    }
    let value = match base.trim_start_matches("new_").trim_end_matches("_like") {
        "full" => args.scalar("fill_value")?,
        "fill" => args.scalar("value")?,
        "scalar_tensor" => args.scalar("s")?,
        "ones" => Scalar::Int(1),
        _ => Scalar::Int(0),
    };
    let like = args.opt_tensor("self")?;
    let sizes = match like {
        Some(like) if !base.starts_with("new_") => like.sizes.clone(),
        _ if base == "scalar_tensor" => Vec::new(),
        _ => sizes_arg(args, "size")?,
    };
    let default = match (like, base, value) {
        (Some(like), _, _) => like.dtype,
        (None, "full", Scalar::Int(_)) => DType::I64,
        (None, "full", Scalar::Bool(_)) => DType::Bool,
        _ => DType::F32,
    };
    Ok((Meta::new(asked.unwrap_or(default), sizes), Content::Same(value)))
}

fn arange_plan(args: &Args<Meta>, asked: Option<DType>) -> Result<(Meta, Content)> {
    let (start, end) = (args.scalar_or("start", Scalar::Int(0))?, args.scalar("end")?);
    let step = args.scalar_or("step", Scalar::Int(1))?;
    let floats = [start, end, step].iter().any(|scalar| scalar.is_float());
    let dtype = asked.unwrap_or(if floats { DType::F32 } else { DType::I64 });
    let wrong = || {
        Error::invalid_input(format!("a step of {step} does not lead from {start} to {end}"))
            .at_operand("step")
    };
    let len = if floats {
        let len = ((end.as_f64() - start.as_f64()) / step.as_f64()).ceil();
        // NaN fails as well.
        if len.is_nan() || len < 0.0 {
            return Err(wrong());
        }
        len as usize
    } else {
        let (way, step) = (i128::from(end.as_i64()) - i128::from(start.as_i64()), i128::from(step.as_i64()));
        if step == 0 || (way != 0 && (way < 0) != (step < 0)) {
            return Err(wrong());
        }
        usize::try_from(way.unsigned_abs().div_ceil(step.unsigned_abs())).map_err(|_| wrong())?
    };
    if u32::try_from(len).is_err() {
        return Err(
            Error::unsupported(format!("{len} numbers are more than kernels address")).at_operand("end")
        );
    }
    if dtype == DType::Bool {
        return Err(Error::invalid_input("numbers in a row are no truth values").at_operand("dtype"));
    }
    Ok((Meta::new(dtype, [len]), Content::Line { start, step }))
}

fn linspace_plan(args: &Args<Meta>, asked: Option<DType>) -> Result<(Meta, Content)> {
    let dtype = asked.unwrap_or(DType::F32);
    if !dtype.is_float() {
        return Err(Error::unsupported(format!("gives floats, not {dtype}")).at_operand("dtype"));
    }
    let sizes = sizes_arg(args, "steps")?;
    let (start, end) = (args.scalar("start")?.as_f64(), args.scalar("end")?.as_f64());
    let content = match sizes.as_slice() {
        [1] => Content::Same(Scalar::Float(start)),
        _ => Content::Between { start, end },
    };
    Ok((Meta::new(dtype, sizes), content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_floats_hold_more_of_a_number() {
        let (high, low) = high_and_low(0.1);
        let sum = f64::from(f32::from_bits(high)) + f64::from(f32::from_bits(low));
        assert!((sum - 0.1).abs() < 1e-16, "{sum}");
        assert_eq!(high_and_low(f64::INFINITY).1, 0);
    }
}
