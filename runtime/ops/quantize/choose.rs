//! Scale and zero point chosen from the data: `quantized_decomposed.choose_qparams`, `choose_qparams_symmetric`,
//! `choose_qparams_per_token` and its `_asymmetric`, and `torchao.choose_qparams_affine`.
//!
//! Both ends of the data are taken to span 0. Where the program says float64 for a scale, the device holds float32.

use super::{call::affine_blocks, lower::as_stored};
use crate::{
    base::{DType, Error, HostTensor, Result, shape},
    ops::{
        Args, Element, Lowering, Meta, Op, Operand, Tensor,
        operands::Typed,
        rows::{RowSplit, gridded},
    },
    shader::kernels::choose_qparams as kernel,
};

/// The family.
pub struct ChooseQparams;

/// One call.
struct Call<'a, T> {
    x: &'a T,
    grouped: Vec<usize>,
    split: RowSplit,
    out_sizes: Vec<usize>,
    scheme: kernel::Scheme,
    low: f32,
    high: f32,
    eps: f32,
    zero_point: f32,
    scale_dtype: DType,
    zero_dtype: DType,
}

impl<'a, T: Typed> Call<'a, T> {
    fn of(args: &'a Args<T>) -> Result<Call<'a, T>> {
        let x = args.tensor("input")?;
        if !matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16) {
            let text = format!("is {}; takes float32, float16 and bfloat16", x.dtype());
            return Err(Error::unsupported(text).at_operand("input"));
        }
        let call = match args.op().base() {
            "choose_qparams_affine" => Call::of_torchao(args, x)?,
            "choose_qparams" | "choose_qparams_symmetric" => Call::per_tensor(args, x)?,
            _ => Call::per_token(args, x)?,
        };
        if shape::numel(&call.grouped)? == 0 {
            return Err(Error::unsupported("has no elements to choose a scale from").at_operand("input"));
        }
        Ok(call)
    }

    fn per_tensor(args: &Args<T>, x: &'a T) -> Result<Call<'a, T>> {
        let symmetric = args.op().base() == "choose_qparams_symmetric";
        let unsigned = args.opt_dtype("dtype")? == Some(DType::U8);
        let all: Vec<usize> = (0..x.sizes().len()).collect();
        Ok(Call {
            x,
            grouped: x.sizes().to_vec(),
            split: RowSplit::new(x.sizes().len(), &all),
            out_sizes: vec![1],
            scheme: if symmetric { kernel::Scheme::Symmetric } else { kernel::Scheme::Affine },
            low: bound(args, "quant_min")?,
            high: bound(args, "quant_max")?,
            eps: args.float_or("eps", 0.0)? as f32,
            zero_point: if symmetric && unsigned { 128.0 } else { 0.0 },
            scale_dtype: DType::F64,
            zero_dtype: DType::I64,
        })
    }

    fn per_token(args: &Args<T>, x: &'a T) -> Result<Call<'a, T>> {
        let asymmetric = args.op().base().contains("asymmetric");
        if !asymmetric && args.opt_dtype("dtype")? != Some(DType::I8) {
            return Err(Error::invalid_graph("per token takes int8").at_operand("dtype"));
        }
        let Some((_, leading)) = x.sizes().split_last() else {
            return Err(Error::invalid_graph("a 0-d tensor has no tokens").at_operand("input"));
        };
        Ok(Call {
            x,
            grouped: x.sizes().to_vec(),
            split: RowSplit::new(x.sizes().len(), &[leading.len()]),
            out_sizes: [leading, &[1]].concat(),
            scheme: if asymmetric { kernel::Scheme::Nearest } else { kernel::Scheme::Symmetric },
            low: if asymmetric { -128.0 } else { -127.0 },
            high: 127.0,
            eps: if asymmetric { f32::EPSILON } else { 1e-5 / 127.0 },
            zero_point: 0.0,
            scale_dtype: DType::F64,
            zero_dtype: DType::I64,
        })
    }

    fn of_torchao(args: &Args<T>, x: &'a T) -> Result<Call<'a, T>> {
        let block = args.ints("block_size")?;
        let (grouped, params) = affine_blocks(x.sizes(), &block)?;
        let reduced: Vec<usize> =
            (0..grouped.len()).filter(|&dim| params[dim] == 1 && grouped[dim] != 1).collect();
        let split = RowSplit::new(grouped.len(), &reduced);
        let scheme = match args.opt_str("mapping_type")? {
            Some("SYMMETRIC") => kernel::Scheme::Symmetric,
            Some("SYMMETRIC_NO_CLIPPING_ERR") => kernel::Scheme::NoClipping,
            Some("ASYMMETRIC") => kernel::Scheme::Affine,
            other => {
                let text = format!(
                    "is {other:?}; SYMMETRIC, SYMMETRIC_NO_CLIPPING_ERR and ASYMMETRIC are supported"
                );
                return Err(Error::unsupported(text).at_operand("mapping_type"));
            }
        };
        let target = args.opt_dtype("target_dtype")?.unwrap_or(DType::I8);
        let (least, most) = target
            .int_range()
            .ok_or_else(|| Error::unsupported(format!("is {target}")).at_operand("target_dtype"))?;
        let low = args.float_or("quant_min", least as f64)?;
        let high = args.float_or("quant_max", most as f64)?;
        let affine = scheme == kernel::Scheme::Affine;
        let out_sizes = if args.bool_or("keepdim", false)? {
            x.sizes().iter().zip(&block).map(|(&size, &block)| size / (block.max(1) as usize)).collect()
        } else {
            // Blocks of one row stay a dim when only their size says so.
            kept_sizes(x.sizes(), &block)
        };
        let zero_default = if affine { DType::I32 } else { x.dtype() };
        Ok(Call {
            x,
            grouped,
            split,
            out_sizes,
            scheme,
            low: low as f32,
            high: high as f32,
            eps: args.float_or("eps", f64::from(smallest_normal(x.dtype())))? as f32,
            zero_point: ((high + low + 1.0) / 2.0).trunc() as f32,
            scale_dtype: args.opt_dtype("scale_dtype")?.unwrap_or(x.dtype()),
            zero_dtype: args.opt_dtype("zero_point_dtype")?.unwrap_or(zero_default),
        })
    }
}

/// What torchao's reduction leaves: blocks are reduced, dims with blocks of size 1 stay, the others' counts stay.
fn kept_sizes(sizes: &[usize], block: &[i64]) -> Vec<usize> {
    let mut kept = Vec::new();
    for (&size, &block) in sizes.iter().zip(block) {
        match usize::try_from(block) {
            Ok(1) => kept.push(size),
            Ok(block) if block != size && block > 0 => kept.push(size / block),
            _ => {}
        }
    }
    kept
}

fn bound<T>(args: &Args<T>, name: &str) -> Result<f32> {
    Ok(args.int(name)? as f32)
}

fn smallest_normal(dtype: DType) -> f32 {
    if dtype == DType::F16 { half::f16::MIN_POSITIVE.to_f32() } else { f32::MIN_POSITIVE }
}

impl Op for ChooseQparams {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "quantized_decomposed.choose_qparams.tensor",
            "quantized_decomposed.choose_qparams_per_token.default",
            "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
            "quantized_decomposed.choose_qparams_symmetric.tensor",
            "torchao.choose_qparams_affine.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        let ordered = call.low < call.high;
        if !ordered {
            let text = format!("{} is not below quant_max, {}", call.low, call.high);
            return Err(Error::invalid_graph(text).at_operand("quant_min"));
        }
        Ok(vec![
            Meta::new(call.scale_dtype, call.out_sizes.clone()),
            Meta::new(call.zero_dtype, call.out_sizes.clone()),
        ])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let rows = call.split.gather(&call.grouped, &call.x.to_f32s());
        let cols = call.split.cols(&call.grouped).max(1);
        let (scales, zeros): (Vec<f64>, Vec<f64>) = rows
            .chunks(cols)
            .map(|row| {
                let (scale, zero) = chosen(&call, row);
                (f64::from(scale), f64::from(zero))
            })
            .unzip();
        Ok(vec![
            HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &scales)?,
            HostTensor::from_f64s(DType::F64, outs[1].sizes.clone(), &zeros)?.cast(outs[1].dtype)?,
        ])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let call = Call::of(args)?;
        let x = as_stored(cx, call.x)?;
        let x = match x.viewed(&call.grouped) {
            Some(view) => view,
            None => {
                let copy = cx.contiguous(&x)?;
                copy.restrided(call.grouped.clone(), shape::contiguous_strides(&call.grouped), 0)
            }
        };
        let (x, grid) = gridded(cx, &call.split, &x)?;
        let scale = cx.alloc_as(outs[0].dtype, Element::F32, &outs[0].sizes)?;
        let zero_element = if outs[1].dtype.is_float() { Element::F32 } else { Element::I32 };
        let zero = cx.alloc_as(outs[1].dtype, zero_element, &outs[1].sizes)?;
        let axes = kernel::Axes {
            dtype: float_axis!(choose_qparams, x.element)?,
            zero: if zero_element == Element::F32 { kernel::Zero::F32 } else { kernel::Zero::I32 },
        };
        let spec = kernel::Spec { scheme: call.scheme, ..kernel::Spec::default() };
        let params = kernel::Params {
            rows: grid.rows,
            cols: grid.cols,
            lanes: grid.lanes,
            inner: grid.inner,
            low: call.low,
            high: call.high,
            eps: call.eps,
            zero_point: call.zero_point,
            col_strides: grid.col_strides[0],
            row_sizes: grid.row_sizes,
            row_strides: grid.row_strides[0],
        };
        let operands = kernel::Operands { x: x.region(), scale: scale.region(), zero: zero.region() };
        let groups = grid.groups(cx)?;
        cx.emit(kernel::dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(vec![scale, zero])
    }
}

/// The larger one; NaN stays NaN.
fn at_least(least: f32, value: f32) -> f32 {
    if value < least { least } else { value }
}

/// Scale and zero point of one row, in 32 bits as on the device.
fn chosen<T>(call: &Call<'_, T>, row: &[f32]) -> (f32, f32) {
    let pick = |keeps: fn(f32, f32) -> bool| {
        row.iter().fold(0.0f32, |best, &v| if v.is_nan() || keeps(v, best) { v } else { best })
    };
    let (smallest, largest) = (pick(|v, best| v < best), pick(|v, best| v > best));
    let &Call { scheme, low, high, eps, zero_point, .. } = call;
    match scheme {
        kernel::Scheme::Symmetric => {
            (at_least(eps, (-smallest).max(largest) / ((high - low) / 2.0)), zero_point)
        }
        kernel::Scheme::NoClipping => (at_least(eps, (smallest / low).max(largest / high)), zero_point),
        kernel::Scheme::Affine => {
            let scale = at_least(eps, (largest - smallest) / (high - low));
            (scale, (low - (smallest / scale).round_ties_even()).max(low).min(high))
        }
        kernel::Scheme::Nearest => {
            let scale = at_least(eps, (largest - smallest) / (high - low));
            let (down, up) = (smallest / scale, largest / scale);
            let zero = if (low + down) + (high + up) > 0.0 { low - down } else { high - up };
            (scale, zero.max(low).min(high).round_ties_even())
        }
    }
}
