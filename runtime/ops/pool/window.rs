//! Which input positions each window of a pooling op covers.

use std::ops::Range;

use crate::{
    base::{Error, Result},
    ops::{Args, Meta},
};

/// Windows over two spatial dims (height, width); a height that is not there is 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Spatial dims that the program's tensors have, 1 or 2.
    pub rank: usize,
    /// Whether the windows share the input out evenly, whatever kernel and stride say.
    pub is_adaptive: bool,
    /// Spatial sizes of the input.
    pub in_sizes: [usize; 2],
    /// Spatial sizes of the output.
    pub out_sizes: [usize; 2],
    /// Taps of a window.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Positions in front of the input.
    pub padding: [usize; 2],
    /// Steps between taps.
    pub dilation: [usize; 2],
}

impl Windows {
    /// The windows of a call on an input of sizes `sizes`.
    ///
    /// # Errors
    /// What PyTorch refuses, naming the argument at fault.
    pub fn new<T>(args: &Args<T>, sizes: &[usize]) -> Result<Windows> {
        let rank = if args.op().base().contains("1d") { 1 } else { 2 };
        let spatial_at = sizes.len().wrapping_sub(rank);
        if !(1..=2).contains(&spatial_at) || sizes.iter().skip(1).any(|&size| size == 0) {
            let text =
                format!("has sizes {sizes:?}; {rank} dims behind channels, and a batch or none, are pooled");
            return Err(Error::invalid_graph(text).at_operand("self"));
        }
        let mut in_sizes = [1; 2];
        in_sizes[2 - rank..].copy_from_slice(&sizes[spatial_at..]);
        let is_adaptive = args.op().base().contains("adaptive");
        let mut windows = Windows {
            rank,
            is_adaptive,
            in_sizes,
            out_sizes: [1; 2],
            kernel: [1; 2],
            stride: [1; 2],
            padding: [0; 2],
            dilation: [1; 2],
        };
        if is_adaptive {
            windows.out_sizes = numbers(args, "output_size", rank, [1; 2], 1)?;
        } else {
            windows.kernel = numbers(args, "kernel_size", rank, [1; 2], 1)?;
            windows.stride = numbers(args, "stride", rank, windows.kernel, 1)?;
            windows.padding = numbers(args, "padding", rank, [0; 2], 0)?;
            windows.dilation = numbers(args, "dilation", rank, [1; 2], 1)?;
            windows.place(args.bool_or("ceil_mode", false)?)?;
        }
        Ok(windows)
    }

    fn place(&mut self, ceil_mode: bool) -> Result<()> {
        for dim in 0..2 {
            let (size, kernel, stride) = (self.in_sizes[dim], self.kernel[dim], self.stride[dim]);
            let padding = self.padding[dim];
            let reach = (kernel - 1) * self.dilation[dim] + 1;
            if padding > reach / 2 {
                let text = format!("{padding} is more than half of a kernel that spans {reach}");
                return Err(Error::invalid_graph(text).at_operand("padding"));
            }
            let rest = (size + 2 * padding).checked_sub(reach).ok_or_else(|| {
                let text = format!("spans {reach}; the padded input has {}", size + 2 * padding);
                Error::invalid_graph(text).at_operand("kernel_size")
            })?;
            let mut out = if ceil_mode { rest.div_ceil(stride) } else { rest / stride } + 1;
            // The last window begins inside the input or the padding in front of it.
            if ceil_mode && (out - 1) * stride >= size + padding {
                out -= 1;
            }
            self.out_sizes[dim] = out;
        }
        Ok(())
    }

    /// Sizes of the output for an input of `sizes`.
    pub fn program_out_sizes(&self, sizes: &[usize]) -> Vec<usize> {
        [&sizes[..sizes.len() - self.rank], &self.out_sizes[2 - self.rank..]].concat()
    }

    /// Input positions that window `o` takes along `dim`.
    pub fn taps(&self, dim: usize, o: usize) -> impl Iterator<Item = usize> + Clone {
        let size = self.in_sizes[dim];
        let (range, step, front) = if self.is_adaptive {
            (self.share(dim, o), 1, 0)
        } else {
            let first = o * self.stride[dim];
            (
                first..first + (self.kernel[dim] - 1) * self.dilation[dim] + 1,
                self.dilation[dim],
                self.padding[dim],
            )
        };
        range.step_by(step).filter_map(move |at| at.checked_sub(front).filter(|&at| at < size))
    }

    /// Elements of window `o` along `dim` with those in the padding.
    pub fn padded_len(&self, dim: usize, o: usize) -> usize {
        let first = o * self.stride[dim];
        (first + self.kernel[dim]).min(self.in_sizes[dim] + 2 * self.padding[dim]) - first
    }

    fn share(&self, dim: usize, o: usize) -> Range<usize> {
        let (size, count) = (self.in_sizes[dim], self.out_sizes[dim]);
        o * size / count..((o + 1) * size).div_ceil(count)
    }
}

/// A list of `rank` numbers (one stands for all, none for `default`), with what stands for a height in front.
fn numbers<T>(
    args: &Args<T>,
    name: &str,
    rank: usize,
    default: [usize; 2],
    least: usize,
) -> Result<[usize; 2]> {
    let given = args.opt_ints(name)?.unwrap_or_default();
    // Kernels compute positions in 31 bits.
    let number = |value: i64| usize::try_from(value).ok().filter(|&size| size >= least && size < 1 << 20);
    let numbers: Option<Vec<usize>> = given.iter().map(|&value| number(value)).collect();
    let filler = if name == "padding" { 0 } else { 1 };
    match (rank, numbers.as_deref()) {
        (_, Some([])) => Ok(default),
        (1, Some(&[width])) => Ok([filler, width]),
        (2, Some(&[both])) => Ok([both, both]),
        (2, Some(&[height, width])) => Ok([height, width]),
        _ => {
            let text = format!("is {given:?}; {rank} numbers of at least {least} are taken");
            Err(Error::invalid_graph(text).at_operand(name))
        }
    }
}

/// Batch, channels, and spatial sizes or strides of a tensor that may lack a batch or a height.
pub fn four_dims(dims: &[usize], spatial_rank: usize, filler: usize) -> [usize; 4] {
    let mut out = [filler; 4];
    let front = dims.len() - spatial_rank;
    out[2 - front..2].copy_from_slice(&dims[..front]);
    out[4 - spatial_rank..].copy_from_slice(&dims[front..]);
    out
}

/// The input's meta where its floats can be pooled.
///
/// # Errors
/// For dtypes that are not taken.
pub fn pooled(meta: &Meta) -> Result<&Meta> {
    crate::ops::matmul::check_floats(meta.dtype, meta.dtype).map_err(|error| error.at_operand("self"))?;
    Ok(meta)
}
