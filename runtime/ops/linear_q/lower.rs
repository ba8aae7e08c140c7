//! Lowering: rows of x merge to one matrix; a launch that the device does not take is halved until it does.

use super::{Call, Side};
use crate::{
    base::{Error, Result, shape},
    ops::{
        Args, Element, Lowering, Meta, Operand, Packing, Tensor,
        epilogue::{Epilogue, InPlaceEpilogue, known},
        ways::{self, ProductWay, ROW_SPLIT, ROW_WAY, split_way, tile_way},
    },
    shader::{Access, ChoiceKey, Chosen, DeviceClass, Dispatch, Family, Region, kernels},
};

/// Blocks of codes that a row may have, so that kernels find a block's group in float arithmetic.
const MAX_BLOCKS: usize = 1 << 22;

/// Rows of a tile whose terms invocations share.
const MAX_SPLIT_ROWS: u32 = 4;

/// The kernels of a product of floats with codes.
static LINEAR_CODES: Family<ProductWay> = Family {
    name: "linear_codes",
    ways: &[
        tile_way("rows16", 16, false),
        tile_way("rows4", 4, true),
        tile_way("rows1", 1, true),
        split_way("split4", 4, true),
        split_way("split2", 2, true),
        ROW_WAY,
    ],
};

/// The kernels of a product of integers with codes.
static INT_MM_CODES: Family<ProductWay> = Family {
    name: "int_mm_codes",
    ways: &[tile_way("rows16", 16, false), tile_way("rows4", 4, true), tile_way("rows1", 1, true)],
};

pub(super) fn lower(
    call: &Call,
    args: &Args<Operand>,
    out: &Meta,
    epilogue: Epilogue,
    cx: &mut Lowering<'_>,
) -> Result<Vec<Tensor>> {
    let side = args.tensor("side")?.constant().map_err(|error| error.at_operand("side"))?;
    let side = cx.packed_as(side, Packing::Contiguous, Element::F32)?;
    let row = call.side.stride();
    let side = side.restrided(vec![side.sizes[0], row], vec![row, 1], 0);
    let packing = Packing::Codes { bits: call.bits, offset: call.offset };
    let factors = Factors::Floats { side, layout: call.side, bits: call.bits };
    let (y, epilogue) = epilogue.in_place(out, cx)?;
    product(cx, args, ("input", packing), factors, y, epilogue)
}

pub(super) fn lower_ints(args: &Args<Operand>, out: &Meta, cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
    let packing = Packing::Codes { bits: 8, offset: 0 };
    let y = cx.output(out)?;
    product(cx, args, ("self", packing), Factors::None, y, InPlaceEpilogue::NONE)
}

fn product(
    cx: &mut Lowering<'_>,
    args: &Args<Operand>,
    (input, packing): (&str, Packing),
    factors: Factors,
    y: Tensor,
    epilogue: InPlaceEpilogue,
) -> Result<Vec<Tensor>> {
    let weight = args.tensor("weight")?.constant().map_err(|error| error.at_operand("weight"))?;
    let &[n, k] = weight.sizes() else { return Err(Error::internal("codes are no matrix")) };
    let blocks = k.div_ceil(packing.codes_a_word());
    if blocks > MAX_BLOCKS {
        return Err(Error::unsupported(format!("has {k} columns, which is too many")).at_operand("weight"));
    }
    let codes = cx.packed_as(weight, packing, Element::I32)?;
    let x = cx.live(args.tensor(input)?)?;
    if y.numel() == 0 {
        return Ok(vec![y]);
    }
    let rows = y.numel() / n;
    let launch = Launch {
        x: matrix_of(cx, &x, rows, k)?,
        codes: codes.restrided(vec![n.div_ceil(4), 4 * blocks], vec![4 * blocks, 1], 0),
        y: y.restrided(vec![rows, n], vec![n, 1], 0),
        factors,
        epilogue,
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

/// What codes are multiplied by.
#[derive(Clone)]
enum Factors {
    /// Nothing: integers are multiplied.
    None,
    /// The scales of a side table of sizes `[panels, stride]`.
    Floats { side: Tensor, layout: Side, bits: u8 },
}

impl Factors {
    fn narrowed(&self, start: usize, len: usize) -> Factors {
        match self {
            Factors::None => Factors::None,
            Factors::Floats { side, layout, bits } => {
                Factors::Floats { side: narrowed(side, 0, start, len), layout: *layout, bits: *bits }
            }
        }
    }
}

/// One product: x of `[m, k]`, codes of `[panels, 4 blocks]` words, y of `[m, n]`.
struct Launch {
    x: Tensor,
    codes: Tensor,
    y: Tensor,
    factors: Factors,
    epilogue: InPlaceEpilogue,
}

/// The dispatch of a launch by the kernel `$kernel` with activation `$activation`, in `$groups` work groups. The kernels
/// share operands and parameters; in braces are the axes and spec constants that only some of them have.
macro_rules! codes_dispatch {
    (
        $launch:ident, $cx:ident, $chosen:ident, $factors:ident, $kernel:ident, $activation:ident, $groups:expr,
        axes { $($axis:ident: $point:expr),* }, spec { $($constant:ident: $value:expr),* }
    ) => {{
        use kernels::$kernel::{Axes, Bits, Operands, Params, Spec, dispatch};
        let (side, layout, bits) = $factors;
        let axes = Axes {
            dtype: float_axis!($kernel, $launch.x.element)?,
            bits: if bits == 4 { Bits::Bits4 } else { Bits::Bits8 },
            $($axis: $point,)*
        };
        let spec = Spec {
            round_mode: $cx.round_mode($launch.y.dtype, $launch.y.element),
            local_x: $chosen.local[0],
            x_vec4: u32::from($launch.x_vec4()),
            has_zeros: u32::from(layout.has_zeros),
            has_bias: u32::from(layout.has_bias),
            adds_y: u32::from($launch.epilogue.adds_y),
            activation: known($launch.epilogue.activation.$activation())?,
            $($constant: $value,)*
        };
        let [x, codes] = $launch.regions(side.region());
        let operands = Operands { x, codes, side: side.region(), y: $launch.y.region() };
        let group_blocks = $launch.blocks().div_ceil(layout.groups).max(1);
        let params = Params {
            m: $launch.rows() as u32,
            n: $launch.columns() as u32,
            k: $launch.x.sizes[1] as u32,
            blocks: $launch.blocks() as u32,
            groups: layout.groups as u32,
            group_blocks: group_blocks as u32,
            group_inverse: (1.0 / group_blocks as f64) as f32,
            side_stride: layout.stride() as u32,
            x_row_stride: row_stride(&$launch.x)?,
            x_k_stride: u32_of($launch.x.strides[1])?,
            y_row_stride: row_stride(&$launch.y)?,
            act_a: $launch.epilogue.activation.a,
            act_b: $launch.epilogue.activation.b,
        };
        let dispatch = dispatch(axes, spec, operands, params, $groups, $cx.label());
        Ok($launch.epilogue.with_access(dispatch))
    }};
}

impl Launch {
    fn emit(&self, cx: &mut Lowering<'_>) -> Result<()> {
        let chosen = self.chosen(cx)?;
        if let Some((first, second)) = self.halves(cx, &chosen) {
            first.emit(cx)?;
            return second.emit(cx);
        }
        let dispatch = match &self.factors {
            Factors::None => self.int_dispatch(&chosen, cx)?,
            Factors::Floats { side, layout, bits }
                if matches!(chosen.value, ProductWay::Row | ProductWay::Split(_)) =>
            {
                self.split_dispatch(cx, &chosen, (side, *layout, *bits))?
            }
            Factors::Floats { side, layout, bits } => {
                self.tile_dispatch(cx, &chosen, (side, *layout, *bits))?
            }
        };
        cx.emit(dispatch.chosen(chosen.record))
    }

    fn key(&self) -> ChoiceKey {
        let dtype = match (&self.factors, self.x.element) {
            (Factors::None, _) => "int8",
            (Factors::Floats { bits: 4, .. }, Element::F16) => "f16 int4",
            (Factors::Floats { bits: 4, .. }, _) => "f32 int4",
            (Factors::Floats { .. }, Element::F16) => "f16 int8",
            (Factors::Floats { .. }, _) => "f32 int8",
        };
        ChoiceKey { batch: 1, m: self.rows(), k: self.x.sizes[1], n: self.columns(), dtype }
    }

    /// Invocations share the terms of a single row, so that there is work for all of them; but a CPU has few lanes, and
    /// reads x best where all of them read the same element. Tiles, and what is shared of few rows, are as in the float
    /// product.
    fn chosen(&self, cx: &Lowering<'_>) -> Result<Chosen<ProductWay>> {
        const PANELS_ENOUGH: usize = 64;
        let (is_row, is_cpu) = (self.rows() == 1, cx.profile().class == DeviceClass::Cpu);
        let has_row_kernel = matches!(self.factors, Factors::Floats { .. });
        let wanted = match self.rows() {
            1 if has_row_kernel && !(is_cpu && self.codes.sizes[0] >= PANELS_ENOUGH) => ProductWay::Row,
            1 => ProductWay::Tile(1),
            9.. if is_cpu => ProductWay::Tile(16),
            _ => ProductWay::Tile(4),
        };
        let family = if has_row_kernel { &LINEAR_CODES } else { &INT_MM_CODES };
        let is_split = |way: ProductWay| matches!(way, ProductWay::Split(_));
        let choose = |wanted: ProductWay| {
            // Ways that share the terms of several rows have another order of sums.
            let computes = |way: ProductWay| is_split(way) == is_split(wanted) && (way.rows() == 1) == is_row;
            ways::choose(cx.profile(), family, self.key(), wanted, computes)
        };
        if has_row_kernel && !is_row && ways::wants_split(cx.profile(), &self.key(), wanted.rows()) {
            let rows = ways::split_rows(self.rows()).min(MAX_SPLIT_ROWS);
            if let Ok(chosen) = choose(ProductWay::Split(rows)) {
                return Ok(chosen.or_others());
            }
        }
        choose(wanted)
    }

    fn rows(&self) -> usize {
        self.y.sizes[0]
    }

    fn columns(&self) -> usize {
        self.y.sizes[1]
    }

    /// Two products that give the same, when one launch is too large for the device.
    fn halves(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Option<(Launch, Launch)> {
        let profile = cx.profile();
        let reach = match profile.access {
            Access::Ssbo => {
                profile.max_storage_buffer_range_bytes.saturating_sub(profile.storage_offset_alignment_bytes)
            }
            Access::Bda => u64::MAX,
        };
        let too_big = |tensor: &Tensor| tensor.region().len_bytes > reach;
        let [groups_x, groups_y, groups_z] = profile.max_groups.map(|groups| groups as usize);
        let tile = chosen.tile_rows();
        let rows_too_many = too_big(&self.x)
            || too_big(&self.y)
            || self.rows().div_ceil(tile) > groups_x.min(groups_z)
            || self.rows() > ways::rows_at_once(profile, &self.key(), tile);
        if rows_too_many && self.rows() > 1 {
            let at = if self.rows() > tile { (self.rows() / 2).next_multiple_of(tile) } else { 1 };
            return Some(self.halved_rows(at));
        }
        let panels = self.codes.sizes[0];
        let side_too_big = matches!(&self.factors, Factors::Floats { side, .. } if too_big(side));
        let columns_too_many =
            too_big(&self.codes) || side_too_big || panels.div_ceil(chosen.local[0] as usize) > groups_y;
        (columns_too_many && panels > 1).then(|| self.halved_panels(panels / 2))
    }

    fn halved_rows(&self, at: usize) -> (Launch, Launch) {
        let piece = |start: usize, len: usize| Launch {
            x: narrowed(&self.x, 0, start, len),
            y: narrowed(&self.y, 0, start, len),
            codes: self.codes.clone(),
            factors: self.factors.clone(),
            epilogue: self.epilogue,
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
                factors: self.factors.narrowed(start, end - start),
                epilogue: self.epilogue,
            }
        };
        (piece(0, at), piece(at, self.codes.sizes[0]))
    }

    fn x_vec4(&self) -> bool {
        let rows_aligned = self.rows() == 1 || self.x.strides[0].is_multiple_of(4);
        self.x.strides[1] == 1 && rows_aligned && self.x.starts_aligned4()
    }

    fn blocks(&self) -> usize {
        self.codes.sizes[1] / 4
    }

    fn tile_groups(&self, chosen: &Chosen<ProductWay>) -> [u32; 3] {
        let panels = self.codes.sizes[0] as u32;
        [self.rows().div_ceil(chosen.tile_rows()) as u32, panels.div_ceil(chosen.local[0]), 1]
    }

    /// Regions of x and codes. Without columns they have no bytes, and `other` is bound in their place.
    fn regions(&self, other: Region) -> [Region; 2] {
        [self.x.region(), self.codes.region()]
            .map(|region| if region.len_bytes == 0 { other } else { region })
    }

    fn split_dispatch(
        &self,
        cx: &Lowering<'_>,
        chosen: &Chosen<ProductWay>,
        factors: (&Tensor, Side, u8),
    ) -> Result<Dispatch> {
        use kernels::linear_codes_row::TileM;
        let [x, y, _] = cx.groups_1d(self.codes.sizes[0], chosen.local[0] / ROW_SPLIT)?;
        codes_dispatch!(
            self,
            cx,
            chosen,
            factors,
            linear_codes_row,
            in_linear_codes_row,
            [x, y, self.rows().div_ceil(chosen.tile_rows()) as u32],
            axes {
                tile_m: match chosen.value.rows() {
                    1 => TileM::TileM1,
                    2 => TileM::TileM2,
                    _ => TileM::TileM4,
                }
            },
            spec {}
        )
    }

    fn tile_dispatch(
        &self,
        cx: &Lowering<'_>,
        chosen: &Chosen<ProductWay>,
        factors: (&Tensor, Side, u8),
    ) -> Result<Dispatch> {
        use kernels::linear_codes::{LoadBits, TileM};
        codes_dispatch!(
            self,
            cx,
            chosen,
            factors,
            linear_codes,
            in_linear_codes,
            self.tile_groups(chosen),
            axes {
                tile_m: match chosen.value.rows() {
                    1 => TileM::TileM1,
                    4 => TileM::TileM4,
                    _ => TileM::TileM16,
                },
                load_bits: match chosen.value.rows() {
                    1 if ways::loads_cost_alike(cx.profile()) => LoadBits::LoadBits64,
                    _ => LoadBits::LoadBits32,
                }
            },
            spec { local_y: chosen.local[1], scales_last: u32::from(factors.1.groups == 1) }
        )
    }

    fn int_dispatch(&self, chosen: &Chosen<ProductWay>, cx: &Lowering<'_>) -> Result<Dispatch> {
        use kernels::int_mm_codes::{Axes, Operands, Params, Spec, TileM, dispatch};
        let tile_m = match chosen.value.rows() {
            1 => TileM::TileM1,
            4 => TileM::TileM4,
            _ => TileM::TileM16,
        };
        let [local_x, local_y] = chosen.local;
        let spec = Spec { local_x, local_y, x_vec4: u32::from(self.x_vec4()) };
        let y = self.y.region();
        let [x, codes] = self.regions(y);
        let params = Params {
            m: self.rows() as u32,
            n: self.columns() as u32,
            k: self.x.sizes[1] as u32,
            blocks: self.blocks() as u32,
            x_row_stride: row_stride(&self.x)?,
            x_k_stride: u32_of(self.x.strides[1])?,
            y_row_stride: row_stride(&self.y)?,
        };
        let operands = Operands { x, codes, y };
        Ok(dispatch(Axes { tile_m }, spec, operands, params, self.tile_groups(chosen), cx.label()))
    }
}

/// From one row of a matrix to the next, where there is another.
fn row_stride(matrix: &Tensor) -> Result<u32> {
    if matrix.sizes[0] > 1 { u32_of(matrix.strides[0]) } else { Ok(0) }
}

fn u32_of(stride: usize) -> Result<u32> {
    u32::try_from(stride).map_err(|_| Error::unsupported("a stride does not fit 32 bits"))
}

/// `len` of the tensor's dim `dim`, from `start` on.
fn narrowed(tensor: &Tensor, dim: usize, start: usize, len: usize) -> Tensor {
    let mut sizes = tensor.sizes.clone();
    sizes[dim] = len;
    tensor.restrided(sizes, tensor.strides.clone(), start * tensor.strides[dim])
}
