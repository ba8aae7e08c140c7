//! Convolution over 1 to 3 spatial dims: stride, padding, dilation, groups (depthwise too), bias, and the transpose.
//!
//! `aten.convolution.default`, and what training graphs call: `conv1d`, `conv2d`, `conv3d` with numbers or `same`
//! and `valid` as padding, and `conv_transpose1d` to `3d`. The input has sizes `[batch, channels, ...]` or no batch
//! dim; the weight `[out, in / groups, ...]` (transposed: `[in, out / groups, ...]`) and may be computed at run
//! time. Floats of one dtype; sums in 32 bits on the device. A 1x1 kernel over single steps is a matrix product; all
//! others have kernels of their own (see `direct`), which read the input where it is.

mod direct;
mod eval;
mod geometry;

pub use geometry::Geometry;

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    epilogue::Epilogue,
    matmul,
    product::{Columns, Product},
};
use crate::base::{Error, HostTensor, Result, shape};
use direct::Direct;

/// The family.
pub struct Conv;

const TARGETS: &[&str] = &[
    "aten.conv1d.default",
    "aten.conv1d.padding",
    "aten.conv2d.default",
    "aten.conv2d.padding",
    "aten.conv3d.default",
    "aten.conv3d.padding",
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    "aten.conv_transpose3d.input",
    "aten.convolution.default",
];

impl Op for Conv {
    fn targets(&self) -> &'static [&'static str] {
        TARGETS
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (input, weight) = (args.tensor("input")?, args.tensor("weight")?);
        matmul::check_floats(input.dtype, weight.dtype).map_err(|error| error.at_operand("weight"))?;
        let geometry = Geometry::new(args, Meta::clone)?;
        let channels = geometry.groups * geometry.out_channels;
        if let Some(bias) = args.opt_tensor("bias")?
            && (bias.dtype != input.dtype || bias.sizes != [channels])
        {
            let text = format!("is {}{:?}, not {}[{channels}]", bias.dtype, bias.sizes, input.dtype);
            return Err(Error::invalid_graph(text).at_operand("bias"));
        }
        Ok(vec![Meta::new(input.dtype, geometry.program_out_sizes())])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let geometry = Geometry::new(args, |tensor| Meta::new(tensor.dtype(), tensor.sizes()))?;
        let (x, weight) = (args.tensor("input")?.to_f64s(), args.tensor("weight")?.to_f64s());
        let bias = args.opt_tensor("bias")?.map(HostTensor::to_f64s);
        let values = eval::convolve(&geometry, &x, &weight, bias.as_deref())?;
        Ok(vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        Ok(vec![lower(args, &outs[0], Epilogue::NONE, cx)?])
    }
}

/// Emits a convolution and what follows it.
pub(super) fn lower(
    args: &Args<Operand>,
    out: &Meta,
    epilogue: Epilogue,
    cx: &mut Lowering<'_>,
) -> Result<Tensor> {
    let geometry = Geometry::new(args, Operand::meta)?;
    if out.sizes.contains(&0) {
        return cx.output(out);
    }
    let (x, weight) = (cx.live(args.tensor("input")?)?, args.tensor("weight")?);
    let bias = match args.opt_tensor("bias")? {
        Some(bias) => {
            let bias = cx.live(bias)?;
            Some(cx.contiguous(&bias)?)
        }
        None => None,
    };
    if is_product(&geometry) {
        return emit_product(&geometry, (&x, weight, bias), (out, epilogue), cx);
    }
    let (y, epilogue) = epilogue.in_place(out, cx)?;
    let weight = direct::weight(&geometry, weight, cx)?;
    Direct { geometry, x, weight, bias, y: y.clone(), epilogue }.emit(cx)?;
    Ok(y)
}

/// Whether each output position mixes the channels of one input position, all of them: a matrix product.
fn is_product(geometry: &Geometry) -> bool {
    let Geometry { groups, in_channels, kernel, stride, padding, in_sizes, out_sizes, .. } = geometry;
    *groups == 1
        && *in_channels > 0
        && !geometry.transposed
        && *kernel == [1; 3]
        && *stride == [1; 3]
        && *padding == [0; 3]
        && in_sizes == out_sizes
}

/// `y[batch] = W x[batch] + bias`, with positions as columns.
fn emit_product(
    geometry: &Geometry,
    (x, weight, bias): (&Tensor, &Operand, Option<Tensor>),
    (out, epilogue): (&Meta, Epilogue),
    cx: &mut Lowering<'_>,
) -> Result<Tensor> {
    let &Geometry { batch, in_channels, out_channels, out_sizes, .. } = geometry;
    let positions = shape::numel(&out_sizes)?;
    let x_sizes = [batch, in_channels, positions];
    let x = match x.viewed(&x_sizes) {
        Some(x) => x,
        None => {
            let x = cx.contiguous(x)?;
            x.viewed(&x_sizes).ok_or_else(|| Error::internal("a contiguous input is no matrix"))?
        }
    };
    let weight = cx.live(weight)?;
    let weight = cx.contiguous(&weight)?;
    let weight = weight.restrided(vec![out_channels, in_channels], vec![in_channels, 1], 0);
    let mut product = Product::new(weight, Columns::Live(x));
    product.bias = bias.map(|bias| bias.restrided(vec![out_channels, 1], vec![1, 0], 0));
    let y_sizes = [batch, out_channels, positions];
    let y = epilogue.join(&mut product, out, &y_sizes, cx)?;
    product.emit(cx, &y.restrided(y_sizes.to_vec(), shape::contiguous_strides(&y_sizes), 0))?;
    Ok(y)
}
