//! Convolution on the host: sums in 64 bits, one scaled row of the input at a time.

use super::Geometry;
use crate::base::{Result, shape};

/// The convolution of `x` with `weight`, both contiguous, and one bias a channel.
///
/// # Errors
/// When the output has too many elements.
pub(super) fn convolve(
    geometry: &Geometry,
    x: &[f64],
    weight: &[f64],
    bias: Option<&[f64]>,
) -> Result<Vec<f64>> {
    let channels = geometry.groups * geometry.out_channels;
    let out_plane = shape::numel(&geometry.out_sizes)?;
    let in_plane: usize = geometry.in_sizes.iter().product();
    let mut out = vec![0.0; shape::numel(&[geometry.batch, channels, out_plane])?];
    if out.is_empty() {
        return Ok(out);
    }
    let taps = Taps::new(geometry);
    for (index, plane) in out.chunks_exact_mut(out_plane).enumerate() {
        let (batch, channel) = (index / channels, index % channels);
        plane.fill(bias.map_or(0.0, |bias| bias[channel]));
        let group = channel / geometry.out_channels;
        for in_channel in 0..geometry.in_channels {
            let source = (batch * geometry.groups + group) * geometry.in_channels + in_channel;
            let source = &x[source * in_plane..][..in_plane];
            let start = weight_start(geometry, channel, in_channel) * taps.count;
            for tap in 0..taps.count {
                taps.add(geometry, tap, weight[start + tap], source, plane);
            }
        }
    }
    Ok(out)
}

/// Which kernel of the weight joins an output channel and an input channel of its group.
fn weight_start(geometry: &Geometry, channel: usize, in_channel: usize) -> usize {
    if geometry.transposed {
        let (group, own) = (channel / geometry.out_channels, channel % geometry.out_channels);
        (group * geometry.in_channels + in_channel) * geometry.out_channels + own
    } else {
        channel * geometry.in_channels + in_channel
    }
}

/// Per dim and tap, the pairs of output and input positions that meet.
struct Taps {
    count: usize,
    pairs: [Vec<Vec<(usize, usize)>>; 3],
}

impl Taps {
    fn new(geometry: &Geometry) -> Taps {
        let pairs = [0, 1, 2].map(|dim| {
            let of_tap = |tap| {
                let pair = |position| Some((position, geometry.source(dim, position, tap)?));
                (0..geometry.out_sizes[dim]).filter_map(pair).collect()
            };
            (0..geometry.kernel[dim]).map(of_tap).collect()
        });
        Taps { count: geometry.kernel.iter().product(), pairs }
    }

    /// Adds what one tap contributes to one output plane.
    fn add(&self, geometry: &Geometry, tap: usize, factor: f64, source: &[f64], plane: &mut [f64]) {
        let [_, kernel_h, kernel_w] = geometry.kernel;
        let [_, out_h, out_w] = geometry.out_sizes;
        let [_, in_h, in_w] = geometry.in_sizes;
        for &(to_d, from_d) in &self.pairs[0][tap / (kernel_h * kernel_w)] {
            for &(to_h, from_h) in &self.pairs[1][tap / kernel_w % kernel_h] {
                let to = &mut plane[(to_d * out_h + to_h) * out_w..][..out_w];
                let from = &source[(from_d * in_h + from_h) * in_w..][..in_w];
                for &(to_w, from_w) in &self.pairs[2][tap % kernel_w] {
                    to[to_w] += factor * from[from_w];
                }
            }
        }
    }
}
