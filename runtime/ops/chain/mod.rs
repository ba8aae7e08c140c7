//! A chain or tree of element-wise functions of floats in one dispatch, as `silu(x) * z + 1`.
//!
//! No program holds this op; the elementwise pass makes it of functions of one and of two operands.
//!
//! | operand or attribute | |
//! |---|---|
//! | `inputs` | one to three tensors of one float dtype; they broadcast |
//! | `steps` | the functions, in order: see [`Steps`] |
//!
//! A chain of at most 16 steps with few numbers is part of its pipeline, so that a driver makes straight code of it; a longer
//! one is read from a buffer, step by step, and takes two inputs.
//!
//! A step gives the bits that its function gives alone, in float32. Only the last result is rounded to the dtype: where
//! that is half precision, what comes between keeps the 32 bits that it would lose when stored.

mod steps;

use super::{
    Args, InPlace, Lowering, Meta, Op, Operand, Tensor, binary, elementwise,
    operands::{self, Input, Typed},
    unary,
};
use crate::{
    base::{Error, HostTensor, Result},
    shader::kernels::pointwise_chain as kernel,
};

pub use steps::{Call, MAX_INPUTS, MAX_STEPS, Steps, Term};

/// The family.
pub struct Chain;

/// What the element-wise call `args` is as a step of a chain; `None` for any other call, and where the result is no float.
///
/// # Errors
/// What the family of the op refuses.
pub fn call<T: Typed>(args: &Args<T>) -> Result<Option<Call<&T>>> {
    let target = args.op().as_str();
    if unary::Unary.targets().contains(&target) {
        let Some(unary::FloatCall { x, function }) = unary::float_call(args)? else { return Ok(None) };
        let Some((op, numbers)) = function else { return Ok(Some(Call::same(x))) };
        let op = kernel::Op::named(op.name());
        return Ok(op.map(|op| Call { op: Some(op), numbers, operands: vec![Term::Value(x)] }));
    }
    if binary::Binary.targets().contains(&target) {
        let Some(binary::FloatCall { op, left, right, alpha }) = binary::float_call(args)? else {
            return Ok(None);
        };
        let number = left.number().or(right.number()).map_or(0.0, |number| number.as_f64() as f32);
        let term = |input| match input {
            Input::Tensor(tensor) => Term::Value(tensor),
            Input::Number(_) => Term::Number,
        };
        let (numbers, operands) = ([alpha, number, 0.0], vec![term(left), term(right)]);
        return Ok(kernel::Op::named(op.name()).map(|op| Call { op: Some(op), numbers, operands }));
    }
    Ok(None)
}

/// The inputs, checked.
fn inputs<T: Typed>(args: &Args<T>) -> Result<Vec<&T>> {
    let wrong = |text: String| Error::invalid_graph(text).at_operand("inputs");
    let inputs: Vec<&T> = args.tensors("inputs")?.iter().flatten().collect();
    if inputs.is_empty() || inputs.len() > MAX_INPUTS {
        return Err(wrong(format!("holds {} tensors; takes 1 to {MAX_INPUTS}", inputs.len())));
    }
    let dtype = inputs[0].dtype();
    let is_known = dtype.is_float() && dtype != crate::base::DType::F64;
    match inputs.iter().find(|input| input.dtype() != dtype || !is_known) {
        Some(input) => {
            Err(wrong(format!("holds {} beside {dtype}; takes tensors of one float dtype", input.dtype())))
        }
        None => Ok(inputs),
    }
}

fn steps<T>(args: &Args<T>, n_inputs: usize) -> Result<Steps> {
    let text = args.opt_str("steps")?.unwrap_or_default();
    Steps::parse(text, n_inputs).map_err(|fault| Error::invalid_graph(fault).at_operand("steps"))
}

impl Op for Chain {
    fn targets(&self) -> &'static [&'static str] {
        &["vkdelegate.elementwise.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let inputs = inputs(args)?;
        steps(args, inputs.len())?;
        let tensors: Vec<Input<'_, Meta>> = inputs.iter().map(|&input| Input::Tensor(input)).collect();
        let sizes = operands::broadcast_sizes(&tensors).map_err(|error| error.at_operand("inputs"))?;
        Ok(vec![Meta::new(inputs[0].dtype, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let Meta { dtype, sizes } = outs[0].clone();
        let inputs = inputs(args)?;
        let steps = steps(args, inputs.len())?;
        let inputs: Vec<Vec<f64>> =
            inputs.iter().map(|&x| Input::Tensor(x).f64s(dtype, &sizes)).collect::<Result<_>>()?;
        let element = |input: usize, at: usize| inputs.get(input).map_or(0.0, |input| input[at]);
        let values: Vec<f64> =
            (0..inputs[0].len()).map(|at| steps.eval([0, 1, 2].map(|input| element(input, at)))).collect();
        Ok(vec![HostTensor::from_f64s(dtype, sizes, &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let inputs = inputs(args)?;
        let steps = steps(args, inputs.len())?;
        let live = |cx: &mut Lowering<'_>, input| operands::live_as(cx, input, outs[0].dtype);
        let x = live(cx, inputs[0])?;
        let mut other =
            |index: usize| inputs.get(index).map_or_else(|| Ok(x.clone()), |&input| live(cx, input));
        let (z, w) = (other(1)?, other(2)?);
        let out = cx.output(&outs[0])?;
        let words = if steps.are_fixed() { None } else { Some(cx.words(&steps.words())?.region()) };
        let axes = kernel::Axes { dtype: float_axis!(pointwise_chain, out.element)? };
        let spec = kernel::Spec { round_mode: cx.round_mode(out.dtype, out.element), ..steps.spec() };
        let label = cx.label();
        elementwise::launch_quads(cx, &out, [&x, &z, &w], |grid, binding| {
            let [x, z, w] = binding.inputs;
            let operands = kernel::Operands { x, z, w: words.unwrap_or(w), y: binding.out };
            let params = kernel::Params {
                n_elems: grid.n_elems,
                quads: grid.quads,
                sizes: grid.sizes,
                n_steps: steps.count() as u32,
                x_strides: grid.strides[0],
                z_strides: grid.strides[1],
                w_strides: grid.strides[2],
            };
            kernel::dispatch(axes, spec, operands, params, binding.groups, label.clone())
        })?;
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Elementwise
    }
}
