//! Lowering of a matrix product `y = f(alpha a b + beta bias)`, which `linear`, the `matmul` family, 1x1 convolution
//! and attention share.
//!
//! Operands are batched matrices with any strides. Here their dims are merged to what kernels take (two batch
//! dims, rows, columns), the kernel and its loads are chosen, and a product that one descriptor or one dispatch
//! does not reach is halved until it does.

use super::{
    Element, Lowering, Tensor,
    epilogue::Activation,
    fill::fill,
    ways::{
        self, MAX_LANES, PARTS_WAY, ProductWay, ROW_WAY, TEXEL_ROWS, TEXEL_WAY, lanes_way, split_way,
        tile_way,
    },
};
use crate::{
    base::{Error, Result, Scalar, shape},
    shader::{Access, ChoiceKey, Chosen, DeviceClass, DeviceProfile, Family, work_groups},
};

/// The kernels of a product.
static MATMUL: Family<ProductWay> = Family {
    name: "matmul",
    ways: &[
        lanes_way("lanes16", 16),
        tile_way("rows16", 16, false),
        lanes_way("lanes8", 8),
        TEXEL_WAY,
        tile_way("rows8", 8, true),
        lanes_way("lanes4", 4),
        tile_way("rows4", 4, true),
        lanes_way("lanes1", 1),
        split_way("split8", 8, false),
        split_way("split4", 4, true),
        split_way("split2", 2, true),
        ROW_WAY,
        PARTS_WAY,
    ],
};

// Values of the spec constant `b_loads`.
const ELEMENTS: u32 = 0;
const ALONG_COLUMNS: u32 = 1;
const ALONG_K: u32 = 2;

/// Columns that give every lane of a subgroup a panel.
const COLUMNS_OF_LANES: usize = 4 * MAX_LANES as usize;

/// The matrix on the right of a product.
#[derive(Clone, Debug)]
pub enum Columns {
    /// Sizes `[..., k, n]`, whose leading dims broadcast to the result's.
    Live(Tensor),
    /// A constant of sizes `[n, k]`, packed as [`Packing::Panels4`](super::Packing::Panels4).
    Panels(Tensor),
}

/// `activation(alpha * a * b + beta * bias)`, with sums in 32 bits.
#[derive(Clone, Debug)]
pub struct Product {
    /// Sizes `[..., m, k]`, whose leading dims broadcast to the result's.
    pub a: Tensor,
    /// The matrix on the right.
    pub b: Columns,
    /// Broadcasts to the result; `None` when it does not count.
    pub bias: Option<Tensor>,
    /// Factor of the sum.
    pub alpha: f32,
    /// Factor of the bias.
    pub beta: f32,
    /// Stores 32-bit results as they are, though their dtype is narrower under this precision.
    pub keeps_f32: bool,
    /// Adds to what the result's memory holds, before the activation.
    pub adds_y: bool,
    /// Applied before the result is stored.
    pub activation: Activation,
}

impl Product {
    /// `a * b`.
    pub fn new(a: Tensor, b: Columns) -> Product {
        Product {
            a,
            b,
            bias: None,
            alpha: 1.0,
            beta: 1.0,
            keeps_f32: false,
            adds_y: false,
            activation: Activation::NONE,
        }
    }

    /// The product with sums over nothing, for a factor of 0, which hides NaN as it does in PyTorch.
    #[must_use]
    pub fn without_terms(mut self) -> Product {
        let drop_dim = |tensor: &Tensor, dim: usize| {
            let mut sizes = tensor.sizes.clone();
            sizes[dim] = 0;
            tensor.restrided(sizes, tensor.strides.clone(), 0)
        };
        self.a = drop_dim(&self.a, self.a.sizes.len() - 1);
        if let Columns::Live(b) = &self.b {
            self.b = Columns::Live(drop_dim(b, b.sizes.len() - 2));
        }
        self
    }

    /// Emits what computes the product into `y`, contiguous, of sizes `[..., m, n]`.
    ///
    /// # Errors
    /// When an operand does not broadcast, or the device cannot bind a piece of it however small.
    pub fn emit(self, cx: &mut Lowering<'_>, y: &Tensor) -> Result<()> {
        if y.numel() == 0 {
            return Ok(());
        }
        if self.a.sizes.last() == Some(&0) && self.bias.is_none() {
            return fill(cx, y, Scalar::Float(self.activation.apply(0.0)));
        }
        if let Some(launch) = Launch::new(&self, y)? {
            return launch.emit(cx);
        }
        let batch = &y.sizes[..y.sizes.len() - 2];
        let mut flat = |tensor: &Tensor| -> Result<Tensor> {
            let own = &tensor.sizes[tensor.sizes.len() - 2..];
            cx.contiguous(&tensor.broadcast_to(&[batch, own].concat())?)
        };
        let product = Product {
            a: flat(&self.a)?,
            b: match &self.b {
                Columns::Live(b) => Columns::Live(flat(b)?),
                Columns::Panels(_) => self.b,
            },
            bias: self.bias.as_ref().map(|bias| cx.contiguous(&bias.broadcast_to(&y.sizes)?)).transpose()?,
            ..self
        };
        let launch = Launch::new(&product, y)?;
        launch.ok_or_else(|| Error::internal("contiguous batches do not merge"))?.emit(cx)
    }
}

/// A product over exactly two batch dims. `a` has sizes `[b0, b1, m, k]`, `y` and `bias` `[b0, b1, m, n]`, a live
/// `b` `[b0, b1, k, n]`; panels have `[panels, 4 k]`.
#[derive(Clone)]
struct Launch {
    a: Tensor,
    b: Columns,
    bias: Option<Tensor>,
    y: Tensor,
    alpha: f32,
    beta: f32,
    keeps_f32: bool,
    adds_y: bool,
    activation: Activation,
}

impl Launch {
    /// Merges dims; `None` when more than two batch dims are left.
    fn new(product: &Product, y: &Tensor) -> Result<Option<Launch>> {
        let batch_rank = y.sizes.len() - 2;
        let (batch, matrix) = y.sizes.split_at(batch_rank);
        let (m, n) = (matrix[0], matrix[1]);
        let k = product.a.sizes.last().copied().unwrap_or(1);
        let a = product.a.broadcast_to(&[batch, &[m, k]].concat())?;
        let bias = product.bias.as_ref().map(|bias| bias.broadcast_to(&y.sizes)).transpose()?;
        let b = match &product.b {
            Columns::Live(b) => Some(b.broadcast_to(&[batch, &[k, n]].concat())?),
            Columns::Panels(_) => None,
        };
        // Without batches of its own, b lets the batch dims join the rows.
        let shared = b.as_ref().is_none_or(|b| b.strides[..batch_rank].iter().all(|&stride| stride == 0));
        let outer_rank = if shared { batch_rank + 1 } else { batch_rank };
        let mut strides: Vec<&[usize]> = vec![&y.strides[..outer_rank], &a.strides[..outer_rank]];
        strides.extend(bias.as_ref().map(|bias| &bias.strides[..outer_rank]));
        if !shared {
            strides.extend(b.as_ref().map(|b| &b.strides[..outer_rank]));
        }
        let (mut sizes, mut merged) = shape::merge_dims(&y.sizes[..outer_rank], &strides);
        if shared && sizes.is_empty() {
            sizes.push(1);
            merged.iter_mut().for_each(|strides| strides.push(0));
        }
        let wanted = if shared { 3 } else { 2 };
        if sizes.len() > wanted {
            return Ok(None);
        }
        sizes.splice(0..0, std::iter::repeat_n(1, wanted - sizes.len()));
        merged.iter_mut().for_each(|strides| {
            strides.splice(0..0, std::iter::repeat_n(0, wanted - strides.len()));
        });
        let mut merged = merged.into_iter();
        let mut outer = |tensor: &Tensor, kept: &[usize]| {
            let strides = merged.next().unwrap_or_default();
            let rest = tensor.sizes.len() - kept.len();
            let strides = [&strides, &tensor.strides[rest..]].concat();
            tensor.restrided([&sizes, kept].concat(), strides, 0)
        };
        let kept = |last: usize| if shared { vec![last] } else { vec![m, last] };
        let (y, a) = (outer(y, &kept(n)), outer(&a, &kept(k)));
        let bias = bias.as_ref().map(|bias| outer(bias, &kept(n)));
        let b = match (&product.b, b) {
            (Columns::Panels(weight), _) => {
                Columns::Panels(weight.restrided(vec![n.div_ceil(4), 4 * k], vec![4 * k, 1], 0))
            }
            (Columns::Live(_), Some(b)) if shared => {
                let matrix = &b.strides[batch_rank..];
                Columns::Live(b.restrided(vec![sizes[0], sizes[1], k, n], [&[0, 0], matrix].concat(), 0))
            }
            (Columns::Live(_), Some(b)) => Columns::Live(outer(&b, &[k, n])),
            (Columns::Live(b), None) => Columns::Live(b.clone()),
        };
        let Product { alpha, beta, keeps_f32, adds_y, activation, .. } = *product;
        let launch = Launch { a, b, bias, y, alpha, beta, keeps_f32, adds_y, activation };
        Ok(Some(launch.with_columns()))
    }

    /// A single column becomes a single row, which many invocations share: `(a b)^T = b^T a^T`.
    fn with_columns(self) -> Launch {
        match &self.b {
            Columns::Live(b) if self.columns() == 1 && self.rows() > 1 => Launch {
                a: transposed(b),
                b: Columns::Live(transposed(&self.a)),
                bias: self.bias.as_ref().map(transposed),
                y: transposed(&self.y),
                ..self
            },
            _ => self,
        }
    }

    fn batches(&self) -> usize {
        self.y.sizes[0] * self.y.sizes[1]
    }

    fn rows(&self) -> usize {
        self.y.sizes[2]
    }

    fn columns(&self) -> usize {
        self.y.sizes[3]
    }

    fn depth(&self) -> usize {
        self.a.sizes[3]
    }

    fn emit(self, cx: &mut Lowering<'_>) -> Result<()> {
        let chosen = self.chosen(cx)?;
        match self.halves(cx, &chosen) {
            Some((first, second)) => {
                first.emit(cx)?;
                second.emit(cx)
            }
            None => {
                let dispatch = match chosen.value {
                    ProductWay::Parts => return self.emit_parts(cx, &chosen),
                    ProductWay::Row => self.row_dispatch(cx, &chosen)?,
                    ProductWay::Split(_) => self.split_dispatch(cx, &chosen)?,
                    ProductWay::Tile(_) => self.tile_dispatch(cx, &chosen)?,
                    ProductWay::Texels => self.texel_dispatch(cx, &chosen)?,
                    ProductWay::Lanes(_) => self.lanes_dispatch(cx, &chosen)?,
                };
                cx.emit(dispatch.chosen(chosen.record))
            }
        }
    }

    fn key(&self) -> ChoiceKey {
        let dtype = match (&self.b, self.a.element) {
            (Columns::Panels(_), Element::F16) => "f16",
            (Columns::Panels(_), _) => "f32",
            (Columns::Live(_), Element::F16) => "f16 live",
            (Columns::Live(_), _) => "f32 live",
        };
        ChoiceKey { batch: self.batches(), m: self.rows(), k: self.depth(), n: self.columns(), dtype }
    }

    /// The way for a product whose invocations do not share terms. A CPU pays for each load, so it wants large tiles; a GPU
    /// wants registers. Adreno spends an instruction on each half that is no texel.
    fn unsplit(&self, profile: &DeviceProfile) -> ProductWay {
        let (is_cpu, lanes_share) = (profile.class == DeviceClass::Cpu, ways::lanes_share(profile));
        let is_narrow = work_groups(profile.class).tile_for(profile.class, self.columns().div_ceil(4))[1] > 1;
        match self.rows() {
            1 if lanes_share && self.columns() >= COLUMNS_OF_LANES => ProductWay::Lanes(1),
            1 => ProductWay::Row,
            2..=4 if lanes_share => ProductWay::Lanes(4),
            5..=8 if lanes_share => ProductWay::Lanes(8),
            _ if lanes_share => ProductWay::Lanes(16),
            9.. if is_cpu => ProductWay::Tile(16),
            // Several tiles in a group take registers that 8 rows leave no room for.
            _ if profile.class.is_adreno()
                && self.a.element == Element::F16
                && !is_narrow
                && self.has_texels(profile) =>
            {
                ProductWay::Texels
            }
            5.. if profile.class.is_adreno() && self.in_vectors() && !is_narrow => ProductWay::Tile(8),
            _ => ProductWay::Tile(4),
        }
    }

    fn in_vectors(&self) -> bool {
        self.a_vec4() && self.b_loads() == ALONG_COLUMNS
    }

    fn chosen(&self, cx: &Lowering<'_>) -> Result<Chosen<ProductWay>> {
        let (profile, key) = (cx.profile(), self.key());
        let (lanes_share, in_vectors) = (ways::lanes_share(profile), self.in_vectors());
        // Ways that share terms have one order of sums, that of the row kernel, parts have another, and the rest a third.
        let choose = |wanted: ProductWay| {
            let computes = |way| match (wanted, way) {
                (ProductWay::Row | ProductWay::Parts, _) | (_, ProductWay::Row | ProductWay::Parts) => {
                    wanted == way
                }
                (ProductWay::Split(_), _) | (_, ProductWay::Split(_)) => {
                    matches!((wanted, way), (ProductWay::Split(_), ProductWay::Split(_)))
                }
                (_, ProductWay::Lanes(_)) => lanes_share,
                (_, ProductWay::Texels) => self.has_texels(profile),
                (_, ProductWay::Tile(rows)) => rows != 8 || in_vectors,
            };
            ways::choose(profile, &MATMUL, key, wanted, computes)
        };
        let unsplit = self.unsplit(profile);
        let other = if self.wants_parts(profile) {
            Some(ProductWay::Parts)
        } else if self.rows() > 1 && ways::wants_split(profile, &key, unsplit.rows()) {
            Some(ProductWay::Split(ways::split_rows(self.rows())))
        } else {
            None
        };
        match other.and_then(|way| choose(way).ok()) {
            Some(chosen) => Ok(chosen.or_others()),
            None => choose(unsplit),
        }
    }

    /// Whether both matrices are whole texels of 4 elements, no more than a view has, and there are rows for a tile.
    fn has_texels(&self, profile: &DeviceProfile) -> bool {
        let fits = |tensor: &Tensor| {
            let region = tensor.region();
            let texel_bytes = 4 * u64::from(region.element_bytes);
            // A view starts at an aligned offset at or before the tensor.
            let bound_bytes = region.len_bytes.saturating_add(profile.storage_offset_alignment_bytes);
            bound_bytes.div_ceil(texel_bytes) <= profile.max_texel_buffer_elems
        };
        let (Columns::Live(b) | Columns::Panels(b)) = &self.b;
        profile.access == Access::Ssbo
            && self.in_vectors()
            && self.depth() > 0
            && self.rows() >= TEXEL_ROWS
            && fits(&self.a)
            && fits(b)
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
        let rows_too_big = too_big(&self.y) || too_big(&self.a) || self.bias.as_ref().is_some_and(too_big);
        let columns_too_big = match &self.b {
            Columns::Live(b) | Columns::Panels(b) => too_big(b),
        };
        let [groups_x, groups_y, groups_z] = profile.max_groups.map(|groups| groups as usize);
        let batches = self.batches();
        if batches > groups_z || batches > 1 && (rows_too_big || columns_too_big) {
            let dim = usize::from(self.y.sizes[0] == 1);
            return Some(self.halved(dim, self.y.sizes[dim] / 2));
        }
        let tile = chosen.tile_rows();
        let half_rows = (self.rows() / 2).next_multiple_of(if self.rows() > tile { tile } else { 1 });
        let rows_too_many = self.rows().div_ceil(tile) > groups_x
            || self.rows() > ways::rows_at_once(profile, &self.key(), tile);
        if (rows_too_big || rows_too_many) && self.rows() > 1 {
            return Some(self.halved(2, half_rows));
        }
        let half_columns = (self.columns() / 2).next_multiple_of(4);
        let too_many_columns =
            chosen.value != ProductWay::Row && self.columns().div_ceil(chosen.tile_columns()) > groups_y;
        if (columns_too_big || too_many_columns) && half_columns < self.columns() {
            return Some(self.halved(3, half_columns));
        }
        None
    }

    /// The first `at` of the result's dim `dim`, and the rest.
    fn halved(&self, dim: usize, at: usize) -> (Launch, Launch) {
        let piece = |start: usize, len: usize| Launch {
            a: if dim == 3 { self.a.clone() } else { narrowed(&self.a, dim, start, len) },
            b: match &self.b {
                Columns::Panels(b) if dim == 3 => Columns::Panels(narrowed(b, 0, start / 4, len.div_ceil(4))),
                Columns::Live(b) if dim != 2 => Columns::Live(narrowed(b, dim, start, len)),
                b => b.clone(),
            },
            bias: self.bias.as_ref().map(|bias| narrowed(bias, dim, start, len)),
            y: narrowed(&self.y, dim, start, len),
            ..*self
        };
        (piece(0, at), piece(at, self.y.sizes[dim] - at))
    }
}

/// The last two dims swapped.
pub fn transposed(tensor: &Tensor) -> Tensor {
    let (mut sizes, mut strides) = (tensor.sizes.clone(), tensor.strides.clone());
    let rank = sizes.len();
    sizes.swap(rank - 2, rank - 1);
    strides.swap(rank - 2, rank - 1);
    tensor.restrided(sizes, strides, 0)
}

/// `len` of the tensor's dim `dim`, from `start` on.
fn narrowed(tensor: &Tensor, dim: usize, start: usize, len: usize) -> Tensor {
    let mut sizes = tensor.sizes.clone();
    sizes[dim] = len;
    tensor.restrided(sizes, tensor.strides.clone(), start * tensor.strides[dim])
}

/// Whether 4 consecutive elements along `dim` can be loaded as a vector, at every 4th of them.
pub(super) fn vectors_along(tensor: &Tensor, dim: usize) -> bool {
    let others_aligned = (0..tensor.sizes.len())
        .filter(|&other| other != dim && tensor.sizes[other] > 1)
        .all(|other| tensor.strides[other].is_multiple_of(4));
    tensor.strides[dim] == 1 && others_aligned && tensor.starts_aligned4()
}

mod dispatch;
mod parts;

#[cfg(test)]
mod tests;
