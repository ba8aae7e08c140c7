//! `linear`: `y = x W^T + bias`, the product with a constant weight.
//!
//! `aten.linear.default` with x of sizes `[..., K]`, W of `[N, K]` and an optional bias of `[N]`, floats of one
//! dtype. W is a constant of the program and is prepacked, once; x and the bias may be anything. On the device
//! a product with a weight that is computed at run time stays `mm`.

use super::{
    Args, Lowering, Meta, Op, Operand, Packing, Tensor,
    epilogue::Epilogue,
    matmul::{self, Form},
    product::{Columns, Product},
};
use crate::base::{Error, HostTensor, Result};

/// The family.
pub struct Linear;

impl Op for Linear {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.linear.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (input, weight) = (args.tensor("input")?, args.tensor("weight")?);
        matmul::check_floats(input.dtype, weight.dtype).map_err(|error| error.at_operand("weight"))?;
        let &[n, k] = weight.sizes.as_slice() else {
            let text = format!("has sizes {:?}; linear takes a matrix [N, K]", weight.sizes);
            return Err(Error::unsupported(text).at_operand("weight"));
        };
        if input.sizes.last() != Some(&k) {
            let text =
                format!("has sizes {:?}; a weight of sizes [{n}, {k}] takes {k} features", input.sizes);
            return Err(Error::invalid_graph(text).at_operand("input"));
        }
        if let Some(bias) = args.opt_tensor("bias")?
            && (bias.dtype != input.dtype || bias.sizes != [n])
        {
            let text = format!("is {}{:?}; linear takes {}[{n}]", bias.dtype, bias.sizes, input.dtype);
            return Err(Error::invalid_graph(text).at_operand("bias"));
        }
        let mut sizes = input.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = n;
        }
        Ok(vec![Meta::new(input.dtype, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let (input, weight) = (args.tensor("input")?, args.tensor("weight")?);
        let (n, k) = (weight.sizes()[0], weight.sizes()[1]);
        let columns = transposed(&weight.to_f64s(), n, k);
        let form = Form::new(input.sizes(), &[k, n])?;
        let mut sums = matmul::product(&form, (&input.to_f64s(), input.sizes()), (&columns, &[k, n]))?;
        if let Some(bias) = args.opt_tensor("bias")? {
            matmul::add_bias(&mut sums, &form, bias, 1.0)?;
        }
        Ok(vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &sums)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        Ok(vec![lower(args, &outs[0], Epilogue::NONE, cx)?])
    }
}

/// Emits a `linear` and what follows it.
pub(super) fn lower(
    args: &Args<Operand>,
    out: &Meta,
    epilogue: Epilogue,
    cx: &mut Lowering<'_>,
) -> Result<Tensor> {
    let weight = args.tensor("weight")?.constant().map_err(|_| {
        Error::unsupported("linear needs a constant weight; a product with run-time data stays mm")
            .at_operand("weight")
    })?;
    let weight = cx.packed(weight, Packing::Panels4)?;
    let input = cx.live(args.tensor("input")?)?;
    let bias = args.opt_tensor("bias")?.map(|bias| cx.live(bias)).transpose()?;
    let mut product = Product::new(as_matrices(&input), Columns::Panels(weight));
    product.bias = bias;
    let matrices = if let &[n] = out.sizes.as_slice() { vec![1, n] } else { out.sizes.clone() };
    let y = epilogue.join(&mut product, out, &matrices, cx)?;
    product.emit(cx, &as_matrices(&y))?;
    Ok(y)
}

/// A vector as a matrix of one row.
fn as_matrices(tensor: &Tensor) -> Tensor {
    match tensor.sizes.as_slice() {
        &[size] => tensor.restrided(vec![1, size], vec![0, tensor.strides[0]], 0),
        _ => tensor.clone(),
    }
}

/// `[n, k]` as `[k, n]`.
pub(super) fn transposed(values: &[f64], n: usize, k: usize) -> Vec<f64> {
    let mut out = vec![0.0; values.len()];
    for row in 0..n {
        for column in 0..k {
            out[column * n + row] = values[row * k + column];
        }
    }
    out
}
