//! A row by a large packed weight in two dispatches, for Vulkan on the CPU: sums over parts of k, and the sum of those.
//!
//! The kernel of the first has no loop, so that its loads are plain (see `shaders/matmul_parts.comp`); so many
//! invocations need more than one dispatch to meet. The second has the bias and the activation.

use super::{Columns, Launch, ProductWay};
use crate::{
    base::{DType, Result},
    ops::{
        Element, Lowering,
        epilogue::known,
        ways::{PARTS_COLUMNS, PARTS_LANES, lanes_share},
    },
    shader::{Chosen, DeviceProfile, kernels},
};

/// Terms that a work group of the first kernel takes.
const DEPTH: usize = 128;

/// What that kernel's table of digits can count.
const MAX_PARTS: usize = 1 << 8;
const MAX_GROUPS: usize = 1 << 12;

/// Elements of a weight from which a second dispatch is worth it.
const MIN_ELEMS: usize = 1 << 20;

impl Launch {
    /// Whether the product is of that kind, and the device gains.
    pub(super) fn wants_parts(&self, profile: &DeviceProfile) -> bool {
        let Columns::Panels(panels) = &self.b else { return false };
        let (k, n) = (self.depth(), self.columns());
        let (parts, columns) = (k / DEPTH, n / PARTS_COLUMNS);
        let is_row = self.batches() == 1 && self.rows() == 1;
        let fits = k.is_multiple_of(DEPTH) && n.is_multiple_of(PARTS_COLUMNS);
        let counts = parts <= MAX_PARTS.min(profile.max_groups[0] as usize)
            && columns <= MAX_GROUPS.min(profile.max_groups[1] as usize);
        let in_vectors = self.a_vec4() && panels.starts_aligned4();
        let in_f32 = [&self.a, panels, &self.y].iter().all(|tensor| tensor.element == Element::F32);
        let gains = k * n >= MIN_ELEMS && lanes_share(profile) && profile.subgroup_size == PARTS_LANES;
        is_row && fits && counts && in_vectors && in_f32 && gains
    }

    /// Emits both dispatches, the first of which has the choice.
    pub(super) fn emit_parts(&self, cx: &mut Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<()> {
        use kernels::{matmul_parts as terms, matmul_sums as totals};
        self.check_elements()?;
        let (parts, n) = (self.depth() / DEPTH, self.columns());
        let [a, b, bias, y] = self.regions();
        let sums = cx.alloc_as(DType::F32, Element::F32, &[parts, n])?.region();
        let params = terms::Params {
            k: self.depth() as u32,
            n: n as u32,
            digits: std::array::from_fn(|digit| digit as u32),
        };
        let groups = [parts as u32, (n / PARTS_COLUMNS) as u32, 1];
        let spec = terms::Spec { local_x: chosen.local[0] };
        let operands = terms::Operands { a, b, y: sums };
        let first = terms::dispatch(terms::Axes {}, spec, operands, params, groups, cx.label());
        cx.emit(first.chosen(chosen.record))?;

        let spec = totals::Spec {
            round_mode: self.round_mode(cx),
            has_bias: u32::from(self.bias.is_some()),
            adds_y: u32::from(self.adds_y),
            activation: known(self.activation.in_matmul_sums())?,
            ..totals::Spec::default()
        };
        let params = totals::Params {
            parts: parts as u32,
            n: n as u32,
            bias_stride: self.bias_strides()?[3],
            alpha: self.alpha,
            beta: self.beta,
            act_a: self.activation.a,
            act_b: self.activation.b,
        };
        let bias = if self.bias.is_some() { bias } else { sums };
        let groups = cx.groups_1d(n / 4, spec.local_x)?;
        let operands = totals::Operands { sums, bias, y };
        let second = totals::dispatch(totals::Axes {}, spec, operands, params, groups, cx.label());
        cx.emit(self.with_access(second))
    }
}
