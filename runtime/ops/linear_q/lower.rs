//! Lowering: rows of x merge to one matrix; a launch that the device does not take is halved until it does.

use super::{Call, Side};
use crate::{
    base::{Error, Result, shape},
    ops::{Args, Element, Lowering, Meta, Operand, Packing, Tensor},
    shader::{Access, DeviceClass, Dispatch, Region, kernels},
};

/// Blocks of codes that a row may have, so that kernels find a block's group in float arithmetic.
const MAX_BLOCKS: usize = 1 << 22;

pub(super) fn lower(
    call: &Call,
    args: &Args<Operand>,
    out: &Meta,
    cx: &mut Lowering<'_>,
) -> Result<Vec<Tensor>> {
    let packing = Packing::Codes { bits: call.bits, offset: call.offset };
    let weight = args.tensor("weight")?.constant().map_err(|error| error.at_operand("weight"))?;
    let side = args.tensor("side")?.constant().map_err(|error| error.at_operand("side"))?;
    let &[n, k] = weight.sizes() else { return Err(Error::internal("codes are no matrix")) };
    let blocks = k.div_ceil(packing.codes_a_word());
    if blocks > MAX_BLOCKS {
        return Err(Error::unsupported(format!("has {k} columns, which is too many")).at_operand("weight"));
    }
    let codes = cx.packed_as(weight, packing, Element::I32)?;
    let side = cx.packed_as(side, Packing::Contiguous, Element::F32)?;
    let x = cx.live(args.tensor("input")?)?;
    let y = cx.output(out)?;
    if y.numel() == 0 {
        return Ok(vec![y]);
    }
    let panels = n.div_ceil(4);
    let rows = y.numel() / n;
    let launch = Launch {
        x: matrix_of(cx, &x, rows, k)?,
        codes: codes.restrided(vec![panels, 4 * blocks], vec![4 * blocks, 1], 0),
        side: side.restrided(vec![panels, call.side.stride()], vec![call.side.stride(), 1], 0),
        y: y.restrided(vec![rows, n], vec![n, 1], 0),
        layout: call.side,
        bits: call.bits,
    };
    launch.emit(cx)?;
    Ok(vec![y])
}

/// x as a matrix `[rows, k]`: itself where its leading dims merge, else a copy.
fn matrix_of(cx: &mut Lowering<'_>, x: &Tensor, rows: usize, k: usize) -> Result<Tensor> {
    if let Some(view) = x.viewed(&[rows, k]) {
        return Ok(view);
    }
    Ok(cx.contiguous(x)?.restrided(vec![rows, k], shape::contiguous_strides(&[rows, k]), 0))
}

/// One product: x of `[m, k]`, codes of `[panels, 4 blocks]` words, side of `[panels, stride]`, y of `[m, n]`.
struct Launch {
    x: Tensor,
    codes: Tensor,
    side: Tensor,
    y: Tensor,
    layout: Side,
    bits: u8,
}

impl Launch {
    fn emit(&self, cx: &mut Lowering<'_>) -> Result<()> {
        if let Some((first, second)) = self.halves(cx) {
            first.emit(cx)?;
            return second.emit(cx);
        }
        let dispatch = if self.shares_rows(cx) { self.row_dispatch(cx)? } else { self.tile_dispatch(cx)? };
        cx.emit(dispatch)
    }

    /// Whether invocations share the columns of a single row, so that there is work for all of them. A CPU has few
    /// lanes, and reads x best where all of them read the same element.
    fn shares_rows(&self, cx: &Lowering<'_>) -> bool {
        const PANELS_ENOUGH: usize = 64;
        let has_enough = cx.profile().class == DeviceClass::Cpu && self.codes.sizes[0] >= PANELS_ENOUGH;
        self.rows() == 1 && !has_enough
    }

    fn rows(&self) -> usize {
        self.y.sizes[0]
    }

    fn columns(&self) -> usize {
        self.y.sizes[1]
    }

    /// Two products that give the same, when one launch is too large for the device.
    fn halves(&self, cx: &Lowering<'_>) -> Option<(Launch, Launch)> {
        let profile = cx.profile();
        let reach = match profile.access {
            Access::Ssbo => {
                profile.max_storage_buffer_range_bytes.saturating_sub(profile.storage_offset_alignment_bytes)
            }
            Access::Bda => u64::MAX,
        };
        let too_big = |tensor: &Tensor| tensor.region().len_bytes > reach;
        let [groups_x, groups_y, _] = profile.max_groups.map(|groups| groups as usize);
        let tile = self.tile_rows(cx);
        let rows_too_many = too_big(&self.x) || too_big(&self.y) || self.rows().div_ceil(tile) > groups_x;
        if rows_too_many && self.rows() > 1 {
            let at = if self.rows() > tile { (self.rows() / 2).next_multiple_of(tile) } else { 1 };
            return Some(self.halved_rows(at));
        }
        let panels = self.codes.sizes[0];
        let columns_too_many = too_big(&self.codes) || too_big(&self.side) || panels.div_ceil(32) > groups_y;
        (columns_too_many && panels > 1).then(|| self.halved_panels(panels / 2))
    }

    fn halved_rows(&self, at: usize) -> (Launch, Launch) {
        let piece = |start: usize, len: usize| Launch {
            x: narrowed(&self.x, 0, start, len),
            y: narrowed(&self.y, 0, start, len),
            codes: self.codes.clone(),
            side: self.side.clone(),
            ..*self
        };
        (piece(0, at), piece(at, self.rows() - at))
    }

    fn halved_panels(&self, at: usize) -> (Launch, Launch) {
        let piece = |start: usize, end: usize| {
            let last_column = self.columns().min(4 * end);
            Launch {
                x: self.x.clone(),
                y: narrowed(&self.y, 1, 4 * start, last_column - 4 * start),
                codes: narrowed(&self.codes, 0, start, end - start),
                side: narrowed(&self.side, 0, start, end - start),
                ..*self
            }
        };
        (piece(0, at), piece(at, self.codes.sizes[0]))
    }

    /// Rows of one invocation's tile: see the float product.
    fn tile_rows(&self, cx: &Lowering<'_>) -> usize {
        match self.rows() {
            1 => 1,
            9.. if cx.profile().class == DeviceClass::Cpu => 16,
            _ => 4,
        }
    }

    fn x_vec4(&self) -> bool {
        let rows_aligned = self.rows() == 1 || self.x.strides[0].is_multiple_of(4);
        self.x.strides[1] == 1 && rows_aligned && self.x.starts_aligned4()
    }

    fn group_blocks(&self) -> usize {
        (self.codes.sizes[1] / 4).div_ceil(self.layout.groups).max(1)
    }

    /// Regions of x and codes; without columns there is nothing to bind in their place but the side table.
    fn regions(&self) -> [Region; 2] {
        let side = self.side.region();
        [self.x.region(), self.codes.region()].map(|region| if region.len_bytes == 0 { side } else { region })
    }

    fn row_dispatch(&self, cx: &Lowering<'_>) -> Result<Dispatch> {
        use kernels::linear_codes_row::{Axes, Bits, Operands, Params, Spec, dispatch};
        const SPLIT: u32 = 16;
        let axes = Axes {
            dtype: float_axis!(linear_codes_row, self.x.element)?,
            bits: if self.bits == 4 { Bits::Bits4 } else { Bits::Bits8 },
        };
        let spec = Spec {
            round_mode: cx.round_mode(self.y.dtype, self.y.element),
            x_vec4: u32::from(self.x_vec4()),
            has_zeros: u32::from(self.layout.has_zeros),
            has_bias: u32::from(self.layout.has_bias),
            ..Spec::default()
        };
        let [x, codes] = self.regions();
        let operands = Operands { x, codes, side: self.side.region(), y: self.y.region() };
        let params = Params {
            m: 1,
            n: self.columns() as u32,
            k: self.x.sizes[1] as u32,
            blocks: (self.codes.sizes[1] / 4) as u32,
            groups: self.layout.groups as u32,
            group_blocks: self.group_blocks() as u32,
            group_inverse: (1.0 / self.group_blocks() as f64) as f32,
            side_stride: self.layout.stride() as u32,
            x_row_stride: 0,
            x_k_stride: self.x.strides[1] as u32,
            y_row_stride: 0,
        };
        let groups = cx.groups_1d(self.codes.sizes[0], spec.local_x / SPLIT)?;
        Ok(dispatch(axes, spec, operands, params, groups, cx.label()))
    }

    fn tile_dispatch(&self, cx: &Lowering<'_>) -> Result<Dispatch> {
        use kernels::linear_codes::{Axes, Bits, Operands, Params, Spec, TileM, dispatch};
        let tile = self.tile_rows(cx);
        let axes = Axes {
            dtype: float_axis!(linear_codes, self.x.element)?,
            bits: if self.bits == 4 { Bits::Bits4 } else { Bits::Bits8 },
            tile_m: match tile {
                1 => TileM::TileM1,
                4 => TileM::TileM4,
                _ => TileM::TileM16,
            },
        };
        let spec = Spec {
            round_mode: cx.round_mode(self.y.dtype, self.y.element),
            x_vec4: u32::from(self.x_vec4()),
            has_zeros: u32::from(self.layout.has_zeros),
            has_bias: u32::from(self.layout.has_bias),
            scales_last: u32::from(self.layout.groups == 1),
            ..Spec::default()
        };
        let [x, codes] = self.regions();
        let operands = Operands { x, codes, side: self.side.region(), y: self.y.region() };
        let stride = |stride: usize| {
            u32::try_from(stride).map_err(|_| Error::unsupported("a stride does not fit 32 bits"))
        };
        let params = Params {
            m: self.rows() as u32,
            n: self.columns() as u32,
            k: self.x.sizes[1] as u32,
            blocks: (self.codes.sizes[1] / 4) as u32,
            groups: self.layout.groups as u32,
            group_blocks: self.group_blocks() as u32,
            group_inverse: (1.0 / self.group_blocks() as f64) as f32,
            side_stride: self.layout.stride() as u32,
            x_row_stride: stride(self.x.strides[0])?,
            x_k_stride: stride(self.x.strides[1])?,
            y_row_stride: stride(self.y.strides[0])?,
        };
        let panels_a_group = spec.local_x.max(1) as usize;
        let groups = [self.rows().div_ceil(tile), self.codes.sizes[0].div_ceil(panels_a_group), 1];
        Ok(dispatch(axes, spec, operands, params, groups.map(|count| count as u32), cx.label()))
    }
}

/// `len` of the tensor's dim `dim`, from `start` on.
fn narrowed(tensor: &Tensor, dim: usize, start: usize, len: usize) -> Tensor {
    let mut sizes = tensor.sizes.clone();
    sizes[dim] = len;
    tensor.restrided(sizes, tensor.strides.clone(), start * tensor.strides[dim])
}
