//! The product of packed activations with packed codes: which kernel, and launches that the device takes.

use super::{DotSide, packed::Packed};
use crate::{
    base::Result,
    ops::{
        Element, Lowering, Tensor,
        epilogue::{InPlaceEpilogue, known},
    },
    shader::{Access, DeviceClass, Dispatch, kernels},
};

/// Invocations of a work group of the tiled kernel, each of which takes a panel of 4 columns.
const LOCAL_X: usize = 32;

/// Scale and zero point of the activations, the latter for codes made unsigned.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Factors {
    /// The same for all rows, and known to the plan.
    Numbers { scale: f32, zero: i32 },
    /// In the allocation of the activations: one pair for each row, or one for all.
    InMemory { per_row: bool },
}

/// What is stored of a sum.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Outcome {
    /// The float that it is after scaling.
    Floats,
    /// That float quantised.
    Codes { inverse_scale: f32, zero: f32, low: f32, high: f32 },
    /// The integer that it is.
    Ints,
}

/// One product.
pub(in crate::ops) struct Dot<'a> {
    pub x: &'a Packed,
    pub factors: Factors,
    /// Sizes `[panels, 4 * blocks]`.
    pub codes: Tensor,
    pub bits: u8,
    /// Sizes `[panels, side.stride()]`.
    pub table: Tensor,
    pub side: DotSide,
    pub columns: usize,
    /// Sizes `[rows, n]`, contiguous.
    pub y: Tensor,
    pub outcome: Outcome,
    pub epilogue: InPlaceEpilogue,
    /// `round_mode` of a float result.
    pub round_mode: u32,
}

/// A part of the result: rows, and panels of 4 columns.
struct Part {
    rows: std::ops::Range<usize>,
    panels: std::ops::Range<usize>,
}

/// Parameters of a part for one of the kernels, which share them.
macro_rules! params {
    ($kernel:ident, $dot:expr, $part:expr, $y:expr) => {{
        let (dot, layout) = ($dot, $dot.x.layout());
        let (x_scale, x_zero, factor_stride) = match dot.factors {
            Factors::Numbers { scale, zero } => (scale, zero, 0),
            Factors::InMemory { per_row } => (0.0, 0, if per_row { 2 } else { 0 }),
        };
        let (inverse_scale, zero_point, low, high) = match dot.outcome {
            Outcome::Codes { inverse_scale, zero, low, high } => (inverse_scale, zero, low, high),
            Outcome::Floats | Outcome::Ints => (0.0, 0.0, 0.0, 0.0),
        };
        kernels::$kernel::Params {
            m: $part.rows.len() as u32,
            n: $y.sizes[1] as u32,
            first_row: $part.rows.start as u32,
            row_words: layout.row_words as u32,
            sums_at: layout.sums_at() as u32,
            factors_at: layout.factors_at() as u32,
            factor_stride,
            x_scale,
            x_zero,
            blocks: dot.blocks() as u32,
            groups: dot.side.0.groups as u32,
            group_blocks: dot.blocks().div_ceil(dot.side.0.groups) as u32,
            group_columns: dot.group_columns() as u32,
            side_stride: dot.side.stride() as u32,
            y_row_stride: $y.strides[0] as u32,
            inverse_scale,
            zero_point,
            low,
            high,
            act_a: dot.epilogue.activation.a,
            act_b: dot.epilogue.activation.b,
        }
    }};
}

impl Dot<'_> {
    /// Emits the product, in as many launches as the device's limits ask for.
    ///
    /// # Errors
    /// When even the smallest launch is too large.
    pub fn emit(&self, cx: &mut Lowering<'_>) -> Result<()> {
        let (rows, n) = (self.y.sizes[0], self.y.sizes[1]);
        let panels = n.div_ceil(4);
        let profile = cx.profile();
        let reach = match profile.access {
            Access::Ssbo => {
                profile.max_storage_buffer_range_bytes.saturating_sub(profile.storage_offset_alignment_bytes)
            }
            Access::Bda => u64::MAX,
        };
        let fitting =
            |row_bytes: usize| usize::try_from(reach / row_bytes.max(1) as u64).unwrap_or(usize::MAX).max(1);
        let [groups_x, groups_y, _] = profile.max_groups.map(|groups| groups as usize);
        let tile = self.tile_rows(cx);
        let rows_at_once = groups_x.saturating_mul(tile).min(fitting(n * self.y.element.size_bytes()));
        let row_bytes = |tensor: &Tensor| tensor.sizes[1] * tensor.element.size_bytes();
        let panels_at_once = groups_y
            .saturating_mul(LOCAL_X)
            .min(fitting(row_bytes(&self.codes)))
            .min(fitting(row_bytes(&self.table)));
        for row in (0..rows).step_by(rows_at_once) {
            for panel in (0..panels).step_by(panels_at_once) {
                let part = Part {
                    rows: row..rows.min(row.saturating_add(rows_at_once)),
                    panels: panel..panels.min(panel.saturating_add(panels_at_once)),
                };
                let dispatch = if self.shares_rows(cx, &part) {
                    self.row_dispatch(cx, &part)?
                } else {
                    self.tile_dispatch(cx, &part, tile)?
                };
                cx.emit(dispatch)?;
            }
        }
        Ok(())
    }

    fn group_columns(&self) -> usize {
        self.columns / self.side.0.groups
    }

    /// Whether a sum may leave 32 bits: see the module's bounds.
    fn is_wide(&self) -> bool {
        let largest = if self.side.0.has_zeros { 255 * 256 } else { 255 * 128 };
        !matches!(self.outcome, Outcome::Ints) && self.group_columns() > i32::MAX as usize / largest
    }

    /// Rows of one invocation's tile; 64-bit sums take one.
    fn tile_rows(&self, cx: &Lowering<'_>) -> usize {
        match self.y.sizes[0] {
            1 => 1,
            _ if self.is_wide() => 1,
            8.. if cx.profile().class == DeviceClass::Cpu => 8,
            _ => 4,
        }
    }

    /// Whether invocations share the columns of a single row: as for float activations.
    fn shares_rows(&self, cx: &Lowering<'_>, part: &Part) -> bool {
        const PANELS_ENOUGH: usize = 64;
        let has_enough = cx.profile().class == DeviceClass::Cpu && part.panels.len() >= PANELS_ENOUGH;
        self.y.sizes[0] == 1 && !has_enough && !self.is_wide()
    }

    fn blocks(&self) -> usize {
        self.codes.sizes[1] / 4
    }

    /// Codes, side and result of a part.
    fn narrowed(&self, part: &Part) -> [Tensor; 3] {
        let rows_of = |tensor: &Tensor, range: &std::ops::Range<usize>| {
            let sizes = vec![range.len(), tensor.sizes[1]];
            tensor.restrided(sizes, tensor.strides.clone(), range.start * tensor.strides[0])
        };
        let first = 4 * part.panels.start;
        let columns = self.y.sizes[1].min(4 * part.panels.end) - first;
        let y = self.y.restrided(
            vec![part.rows.len(), columns],
            self.y.strides.clone(),
            part.rows.start * self.y.strides[0] + first,
        );
        [rows_of(&self.codes, &part.panels), rows_of(&self.table, &part.panels), y]
    }

    fn row_dispatch(&self, cx: &Lowering<'_>, part: &Part) -> Result<Dispatch> {
        use kernels::linear_dot_row::{
            Axes, Bits, Dot as Way, Dtype, Operands, Outcome as Kind, Spec, dispatch,
        };
        const SPLIT: u32 = 16;
        let [codes, table, y] = self.narrowed(part);
        let axes = Axes {
            dtype: if y.element == Element::F16 { Dtype::F16 } else { Dtype::F32 },
            dot: if cx.profile().packed_dot { Way::Packed } else { Way::Plain },
            bits: if self.bits == 4 { Bits::Bits4 } else { Bits::Bits8 },
        };
        let spec = Spec {
            round_mode: self.round_mode,
            has_factors: u32::from(matches!(self.factors, Factors::InMemory { .. })),
            has_zeros: u32::from(self.side.0.has_zeros),
            has_bias: u32::from(self.side.0.has_bias),
            outcome: match self.outcome {
                Outcome::Floats => Kind::Floats,
                Outcome::Codes { .. } => Kind::Codes,
                Outcome::Ints => Kind::Ints,
            },
            adds_y: u32::from(self.epilogue.adds_y),
            activation: known(self.epilogue.activation.in_linear_dot_row())?,
            ..Spec::default()
        };
        let params = params!(linear_dot_row, self, part, y);
        let operands =
            Operands { x: self.x.region(), codes: codes.region(), side: table.region(), y: y.region() };
        let groups = cx.groups_1d(part.panels.len(), spec.local_x / SPLIT)?;
        let dispatch = dispatch(axes, spec, operands, params, groups, cx.label());
        Ok(self.epilogue.with_access(dispatch))
    }

    fn tile_dispatch(&self, cx: &Lowering<'_>, part: &Part, tile: usize) -> Result<Dispatch> {
        use kernels::linear_dot::{
            Axes, Bits, Dot as Way, Dtype, Operands, Outcome as Kind, Spec, TileM, dispatch,
        };
        let [codes, table, y] = self.narrowed(part);
        let axes = Axes {
            dtype: if y.element == Element::F16 { Dtype::F16 } else { Dtype::F32 },
            dot: if cx.profile().packed_dot { Way::Packed } else { Way::Plain },
            bits: if self.bits == 4 { Bits::Bits4 } else { Bits::Bits8 },
            tile_m: match tile {
                1 => TileM::TileM1,
                4 => TileM::TileM4,
                _ => TileM::TileM8,
            },
        };
        let group_words = self.group_columns() / 4;
        let spec = Spec {
            round_mode: self.round_mode,
            local_x: LOCAL_X as u32,
            x_vec4: u32::from(self.side.0.groups == 1 || group_words.is_multiple_of(4)),
            has_factors: u32::from(matches!(self.factors, Factors::InMemory { .. })),
            has_zeros: u32::from(self.side.0.has_zeros),
            has_bias: u32::from(self.side.0.has_bias),
            outcome: match self.outcome {
                Outcome::Floats => Kind::Floats,
                Outcome::Codes { .. } => Kind::Codes,
                Outcome::Ints => Kind::Ints,
            },
            wide: u32::from(self.is_wide()),
            one_group: u32::from(self.side.0.groups == 1),
            adds_y: u32::from(self.epilogue.adds_y),
            activation: known(self.epilogue.activation.in_linear_dot())?,
        };
        let params = params!(linear_dot, self, part, y);
        let operands =
            Operands { x: self.x.region(), codes: codes.region(), side: table.region(), y: y.region() };
        let groups = [part.rows.len().div_ceil(tile) as u32, part.panels.len().div_ceil(LOCAL_X) as u32, 1];
        let dispatch = dispatch(axes, spec, operands, params, groups, cx.label());
        Ok(self.epilogue.with_access(dispatch))
    }
}
