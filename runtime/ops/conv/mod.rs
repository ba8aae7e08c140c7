//! Convolution over 1 to 3 spatial dims: stride, padding, dilation, groups (depthwise too), bias, and the transpose.
//!
//! `aten.convolution.default`, and what training graphs call: `conv1d`, `conv2d`, `conv3d` with numbers or `same`
//! and `valid` as padding, and `conv_transpose1d` to `3d`. The input has sizes `[batch, channels, ...]` or no batch
//! dim; the weight `[out, in / groups, ...]` (transposed: `[in, out / groups, ...]`) and may be computed at run
//! time. Floats of one dtype; sums in 32 bits on the device. A 1x1 kernel over single steps is a matrix product.

mod eval;
mod geometry;

pub use geometry::Geometry;

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    fill::fill,
    matmul,
    product::{Columns, Product},
};
use crate::{
    base::{Error, HostTensor, Result, Scalar, shape},
    shader::kernels,
};

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
        let geometry = Geometry::new(args, Operand::meta)?;
        let x = cx.live(args.tensor("input")?)?;
        let weight = cx.live(args.tensor("weight")?)?;
        let weight = cx.contiguous(&weight)?;
        let bias = match args.opt_tensor("bias")? {
            Some(bias) => {
                let bias = cx.live(bias)?;
                Some(cx.contiguous(&bias)?)
            }
            None => None,
        };
        let y = cx.output(&outs[0])?;
        let call = Call { geometry, x, weight, bias, y: y.clone() };
        if y.numel() > 0 {
            call.emit(cx)?;
        }
        Ok(vec![y])
    }
}

/// A convolution to be emitted; the weight and the bias are contiguous.
struct Call {
    geometry: Geometry,
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    y: Tensor,
}

impl Call {
    fn emit(self, cx: &mut Lowering<'_>) -> Result<()> {
        if self.geometry.in_channels == 0 {
            return self.emit_empty_sum(cx);
        }
        if self.is_product() { self.emit_product(cx) } else { self.emit_direct(cx) }
    }

    /// A sum over no channels leaves the bias.
    fn emit_empty_sum(self, cx: &mut Lowering<'_>) -> Result<()> {
        let Some(bias) = self.bias else { return fill(cx, &self.y, Scalar::Float(0.0)) };
        let rank = self.geometry.rank;
        let sizes = [&bias.sizes[..], &vec![1; rank]].concat();
        let strides = [&[1][..], &vec![0; rank]].concat();
        let bias = bias.restrided(sizes, strides, 0).broadcast_to(&self.y.sizes)?;
        cx.copy(&bias, &self.y)
    }

    /// Whether each output position mixes the channels of one input position, all of them: a matrix product.
    fn is_product(&self) -> bool {
        let Geometry { groups, kernel, stride, padding, in_sizes, out_sizes, .. } = &self.geometry;
        *groups == 1
            && !self.geometry.transposed
            && *kernel == [1; 3]
            && *stride == [1; 3]
            && *padding == [0; 3]
            && in_sizes == out_sizes
    }

    /// `y[batch] = W x[batch] + bias`, with positions as columns.
    fn emit_product(self, cx: &mut Lowering<'_>) -> Result<()> {
        let Geometry { batch, in_channels, out_channels, out_sizes, .. } = self.geometry;
        let positions = shape::numel(&out_sizes)?;
        let x_sizes = [batch, in_channels, positions];
        let x = match self.x.viewed(&x_sizes) {
            Some(x) => x,
            None => {
                let x = cx.contiguous(&self.x)?;
                x.viewed(&x_sizes).ok_or_else(|| Error::internal("a contiguous input is no matrix"))?
            }
        };
        let weight = self.weight.restrided(vec![out_channels, in_channels], vec![in_channels, 1], 0);
        let mut product = Product::new(weight, Columns::Live(x));
        product.bias = self.bias.map(|bias| bias.restrided(vec![out_channels, 1], vec![1, 0], 0));
        let y_sizes = [batch, out_channels, positions];
        let y = self.y.restrided(y_sizes.to_vec(), shape::contiguous_strides(&y_sizes), 0);
        product.emit(cx, &y)
    }

    fn emit_direct(self, cx: &mut Lowering<'_>) -> Result<()> {
        use kernels::conv::{Axes, Operands, Spec, TileC};
        let geometry = &self.geometry;
        let tile = if geometry.out_channels > 1 { 4 } else { 1 };
        let axes = Axes {
            dtype: float_axis!(conv, self.x.element)?,
            tile_c: if tile == 4 { TileC::TileC4 } else { TileC::TileC1 },
        };
        let [kernel_d, kernel_h, kernel_w] = geometry.kernel.map(|size| size as u32);
        let spec = Spec {
            round_mode: cx.round_mode(self.y.dtype, self.y.element),
            kernel_d,
            kernel_h,
            kernel_w,
            transposed: u32::from(geometry.transposed),
            has_bias: u32::from(self.bias.is_some()),
            ..Spec::default()
        };
        let [depth, height, width] = geometry.out_sizes;
        let positions = shape::numel(&[depth, height, width.div_ceil(4)])?;
        let tiles = geometry.groups * geometry.out_channels.div_ceil(tile);
        let groups = [positions.div_ceil(spec.local_x as usize), tiles, geometry.batch];
        let groups = groups.map(|groups| u32::try_from(groups).unwrap_or(u32::MAX));
        let weight = self.weight.region();
        let bias = self.bias.as_ref().map_or(weight, Tensor::region);
        let operands = Operands { x: self.x.region(), weight, bias, y: self.y.region() };
        let terms = geometry.in_channels / geometry.groups.max(1) * geometry.kernel.iter().product::<usize>();
        let ops = 2 * self.y.numel() as u64 * terms as u64;
        let dispatch = kernels::conv::dispatch(axes, spec, operands, self.params(), groups, cx.label());
        cx.emit(dispatch.of_ops(ops))
    }

    fn params(&self) -> kernels::conv::Params {
        let geometry = &self.geometry;
        let numbers = |sizes: [usize; 3]| sizes.map(|size| size as u32);
        let mut x_strides = [0; 5];
        let first = usize::from(!geometry.is_batched);
        for (dim, &stride) in self.x.strides.iter().enumerate() {
            // Batch and channels stand in front, the spatial dims at the end.
            let at = if dim + first < 2 { dim + first } else { 5 - (self.x.strides.len() - dim) };
            x_strides[at] = stride as u32;
        }
        kernels::conv::Params {
            groups: geometry.groups as u32,
            in_channels: geometry.in_channels as u32,
            out_channels: geometry.out_channels as u32,
            in_sizes: numbers(geometry.in_sizes),
            out_sizes: numbers(geometry.out_sizes),
            strides: numbers(geometry.stride),
            padding: numbers(geometry.padding),
            dilation: numbers(geometry.dilation),
            x_strides,
        }
    }
}
