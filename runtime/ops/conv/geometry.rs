//! The numbers of a convolution: attributes read from the call, sizes checked and derived.

use crate::{
    base::{Error, Result},
    ops::{ArgValue, Args, Meta},
};

/// A convolution over three spatial dims (depth, height, width); those that it lacks have size 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Spatial dims that the program's tensors have.
    pub rank: usize,
    /// Whether input and output have a batch dim.
    pub is_batched: bool,
    /// Size of the batch dim, 1 if there is none.
    pub batch: usize,
    /// Whether it is the transpose (`conv_transpose`).
    pub transposed: bool,
    /// Groups of channels that do not mix.
    pub groups: usize,
    /// Input channels of one group.
    pub in_channels: usize,
    /// Output channels of one group.
    pub out_channels: usize,
    /// Spatial sizes of the input.
    pub in_sizes: [usize; 3],
    /// Spatial sizes of the output.
    pub out_sizes: [usize; 3],
    /// Sizes of the kernel.
    pub kernel: [usize; 3],
    /// Steps between output positions.
    pub stride: [usize; 3],
    /// Zeros in front of the input.
    pub padding: [usize; 3],
    /// Steps between taps.
    pub dilation: [usize; 3],
}

/// Zeros in front of and behind the input along one dim.
type Padding = (usize, usize);

impl Geometry {
    /// Reads the geometry of a call from its arguments and its tensors' metas.
    ///
    /// # Errors
    /// What PyTorch refuses, naming the operand or the sizes at fault.
    pub fn new<T>(args: &Args<T>, meta: impl Fn(&T) -> Meta) -> Result<Geometry> {
        let (input, weight) = (meta(args.tensor("input")?), meta(args.tensor("weight")?));
        let rank = weight.sizes.len().wrapping_sub(2);
        if !(1..=3).contains(&rank) {
            let text = format!("has sizes {:?}; a kernel has 1 to 3 spatial dims", weight.sizes);
            return Err(Error::unsupported(text).at_operand("weight"));
        }
        let channels_at = input.sizes.len().wrapping_sub(rank + 1);
        if channels_at > 1 {
            let text = format!(
                "has sizes {:?}; a kernel of {rank} dims takes batch, channels and these, or no batch",
                input.sizes
            );
            return Err(Error::invalid_graph(text).at_operand("input"));
        }
        let op = args.op().as_str();
        let transposed = op.contains("transpose") || args.bool_or("transposed", false)?;
        let groups = positive(args.int_or("groups", 1)?, "groups")?;
        let spatial = &input.sizes[channels_at + 1..];
        let mut geometry = Geometry {
            rank,
            is_batched: channels_at == 1,
            batch: if channels_at == 1 { input.sizes[0] } else { 1 },
            transposed,
            groups,
            in_channels: weight.sizes[1],
            out_channels: weight.sizes[0] / groups,
            in_sizes: in_front(spatial, 1),
            out_sizes: [1; 3],
            kernel: in_front(&weight.sizes[2..], 1),
            stride: dims(args, "stride", rank, 1, 1)?,
            padding: [0; 3],
            dilation: dims(args, "dilation", rank, 1, 1)?,
        };
        if transposed {
            geometry.in_channels = weight.sizes[0] / groups;
            geometry.out_channels = weight.sizes[1];
        }
        let channels = input.sizes[channels_at];
        if !weight.sizes[0].is_multiple_of(groups) || channels != geometry.in_channels * groups {
            let text = format!(
                "has {channels} channels; a weight of sizes {:?} in {groups} groups does not take them",
                weight.sizes
            );
            return Err(Error::invalid_graph(text).at_operand("input"));
        }
        geometry.place(args)?;
        Ok(geometry)
    }

    /// Sets padding and output sizes.
    fn place<T>(&mut self, args: &Args<T>) -> Result<()> {
        let output_padding = dims(args, "output_padding", self.rank, 0, 0)?;
        let padding = self.padding(args)?;
        for dim in 0..3 {
            let too_large = || Error::invalid_graph("sizes overflow").at_operand("input");
            let (front, back) = padding[dim];
            let reach = (self.kernel[dim].checked_sub(1))
                .ok_or_else(|| Error::invalid_graph("has no taps").at_operand("weight"))?
                .checked_mul(self.dilation[dim])
                .ok_or_else(too_large)?;
            let (size, stride) = (self.in_sizes[dim], self.stride[dim]);
            let out = if self.transposed {
                let whole = size.checked_sub(1).and_then(|steps| steps.checked_mul(stride));
                whole
                    .and_then(|whole| {
                        whole.checked_add(reach)?.checked_add(output_padding[dim])?.checked_add(1)
                    })
                    .and_then(|whole| whole.checked_sub(front.checked_add(back)?))
                    .filter(|&out| out > 0)
            } else {
                let padded = size.checked_add(front).and_then(|size| size.checked_add(back));
                padded
                    .and_then(|padded| padded.checked_sub(reach)?.checked_sub(1))
                    .map(|rest| rest / stride + 1)
            };
            self.out_sizes[dim] = out.ok_or_else(|| {
                let text = format!(
                    "has spatial sizes {:?}; a kernel of {:?} with padding {front} and {back} does not fit",
                    &self.in_sizes[3 - self.rank..],
                    &self.kernel[3 - self.rank..]
                );
                Error::invalid_graph(text).at_operand("input")
            })?;
            self.padding[dim] = front;
        }
        Ok(())
    }

    fn padding<T>(&self, args: &Args<T>) -> Result<[Padding; 3]> {
        let Some(ArgValue::Str(padding)) = args.get("padding") else {
            return Ok(dims(args, "padding", self.rank, 0, 0)?.map(|size| (size, size)));
        };
        match padding.as_str() {
            "valid" => Ok([(0, 0); 3]),
            "same" if self.stride == [1; 3] => Ok([0, 1, 2].map(|dim| {
                let total = self.kernel[dim].saturating_sub(1).saturating_mul(self.dilation[dim]);
                (total / 2, total - total / 2)
            })),
            "same" => Err(Error::invalid_graph("padding `same` takes a stride of 1").at_operand("stride")),
            other => Err(Error::invalid_graph(format!("`{other}` is no padding")).at_operand("padding")),
        }
    }

    /// Sizes of the output as the program sees it.
    pub fn program_out_sizes(&self) -> Vec<usize> {
        let mut sizes = if self.is_batched { vec![self.batch] } else { Vec::new() };
        sizes.push(self.groups * self.out_channels);
        sizes.extend(&self.out_sizes[3 - self.rank..]);
        sizes
    }

    /// The input position that tap `tap` of output position `position` reads along `dim`.
    pub fn source(&self, dim: usize, position: usize, tap: usize) -> Option<usize> {
        let (stride, padding) = (self.stride[dim], self.padding[dim]);
        let at = if self.transposed {
            let at = (position + padding).checked_sub(tap * self.dilation[dim])?;
            at.is_multiple_of(stride).then_some(at / stride)?
        } else {
            (position * stride + tap * self.dilation[dim]).checked_sub(padding)?
        };
        (at < self.in_sizes[dim]).then_some(at)
    }
}

/// A list of `rank` numbers (one stands for all) put behind leading `filler`s.
fn dims<T>(args: &Args<T>, name: &str, rank: usize, filler: usize, least: usize) -> Result<[usize; 3]> {
    let given = args.opt_ints(name)?.unwrap_or_default();
    let given = match given.as_slice() {
        [] => vec![filler as i64; rank],
        &[one] => vec![one; rank],
        _ => given,
    };
    let bad = || {
        let text = format!("is {given:?}; {rank} numbers of at least {least} are taken");
        Error::invalid_graph(text).at_operand(name)
    };
    if given.len() != rank {
        return Err(bad());
    }
    // Kernels compute positions in 31 bits.
    let sizes: Vec<usize> = given
        .iter()
        .map(|&size| usize::try_from(size).ok().filter(|&size| size >= least && size < 1 << 24))
        .collect::<Option<_>>()
        .ok_or_else(bad)?;
    Ok(in_front(&sizes, filler))
}

fn positive(value: i64, name: &str) -> Result<usize> {
    usize::try_from(value)
        .ok()
        .filter(|&value| value > 0)
        .ok_or_else(|| Error::invalid_graph(format!("is {value}")).at_operand(name))
}

fn in_front(sizes: &[usize], filler: usize) -> [usize; 3] {
    let mut out = [filler; 3];
    out[3 - sizes.len()..].copy_from_slice(sizes);
    out
}
