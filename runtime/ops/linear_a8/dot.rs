//! The product of packed activations with packed codes: which kernel, and launches that the device takes.

use super::{DotSide, packed::Packed};
use crate::{
    base::Result,
    ops::{
        Element, Lowering, Tensor,
        epilogue::{InPlaceEpilogue, known},
        ways::{self, ProductWay, ROW_SPLIT, ROW_WAY, tile_way},
    },
    shader::{Access, ChoiceKey, Chosen, DeviceClass, Dispatch, Family, kernels},
};

/// The kernels of the product.
static LINEAR_DOT: Family<ProductWay> = Family {
    name: "linear_dot",
    ways: &[tile_way("rows8", 8, false), tile_way("rows4", 4, true), tile_way("rows1", 1, true), ROW_WAY],
};

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

/// The dispatch of a part by the kernel `$kernel` with activation `$activation`, in `$groups` work groups. The kernels share
/// operands and parameters; in braces are the axes and spec constants that only one of them has.
macro_rules! dot_dispatch {
    (
        $dot:ident, $cx:ident, $part:ident, $chosen:ident, $kernel:ident, $activation:ident, $groups:expr,
        axes { $($axis:ident: $point:expr),* }, spec { $($constant:ident: $value:expr),* }
    ) => {{
        use kernels::$kernel::{Axes, Bits, Dot as Way, Dtype, Operands, Outcome as Kind, Params, Spec, dispatch};
        let [codes, table, y] = $dot.narrowed($part);
        let (layout, side) = ($dot.x.layout(), &$dot.side);
        let axes = Axes {
            dtype: if y.element == Element::F16 { Dtype::F16 } else { Dtype::F32 },
            dot: if $cx.profile().packed_dot { Way::Packed } else { Way::Plain },
            bits: if $dot.bits == 4 { Bits::Bits4 } else { Bits::Bits8 },
            $($axis: $point,)*
        };
        let spec = Spec {
            round_mode: $dot.round_mode,
            local_x: $chosen.local[0],
            has_factors: u32::from(matches!($dot.factors, Factors::InMemory { .. })),
            has_zeros: u32::from(side.0.has_zeros),
            has_bias: u32::from(side.0.has_bias),
            outcome: match $dot.outcome {
                Outcome::Floats => Kind::Floats,
                Outcome::Codes { .. } => Kind::Codes,
                Outcome::Ints => Kind::Ints,
            },
            adds_y: u32::from($dot.epilogue.adds_y),
            activation: known($dot.epilogue.activation.$activation())?,
            $($constant: $value,)*
        };
        let (x_scale, x_zero, factor_stride) = match $dot.factors {
            Factors::Numbers { scale, zero } => (scale, zero, 0),
            Factors::InMemory { per_row } => (0.0, 0, if per_row { 2 } else { 0 }),
        };
        let (inverse_scale, zero_point, low, high) = match $dot.outcome {
            Outcome::Codes { inverse_scale, zero, low, high } => (inverse_scale, zero, low, high),
            Outcome::Floats | Outcome::Ints => (0.0, 0.0, 0.0, 0.0),
        };
        let params = Params {
            m: $part.rows.len() as u32,
            n: y.sizes[1] as u32,
            first_row: $part.rows.start as u32,
            row_words: layout.row_words as u32,
            sums_at: layout.sums_at() as u32,
            factors_at: layout.factors_at() as u32,
            factor_stride,
            x_scale,
            x_zero,
            blocks: $dot.blocks() as u32,
            groups: side.0.groups as u32,
            group_blocks: $dot.blocks().div_ceil(side.0.groups) as u32,
            group_columns: $dot.group_columns() as u32,
            side_stride: side.stride() as u32,
            y_row_stride: y.strides[0] as u32,
            inverse_scale,
            zero_point,
            low,
            high,
            act_a: $dot.epilogue.activation.a,
            act_b: $dot.epilogue.activation.b,
        };
        let operands =
            Operands { x: $dot.x.region(), codes: codes.region(), side: table.region(), y: y.region() };
        let dispatch = dispatch(axes, spec, operands, params, $groups, $cx.label());
        Ok($dot.epilogue.with_access(dispatch))
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
        let chosen = self.chosen(cx)?;
        let tile = chosen.tile_rows();
        let rows_at_once = groups_x
            .saturating_mul(tile)
            .min(fitting(n * self.y.element.size_bytes()))
            .min(ways::rows_at_once(profile, &self.key(), tile));
        let row_bytes = |tensor: &Tensor| tensor.sizes[1] * tensor.element.size_bytes();
        let panels_at_once = groups_y
            .saturating_mul(chosen.local[0] as usize)
            .min(fitting(row_bytes(&self.codes)))
            .min(fitting(row_bytes(&self.table)));
        for row in (0..rows).step_by(rows_at_once) {
            for panel in (0..panels).step_by(panels_at_once) {
                let part = Part {
                    rows: row..rows.min(row.saturating_add(rows_at_once)),
                    panels: panel..panels.min(panel.saturating_add(panels_at_once)),
                };
                let dispatch = match chosen.value {
                    ProductWay::Row => self.row_dispatch(cx, &part, &chosen)?,
                    _ => self.tile_dispatch(cx, &part, &chosen)?,
                };
                cx.emit(dispatch.chosen(chosen.record))?;
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

    fn key(&self) -> ChoiceKey {
        let dtype = match (self.bits, self.y.element) {
            (4, Element::F16) => "int8 int4 to f16",
            (4, _) => "int8 int4",
            (_, Element::F16) => "int8 to f16",
            _ => "int8",
        };
        ChoiceKey { batch: 1, m: self.y.sizes[0], k: self.columns, n: self.y.sizes[1], dtype }
    }

    /// 64-bit sums take tiles of one row. A single row is shared as for float activations.
    fn chosen(&self, cx: &Lowering<'_>) -> Result<Chosen<ProductWay>> {
        const PANELS_ENOUGH: usize = 64;
        let (is_row, is_wide) = (self.y.sizes[0] == 1, self.is_wide());
        let is_cpu = cx.profile().class == DeviceClass::Cpu;
        let wanted = match self.y.sizes[0] {
            _ if is_wide => ProductWay::Tile(1),
            1 if is_cpu && self.codes.sizes[0] >= PANELS_ENOUGH => ProductWay::Tile(1),
            1 => ProductWay::Row,
            8.. if is_cpu => ProductWay::Tile(8),
            _ => ProductWay::Tile(4),
        };
        let computes = |way: ProductWay| match way {
            ProductWay::Row => is_row && !is_wide,
            ProductWay::Tile(1) => is_row || is_wide,
            _ => !is_row && !is_wide,
        };
        ways::choose(cx.profile(), &LINEAR_DOT, self.key(), wanted, computes)
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

    fn row_dispatch(&self, cx: &Lowering<'_>, part: &Part, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        let groups = cx.groups_1d(part.panels.len(), chosen.local[0] / ROW_SPLIT)?;
        dot_dispatch!(self, cx, part, chosen, linear_dot_row, in_linear_dot_row, groups, axes {}, spec {})
    }

    fn tile_dispatch(&self, cx: &Lowering<'_>, part: &Part, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::linear_dot::TileM;
        let group_words = self.group_columns() / 4;
        let [local_x, local_y] = chosen.local;
        let groups = [
            part.rows.len().div_ceil(chosen.tile_rows()) as u32,
            (part.panels.len() as u32).div_ceil(local_x),
            1,
        ];
        dot_dispatch!(
            self,
            cx,
            part,
            chosen,
            linear_dot,
            in_linear_dot,
            groups,
            axes {
                tile_m: match chosen.value.rows() {
                    1 => TileM::TileM1,
                    4 => TileM::TileM4,
                    _ => TileM::TileM8,
                }
            },
            spec {
                local_y: local_y,
                x_vec4: u32::from(self.side.0.groups == 1 || group_words.is_multiple_of(4)),
                wide: u32::from(self.is_wide()),
                one_group: u32::from(self.side.0.groups == 1)
            }
        )
    }
}
