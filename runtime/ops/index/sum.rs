//! Sums at positions that are data: every element of the table goes through the entries that may name it.

use super::launch::{Indexing, contiguous_all, linear_index, position_strides, through_copy};
use crate::{
    base::{DType, Error, Result, Scalar, shape},
    ops::{
        Element, Lowering, Tensor,
        elementwise::{LOCAL_X, pad},
        fill::u32_of,
    },
    shader::kernels::scatter_add,
};

/// The table as its kernel sees it: up to 3 outer dims that are walked, then the places that are indexed.
struct Sum {
    /// Outer sizes, then the number of places.
    sizes: Vec<usize>,
    values_strides: Vec<usize>,
    index_strides: Vec<usize>,
    /// Outer strides of the table, then that of a place.
    table_strides: Vec<usize>,
    /// Entries that may name a place, and what separates two of them.
    entries: usize,
    values_step: usize,
    index_step: usize,
    /// For each indexed dim, places from one position to the next.
    place_steps: Vec<usize>,
}

/// Adds `values * scale`, where `values` has the space's sizes, to the named places of the table.
///
/// # Errors
/// When the device cannot bind a tensor.
pub fn add(cx: &mut Lowering<'_>, of: &Indexing, values: &Tensor, scale: Scalar) -> Result<()> {
    if values.numel() == 0 {
        return Ok(());
    }
    if let Some(sum) = Sum::of(of, values)? {
        return sum.emit(cx, of, values, scale);
    }
    let values = cx.contiguous(values)?;
    let of = Indexing { indices: contiguous_all(cx, &of.indices)?, ..of.clone() };
    through_copy(cx, &of, |cx, of| {
        let sum = Sum::of(of, &values)?.ok_or_else(|| {
            Error::unsupported(format!("sums over {} dims do not merge to 4", of.space.sizes.len()))
        })?;
        sum.emit(cx, of, &values, scale)
    })
}

impl Sum {
    /// `None` when dims do not merge as far as the kernel needs.
    fn of(of: &Indexing, values: &Tensor) -> Result<Option<Sum>> {
        let space = &of.space;
        let walk = space.walk_strides(&of.table.strides);
        let run = space.run_strides(&position_strides(of)?);
        let (outer, entry): (Vec<usize>, Vec<usize>) =
            (0..space.sizes.len()).partition(|&dim| space.walks[dim].is_some());
        let pick = |dims: &[usize], from: &[usize]| dims.iter().map(|&dim| from[dim]).collect::<Vec<_>>();
        let (outer_sizes, outer_strides) = shape::merge_dims(
            &pick(&outer, &space.sizes),
            &[&pick(&outer, &values.strides), &pick(&outer, &run), &pick(&outer, &walk)],
        );
        let (entries, entry_steps) = shape::merge_dims(
            &pick(&entry, &space.sizes),
            &[&pick(&entry, &values.strides), &pick(&entry, &run)],
        );
        let place_sizes = pick(&space.indexed, &of.table.sizes);
        let (places, place_strides) =
            shape::merge_dims(&place_sizes, &[&pick(&space.indexed, &of.table.strides)]);
        if outer_sizes.len() > 3 || entries.len() > 1 || places.len() > 1 {
            return Ok(None);
        }
        let last = |strides: &[usize]| strides.last().copied().unwrap_or(0);
        Ok(Some(Sum {
            sizes: [outer_sizes, vec![places.last().copied().unwrap_or(1)]].concat(),
            values_strides: outer_strides[0].clone(),
            index_strides: outer_strides[1].clone(),
            table_strides: [outer_strides[2].clone(), vec![last(&place_strides[0])]].concat(),
            entries: entries.last().copied().unwrap_or(1),
            values_step: last(&entry_steps[0]),
            index_step: last(&entry_steps[1]),
            place_steps: shape::contiguous_strides(&place_sizes),
        }))
    }

    fn emit(&self, cx: &mut Lowering<'_>, of: &Indexing, values: &Tensor, scale: Scalar) -> Result<()> {
        const WRAPS: u32 = 1;
        const CHECKS: u32 = 2;
        let (index, wraps) = match of.indices.as_slice() {
            [index] => (index.clone(), of.space.wraps),
            _ => (linear_index(cx, of, &self.place_steps)?, false),
        };
        let table = &of.table;
        let n_elems = shape::numel(&self.sizes)?;
        let params = scatter_add::Params {
            n_elems: u32_of(n_elems)?,
            entries: u32_of(self.entries)?,
            x_step: u32_of(self.values_step)?,
            index_step: u32_of(self.index_step)?,
            flags: if wraps { WRAPS } else { 0 } | if table.dtype == DType::I64 { CHECKS } else { 0 },
            scale: match table.element {
                Element::I32 => scale.as_i64() as i32 as u32,
                Element::F32 | Element::F16 => (scale.as_f64() as f32).to_bits(),
            },
            node: cx.node_id(),
            sizes: pad(&self.sizes, 1)?,
            x_strides: pad(&self.values_strides, 0)?,
            index_strides: pad(&self.index_strides, 0)?,
            y_strides: pad(&self.table_strides, 0)?,
        };
        let spec = scatter_add::Spec {
            round_mode: cx.round_mode(table.dtype, table.element),
            ..scatter_add::Spec::default()
        };
        let operands = scatter_add::Operands {
            x: values.region(),
            index: index.region(),
            y: table.region(),
            status: cx.status(),
        };
        let axes = scatter_add::Axes { dtype: element_axis!(scatter_add, table.element) };
        let groups = cx.groups_1d(n_elems, LOCAL_X)?;
        cx.emit(scatter_add::dispatch(axes, spec, operands, params, groups, cx.label()))
    }
}
