//! Functions of one tensor, element by element: activations, exponentials, logarithms, roots, trigonometry, rounding,
//! clamping to numbers, tests (`isnan`, `logical_not`), and dropout, which does nothing in inference.
//!
//! All dtypes but float64, any rank and strides. Floats are computed in float32 and keep NaN. Where PyTorch has the
//! function for integers, it either gives float32 (`exp`, `sqrt`, ...) or integers, which wrap; int64 is 32 bits wide
//! on a device, and a result beyond that stops the run with an error. Activations of integers are refused.

mod call;
mod eval;

use super::{
    Args, InPlace, Lowering, Meta, Op, Operand, Tensor, elementwise,
    operands::{self, Typed},
};
use crate::{
    base::{DType, HostTensor, Result},
    shader::kernels::{predicate, unary, unary_int},
};
use call::{Call, FloatFunction, IntFunction, TARGETS};

/// The family of functions of one tensor.
pub struct Unary;

impl Op for Unary {
    fn targets(&self) -> &'static [&'static str] {
        TARGETS
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = call::tensor(args)?;
        let dtype = match Call::of(args)? {
            Call::Identity | Call::Ints(_) => x.dtype,
            Call::Test(_) => DType::Bool,
            Call::Floats(_) => float_dtype(x.dtype),
        };
        Ok(vec![Meta::new(dtype, x.sizes.clone())])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = call::tensor(args)?;
        let Meta { dtype, sizes } = outs[0].clone();
        let result = match Call::of(args)? {
            Call::Identity => x.clone(),
            Call::Test(op) => {
                let values: Vec<i64> =
                    x.to_f64s().into_iter().map(|v| i64::from(eval::test(op, v))).collect();
                HostTensor::from_i64s(dtype, sizes, &values)?
            }
            Call::Ints(function) => {
                let values: Vec<i64> = x.to_i64s().into_iter().map(|v| eval::of_int(&function, v)).collect();
                HostTensor::from_i64s(dtype, sizes, &values)?
            }
            Call::Floats(function) => {
                let values: Vec<f64> =
                    x.cast(dtype)?.to_f64s().into_iter().map(|v| eval::of_float(&function, v)).collect();
                HostTensor::from_f64s(dtype, sizes, &values)?
            }
        };
        Ok(vec![result])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let operand = call::tensor(args)?;
        let call = Call::of(args)?;
        if let Call::Identity = call {
            return Ok(vec![cx.live(operand)?]);
        }
        let x = match call {
            Call::Floats(_) => operands::live_as(cx, operand, outs[0].dtype)?,
            _ => cx.live(operand)?,
        };
        let out = cx.output(&outs[0])?;
        match call {
            Call::Identity => {}
            Call::Test(op) => lower_test(cx, op, &x, &out)?,
            Call::Ints(function) => lower_ints(cx, &function, &x, &out)?,
            Call::Floats(function) => lower_floats(cx, &function, &x, &out)?,
        }
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Elementwise
    }
}

/// The function of float32 that `args` call, with its first two numbers; `None` when there is none.
///
/// # Errors
/// A mode that is not known.
pub(super) fn float_function<T>(args: &Args<T>) -> Result<Option<(unary::Op, f64, f64)>> {
    let function = call::float_function(args, DType::F32)?;
    Ok(function.map(|FloatFunction { op, a, b, .. }| (op, a, b)))
}

/// What a step of a chain does with each element.
pub(super) enum StepFunction {
    /// Nothing.
    Same,
    /// A float of a float, with its numbers a, b and c.
    Float(unary::Op, [f32; 3]),
    /// A truth value of a float.
    Test(predicate::Op),
}

/// A call as a step of a chain.
pub(super) struct StepCall<'a, T> {
    pub x: &'a T,
    pub function: StepFunction,
}

/// What a call whose result is no integer is as a step of a chain; `None` for any other call.
///
/// # Errors
/// As [`Op::infer`].
pub(super) fn step_call<T: Typed>(args: &Args<T>) -> Result<Option<StepCall<'_, T>>> {
    let x = call::tensor(args)?;
    let function = match Call::of(args)? {
        Call::Floats(FloatFunction { op, a, b, c }) => {
            StepFunction::Float(op, [a as f32, b as f32, c as f32])
        }
        Call::Test(op) => StepFunction::Test(op),
        Call::Identity if !x.dtype().is_int() => StepFunction::Same,
        Call::Identity | Call::Ints(_) => return Ok(None),
    };
    Ok(Some(StepCall { x, function }))
}

/// The answer to a question about a float, on the host.
pub(super) fn eval_test(op: predicate::Op, v: f64) -> bool {
    eval::test(op, v)
}

/// A function of a float with its numbers a, b and c, on the host.
pub(super) fn eval_float(op: unary::Op, [a, b, c]: [f64; 3], v: f64) -> f64 {
    eval::of_float(&FloatFunction { op, a, b, c }, v)
}

fn float_dtype(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

fn lower_floats(cx: &mut Lowering<'_>, function: &FloatFunction, x: &Tensor, out: &Tensor) -> Result<()> {
    let axes = unary::Axes { dtype: float_axis!(unary, out.element)? };
    let round_mode = cx.round_mode(out.dtype, out.element);
    let spec = unary::Spec { round_mode, op: function.op, ..Default::default() };
    let label = cx.label();
    elementwise::launch_quads(cx, out, [x], |grid, binding| {
        let operands = unary::Operands { x: binding.inputs[0], y: binding.out };
        let params = unary::Params {
            n_elems: grid.n_elems,
            quads: grid.quads,
            sizes: grid.sizes,
            a: function.a as f32,
            b: function.b as f32,
            c: function.c as f32,
            x_strides: grid.strides[0],
        };
        unary::dispatch(axes, spec, operands, params, binding.groups, label.clone())
    })
}

fn lower_ints(cx: &mut Lowering<'_>, function: &IntFunction, x: &Tensor, out: &Tensor) -> Result<()> {
    let spec = unary_int::Spec {
        round_mode: cx.round_mode(out.dtype, out.element),
        op: function.op,
        checked: u32::from(out.dtype == DType::I64),
        ..Default::default()
    };
    let narrowed = |value: i64| value.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    let (status, node, label) = (cx.status(), cx.node_id(), cx.label());
    elementwise::launch_quads(cx, out, [x], |grid, binding| {
        let operands = unary_int::Operands { x: binding.inputs[0], y: binding.out, status };
        let params = unary_int::Params {
            n_elems: grid.n_elems,
            quads: grid.quads,
            sizes: grid.sizes,
            low: narrowed(function.low),
            high: narrowed(function.high),
            node,
            x_strides: grid.strides[0],
        };
        unary_int::dispatch(unary_int::Axes {}, spec, operands, params, binding.groups, label.clone())
    })
}

fn lower_test(cx: &mut Lowering<'_>, op: predicate::Op, x: &Tensor, out: &Tensor) -> Result<()> {
    let axes = predicate::Axes { dtype: element_axis!(predicate, x.element) };
    let spec = predicate::Spec { op, ..Default::default() };
    let label = cx.label();
    elementwise::launch(cx, out, [x], |grid, binding| {
        let operands = predicate::Operands { x: binding.inputs[0], y: binding.out };
        let params =
            predicate::Params { n_elems: grid.n_elems, sizes: grid.sizes, x_strides: grid.strides[0] };
        predicate::dispatch(axes, spec, operands, params, binding.groups, label.clone())
    })
}
