//! Dispatches of quantise and dequantise, one element an invocation.

use super::call::{Call, Param};
use crate::{
    base::{Error, Result, shape},
    ops::{Element, Lowering, Operand, Packing, Tensor, elementwise},
    shader::kernels,
};

/// Scale and zero point as kernels take them.
pub struct Params {
    scale: Option<Tensor>,
    zero: Option<Tensor>,
    scale_number: f64,
    zero_number: f64,
}

impl Params {
    /// The parameters of `call` in device memory, broadcast over its blocks. Scales are always 32-bit floats.
    ///
    /// # Errors
    /// When a constant or a conversion is too large.
    pub fn of(cx: &mut Lowering<'_>, call: &Call<'_, Operand>) -> Result<Params> {
        let mut params = Params { scale: None, zero: None, scale_number: 1.0, zero_number: 0.0 };
        match call.scale {
            Param::Number(number) => params.scale_number = number,
            Param::Tensor(scale) => {
                let scale = float32(cx, scale)?;
                params.scale = Some(spread(cx, call, &scale)?);
            }
        }
        match call.zero {
            Param::Number(number) => params.zero_number = number,
            Param::Tensor(zero) => {
                let zero = if zero.dtype().is_float() { float32(cx, zero)? } else { cx.live(zero)? };
                params.zero = Some(spread(cx, call, &zero)?);
            }
        }
        Ok(params)
    }

    fn zero_is_float(&self) -> bool {
        self.zero.as_ref().is_some_and(|zero| zero.element == Element::F32)
    }
}

/// `operand` as it is in memory: what is quantised is not rounded to half before.
///
/// # Errors
/// When a constant is too large.
pub fn as_stored(cx: &mut Lowering<'_>, operand: &Operand) -> Result<Tensor> {
    match operand {
        Operand::Constant(_) => float32(cx, operand),
        Operand::Live(tensor) => Ok(tensor.clone()),
    }
}

/// `operand` with elements of 32-bit floats, whatever the precision of the node: half a scale's bits are not enough.
///
/// # Errors
/// When a constant or a conversion is too large.
pub fn float32(cx: &mut Lowering<'_>, operand: &Operand) -> Result<Tensor> {
    let tensor = match operand {
        Operand::Constant(constant) => return cx.packed_as(constant, Packing::Contiguous, Element::F32),
        Operand::Live(tensor) => tensor,
    };
    if tensor.element == Element::F32 {
        return Ok(tensor.clone());
    }
    let out = cx.alloc_as(tensor.dtype, Element::F32, &tensor.sizes)?;
    cx.copy(tensor, &out)?;
    Ok(out)
}

fn spread(cx: &mut Lowering<'_>, call: &Call<'_, Operand>, param: &Tensor) -> Result<Tensor> {
    let param = match param.viewed(&call.param_sizes) {
        Some(view) => view,
        None => {
            let copy = cx.contiguous(param)?;
            let strides = shape::contiguous_strides(&call.param_sizes);
            copy.restrided(call.param_sizes.clone(), strides, 0)
        }
    };
    param.broadcast_to(&call.grouped)
}

/// x in blocks.
fn grouped(cx: &mut Lowering<'_>, call: &Call<'_, Operand>, x: &Tensor) -> Result<Tensor> {
    match x.viewed(&call.grouped) {
        Some(view) => Ok(view),
        None => {
            let copy = cx.contiguous(x)?;
            copy.viewed(&call.grouped).ok_or_else(|| Error::internal("contiguous blocks have no view"))
        }
    }
}

/// Emits `y = clamp(round(x / scale) + zero)`, or, for `in_range`, whether the clamp leaves each value alone.
///
/// # Errors
/// When the device cannot bind a tensor.
pub fn quantize(
    cx: &mut Lowering<'_>,
    call: &Call<'_, Operand>,
    params: &Params,
    x: &Tensor,
    y: &Tensor,
    (low, high): (f64, f64),
    in_range: bool,
) -> Result<()> {
    use kernels::quantize::{Axes, Op, Operands, Params as Push, Spec, Zero, dispatch};
    let x = grouped(cx, call, x)?;
    let y = grouped(cx, call, y)?;
    let axes = Axes {
        dtype: float_axis!(quantize, x.element)?,
        zero: if params.zero_is_float() { Zero::F32 } else { Zero::I32 },
    };
    let op = match (in_range, call.rounds_sum) {
        (true, _) => Op::InRange,
        (false, true) => Op::QuantizeSum,
        (false, false) => Op::Quantize,
    };
    let spec = Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        op,
        scale_is_tensor: u32::from(params.scale.is_some()),
        zero_is_tensor: u32::from(params.zero.is_some()),
        ..Spec::default()
    };
    let scale = params.scale.as_ref().unwrap_or(&x);
    let zero = params.zero.as_ref().unwrap_or(&x);
    let label = cx.label();
    elementwise::launch(cx, &y, [&x, scale, zero], |grid, binding| {
        let [x, scale, zero] = binding.inputs;
        let push = Push {
            n_elems: grid.n_elems,
            inverse_scale: (1.0 / params.scale_number) as f32,
            zero_point: params.zero_number as f32,
            low: low as f32,
            high: high as f32,
            sizes: grid.sizes,
            x_strides: grid.strides[0],
            scale_strides: grid.strides[1],
            zero_strides: grid.strides[2],
        };
        dispatch(axes, spec, Operands { x, scale, zero, y: binding.out }, push, binding.groups, label.clone())
    })
}

/// Emits `y = (x - zero) * scale`.
///
/// # Errors
/// When the device cannot bind a tensor.
pub fn dequantize(
    cx: &mut Lowering<'_>,
    call: &Call<'_, Operand>,
    params: &Params,
    x: &Tensor,
    y: &Tensor,
) -> Result<()> {
    let x = grouped(cx, call, x)?;
    let y = grouped(cx, call, y)?;
    dequantize_grouped(cx, params, &x, &y)
}

/// Emits `y = x * scale`, where `scale`, of 32-bit floats, broadcasts to x.
///
/// # Errors
/// When the device cannot bind a tensor.
pub fn scaled(cx: &mut Lowering<'_>, x: &Tensor, scale: Tensor, y: &Tensor) -> Result<()> {
    let params = Params { scale: Some(scale), zero: None, scale_number: 1.0, zero_number: 0.0 };
    dequantize_grouped(cx, &params, x, y)
}

fn dequantize_grouped(cx: &mut Lowering<'_>, params: &Params, x: &Tensor, y: &Tensor) -> Result<()> {
    use kernels::dequantize::{Axes, Operands, Params as Push, Spec, Zero, dispatch};
    let axes = Axes {
        dtype: float_axis!(dequantize, y.element)?,
        zero: if params.zero_is_float() { Zero::F32 } else { Zero::I32 },
    };
    let spec = Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        scale_is_tensor: u32::from(params.scale.is_some()),
        zero_is_tensor: u32::from(params.zero.is_some()),
        ..Spec::default()
    };
    let scale = params.scale.as_ref().unwrap_or(x);
    let zero = params.zero.as_ref().unwrap_or(x);
    let label = cx.label();
    elementwise::launch(cx, y, [x, scale, zero], |grid, binding| {
        let [x, scale, zero] = binding.inputs;
        let push = Push {
            n_elems: grid.n_elems,
            scale_number: params.scale_number as f32,
            zero_point: params.zero_number as i32,
            sizes: grid.sizes,
            x_strides: grid.strides[0],
            scale_strides: grid.strides[1],
            zero_strides: grid.strides[2],
        };
        dispatch(axes, spec, Operands { x, scale, zero, y: binding.out }, push, binding.groups, label.clone())
    })
}
