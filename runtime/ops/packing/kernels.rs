//! Where the elements of a convolution's weight lie in its panels.

use crate::base::{Error, Result};

/// Sizes of the weight of a convolution, for [`Packing::Kernels`].
pub(super) struct Kernels {
    groups: usize,
    out_channels: usize,
    in_channels: usize,
    taps: usize,
    transposed: bool,
}

impl Kernels {
    pub(super) fn new(sizes: &[usize], groups: u32, transposed: bool) -> Result<Kernels> {
        let groups = groups as usize;
        match sizes {
            &[first, second, ref taps @ ..] if groups > 0 && first.is_multiple_of(groups) => {
                let (out_channels, in_channels) =
                    if transposed { (second, first / groups) } else { (first / groups, second) };
                let taps = crate::base::shape::numel(taps)?;
                Ok(Kernels { groups, out_channels, in_channels, taps, transposed })
            }
            _ => Err(Error::internal(format!("{groups} groups of kernels in a constant of sizes {sizes:?}"))),
        }
    }

    /// Elements of all panels; `None` when there are too many.
    pub(super) fn elems(&self) -> Option<usize> {
        let rows = self.out_channels.div_ceil(4).checked_mul(4)?.checked_mul(self.groups)?;
        rows.checked_mul(self.in_channels)?.checked_mul(self.taps)
    }

    /// Whether the panels are those of a matrix with a row for each output channel.
    pub(super) fn are_rows(&self) -> bool {
        !self.transposed && (self.groups == 1 || self.out_channels.is_multiple_of(4))
    }

    pub(super) fn matrix(&self) -> (usize, usize) {
        (self.groups * self.out_channels, self.in_channels * self.taps)
    }

    /// The flat index in the constant of packed element `index`; `None` past the last channel of a group.
    pub(super) fn source_of(&self, index: usize) -> Option<usize> {
        let (_, k) = self.matrix();
        let (panel, within) = (index / 4 / k, index / 4 % k);
        let panels = self.out_channels.div_ceil(4);
        let (group, out_channel) = (panel / panels, panel % panels * 4 + index % 4);
        let (in_channel, tap) = (within / self.taps, within % self.taps);
        let kernel = if self.transposed {
            (group * self.in_channels + in_channel) * self.out_channels + out_channel
        } else {
            (group * self.out_channels + out_channel) * self.in_channels + in_channel
        };
        (out_channel < self.out_channels).then_some(kernel * self.taps + tap)
    }
}
