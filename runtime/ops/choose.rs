//! Choice by a condition, element by element with broadcasting: `where` (of tensors and numbers) and `masked_fill`.
//!
//! All dtypes but float64, any rank. What is not chosen does not matter, not even NaN.

use super::{
    Args, InPlace, Lowering, Meta, Op, Operand, Tensor, elementwise,
    operands::{self, Input, NUMBER_LEFT, NUMBER_RIGHT, Typed},
};
use crate::{
    base::{DType, Error, HostTensor, Result, Scalar},
    ops::Element,
    shader::kernels::choose as kernel,
};

/// The family of choices.
pub struct Choose;

/// One call: `chosen` where the condition holds, else `other`.
pub(super) struct Call<'a, T> {
    pub condition: &'a T,
    pub chosen: Input<'a, T>,
    pub other: Input<'a, T>,
    /// The dtype of the result.
    pub dtype: DType,
}

impl<'a, T: Typed> Call<'a, T> {
    /// What `args` ask for.
    ///
    /// # Errors
    /// A condition that is no truth value, an operand that is neither a tensor nor a number.
    pub fn of(args: &'a Args<T>) -> Result<Call<'a, T>> {
        if args.op().base() == "masked_fill" {
            let base = operands::tensor(args, "self")?;
            let (condition, chosen) = (condition(args, "mask")?, Input::of(args, "value")?);
            return Ok(Call { condition, chosen, other: Input::Tensor(base), dtype: base.dtype() });
        }
        let condition = condition(args, "condition")?;
        let (chosen, other) = (Input::of(args, "self")?, Input::of(args, "other")?);
        Ok(Call { condition, chosen, other, dtype: operands::result_type(&[chosen, other]) })
    }
}

fn condition<'a, T: Typed>(args: &'a Args<T>, name: &str) -> Result<&'a T> {
    let condition = operands::tensor(args, name)?;
    match condition.dtype() {
        DType::Bool | DType::U8 => Ok(condition),
        dtype => Err(Error::unsupported(format!("a condition is bool, not {dtype}")).at_operand(name)),
    }
}

impl Op for Choose {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten.masked_fill.Scalar",
            "aten.masked_fill.Tensor",
            "aten.where.Scalar",
            "aten.where.ScalarOther",
            "aten.where.ScalarSelf",
            "aten.where.self",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        let is_fill = args.op().base() == "masked_fill";
        if is_fill && !call.chosen.sizes().is_empty() {
            return Err(Error::unsupported("the value of a masked_fill is 0-d").at_operand("value"));
        }
        for (name, input) in [(if is_fill { "value" } else { "self" }, call.chosen), ("other", call.other)] {
            if let Some(number) = input.number() {
                check_number(number, call.dtype).map_err(|error| error.at_operand(name))?;
            }
        }
        let sizes = operands::broadcast_sizes(&[Input::Tensor(call.condition), call.chosen, call.other])
            .map_err(|error| error.at_operand(if is_fill { "mask" } else { "other" }))?;
        Ok(vec![Meta::new(call.dtype, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let Call { condition, chosen, other, .. } = Call::of(args)?;
        let Meta { dtype, sizes } = outs[0].clone();
        let holds = Input::Tensor(condition).i64s(condition.dtype(), &sizes)?;
        let result = if dtype.is_float() {
            let values = choices(&holds, chosen.f64s(dtype, &sizes)?, other.f64s(dtype, &sizes)?);
            HostTensor::from_f64s(dtype, sizes, &values)?
        } else {
            let values = choices(&holds, chosen.i64s(dtype, &sizes)?, other.i64s(dtype, &sizes)?);
            HostTensor::from_i64s(dtype, sizes, &values)?
        };
        Ok(vec![result])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let Call { condition, chosen, other, dtype } = Call::of(args)?;
        let condition = cx.live(condition)?;
        // A number's slot is bound to the condition, and not read.
        let mut bound = |input: Input<'_, Operand>| match input {
            Input::Tensor(operand) => operands::live_as(cx, operand, dtype),
            Input::Number(_) => Ok(condition.clone()),
        };
        let (a, b) = (bound(chosen)?, bound(other)?);
        let out = cx.output(&outs[0])?;
        let side = |input: Input<'_, Operand>, bit| if input.number().is_some() { bit } else { 0 };
        let number_side = side(chosen, NUMBER_LEFT) | side(other, NUMBER_RIGHT);
        let axes = kernel::Axes { dtype: element_axis!(choose, out.element) };
        let spec = kernel::Spec { number_side, ..Default::default() };
        let (a_number, a_int) = kernel_numbers(chosen.number(), &out);
        let (b_number, b_int) = kernel_numbers(other.number(), &out);
        let label = cx.label();
        elementwise::launch_quads(cx, &out, [&condition, &a, &b], |grid, binding| {
            let [condition, a, b] = binding.inputs;
            let operands = kernel::Operands { condition, a, b, y: binding.out };
            let params = kernel::Params {
                n_elems: grid.n_elems,
                quads: grid.quads,
                sizes: grid.sizes,
                a_number,
                b_number,
                a_int,
                b_int,
                condition_strides: grid.strides[0],
                a_strides: grid.strides[1],
                b_strides: grid.strides[2],
            };
            kernel::dispatch(axes, spec, operands, params, binding.groups, label.clone())
        })?;
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Elementwise
    }
}

fn check_number(number: Scalar, dtype: DType) -> Result<()> {
    if !dtype.is_float() && number.is_float() && number.as_f64() != number.as_i64() as f64 {
        return Err(Error::unsupported(format!("the number {number} does not fit {dtype}")));
    }
    operands::check_number(number, dtype)
}

fn choices<V>(holds: &[i64], chosen: Vec<V>, other: Vec<V>) -> Vec<V> {
    let pairs = chosen.into_iter().zip(other);
    holds.iter().zip(pairs).map(|(&holds, (chosen, other))| if holds != 0 { chosen } else { other }).collect()
}

/// The largest finite number of half precision.
pub(super) const LARGEST_HALF: f32 = 65504.0;

/// A number as the float and the integer kernels take it. One that half precision cannot hold, in a float32 program
/// that is stored so, becomes the largest half: it stands for "very large", and infinity would not.
fn kernel_numbers(number: Option<Scalar>, out: &Tensor) -> (f32, i32) {
    let number = number.unwrap_or(Scalar::Int(0));
    if !out.dtype.is_float() {
        return (0.0, operands::kernel_int(number, out.dtype));
    }
    let float = HostTensor::scalar(out.dtype, number).to_f32s().first().copied().unwrap_or(f32::NAN);
    let narrowed = out.dtype == DType::F32 && out.element == Element::F16 && float.is_finite();
    (if narrowed { float.clamp(-LARGEST_HALF, LARGEST_HALF) } else { float }, 0)
}
