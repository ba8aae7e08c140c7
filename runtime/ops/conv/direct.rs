//! Lowering of a convolution to its own kernels: which of them, the weight in their layout, and the dispatch.
//!
//! The input is read where it lies, with zeros around it made up on the way; nothing is written but the result. A group of one output channel
//! (depthwise) has a kernel without panels, so that no zeros are loaded for channels that are not there.

use super::Geometry;
use crate::{
    base::{Error, Result, shape},
    ops::{
        Element, Lowering, Operand, Packing, Tensor,
        epilogue::{InPlaceEpilogue, known},
        ways::{self, LANE_SHAPES, MAX_LANES},
    },
    shader::{
        Access, ChoiceKey, Chosen, DeviceClass, DeviceProfile, Dispatch, Family, Need, Needs, Region, Way,
        kernels, work_groups,
    },
};

/// How a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConvWay {
    /// Whether lanes of a subgroup load the weight for each other.
    lanes: bool,
    /// Channels of an invocation's tile; 1 for groups of one channel, and only for them.
    channels: usize,
    /// Whether the invocations of a work group have tiles of channels of their own, instead of positions.
    across: bool,
}

const fn way(name: &'static str, channels: usize, across: bool, on_phones: bool) -> Way<ConvWay> {
    let (value, needs) = (ConvWay { lanes: false, channels, across }, Needs::of(&[] as &[Need]));
    Way { name, value, shapes: SHAPES, shared_bytes: 0, needs, on_phones }
}

const fn lanes(name: &'static str, channels: usize) -> Way<ConvWay> {
    let value = ConvWay { lanes: true, channels, across: false };
    let needs = Needs::of(&[Need::ShaderInt64, Need::Subgroup]);
    Way { name, value, shapes: LANE_SHAPES, shared_bytes: 0, needs, on_phones: false }
}

const SHAPES: &[[u32; 2]] = &[[128, 1], [64, 1], [32, 1], [16, 1], [8, 1]];

static CONV: Family<ConvWay> = Family {
    name: "conv",
    ways: &[
        lanes("lanes16", 16),
        way("positions16", 16, false, false),
        lanes("lanes8", 8),
        way("positions8", 8, false, true),
        way("positions4", 4, false, true),
        way("channels4", 4, true, true),
        way("positions1", 1, false, true),
        way("channels1", 1, true, true),
    ],
};

/// The dispatch of one of the kernels, which have operands and parameters alike.
macro_rules! conv_dispatch {
    ($direct:expr, $cx:expr, $kernel:ident, $axes:expr, $spec:expr, $groups:expr) => {{
        let (geometry, activation) = (&$direct.geometry, &$direct.epilogue.activation);
        let numbers = |sizes: [usize; 3]| sizes.map(|size| size as u32);
        let outer = |[depth, height, _]: [usize; 3]| [depth as u32, height as u32];
        let params = kernels::$kernel::Params {
            groups: geometry.groups as u32,
            in_channels: geometry.in_channels as u32,
            out_channels: geometry.out_channels as u32,
            in_sizes: numbers(geometry.in_sizes),
            out_sizes: numbers(geometry.out_sizes),
            strides: outer(geometry.stride),
            padding: numbers(geometry.padding),
            dilation: outer(geometry.dilation),
            x_strides: $direct.x_strides(),
            act_a: activation.a,
            act_b: activation.b,
        };
        let [x, weight, bias, y] = $direct.regions($cx)?;
        let operands = kernels::$kernel::Operands { x, weight, bias, y };
        Ok(kernels::$kernel::dispatch($axes, $spec, operands, params, $groups, $cx.label()))
    }};
}

/// Spec constants that the kernels share.
macro_rules! spec {
    ($direct:expr, $cx:expr, $chosen:expr, $Spec:ident, $activation:expr) => {{
        let geometry = &$direct.geometry;
        let [kernel_d, kernel_h, kernel_w] = geometry.kernel.map(|size| size as u32);
        $Spec {
            round_mode: $cx.round_mode($direct.y.dtype, $direct.y.element),
            local_x: $chosen.local[0],
            kernel_d,
            kernel_h,
            kernel_w,
            stride_w: geometry.stride[2] as u32,
            dilation_w: geometry.dilation[2] as u32,
            transposed: u32::from(geometry.transposed),
            window: u32::from($direct.has_window($cx.profile())),
            has_bias: u32::from($direct.bias.is_some()),
            adds_y: u32::from($direct.epilogue.adds_y),
            activation: $activation,
            ..$Spec::default()
        }
    }};
}

/// Columns of the input that a row of taps reaches from a piece, at most: `MOST_COLUMNS` of the kernel.
const MOST_COLUMNS: usize = 16;

/// Positions of a piece.
const PIECE: usize = 4;

/// A convolution to be emitted. The bias is contiguous, the weight as [`weight`] gives it.
pub(super) struct Direct {
    pub(super) geometry: Geometry,
    pub(super) x: Tensor,
    pub(super) weight: Tensor,
    pub(super) bias: Option<Tensor>,
    pub(super) y: Tensor,
    pub(super) epilogue: InPlaceEpilogue,
}

/// The weight as the kernels read it: panels of 4 channels; one channel of a group after the other where it has only one.
///
/// # Errors
/// As [`Lowering::packed`].
pub(super) fn weight(geometry: &Geometry, weight: &Operand, cx: &mut Lowering<'_>) -> Result<Tensor> {
    let &Geometry { groups, out_channels, in_channels, transposed, .. } = geometry;
    if out_channels == 1 || in_channels == 0 {
        let weight = cx.live(weight)?;
        return cx.contiguous(&weight);
    }
    match weight {
        Operand::Constant(constant) => {
            let in_groups = u32::try_from(groups).map_err(|_| Error::unsupported("has too many groups"))?;
            let packed = cx.packed(constant, Packing::Kernels { groups: in_groups, transposed })?;
            // The packed weight has channels that the constant has not.
            let sizes =
                vec![groups, out_channels.div_ceil(4), in_channels * shape::numel(&geometry.kernel)?, 4];
            let strides = shape::contiguous_strides(&sizes);
            Ok(packed.restrided(sizes, strides, 0))
        }
        Operand::Live(_) => {
            let weight = cx.live(weight)?;
            let weight = cx.contiguous(&weight)?;
            panels(geometry, &weight, cx)
        }
    }
}

/// A weight that is computed at run time, copied to where [`Packing::Kernels`] would have it; what is past the last channel
/// of a group stays what it is, and counts for nothing.
fn panels(geometry: &Geometry, weight: &Tensor, cx: &mut Lowering<'_>) -> Result<Tensor> {
    let &Geometry { groups, out_channels, in_channels, .. } = geometry;
    let taps = shape::numel(&geometry.kernel)?;
    let (k, panels) = (in_channels * taps, out_channels.div_ceil(4));
    let packed = cx.alloc(weight.dtype, &[groups, panels, k, 4])?;
    let (in_step, out_step) =
        if geometry.transposed { (out_channels * taps, taps) } else { (taps, in_channels * taps) };
    let whole = out_channels / 4;
    for (first, panels, channels) in [(0, whole, 4), (whole, 1, out_channels % 4)] {
        if panels * channels == 0 {
            continue;
        }
        let sizes = vec![groups, panels, channels, in_channels, taps];
        let from = vec![out_channels * k, 4 * out_step, out_step, in_step, 1];
        let to = vec![packed.strides[0], packed.strides[1], 1, 4 * taps, 4];
        let from = weight.restrided(sizes.clone(), from, first * 4 * out_step);
        cx.copy(&from, &packed.restrided(sizes, to, first * packed.strides[1]))?;
    }
    Ok(packed)
}

impl Direct {
    /// Steps between neighbours of one phase in the result.
    fn out_steps(&self) -> [usize; 3] {
        if self.geometry.transposed { self.geometry.stride } else { [1; 3] }
    }

    /// Pieces of positions of one phase.
    fn pieces(&self) -> Result<usize> {
        let [depth, height, width] =
            [0, 1, 2].map(|dim| self.geometry.out_sizes[dim].div_ceil(self.out_steps()[dim]));
        shape::numel(&[depth, height, width.div_ceil(PIECE)])
    }

    /// Whether a row of taps loads each column of the input once: on a CPU, which pays for each load. On a GPU that takes
    /// registers and more instructions than the loads that it saves.
    fn has_window(&self, profile: &DeviceProfile) -> bool {
        let Geometry {
            kernel: [.., taps], stride: [.., stride], dilation: [.., dilation], transposed, ..
        } = self.geometry;
        let columns = ((taps - 1).checked_mul(dilation))
            .zip((PIECE - 1).checked_mul(stride))
            .and_then(|(a, b)| a.checked_add(b));
        profile.class == DeviceClass::Cpu
            && !transposed
            && columns.is_some_and(|columns| columns < MOST_COLUMNS.min(PIECE * taps - 1))
    }

    /// A CPU pays for each load, so it wants large tiles; a GPU wants registers, of which Adreno 6xx has fewer. Through descriptors a CPU pays with
    /// compile time for each load in a large tile, and gets a small one. Where there are fewer positions than a work group
    /// has invocations, they take channels.
    fn chosen(&self, cx: &Lowering<'_>) -> Result<Chosen<ConvWay>> {
        let (profile, geometry) = (cx.profile(), &self.geometry);
        let is_cpu = profile.class == DeviceClass::Cpu;
        let takes_large = profile.access == Access::Bda;
        let pieces = self.pieces()?;
        let channels = match geometry.out_channels {
            1 => 1,
            9.. if is_cpu && takes_large => 16,
            5.. if is_cpu && takes_large => 8,
            5.. if matches!(profile.class, DeviceClass::Adreno7xx | DeviceClass::Adreno8xx) => 8,
            _ => 4,
        };
        let tiles = |way: ConvWay| geometry.groups * geometry.out_channels.div_ceil(way.channels);
        let least = if is_cpu { 8 } else { 32 };
        let shares = ways::lanes_share(profile);
        let across = ConvWay { lanes: false, channels: channels.min(4), across: true };
        let wanted = if pieces < least && tiles(across) > pieces {
            across
        } else {
            ConvWay { lanes: shares && channels >= 8, channels, across: false }
        };
        let [_, most_y, _] = profile.max_groups;
        let computes = |way: ConvWay| {
            let in_y = if way.across { pieces } else { tiles(way) };
            (way.channels == 1) == (geometry.out_channels == 1)
                && (way.channels < 16 || takes_large)
                && (!way.lanes || shares)
                && in_y <= most_y as usize
        };
        let key = ChoiceKey {
            batch: geometry.batch * geometry.groups,
            m: geometry.out_channels,
            k: geometry.in_channels * shape::numel(&geometry.kernel)?
                / self.out_steps().iter().product::<usize>().max(1),
            n: shape::numel(&geometry.out_sizes)?,
            dtype: if self.x.element == Element::F16 { "f16" } else { "f32" },
        };
        let local_x = match wanted.lanes {
            true => profile.subgroup_size.max(MAX_LANES),
            false => work_groups(profile.class).tile[0],
        };
        CONV.choose(profile, key, (wanted, [local_x, 1]), computes).ok_or_else(|| {
            Error::unsupported(
                "no kernel of a convolution is fit for this device: its limits rule them out, or they gave wrong results when it was tuned",
            )
        })
    }

    /// Emits the dispatch.
    ///
    /// # Errors
    /// More work groups than the device takes.
    pub(super) fn emit(self, cx: &mut Lowering<'_>) -> Result<()> {
        let chosen = self.chosen(cx)?;
        let ConvWay { lanes, channels, across } = chosen.value;
        let tiles = self.geometry.groups * self.geometry.out_channels.div_ceil(channels);
        let (in_x, in_y) = if across { (tiles, self.pieces()?) } else { (self.pieces()?, tiles) };
        let phases = shape::numel(&self.out_steps())?;
        let groups =
            [in_x.div_ceil(chosen.local[0] as usize), in_y, shape::numel(&[self.geometry.batch, phases])?];
        let groups = groups.map(|groups| u32::try_from(groups).unwrap_or(u32::MAX));
        let dispatch = if lanes {
            self.lanes_dispatch(cx, &chosen, groups)?
        } else {
            self.plain_dispatch(cx, &chosen, groups)?
        };
        let dispatch = dispatch.of_ops(chosen.record.key.ops()).chosen(chosen.record);
        cx.emit(self.epilogue.with_access(dispatch))
    }

    /// Regions of x, the weight, the bias and y. What is not read is bound to something that is there.
    fn regions(&self, cx: &mut Lowering<'_>) -> Result<[Region; 4]> {
        let [x, weight] = match self.geometry.in_channels {
            0 => [cx.words(&[0])?.region(); 2],
            _ => [self.x.region(), self.weight.region()],
        };
        let bias = self.bias.as_ref().map_or(weight, Tensor::region);
        Ok([x, weight, bias, self.y.region()])
    }

    fn plain_dispatch(
        &self,
        cx: &mut Lowering<'_>,
        chosen: &Chosen<ConvWay>,
        groups: [u32; 3],
    ) -> Result<Dispatch> {
        use kernels::conv::{Axes, Spec, TileC};
        let axes = Axes {
            dtype: float_axis!(conv, self.x.element)?,
            tile_c: match chosen.value.channels {
                1 => TileC::TileC1,
                4 => TileC::TileC4,
                8 => TileC::TileC8,
                _ => TileC::TileC16,
            },
        };
        let activation = known(self.epilogue.activation.in_conv())?;
        let spec =
            Spec { across: u32::from(chosen.value.across), ..spec!(self, cx, chosen, Spec, activation) };
        conv_dispatch!(self, cx, conv, axes, spec, groups)
    }

    fn lanes_dispatch(
        &self,
        cx: &mut Lowering<'_>,
        chosen: &Chosen<ConvWay>,
        groups: [u32; 3],
    ) -> Result<Dispatch> {
        use kernels::conv_lanes::{Axes, Spec, TileC};
        let axes = Axes {
            dtype: float_axis!(conv_lanes, self.x.element)?,
            tile_c: if chosen.value.channels == 8 { TileC::TileC8 } else { TileC::TileC16 },
        };
        let activation = known(self.epilogue.activation.in_conv_lanes())?;
        let in_pairs = self.has_pairs(cx.profile());
        let spec = Spec {
            x_pairs: u32::from(in_pairs),
            first_is_odd: u32::from(in_pairs && self.geometry.padding[2] % 2 == 1),
            lanes: cx.profile().subgroup_size.clamp(4, MAX_LANES),
            ..spec!(self, cx, chosen, Spec, activation)
        };
        conv_dispatch!(self, cx, conv_lanes, axes, spec, groups)
    }

    /// Whether columns of the input can be loaded two at a time.
    fn has_pairs(&self, profile: &DeviceProfile) -> bool {
        let (Some((1, outer)), Some(width)) = (self.x.strides.split_last(), self.x.sizes.last()) else {
            return false;
        };
        self.has_window(profile)
            && width.is_multiple_of(2)
            && outer.iter().all(|stride| stride.is_multiple_of(2))
            && self.x.starts_aligned4()
    }

    /// Strides of x as the kernels take them, batch and channels in front, the spatial dims at the end.
    fn x_strides(&self) -> [u32; 5] {
        let mut x_strides = [0; 5];
        let first = usize::from(!self.geometry.is_batched);
        for (dim, &stride) in self.x.strides.iter().enumerate() {
            let at = if dim + first < 2 { dim + first } else { 5 - (self.x.strides.len() - dim) };
            x_strides[at] = stride as u32;
        }
        x_strides
    }
}
