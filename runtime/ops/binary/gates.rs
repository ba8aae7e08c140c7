//! Activations whose second operand is a tensor: `prelu` (`x > 0 ? x : w x`, `w` for each channel, dim 1) and `glu`
//! (`a sigmoid(b)`, `a` and `b` the halves of a tensor along a dim).
//!
//! Float dtypes but float64, any rank.

use super::{Function, apply_floats, lower_floats};
use crate::{
    base::{Error, HostTensor, Result, Scalar, shape},
    ops::{
        Args, Lowering, Meta, Op, Operand, Tensor,
        operands::{self, Input, Sides, Typed},
    },
};

/// The family of gated activations.
pub struct Gates;

impl Op for Gates {
    fn targets(&self) -> &'static [&'static str] {
        &["aten._prelu_kernel.default", "aten.glu.default", "aten.prelu.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = operands::tensor(args, "self")?;
        if !x.dtype.is_float() {
            let reason = format!("{} takes floats, not {}", args.op(), x.dtype);
            return Err(Error::unsupported(reason).at_operand("self"));
        }
        let sizes = match args.op().base() {
            "glu" => halves(args, &x.sizes)?.1,
            _ => {
                let weight = operands::tensor(args, "weight")?;
                if weight.dtype != x.dtype {
                    let reason = format!("is {}, the tensor {}", weight.dtype, x.dtype);
                    return Err(Error::unsupported(reason).at_operand("weight"));
                }
                let weight_sizes = weight_sizes(args, x, weight).map_err(|e| e.at_operand("weight"))?;
                shape::broadcast(&x.sizes, &weight_sizes).map_err(|e| e.at_operand("weight"))?
            }
        };
        Ok(vec![Meta::new(x.dtype, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = operands::tensor(args, "self")?;
        let (function, left, right) = match args.op().base() {
            "glu" => {
                let (dim, sizes) = halves(args, x.sizes())?;
                (Function::Glu, half(x, dim, &sizes, 0)?, half(x, dim, &sizes, sizes[dim])?)
            }
            _ => {
                let weight = operands::tensor(args, "weight")?;
                (Function::Prelu, x.clone(), weight.reshaped(weight_sizes(args, x, weight)?)?)
            }
        };
        let sides = (Input::Tensor(&left), Input::Tensor(&right));
        Ok(vec![apply_floats(function, sides, Scalar::Int(1), outs[0].dtype, &outs[0].sizes)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let x = cx.live(operands::tensor(args, "self")?)?;
        let (function, left, right) = match args.op().base() {
            "glu" => {
                let (dim, sizes) = halves(args, &x.sizes)?;
                let second = sizes[dim] * x.strides[dim];
                let half = |offset| x.restrided(sizes.clone(), x.strides.clone(), offset);
                (Function::Glu, half(0), half(second))
            }
            _ => {
                let operand = operands::tensor(args, "weight")?;
                let sizes = weight_sizes(args, operands::tensor(args, "self")?, operand)?;
                let weight = cx.live(operand)?;
                let weight = match weight.viewed(&sizes) {
                    Some(weight) => weight,
                    None => cx.contiguous(&weight)?.viewed(&sizes).unwrap_or(weight),
                };
                (Function::Prelu, x, weight)
            }
        };
        let out = cx.output(&outs[0])?;
        let sides = Sides { left, right, number: Scalar::Int(0), number_side: 0 };
        lower_floats(cx, function, &sides, Scalar::Int(1), &out)?;
        Ok(vec![out])
    }
}

/// The dim that `glu` halves, and the sizes of a half.
fn halves<T>(args: &Args<T>, sizes: &[usize]) -> Result<(usize, Vec<usize>)> {
    let dim = args.dim_or("dim", -1, sizes.len())?;
    let mut half = sizes.to_vec();
    match half.get_mut(dim) {
        Some(size) if size.is_multiple_of(2) => *size /= 2,
        Some(size) => {
            return Err(Error::unsupported(format!("size {size} has no halves")).at_operand("dim"));
        }
        None => return Err(Error::unsupported("a 0-d tensor has no halves").at_operand("self")),
    }
    Ok((dim, half))
}

/// The part of `x` with `sizes` that starts `start` elements into `dim`.
fn half(x: &HostTensor, dim: usize, sizes: &[usize], start: usize) -> Result<HostTensor> {
    let strides = shape::contiguous_strides(x.sizes());
    let values = x.to_f64s();
    let mut part = Vec::with_capacity(values.len() / 2);
    shape::for_each_offset(sizes, &strides, start * strides[dim], |offset| part.push(values[offset]));
    HostTensor::from_f64s(x.dtype(), sizes.to_vec(), &part)
}

/// The sizes that make `weight` broadcast along the channels of `x`.
fn weight_sizes<T: Typed>(args: &Args<T>, x: &T, weight: &T) -> Result<Vec<usize>> {
    if args.op().base() == "_prelu_kernel" {
        return Ok(weight.sizes().to_vec());
    }
    let count = shape::numel(weight.sizes())?;
    if count == 1 {
        return Ok(Vec::new());
    }
    let channels = x.sizes().get(1).copied().unwrap_or(1);
    if count != channels {
        return Err(Error::unsupported(format!("{count} weights for {channels} channels")));
    }
    let mut sizes = vec![1; x.sizes().len() - 1];
    sizes[0] = count;
    Ok(sizes)
}
