//! From a space over live tensors to dispatches: merging of dims, splitting of tables, one index per element.

use super::space::Space;
use crate::{
    base::{DType, Error, Result, shape},
    ops::{
        Lowering, Tensor, elementwise,
        elementwise::{LOCAL_X, pad},
        fill::u32_of,
        view::{layout_of, tensor_at},
    },
    shader::{
        Access,
        kernels::{gather, linear_index, scatter},
    },
};

/// A space over a table and index tensors in device memory.
#[derive(Clone, Debug)]
pub struct Indexing {
    /// The table, with dims.
    pub table: Tensor,
    /// The index tensors, as many as the space indexes dims.
    pub indices: Vec<Tensor>,
    /// What they name.
    pub space: Space,
}

/// One position for every element of the index tensors' broadcast sizes.
struct Positions {
    index: Tensor,
    /// Positions are below it.
    bound: u32,
    /// Elements of the table from one position to the next.
    step: u32,
    wraps: u32,
    /// The dim of the table that is indexed, where it is just one.
    dim: Option<usize>,
}

/// `tensor`, with one dim if it has none.
pub fn with_dims(tensor: &Tensor) -> Tensor {
    if tensor.sizes.is_empty() { tensor.restrided(vec![1], vec![1], 0) } else { tensor.clone() }
}

/// Writes the named elements of the table to `out`, which is contiguous with one element for each.
///
/// # Errors
/// When the device cannot bind a tensor.
pub fn gather(cx: &mut Lowering<'_>, of: &Indexing, out: &Tensor) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let mut of = of.clone();
    let out_strides = shape::contiguous_strides(&of.space.sizes);
    if merged(&of, &out_strides)?.0.len() > 4 {
        let (view, space) = of.space.reach(&layout_of(&of.table));
        let table = cx.contiguous(&tensor_at(&of.table, &view))?;
        of = Indexing { table, indices: contiguous_all(cx, &of.indices)?, space };
    }
    let (sizes, strides) = merged(&of, &out_strides)?;
    let positions = positions(cx, &of)?;
    let vectors = takes_vectors(&of.table, &positions, out, &sizes, &strides);
    for (first, window) in windows(cx, &of.table, positions.dim)? {
        let table = match positions.dim {
            Some(dim) => tensor_at(&of.table, &layout_of(&of.table).sliced(dim, first, window, 1)),
            None => of.table.clone(),
        };
        let mut params = gather::Params {
            n_elems: u32_of(out.numel())?,
            bound: positions.bound,
            first: u32_of(first)?,
            window: u32_of(window)?,
            x_step: positions.step,
            wraps: positions.wraps,
            node: cx.node_id(),
            sizes: pad(&sizes, 1)?,
            x_strides: pad(&strides[1], 0)?,
            index_strides: pad(&strides[2], 0)?,
        };
        let mut width = gather::Width::Width1;
        if vectors {
            width = gather::Width::Width4;
            params.n_elems /= 4;
            params.sizes[3] /= 4;
            params.x_strides[3] = 4;
        }
        let axes = gather::Axes { dtype: move_axis!(gather, out.element), width };
        let operands = gather::Operands {
            x: table.region(),
            index: positions.index.region(),
            y: out.region(),
            status: cx.status(),
        };
        let groups = cx.groups_1d(params.n_elems as usize, LOCAL_X)?;
        cx.emit(gather::dispatch(axes, gather::Spec::default(), operands, params, groups, cx.label()))?;
    }
    Ok(())
}

/// Writes `values`, of the space's sizes, to the named places of the table.
///
/// # Errors
/// When the device cannot bind a tensor.
pub fn scatter(cx: &mut Lowering<'_>, of: &Indexing, values: &Tensor) -> Result<()> {
    if values.numel() == 0 {
        return Ok(());
    }
    if merged(of, &values.strides)?.0.len() <= 4 {
        return scatter_merged(cx, of, values);
    }
    let values = cx.contiguous(values)?;
    let of = Indexing { indices: contiguous_all(cx, &of.indices)?, ..of.clone() };
    through_copy(cx, &of, |cx, of| scatter_merged(cx, of, &values))
}

fn scatter_merged(cx: &mut Lowering<'_>, of: &Indexing, values: &Tensor) -> Result<()> {
    let (sizes, strides) = merged(of, &values.strides)?;
    let positions = positions(cx, of)?;
    let params = scatter::Params {
        n_elems: u32_of(values.numel())?,
        bound: positions.bound,
        y_step: positions.step,
        wraps: positions.wraps,
        node: cx.node_id(),
        sizes: pad(&sizes, 1)?,
        x_strides: pad(&strides[0], 0)?,
        index_strides: pad(&strides[2], 0)?,
        y_strides: pad(&strides[1], 0)?,
    };
    let operands = scatter::Operands {
        x: values.region(),
        index: positions.index.region(),
        y: of.table.region(),
        status: cx.status(),
    };
    let axes = scatter::Axes { dtype: move_axis!(scatter, of.table.element) };
    let groups = cx.groups_1d(values.numel(), LOCAL_X)?;
    cx.emit(scatter::dispatch(axes, scatter::Spec::default(), operands, params, groups, cx.label()))
}

/// Does `write` on a compact copy of what the space can reach, and copies that back: for tables that do not merge.
///
/// # Errors
/// As `write`.
pub fn through_copy(
    cx: &mut Lowering<'_>,
    of: &Indexing,
    write: impl FnOnce(&mut Lowering<'_>, &Indexing) -> Result<()>,
) -> Result<()> {
    let (view, space) = of.space.reach(&layout_of(&of.table));
    let reach = tensor_at(&of.table, &view);
    let table = cx.alloc(reach.dtype, &reach.sizes)?;
    cx.copy(&reach, &table)?;
    write(cx, &Indexing { table: table.clone(), indices: of.indices.clone(), space })?;
    cx.copy(&table, &reach)
}

/// Contiguous copies of those of `tensors` that are not contiguous.
///
/// # Errors
/// As [`Lowering::alloc`].
pub fn contiguous_all(cx: &mut Lowering<'_>, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(|tensor| cx.contiguous(tensor)).collect()
}

/// The strides that positions have over the index tensors' broadcast sizes.
///
/// # Errors
/// When the index tensors do not broadcast.
pub fn position_strides(of: &Indexing) -> Result<Vec<usize>> {
    match of.indices.as_slice() {
        [index] => {
            let index = with_dims(index);
            shape::broadcast_strides(&index.sizes, &index.strides, &with_dim_sizes(&of.space.index_sizes))
        }
        _ => Ok(shape::contiguous_strides(&of.space.index_sizes)),
    }
}

fn with_dim_sizes(sizes: &[usize]) -> Vec<usize> {
    if sizes.is_empty() { vec![1] } else { sizes.to_vec() }
}

/// The space with its dims merged: strides of `others`, the table's walk, and the positions.
fn merged(of: &Indexing, others: &[usize]) -> Result<(Vec<usize>, Vec<Vec<usize>>)> {
    let walk = of.space.walk_strides(&of.table.strides);
    let run = of.space.run_strides(&position_strides(of)?);
    Ok(shape::merge_dims(&of.space.sizes, &[others, &walk, &run]))
}

fn positions(cx: &mut Lowering<'_>, of: &Indexing) -> Result<Positions> {
    if let ([index], [dim]) = (of.indices.as_slice(), of.space.indexed.as_slice()) {
        return Ok(Positions {
            index: index.clone(),
            bound: u32_of(of.table.sizes[*dim])?,
            step: u32_of(of.table.strides[*dim])?,
            wraps: u32::from(of.space.wraps),
            dim: Some(*dim),
        });
    }
    let steps: Vec<usize> = of.space.indexed.iter().map(|&dim| of.table.strides[dim]).collect();
    let index = linear_index(cx, of, &steps)?;
    Ok(Positions { index, bound: u32::MAX, step: 1, wraps: 0, dim: None })
}

/// The sum over all index tensors of index times step, checked against the table's sizes.
///
/// # Errors
/// When a step does not fit 32 bits.
pub fn linear_index(cx: &mut Lowering<'_>, of: &Indexing, steps: &[usize]) -> Result<Tensor> {
    let mut sum: Option<Tensor> = None;
    for ((index, &dim), &step) in of.indices.iter().zip(&of.space.indexed).zip(steps) {
        let add = Add { bound: of.table.sizes[dim], step, wraps: of.space.wraps };
        sum = Some(add.to(cx, index, sum.as_ref(), &of.space.index_sizes)?);
    }
    sum.ok_or_else(|| Error::internal("a call without index tensors has no positions"))
}

/// The rows that `indices` name of a table of `rows` rows, contiguous; 0xffffffff for one that is out of range, which
/// is reported.
///
/// # Errors
/// When a size does not fit 32 bits.
pub fn checked_rows(cx: &mut Lowering<'_>, indices: &Tensor, rows: usize, wraps: bool) -> Result<Tensor> {
    Add { bound: rows, step: 1, wraps }.to(cx, indices, None, &indices.sizes)
}

/// An index tensor of one dim, to be added to positions.
struct Add {
    /// Elements of the dim.
    bound: usize,
    /// Elements of the table from one index to the next.
    step: usize,
    wraps: bool,
}

impl Add {
    /// `previous` with `index` times the step, broadcast to `sizes`.
    fn to(
        &self,
        cx: &mut Lowering<'_>,
        index: &Tensor,
        previous: Option<&Tensor>,
        sizes: &[usize],
    ) -> Result<Tensor> {
        let (status, node, label) = (cx.status(), cx.node_id(), cx.label());
        let (bound, step_elems) = (u32_of(self.bound)?, u32_of(self.step)?);
        let out = cx.alloc(DType::I32, sizes)?;
        // The first dim has nothing to add to; its kernel does not look at `previous`.
        elementwise::launch(cx, &out, [index, previous.unwrap_or(index)], |grid, binding| {
            let [index, previous_region] = binding.inputs;
            let operands =
                linear_index::Operands { index, previous: previous_region, y: binding.out, status };
            let params = linear_index::Params {
                n_elems: grid.n_elems,
                bound,
                step_elems,
                wraps: u32::from(self.wraps),
                adds: u32::from(previous.is_some()),
                node,
                sizes: grid.sizes,
                index_strides: grid.strides[0],
            };
            let (axes, spec) = (linear_index::Axes {}, linear_index::Spec::default());
            linear_index::dispatch(axes, spec, operands, params, binding.groups, label.clone())
        })?;
        Ok(out)
    }
}

/// Whether the innermost dim is rows of whole, aligned vectors of 4 in both the table and the output.
fn takes_vectors(
    table: &Tensor,
    positions: &Positions,
    out: &Tensor,
    sizes: &[usize],
    strides: &[Vec<usize>],
) -> bool {
    let (Some((&row, _)), Some((&inner, outer)), Some(&run)) =
        (sizes.split_last(), strides[1].split_last(), strides[2].last())
    else {
        return false;
    };
    inner == 1
        && run == 0
        && row.is_multiple_of(4)
        && outer.iter().all(|stride| stride.is_multiple_of(4))
        && positions.step.is_multiple_of(4)
        && table.starts_aligned4()
        && out.starts_aligned4()
}

/// The windows `(first, len)` of the indexed dim that descriptors of this device reach: one where the table fits.
fn windows(cx: &Lowering<'_>, table: &Tensor, dim: Option<usize>) -> Result<Vec<(usize, usize)>> {
    let Some(dim) = dim else {
        return Ok(vec![(0, u32::MAX as usize)]);
    };
    let profile = cx.profile();
    let size = table.sizes[dim];
    let reach_bytes =
        profile.max_storage_buffer_range_bytes.saturating_sub(profile.storage_offset_alignment_bytes);
    if profile.access != Access::Ssbo || table.region().len_bytes <= reach_bytes {
        return Ok(vec![(0, size)]);
    }
    let mut one = table.sizes.clone();
    one[dim] = 1;
    let reach = usize::try_from(reach_bytes).unwrap_or(usize::MAX) / table.element.size_bytes();
    let spare = reach.checked_sub(shape::extent_elems(&one, &table.strides)?).ok_or_else(|| {
        Error::unsupported(format!(
            "one entry of a table of sizes {:?} is larger than the {reach_bytes} bytes that a binding of this device reaches",
            table.sizes
        ))
    })?;
    let window = 1 + spare / table.strides[dim].max(1);
    Ok((0..size).step_by(window).map(|first| (first, window.min(size - first))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops::{ArgValue, Args, Meta, Precision},
        shader::DeviceProfile,
    };

    #[test]
    fn a_table_beyond_a_descriptor_is_read_in_windows() {
        const LIMIT: u64 = 1 << 20;
        let profile = DeviceProfile { max_storage_buffer_range_bytes: LIMIT, ..DeviceProfile::minimum() };
        let mut cx = Lowering::new(&profile, Precision::F32);
        cx.begin_node(0, "node", false, None);
        let table = cx.alloc(DType::F32, &[3001, 260]).unwrap();
        let index = cx.alloc(DType::I64, &[7]).unwrap();
        let out = cx.alloc(DType::F32, &[7, 260]).unwrap();
        let items = vec![
            ("weight".to_string(), ArgValue::Tensor(Meta::new(DType::F32, [3001, 260]))),
            ("indices".to_string(), ArgValue::Tensor(Meta::new(DType::I64, [7]))),
        ];
        let args = Args::new(crate::ir::OpName::new("aten.embedding.default"), items);
        let space = Space::of(&args).unwrap();
        gather(&mut cx, &Indexing { table, indices: vec![index], space }, &out).unwrap();
        let windows: Vec<_> =
            cx.finish().dispatches.iter().map(|dispatch| dispatch.operands[0].region).collect();
        assert!(windows.iter().all(|window| window.len_bytes + 256 <= LIMIT), "{windows:?}");
        let mut next_byte = 0;
        for window in windows {
            assert_eq!(window.offset_bytes, next_byte);
            next_byte += window.len_bytes;
        }
        assert_eq!(next_byte, 3001 * 260 * 4);
    }
}
