//! A chain or tree of element-wise functions in one dispatch, as `silu(x) * z + 1` or `where(x > z, x, 0)`.
//!
//! No program holds this op; the elementwise pass makes it of functions of one, two and three operands, comparisons, choices
//! and conversions.
//!
//! | operand or attribute | |
//! |---|---|
//! | `inputs` | one to three tensors of any dtype but float64; they broadcast |
//! | `steps` | the functions, in order: see [`Steps`] |
//! | `dtype` | that of the result; left out where it is that of the first input |
//!
//! A chain of at most 16 steps with few numbers is part of its pipeline, so that a driver makes straight code of it; a longer
//! one is read from a buffer, step by step, and takes two inputs.
//!
//! What comes between are floats: integers become float32 as they are read, truth values are 1 and 0. Comparisons of
//! integers take the inputs themselves.
//!
//! A step gives the bits that its function gives alone, in float32. Only the last result is rounded to the dtype: where
//! that is half precision, what comes between keeps the 32 bits that it would lose when stored, but for a conversion,
//! which is a step that rounds.

mod call;
mod functions;
mod steps;

use super::{
    Args, Element, InPlace, Lowering, Meta, Op, Operand, Tensor,
    choose::LARGEST_HALF,
    elementwise,
    operands::{self, Input, Typed},
};
use crate::{
    base::{DType, Error, HostTensor, Result},
    shader::kernels::pointwise_chain as kernel,
};

pub use call::{Call, Term, call};
pub use functions::Element as HostElement;
pub use steps::{MAX_INPUTS, MAX_STEPS, Steps};

/// The family.
pub struct Chain;

/// The inputs, checked.
fn inputs<T: Typed>(args: &Args<T>) -> Result<Vec<&T>> {
    let wrong = |text: String| Error::invalid_graph(text).at_operand("inputs");
    let inputs: Vec<&T> = args.tensors("inputs")?.iter().flatten().collect();
    if inputs.is_empty() || inputs.len() > MAX_INPUTS {
        return Err(wrong(format!("holds {} tensors; takes 1 to {MAX_INPUTS}", inputs.len())));
    }
    match inputs.iter().find(|input| input.dtype() == DType::F64) {
        Some(_) => Err(wrong("holds float64, which no kernel takes".to_string())),
        None => Ok(inputs),
    }
}

fn steps<T: Typed>(args: &Args<T>, inputs: &[&T]) -> Result<Steps> {
    let wrong = |fault: String| Error::invalid_graph(fault).at_operand("steps");
    let text = args.opt_str("steps")?.unwrap_or_default();
    let steps = Steps::parse(text, inputs.len()).map_err(wrong)?;
    match inputs.iter().zip(steps.int_inputs()).find(|(input, is_int)| *is_int && input.dtype().is_float()) {
        Some((input, _)) => Err(wrong(format!("compare {} as integers", input.dtype()))),
        None => Ok(steps),
    }
}

/// The elements of an input, repeated to `sizes`.
fn elements(input: &HostTensor, sizes: &[usize]) -> Result<Vec<HostElement>> {
    let dtype = input.dtype();
    let input = Input::Tensor(input);
    if dtype.is_float() {
        return Ok(input.f64s(dtype, sizes)?.into_iter().map(HostElement::from).collect());
    }
    let ints = input.i64s(dtype, sizes)?.into_iter();
    Ok(ints.map(|int| HostElement { float: f64::from(int as f32), int }).collect())
}

/// How the kernel takes elements of a tensor, where those of `dtype` are its own.
fn kind(tensor: &Tensor, dtype: kernel::Dtype) -> u32 {
    match (tensor.element, dtype) {
        (Element::I32, _) => 1,
        (Element::F32, kernel::Dtype::F16) => 2,
        _ => 0,
    }
}

impl Op for Chain {
    fn targets(&self) -> &'static [&'static str] {
        &["vkdelegate.elementwise.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let inputs = inputs(args)?;
        steps(args, &inputs)?;
        let tensors: Vec<Input<'_, Meta>> = inputs.iter().map(|&input| Input::Tensor(input)).collect();
        let sizes = operands::broadcast_sizes(&tensors).map_err(|error| error.at_operand("inputs"))?;
        match args.opt_dtype("dtype")?.unwrap_or(inputs[0].dtype) {
            DType::F64 => Err(Error::invalid_graph("float64 has no kernel").at_operand("dtype")),
            dtype => Ok(vec![Meta::new(dtype, sizes)]),
        }
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let Meta { dtype, sizes } = outs[0].clone();
        let inputs = inputs(args)?;
        let steps = steps(args, &inputs)?;
        let inputs: Vec<_> = inputs.iter().map(|&x| elements(x, &sizes)).collect::<Result<_>>()?;
        let element = |input: usize, at: usize| inputs.get(input).map_or_else(Default::default, |x| x[at]);
        let values: Vec<f64> =
            (0..inputs[0].len()).map(|at| steps.eval([0, 1, 2].map(|input| element(input, at)))).collect();
        Ok(vec![HostTensor::from_f64s(DType::F32, sizes, &values)?.cast(dtype)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let inputs = inputs(args)?;
        let steps = steps(args, &inputs)?;
        let live = inputs.into_iter().map(|input| cx.live(input)).collect::<Result<Vec<_>>>()?;
        let [x, z, w] = [0, 1, 2].map(|index| live.get(index).unwrap_or(&live[0]).clone());
        let out = cx.output(&outs[0])?;
        let tensors = [&x, &z, &w, &out];
        let is_half = tensors.iter().any(|tensor| tensor.element == Element::F16);
        // A number that means "very large" in a float32 program is that in half precision too.
        let steps = match cx.element_of(DType::F32) {
            Element::F16 => steps.with_choices_within(LARGEST_HALF),
            _ => steps,
        };
        let words = if steps.are_fixed() { None } else { Some(cx.words(&steps.words())?.region()) };
        let dtype = if is_half { kernel::Dtype::F16 } else { kernel::Dtype::F32 };
        let kinds = tensors.iter().rev().fold(0, |kinds, tensor| kinds << 2 | kind(tensor, dtype));
        let axes = kernel::Axes { dtype };
        let round_mode = cx.round_mode(out.dtype, out.element);
        let spec = kernel::Spec { round_mode, kinds, ..steps.spec() };
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
