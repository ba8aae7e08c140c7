//! `upsample_nearest1d`, `upsample_nearest2d`, `upsample_bilinear2d`: images resized. Floating-point dtypes.
//!
//! Output position `o` looks at input position `o * scale` (nearest: rounded down; bilinear with aligned corners),
//! or `(o + 0.5) * scale - 0.5`, at least 0; the scale is `1 / factor` where a factor is given, else the ratio of
//! sizes. Places are computed in 32 bits, as PyTorch does.

use super::{Args, Lowering, Meta, Op, Operand, Tensor, elementwise, fill::u32_of};
use crate::{
    base::{Error, HostTensor, Result, shape},
    shader::kernels::resize,
};

/// The family of resized images.
pub struct Resize;

/// What is computed, for images of `[n, channels, height, width]`.
struct Plan {
    bilinear: bool,
    align_corners: bool,
    /// Height and width of the input.
    from: [usize; 2],
    /// Height and width of the output.
    to: [usize; 2],
    /// Input pixels per output pixel.
    scales: [f32; 2],
    out_sizes: Vec<usize>,
}

impl Op for Resize {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten.upsample_bilinear2d.default",
            "aten.upsample_bilinear2d.vec",
            "aten.upsample_nearest1d.default",
            "aten.upsample_nearest1d.vec",
            "aten.upsample_nearest2d.default",
            "aten.upsample_nearest2d.vec",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let input = images(args)?;
        if !input.dtype.is_float() {
            let text = format!("takes floating-point images, not {}", input.dtype);
            return Err(Error::unsupported(text).at_operand(images_name(args)));
        }
        Ok(vec![Meta::new(input.dtype, plan(args, &input.sizes)?.out_sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let input = images(args)?;
        let plan = plan(args, input.sizes())?;
        let values = input.to_f64s();
        let ([rows, columns], [out_rows, out_columns]) = (plan.from, plan.to);
        let mut out = Vec::with_capacity(shape::numel(&outs[0].sizes)?);
        for image in values.chunks_exact((rows * columns).max(1)) {
            for row in 0..out_rows {
                let (top, bottom, below) = plan.neighbours(0, row);
                for column in 0..out_columns {
                    let (left, right, beside) = plan.neighbours(1, column);
                    let mix = |row: usize| {
                        image[row * columns + left] * (1.0 - beside) + image[row * columns + right] * beside
                    };
                    out.push(if plan.bilinear {
                        mix(top) * (1.0 - below) + mix(bottom) * below
                    } else {
                        image[top * columns + left]
                    });
                }
            }
        }
        Ok(vec![HostTensor::from_f64s(input.dtype(), outs[0].sizes.clone(), &out)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let input = cx.live(images(args)?)?;
        let plan = plan(args, &input.sizes)?;
        let out = cx.output(&outs[0])?;
        let mut strides = input.strides.clone();
        if strides.len() == 3 {
            strides.insert(2, 0);
        }
        let params = resize::Params {
            n_elems: u32_of(out.numel())?,
            channels: u32_of(input.sizes[1])?,
            out_height: u32_of(plan.to[0])?,
            out_width: u32_of(plan.to[1])?,
            in_height: u32_of(plan.from[0])?,
            in_width: u32_of(plan.from[1])?,
            scale_down: plan.scales[0],
            scale_across: plan.scales[1],
            align_corners: u32::from(plan.align_corners),
            x_strides: elementwise::pad(&strides, 0)?,
        };
        let axes = resize::Axes {
            dtype: float_axis!(resize, out.element)?,
            mode: if plan.bilinear { resize::Mode::Bilinear } else { resize::Mode::Nearest },
        };
        let spec =
            resize::Spec { round_mode: cx.round_mode(out.dtype, out.element), ..resize::Spec::default() };
        let operands = resize::Operands { x: input.region(), y: out.region() };
        let groups = cx.groups_1d(out.numel(), elementwise::LOCAL_X)?;
        cx.emit(resize::dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(vec![out])
    }
}

impl Plan {
    /// The input positions on both sides of an output position along `axis`, and how near it is to the second.
    fn neighbours(&self, axis: usize, at: usize) -> (usize, usize, f64) {
        let scale = self.scales[axis];
        let place = if self.bilinear && !self.align_corners {
            ((at as f32 + 0.5) * scale - 0.5).max(0.0)
        } else {
            at as f32 * scale
        };
        let last = self.from[axis] - 1;
        let first = (place as usize).min(last);
        (first, (first + 1).min(last), f64::from((place - first as f32).min(1.0)))
    }
}

fn images_name<T>(args: &Args<T>) -> &'static str {
    if args.op().as_str().ends_with(".vec") { "input" } else { "self" }
}

fn images<T>(args: &Args<T>) -> Result<&T> {
    args.tensor(images_name(args))
}

fn plan<T>(args: &Args<T>, sizes: &[usize]) -> Result<Plan> {
    let axes = if args.op().base().ends_with("1d") { 1 } else { 2 };
    let wrong = |text: String, name: &str| Err(Error::invalid_input(text).at_operand(name));
    if sizes.len() != axes + 2 {
        return wrong(format!("takes rank {}, not {}", axes + 2, sizes.len()), images_name(args));
    }
    let (outer, from) = sizes.split_at(2);
    let factors = factors(args, axes)?;
    let to = match args.opt_ints("output_size")? {
        Some(to) => to.into_iter().map(|size| usize::try_from(size).unwrap_or(0)).collect::<Vec<_>>(),
        None => from
            .iter()
            .zip(&factors)
            .map(|(&size, factor)| factor.map_or(0, |factor| (size as f64 * factor) as usize))
            .collect(),
    };
    if to.len() != axes || to.contains(&0) || from.contains(&0) {
        return wrong(format!("images of {from:?} pixels cannot become {to:?}"), "output_size");
    }
    let bilinear = args.op().base().contains("bilinear");
    let align_corners = bilinear && args.bool_or("align_corners", false)?;
    let scale = |axis: usize| match factors[axis] {
        _ if align_corners => {
            if to[axis] > 1 {
                (from[axis] - 1) as f32 / (to[axis] - 1) as f32
            } else {
                0.0
            }
        }
        // Without a change of size each pixel is its own source, whatever factor led there.
        _ if to[axis] == from[axis] => 1.0,
        Some(factor) if factor > 0.0 => (1.0 / factor) as f32,
        _ => from[axis] as f32 / to[axis] as f32,
    };
    let out_sizes = [outer, to.as_slice()].concat();
    shape::numel(&out_sizes)?;
    let (from, to, scales) = match axes {
        1 => ([1, from[0]], [1, to[0]], [1.0, scale(0)]),
        _ => ([from[0], from[1]], [to[0], to[1]], [scale(0), scale(1)]),
    };
    Ok(Plan { bilinear, align_corners, from, to, scales, out_sizes })
}

/// The factor of each axis, where one is given.
fn factors<T>(args: &Args<T>, axes: usize) -> Result<Vec<Option<f64>>> {
    let one = |name: &str| -> Result<Option<f64>> {
        if args.has(name) { Ok(Some(args.float_or(name, 1.0)?)) } else { Ok(None) }
    };
    if let Some(list) = args.opt_floats("scale_factors")? {
        if list.len() != axes {
            let text = format!("{} factors are given for {axes} axes", list.len());
            return Err(Error::invalid_input(text).at_operand("scale_factors"));
        }
        return Ok(list.into_iter().map(Some).collect());
    }
    if axes == 1 { Ok(vec![one("scales")?]) } else { Ok(vec![one("scales_h")?, one("scales_w")?]) }
}
