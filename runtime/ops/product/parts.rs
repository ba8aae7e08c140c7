//! A row by a large packed weight in two dispatches, for Vulkan on the CPU: sums over parts of k, and the sum of those.
//!
//! The kernel of the first has no loop, so that its loads are plain (see `shaders/matmul_parts.comp`); so many
//! invocations need more than one dispatch to meet. The second is a product of ones and the partial sums, which
//! has the bias and the activation.

use super::{Columns, Product};
use crate::{
    base::{DType, Result, shape},
    ops::{Element, Lowering, Tensor, ways::lanes_share},
    shader::{DeviceProfile, kernels},
};

/// What a work group of the kernel takes, which is a subgroup.
const DEPTH: usize = 128;
const COLUMNS: usize = 16;
const LANES: u32 = 8;

/// What the kernel's table of digits can count.
const MAX_PARTS: usize = 1 << 8;
const MAX_GROUPS: usize = 1 << 12;

/// Elements of a weight from which a second dispatch is worth it.
const MIN_ELEMS: usize = 1 << 20;

/// A row of `k` elements and the panels of a weight `[n, k]`, all in 32 bits.
pub(super) struct Parts {
    row: Tensor,
    panels: Tensor,
    k: usize,
    n: usize,
}

impl Parts {
    /// `None` where the product is not of that kind, or the device does not gain.
    pub(super) fn new(product: &Product, profile: &DeviceProfile, y: &Tensor) -> Result<Option<Parts>> {
        let Columns::Panels(panels) = &product.b else { return Ok(None) };
        let (row, n) = (&product.a, y.sizes.last().copied().unwrap_or(1));
        let k = row.sizes.last().copied().unwrap_or(1);
        let (parts, columns) = (k / DEPTH, n / COLUMNS);
        let fits = k.is_multiple_of(DEPTH) && n.is_multiple_of(COLUMNS) && k * n >= MIN_ELEMS;
        let counts = parts <= MAX_PARTS.min(profile.max_groups[0] as usize)
            && columns <= MAX_GROUPS.min(profile.max_groups[1] as usize);
        let is_row = y.numel() == n && row.strides.last() == Some(&1);
        let in_vectors = row.starts_aligned4() && panels.starts_aligned4();
        let in_f32 = row.element == Element::F32 && panels.element == Element::F32;
        let gains = lanes_share(profile) && profile.subgroup_size == LANES;
        if !(fits && counts && is_row && in_vectors && in_f32 && gains) {
            return Ok(None);
        }
        let row = row.restrided(vec![k], vec![1], 0);
        Ok(Some(Parts { row, panels: panels.clone(), k, n }))
    }

    /// Emits both dispatches.
    pub(super) fn emit(self, cx: &mut Lowering<'_>, product: Product, y: &Tensor) -> Result<()> {
        use kernels::matmul_parts::{Axes, Operands, Params, Spec, dispatch};
        let parts = self.k / DEPTH;
        let sums = cx.alloc_as(DType::F32, Element::F32, &[parts, self.n])?;
        let operands = Operands { a: self.row.region(), b: self.panels.region(), y: sums.region() };
        let params =
            Params { k: self.k as u32, n: self.n as u32, digits: std::array::from_fn(|digit| digit as u32) };
        let (spec, groups) = (Spec { local_x: LANES }, [parts as u32, (self.n / COLUMNS) as u32, 1]);
        cx.emit(dispatch(Axes {}, spec, operands, params, groups, cx.label()))?;
        let ones = cx.words(&vec![1f32.to_bits(); parts])?;
        let sizes = vec![1, parts];
        let ones = Tensor {
            dtype: DType::F32,
            element: Element::F32,
            strides: shape::contiguous_strides(&sizes),
            sizes,
            ..ones
        };
        Product { a: ones, b: Columns::Live(sums), ..product }.emit(cx, y)
    }
}
