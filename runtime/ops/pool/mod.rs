//! Pooling over windows of one or two spatial dims.
//!
//! | ATen | result |
//! |---|---|
//! | `max_pool2d_with_indices` | largest element, and its position in the plane |
//! | `max_pool1d`, `max_pool2d` | largest element |
//! | `avg_pool1d`, `avg_pool2d` | mean, with or without the padding, or by a given divisor |
//! | `adaptive_avg_pool1d`, `adaptive_avg_pool2d` | means of windows that share the input out evenly |
//!
//! Floats of sizes `[batch, channels, ...]` or `[channels, ...]`. NaN is the largest element of its window.

mod window;

use window::{Windows, four_dims, pooled};

use super::{Args, Lowering, Meta, Op, Operand, Tensor};
use crate::{
    base::{DType, Error, HostTensor, Result},
    shader::kernels,
};

/// The family of maxima.
pub struct MaxPool;

/// The family of means.
pub struct AvgPool;

impl Op for MaxPool {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool2d_with_indices.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = pooled(args.tensor("self")?)?;
        let sizes = Windows::new(args, &x.sizes)?.program_out_sizes(&x.sizes);
        let mut outs = vec![Meta::new(x.dtype, sizes.clone())];
        outs.extend(has_indices(args).then(|| Meta::new(DType::I64, sizes)));
        Ok(outs)
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("self")?;
        let windows = Windows::new(args, x.sizes())?;
        let (mut values, mut indices) = (Vec::new(), Vec::new());
        for_each_window(&windows, x, |plane, row, column| {
            let (mut best, mut best_at) = (f64::NEG_INFINITY, None);
            for at_y in windows.taps(0, row) {
                for at_x in windows.taps(1, column) {
                    let at = at_y * windows.in_sizes[1] + at_x;
                    if best_at.is_none() || plane[at] > best || plane[at].is_nan() {
                        (best, best_at) = (plane[at], Some(at));
                    }
                }
            }
            values.push(best);
            indices.push(best_at.map_or(-1, |at| at as i64));
        });
        let mut results = vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &values)?];
        if let Some(out) = outs.get(1) {
            results.push(HostTensor::from_i64s(out.dtype, out.sizes.clone(), &indices)?);
        }
        Ok(results)
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        use kernels::max_pool::{Axes, Operands, Params, Spec, dispatch};
        let x = cx.live(args.tensor("self")?)?;
        let windows = Windows::new(args, &x.sizes)?;
        let y = cx.output(&outs[0])?;
        // The kernel binds positions even where nobody wants them.
        let indices = match outs.get(1) {
            Some(out) => cx.alloc(out.dtype, &out.sizes)?,
            None => cx.alloc(DType::I64, &[1])?,
        };
        let spec = Spec { with_indices: u32::from(outs.len() > 1), ..Spec::default() };
        let (channels, x_strides) = layout(&x, &windows);
        let params = Params {
            n_elems: y.numel() as u32,
            channels,
            in_sizes: numbers(windows.in_sizes),
            out_sizes: numbers(windows.out_sizes),
            kernel: numbers(windows.kernel),
            strides: numbers(windows.stride),
            padding: numbers(windows.padding),
            dilation: numbers(windows.dilation),
            x_strides,
        };
        let operands = Operands { x: x.region(), y: y.region(), indices: indices.region() };
        let groups = cx.groups_1d(y.numel(), spec.local_x)?;
        let axes = Axes { dtype: float_axis!(max_pool, x.element)? };
        cx.emit(dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(if outs.len() > 1 { vec![y, indices] } else { vec![y] })
    }
}

impl Op for AvgPool {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten._adaptive_avg_pool2d.default",
            "aten.adaptive_avg_pool1d.default",
            "aten.adaptive_avg_pool2d.default",
            "aten.avg_pool1d.default",
            "aten.avg_pool2d.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = pooled(args.tensor("self")?)?;
        divisor(args)?;
        let sizes = Windows::new(args, &x.sizes)?.program_out_sizes(&x.sizes);
        Ok(vec![Meta::new(x.dtype, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("self")?;
        let windows = Windows::new(args, x.sizes())?;
        let (divisor, counts_padding) = (divisor(args)?, args.bool_or("count_include_pad", true)?);
        let mut values = Vec::new();
        for_each_window(&windows, x, |plane, row, column| {
            let (mut sum, mut count) = (0.0, 0usize);
            for at_y in windows.taps(0, row) {
                for at_x in windows.taps(1, column) {
                    sum += plane[at_y * windows.in_sizes[1] + at_x];
                    count += 1;
                }
            }
            if counts_padding && !windows.is_adaptive {
                count = windows.padded_len(0, row) * windows.padded_len(1, column);
            }
            values.push(sum / divisor.unwrap_or(count.max(1) as f64));
        });
        Ok(vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        use kernels::avg_pool::{Axes, Operands, Params, Spec, dispatch};
        let x = cx.live(args.tensor("self")?)?;
        let windows = Windows::new(args, &x.sizes)?;
        let y = cx.output(&outs[0])?;
        let spec = Spec {
            round_mode: cx.round_mode(y.dtype, y.element),
            adaptive: u32::from(windows.is_adaptive),
            ..Spec::default()
        };
        let (channels, x_strides) = layout(&x, &windows);
        let params = Params {
            n_elems: y.numel() as u32,
            channels,
            counts_padding: u32::from(args.bool_or("count_include_pad", true)?),
            divisor: divisor(args)?.unwrap_or(0.0) as f32,
            in_sizes: numbers(windows.in_sizes),
            out_sizes: numbers(windows.out_sizes),
            kernel: numbers(windows.kernel),
            strides: numbers(windows.stride),
            padding: numbers(windows.padding),
            x_strides,
        };
        let groups = cx.groups_1d(y.numel(), spec.local_x)?;
        let axes = Axes { dtype: float_axis!(avg_pool, x.element)? };
        let operands = Operands { x: x.region(), y: y.region() };
        cx.emit(dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(vec![y])
    }
}

fn has_indices<T>(args: &Args<T>) -> bool {
    args.op().base() == "max_pool2d_with_indices"
}

fn divisor<T>(args: &Args<T>) -> Result<Option<f64>> {
    match args.has("divisor_override").then(|| args.int("divisor_override")).transpose()? {
        Some(0) => Err(Error::invalid_graph("divides by 0").at_operand("divisor_override")),
        divisor => Ok(divisor.map(|divisor| divisor as f64)),
    }
}

/// Calls `visit` for every window in row-major order, with its plane of the input, its row and its column.
fn for_each_window(windows: &Windows, x: &HostTensor, mut visit: impl FnMut(&[f64], usize, usize)) {
    let plane_elems = windows.in_sizes[0] * windows.in_sizes[1];
    for plane in x.to_f64s().chunks_exact(plane_elems.max(1)) {
        for row in 0..windows.out_sizes[0] {
            for column in 0..windows.out_sizes[1] {
                visit(plane, row, column);
            }
        }
    }
}

/// Channels, and strides as kernels take them.
fn layout(x: &Tensor, windows: &Windows) -> (u32, [u32; 4]) {
    let [_, channels, ..] = four_dims(&x.sizes, windows.rank, 1);
    let strides = four_dims(&x.strides, windows.rank, 0);
    (channels as u32, strides.map(|stride| stride as u32))
}

fn numbers(sizes: [usize; 2]) -> [u32; 2] {
    sizes.map(|size| size as u32)
}
