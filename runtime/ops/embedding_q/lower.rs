//! Lowering: indices become checked positions, and a table that no descriptor reaches is read in windows.

use super::Call;
use crate::{
    base::Result,
    ops::{
        Args, Element, Lowering, Meta, Operand, Packing, Tensor, elementwise::LOCAL_X, fill::u32_of, index,
    },
    shader::{Access, Region, kernels::embedding_codes},
};

pub(super) fn lower(
    call: &Call,
    args: &Args<Operand>,
    out: &Meta,
    cx: &mut Lowering<'_>,
) -> Result<Vec<Tensor>> {
    let weight = args.tensor("weight")?.constant().map_err(|error| error.at_operand("weight"))?;
    let side = args.tensor("side")?.constant().map_err(|error| error.at_operand("side"))?;
    let [n, k] = call.table_sizes(&Meta::new(weight.dtype(), weight.sizes()))?;
    let codes = cx.packed_as(weight, call.packing, Element::I32)?;
    let side = cx.packed_as(side, Packing::Contiguous, Element::F32)?;
    let indices = cx.live(args.tensor("indices")?)?;
    let y = cx.output(out)?;
    if y.numel() == 0 {
        return Ok(vec![y]);
    }
    let table = Table { codes, side, k, blocks: k.div_ceil(call.packing.codes_a_word()) };
    let positions = index::checked_rows(cx, &indices, n, call.wraps)?;
    let window = table.window_rows(cx, call, n);
    for first in (0..n).step_by(window) {
        table.emit(cx, call, &positions, &y, (first, window.min(n.next_multiple_of(4) - first)))?;
    }
    Ok(vec![y])
}

/// A table in device memory.
struct Table {
    codes: Tensor,
    side: Tensor,
    k: usize,
    /// Blocks of codes of a panel.
    blocks: usize,
}

impl Table {
    /// Bytes of a panel's codes, and of what stands beside them.
    fn panel_bytes(&self, call: &Call) -> [usize; 2] {
        [self.blocks * 16, call.side.stride() * 4]
    }

    /// Rows, a multiple of 4, that the descriptors of this device reach.
    fn window_rows(&self, cx: &Lowering<'_>, call: &Call, n: usize) -> usize {
        let profile = cx.profile();
        let all = n.next_multiple_of(4).max(4);
        if profile.access != Access::Ssbo {
            return all;
        }
        let reach =
            profile.max_storage_buffer_range_bytes.saturating_sub(profile.storage_offset_alignment_bytes);
        let reach = usize::try_from(reach).unwrap_or(usize::MAX);
        let panels = self.panel_bytes(call).map(|bytes| reach / bytes.max(1));
        all.min(panels[0].min(panels[1]).max(1).saturating_mul(4))
    }

    /// Writes the rows of the table that lie in the window of `(first, rows)`.
    fn emit(
        &self,
        cx: &mut Lowering<'_>,
        call: &Call,
        positions: &Tensor,
        y: &Tensor,
        (first, window): (usize, usize),
    ) -> Result<()> {
        use embedding_codes::{Axes, Bits, Dtype, Operands, Params, Spec, dispatch};
        let [code_bytes, side_bytes] = self.panel_bytes(call);
        let part = |tensor: &Tensor, panel_bytes: usize| Region {
            storage: tensor.storage,
            offset_bytes: (first / 4 * panel_bytes) as u64,
            len_bytes: (window / 4 * panel_bytes) as u64,
            element_bytes: 4,
        };
        let params = Params {
            n_elems: u32_of(y.numel())?,
            cols: u32_of(self.k)?,
            first: u32_of(first)?,
            window: u32_of(window)?,
            blocks: u32_of(self.blocks)?,
            group: u32_of(self.k / call.side.groups)?,
            side_stride: u32_of(call.side.stride())?,
        };
        let axes = Axes {
            dtype: match y.element {
                Element::F32 => Dtype::F32,
                Element::F16 => Dtype::F16,
                Element::I32 => Dtype::I32,
            },
            bits: if call.packing.codes_a_word() == 8 { Bits::Bits4 } else { Bits::Bits8 },
        };
        let spec = Spec {
            round_mode: cx.round_mode(call.rounds_to, y.element),
            has_zeros: u32::from(call.side.has_zeros),
            ..Spec::default()
        };
        let operands = Operands {
            codes: part(&self.codes, code_bytes),
            side: part(&self.side, side_bytes),
            index: positions.region(),
            y: y.region(),
        };
        let groups = cx.groups_1d(y.numel(), LOCAL_X)?;
        cx.emit(dispatch(axes, spec, operands, params, groups, cx.label()))
    }
}
