//! Lowering of products in integers: operands to what [`Dot`] takes.

use super::{
    Call, DotSide,
    dot::{Dot, Factors, Outcome},
    multiplied,
    packed::{Packed, packed},
    quantise_call,
};
use crate::{
    base::{DType, Error, Result},
    ir::TensorRef,
    ops::{
        Args, Element, Lowering, Meta, Op, Operand, Packing, QuantizeCall, Side, Tensor,
        epilogue::{Epilogue, InPlaceEpilogue},
        quantize::{Quantize, float32},
    },
    shader::kernels::row_factors,
};

/// Lowers a call of `linear_a8w8` or `linear_a8w4`.
pub(super) fn linear(
    call: &Call,
    args: &Args<Operand>,
    out: &Meta,
    epilogue: Epilogue,
    cx: &mut Lowering<'_>,
) -> Result<Vec<Tensor>> {
    let outcome = outcome_of(args, out)?;
    let (y, epilogue) = match outcome {
        Some(_) => epilogue.in_place(out, cx)?,
        None => (cx.alloc(DType::F32, &out.sizes)?, InPlaceEpilogue::NONE),
    };
    if y.numel() > 0 {
        emit(call, args, (outcome.unwrap_or(Outcome::Floats), epilogue), &y, cx)?;
    }
    match quantise_call(args, Operand::Live(y.clone()))? {
        Some(quantise) if outcome.is_none() => Quantize.lower(&quantise, std::slice::from_ref(out), cx),
        _ => Ok(vec![y]),
    }
}

/// What the kernel stores; `None` where a scale or zero point of the result is known at run time only.
fn outcome_of(args: &Args<Operand>, out: &Meta) -> Result<Option<Outcome>> {
    let Some(quantise) = quantise_call(args, args.tensor("words")?.clone())? else {
        return Ok(Some(Outcome::Floats));
    };
    let (Some(scale), Some(zero)) = (number(args, "out_scale")?, number_or_zero(args, "out_zero")?) else {
        return Ok(None);
    };
    let (low, high) = QuantizeCall::of(&quantise)?.range(out.dtype)?;
    Ok(Some(Outcome::Codes {
        inverse_scale: (1.0 / scale) as f32,
        zero: zero as f32,
        low: low as f32,
        high: high as f32,
    }))
}

/// The one element of a constant; `None` where it is no such thing.
fn number(args: &Args<Operand>, name: &str) -> Result<Option<f64>> {
    match args.opt_tensor(name)? {
        Some(Operand::Constant(constant)) => match constant.constant().to_tensor()?.to_f64s()[..] {
            [number] => Ok(Some(number)),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn number_or_zero(args: &Args<Operand>, name: &str) -> Result<Option<f64>> {
    if args.has(name) { number(args, name) } else { Ok(Some(0.0)) }
}

fn emit(
    call: &Call,
    args: &Args<Operand>,
    (outcome, epilogue): (Outcome, InPlaceEpilogue),
    y: &Tensor,
    cx: &mut Lowering<'_>,
) -> Result<()> {
    let (words, sums) = (cx.live(args.tensor("words")?)?, cx.live(args.tensor("sums")?)?);
    let x = Packed::of(cx, call, &words, &sums)?;
    let factors = factors_of(call, args, &x, cx)?;
    let is_half = cx.is_half(DType::F32, cx.element_of(DType::F32));
    let round_mode = match outcome {
        Outcome::Codes { .. } if is_half => cx.round_mode(DType::F16, Element::F32),
        Outcome::Floats => cx.round_mode(y.dtype, y.element),
        _ => 0,
    };
    let constant = |name: &str| args.tensor(name)?.constant().map_err(|error| error.at_operand(name));
    let packing = Packing::Codes { bits: call.bits, offset: call.offset };
    Dot {
        x: &x,
        factors,
        codes: codes_of(cx, constant("weight")?, packing)?,
        bits: call.bits,
        table: table_of(cx, constant("side")?)?,
        side: call.side,
        columns: call.k,
        y: y.restrided(vec![call.rows, call.n], vec![call.n, 1], 0),
        outcome,
        epilogue,
        round_mode,
    }
    .emit(cx)
}

/// The codes as `[panels, words]`.
fn codes_of(cx: &mut Lowering<'_>, weight: &TensorRef, packing: Packing) -> Result<Tensor> {
    let &[n, k] = weight.sizes() else { return Err(Error::internal("codes are no matrix")) };
    let words = 4 * k.div_ceil(packing.codes_a_word());
    let codes = cx.packed_as(weight, packing, Element::I32)?;
    Ok(codes.restrided(vec![n.div_ceil(4), words], vec![words, 1], 0))
}

fn table_of(cx: &mut Lowering<'_>, side: &TensorRef) -> Result<Tensor> {
    cx.packed_as(side, Packing::Contiguous, Element::I32)
}

/// Scales and zero points of the activations: numbers where both are constants of one element, else put into the
/// allocation of the activations.
fn factors_of(call: &Call, args: &Args<Operand>, x: &Packed, cx: &mut Lowering<'_>) -> Result<Factors> {
    if let (Some(scale), Some(zero)) = (number(args, "input_scale")?, number_or_zero(args, "input_zero")?) {
        let zero = i32::try_from(zero as i64 + call.input_offset)
            .map_err(|_| Error::unsupported(format!("is {zero}, beyond 32 bits")).at_operand("input_zero"))?;
        return Ok(Factors::Numbers { scale: multiplied(scale), zero });
    }
    let rows = if call.per_row { call.rows } else { 1 };
    let scale = float32(cx, args.tensor("input_scale")?)?;
    let scale = cx.contiguous(&scale)?;
    let zero = match args.opt_tensor("input_zero")? {
        Some(zero) => {
            let zero = cx.live(zero)?;
            Some(cx.contiguous(&zero)?)
        }
        None => None,
    };
    let factors = Factors::InMemory { per_row: call.per_row };
    // What was packed once has one offset, so the same tensors give the same factors.
    let (storage, sources) = (x.region().storage, [std::slice::from_ref(&scale), zero.as_slice()].concat());
    if cx.sources(storage) == Some(&sources) {
        return Ok(factors);
    }
    let stride = |tensor: &Tensor| u32::from(tensor.numel() > 1);
    let params = row_factors::Params {
        rows: rows as u32,
        scale_stride: stride(&scale),
        zero_stride: zero.as_ref().map_or(0, stride),
        offset: call.input_offset as i32,
    };
    let spec = row_factors::Spec { has_zeros: u32::from(zero.is_some()), ..Default::default() };
    let operands = row_factors::Operands {
        scale: scale.region(),
        zero: zero.as_ref().unwrap_or(&scale).region(),
        y: x.factors(rows).region(),
    };
    let groups = cx.groups_1d(rows, spec.local_x)?;
    cx.emit(row_factors::dispatch(row_factors::Axes {}, spec, operands, params, groups, cx.label()))?;
    cx.remember_sources(storage, sources);
    Ok(factors)
}

/// Emits `y = x W^T` in integers that wrap at 32 bits: `x` int8 or uint8 of sizes `[M, K]`, `weight` int8 of sizes
/// `[N, K]`, `side` its table with scales of 1, `y` of sizes `[M, N]`.
///
/// # Errors
/// When an operand is too large for the device.
pub fn int_product(
    cx: &mut Lowering<'_>,
    x: &Operand,
    weight: &TensorRef,
    side: &TensorRef,
    y: &Tensor,
) -> Result<()> {
    let zero = if x.dtype() == DType::I8 { 128 } else { 0 };
    let x = packed(cx, x, 1)?;
    Dot {
        x: &x,
        factors: Factors::Numbers { scale: 1.0, zero },
        codes: codes_of(cx, weight, Packing::Codes { bits: 8, offset: 0 })?,
        bits: 8,
        table: table_of(cx, side)?,
        side: DotSide(Side { groups: 1, has_zeros: false, has_bias: false }),
        columns: weight.sizes()[1],
        y: y.clone(),
        outcome: Outcome::Ints,
        epilogue: InPlaceEpilogue::NONE,
        round_mode: 0,
    }
    .emit(cx)
}
