//! Arithmetic of three tensors, element by element with broadcasting: `addcmul` (`a + value b c`), `addcdiv`
//! (`a + value b / c`) and `lerp` (`a + c (b - a)`, whose `c` may be a number).
//!
//! Float dtypes but float64, any rank; computed in float32.

use super::{
    Args, InPlace, Lowering, Meta, Op, Operand, Tensor, elementwise,
    operands::{self, Input, Typed},
};
use crate::{
    base::{Error, HostTensor, Result, Scalar},
    shader::kernels::ternary as kernel,
};

/// The family of three-operand arithmetic.
pub struct Ternary;

/// One call: its function, operands and number.
struct Call<'a, T> {
    op: kernel::Op,
    tensors: [&'a T; 3],
    value: f64,
}

impl<'a, T: Typed> Call<'a, T> {
    fn of(args: &'a Args<T>) -> Result<Call<'a, T>> {
        let tensor = |name| operands::tensor(args, name);
        let first = tensor("self")?;
        let value = |number: Scalar| f64::from(number.as_f64() as f32);
        match args.op().as_str() {
            "aten.lerp.Scalar" => {
                let value = value(args.scalar("weight")?);
                Ok(Call { op: kernel::Op::LerpNumber, tensors: [first, tensor("end")?, first], value })
            }
            "aten.lerp.Tensor" => {
                let tensors = [first, tensor("end")?, tensor("weight")?];
                Ok(Call { op: kernel::Op::Lerp, tensors, value: 1.0 })
            }
            other => {
                let divides = other == "aten.addcdiv.default";
                let op = if divides { kernel::Op::Addcdiv } else { kernel::Op::Addcmul };
                let value = value(args.scalar_or("value", Scalar::Int(1))?);
                Ok(Call { op, tensors: [first, tensor("tensor1")?, tensor("tensor2")?], value })
            }
        }
    }
}

impl Op for Ternary {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.addcdiv.default", "aten.addcmul.default", "aten.lerp.Scalar", "aten.lerp.Tensor"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let inputs = Call::of(args)?.tensors.map(Input::Tensor);
        let dtype = operands::result_type(&inputs);
        if !dtype.is_float() {
            let reason = format!("{} takes floats, not {dtype}", args.op());
            return Err(Error::unsupported(reason).at_operand("self"));
        }
        Ok(vec![Meta::new(dtype, operands::broadcast_sizes(&inputs)?)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let Call { op, tensors, value } = Call::of(args)?;
        let Meta { dtype, sizes } = outs[0].clone();
        let [a, b, c] = tensors.map(|tensor| Input::Tensor(tensor).f64s(dtype, &sizes));
        let triples = a?.into_iter().zip(b?).zip(c?);
        let values: Vec<f64> = triples
            .map(|((a, b), c)| match op {
                kernel::Op::Addcmul => a + value * b * c,
                kernel::Op::Addcdiv => a + value * b / c,
                kernel::Op::Lerp => a + c * (b - a),
                kernel::Op::LerpNumber => a + value * (b - a),
            })
            .collect();
        Ok(vec![HostTensor::from_f64s(dtype, sizes, &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let Call { op, tensors: [a, b, c], value } = Call::of(args)?;
        let dtype = outs[0].dtype;
        let a = operands::live_as(cx, a, dtype)?;
        let b = operands::live_as(cx, b, dtype)?;
        let c = if op == kernel::Op::LerpNumber { a.clone() } else { operands::live_as(cx, c, dtype)? };
        let out = cx.output(&outs[0])?;
        let axes = kernel::Axes { dtype: float_axis!(ternary, out.element)? };
        let round_mode = cx.round_mode(out.dtype, out.element);
        let spec = kernel::Spec { round_mode, op, ..Default::default() };
        let label = cx.label();
        elementwise::launch_quads(cx, &out, [&a, &b, &c], |grid, binding| {
            let [a, b, c] = binding.inputs;
            let operands = kernel::Operands { a, b, c, y: binding.out };
            let params = kernel::Params {
                n_elems: grid.n_elems,
                quads: grid.quads,
                sizes: grid.sizes,
                value: value as f32,
                a_strides: grid.strides[0],
                b_strides: grid.strides[1],
                c_strides: grid.strides[2],
            };
            kernel::dispatch(axes, spec, operands, params, binding.groups, label.clone())
        })?;
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Elementwise
    }
}
