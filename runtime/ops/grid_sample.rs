//! `grid_sampler_2d`: images read at the places that a grid gives, nearest or bilinear. Floating-point dtypes.
//!
//! The grid holds `(across, down)` per output pixel, -1 and 1 being the borders of the image: the centres of its
//! corner pixels with aligned corners, else their outer corners. A place outside the image reads zeros, or is
//! moved to the border, or is mirrored at it. Places are computed in 32 bits, as PyTorch does.

use super::{Args, Lowering, Meta, Op, Operand, Tensor, elementwise, fill::u32_of};
use crate::{
    base::{Error, HostTensor, Result, shape},
    shader::kernels::grid_sample,
};

/// The family of images read through a grid.
pub struct GridSample;

/// The values of the argument `padding_mode`, and of the kernel's parameter.
const PADDING_BORDER: i64 = 1;
const PADDING_REFLECTION: i64 = 2;

/// What is computed, for images of `[n, channels, height, width]`.
struct Plan {
    nearest: bool,
    padding: i64,
    align_corners: bool,
    /// Height and width of the images.
    from: [usize; 2],
    /// Batch, channels, height and width of the result.
    out_sizes: Vec<usize>,
}

impl Op for GridSample {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.grid_sampler.default", "aten.grid_sampler_2d.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (images, grid) = (args.tensor("input")?, args.tensor("grid")?);
        if !images.dtype.is_float() || images.dtype != grid.dtype {
            let text = format!(
                "takes images and a grid of one floating-point dtype, not {images} and {grid}",
                images = images.dtype,
                grid = grid.dtype
            );
            return Err(Error::unsupported(text).at_operand("grid"));
        }
        Ok(vec![Meta::new(images.dtype, plan(args, &images.sizes, &grid.sizes)?.out_sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let (images, grid) = (args.tensor("input")?, args.tensor("grid")?);
        let plan = plan(args, images.sizes(), grid.sizes())?;
        let (values, places) = (images.to_f64s(), grid.to_f64s());
        let pixels = plan.out_sizes[2] * plan.out_sizes[3];
        let image_elems = plan.from[0] * plan.from[1];
        let mut out = Vec::with_capacity(shape::numel(&outs[0].sizes)?);
        for (plane, image) in values.chunks_exact(image_elems).enumerate() {
            let first = plane / plan.out_sizes[1] * pixels;
            for pixel in first..first + pixels {
                let across = plan.place(1, places[2 * pixel] as f32);
                let down = plan.place(0, places[2 * pixel + 1] as f32);
                out.push(plan.read(image, down, across));
            }
        }
        Ok(vec![HostTensor::from_f64s(images.dtype(), outs[0].sizes.clone(), &out)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let images = cx.live(args.tensor("input")?)?;
        let grid = cx.live(args.tensor("grid")?)?;
        let plan = plan(args, &images.sizes, &grid.sizes)?;
        let out = cx.output(&outs[0])?;
        let params = grid_sample::Params {
            n_elems: u32_of(out.numel())?,
            channels: u32_of(plan.out_sizes[1])?,
            out_height: u32_of(plan.out_sizes[2])?,
            out_width: u32_of(plan.out_sizes[3])?,
            in_height: u32_of(plan.from[0])?,
            in_width: u32_of(plan.from[1])?,
            padding: u32::try_from(plan.padding).unwrap_or(0),
            align_corners: u32::from(plan.align_corners),
            x_strides: elementwise::pad(&images.strides, 0)?,
            grid_strides: elementwise::pad(&grid.strides, 0)?,
        };
        let axes = grid_sample::Axes {
            dtype: float_axis!(grid_sample, out.element)?,
            mode: if plan.nearest { grid_sample::Mode::Nearest } else { grid_sample::Mode::Bilinear },
        };
        let spec = grid_sample::Spec {
            round_mode: cx.round_mode(out.dtype, out.element),
            ..grid_sample::Spec::default()
        };
        let operands = grid_sample::Operands { x: images.region(), grid: grid.region(), y: out.region() };
        let groups = cx.groups_1d(out.numel(), elementwise::LOCAL_X)?;
        cx.emit(grid_sample::dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(vec![out])
    }
}

impl Plan {
    /// The place along `axis`, in pixels, that the grid's `at` stands for.
    fn place(&self, axis: usize, at: f32) -> f32 {
        let size = self.from[axis] as f32;
        let place = match self.align_corners {
            true => (at + 1.0) * ((size - 1.0) / 2.0),
            false => (at + 1.0) * (size / 2.0) - 0.5,
        };
        match self.padding {
            PADDING_BORDER => inside(place, size),
            PADDING_REFLECTION => inside(self.mirrored(place, size), size),
            _ => place,
        }
    }

    /// `place` mirrored at both borders until it lies between them.
    fn mirrored(&self, place: f32, size: f32) -> f32 {
        let (low, span) = if self.align_corners { (0.0, size - 1.0) } else { (-0.5, size) };
        if span <= 0.0 {
            return 0.0;
        }
        let away = (place - low).abs();
        let flips = (away / span).floor();
        let extra = away - flips * span;
        if flips % 2.0 == 0.0 { extra + low } else { span - extra + low }
    }

    /// The value of `image` at a place; what lies outside counts as zero.
    fn read(&self, image: &[f64], down: f32, across: f32) -> f64 {
        let [rows, columns] = self.from;
        let pixel = |row: f32, column: f32| {
            let within = row >= 0.0 && row < rows as f32 && column >= 0.0 && column < columns as f32;
            if within { image[row as usize * columns + column as usize] } else { 0.0 }
        };
        if self.nearest {
            return pixel(down.round_ties_even(), across.round_ties_even());
        }
        let (top, left) = (down.floor(), across.floor());
        let (below, beside) = (f64::from(down - top), f64::from(across - left));
        pixel(top, left) * (1.0 - below) * (1.0 - beside)
            + pixel(top, left + 1.0) * (1.0 - below) * beside
            + pixel(top + 1.0, left) * below * (1.0 - beside)
            + pixel(top + 1.0, left + 1.0) * below * beside
    }
}

/// `place` moved between the first and the last pixel; what is no number becomes the first.
fn inside(place: f32, size: f32) -> f32 {
    if place > 0.0 { place.min(size - 1.0) } else { 0.0 }
}

fn plan<T>(args: &Args<T>, images: &[usize], grid: &[usize]) -> Result<Plan> {
    let wrong = |text: String| Err(Error::invalid_input(text).at_operand("grid"));
    if images.len() != 4 {
        let text = format!("takes images of rank 4, not {}", images.len());
        return Err(Error::unsupported(text).at_operand("input"));
    }
    if grid.len() != 4 || grid[0] != images[0] || grid[3] != 2 {
        return wrong(format!("images of {images:?} cannot be read through a grid of {grid:?}"));
    }
    if images.contains(&0) {
        return wrong(format!("images of {images:?} hold no pixel to read"));
    }
    let (mode, padding) = (args.int("interpolation_mode")?, args.int("padding_mode")?);
    if !matches!(mode, 0 | 1) {
        let text = "reads the nearest pixel or mixes four (interpolation_mode 0 and 1), no other mode";
        return Err(Error::unsupported(text).at_operand("interpolation_mode"));
    }
    if !(0..=PADDING_REFLECTION).contains(&padding) {
        let text = format!("{padding} is no padding mode");
        return Err(Error::invalid_input(text).at_operand("padding_mode"));
    }
    Ok(Plan {
        nearest: mode == 1,
        padding,
        align_corners: args.bool_or("align_corners", false)?,
        from: [images[2], images[3]],
        out_sizes: vec![images[0], images[1], grid[1], grid[2]],
    })
}
