//! Rows of a table that a linear of the same plan takes as its weight: read from the linear's panels, so that tied weights
//! are held once.

use crate::{
    base::{Result, shape},
    ir::TensorRef,
    ops::{Lowering, Packing, Tensor, elementwise::LOCAL_X, fill::u32_of},
    shader::{Access, Region, kernels::panel_rows},
};

/// Writes the rows of `table` that `indices` name to `out`, of the indices' sizes and one row each.
///
/// # Errors
/// When the device cannot bind a tensor.
pub fn gather_rows(cx: &mut Lowering<'_>, table: &TensorRef, indices: &Tensor, out: &Tensor) -> Result<()> {
    let &[rows, cols] = table.sizes() else { return Ok(()) };
    if out.numel() == 0 {
        return Ok(());
    }
    let panels = cx.packed(table, Packing::Panels4)?;
    let indices = cx.contiguous(indices)?;
    let row_bytes = cols * panels.element.size_bytes();
    let window = window_rows(cx, rows, row_bytes);
    for first in (0..rows).step_by(window) {
        let window = window.min(rows.next_multiple_of(4) - first);
        let x = Region {
            storage: panels.storage,
            offset_bytes: (first * row_bytes) as u64,
            len_bytes: (window * row_bytes) as u64,
            element_bytes: panels.element.size_bytes() as u32,
        };
        let params = panel_rows::Params {
            n_elems: u32_of(out.numel())?,
            cols: u32_of(cols)?,
            bound: u32_of(rows)?,
            first: u32_of(first)?,
            window: u32_of(window)?,
            node: cx.node_id(),
        };
        let axes = panel_rows::Axes { dtype: element_axis!(panel_rows, out.element) };
        let operands =
            panel_rows::Operands { x, index: indices.region(), y: out.region(), status: cx.status() };
        let groups = cx.groups_1d(shape::numel(&out.sizes)?, LOCAL_X)?;
        cx.emit(panel_rows::dispatch(
            axes,
            panel_rows::Spec::default(),
            operands,
            params,
            groups,
            cx.label(),
        ))?;
    }
    Ok(())
}

/// Rows, a multiple of 4, that one descriptor of this device reaches.
fn window_rows(cx: &Lowering<'_>, rows: usize, row_bytes: usize) -> usize {
    let profile = cx.profile();
    let all = rows.next_multiple_of(4).max(4);
    if profile.access != Access::Ssbo {
        return all;
    }
    let reach = profile.max_storage_buffer_range_bytes.saturating_sub(profile.storage_offset_alignment_bytes);
    let reach_rows = usize::try_from(reach).unwrap_or(usize::MAX) / row_bytes.max(1);
    all.min((reach_rows / 4 * 4).max(4))
}
