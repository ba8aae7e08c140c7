//! Attention in one dispatch, which never writes the scores: for rows of 4 to 128 elements.
//!
//! Operands are read where they lie, heads beside queries or queries beside heads, and the result lies as the queries do.

use super::{
    super::{Element, Lowering, Meta, Tensor, elementwise::pad, ways::MAX_LANES},
    Call,
    ways::{self, AttentionWay},
};
use crate::{
    base::{DType, Result, shape},
    shader::{
        Access, ChoiceKey, Chosen, Dispatch, Need,
        kernels::{attention_query, attention_row, attention_tile},
    },
};

/// Elements of a row, at most.
const MAX_WIDTH: usize = 128;

/// Fewer queries than these are not worth a copy of keys and values.
const QUERIES_WORTH_A_COPY: usize = 8;

/// How the call is to be computed; `None` where no kernel of this module takes it, or the device takes none.
///
/// # Errors
/// More batches than can be counted.
pub fn choose(call: &Call, out: &Meta, cx: &Lowering<'_>) -> Result<Option<Chosen<AttentionWay>>> {
    let [queries, keys, width] = call.sizes.counts;
    let has_width =
        call.query.sizes.ends_with(&[width]) && (4..=MAX_WIDTH).contains(&width) && width % 4 == 0;
    let profile = cx.profile();
    let binds = profile.access == Access::Bda || profile.features.contains(Need::StorageBuffers5);
    let needs_copy = [&call.key, &call.value].into_iter().any(|tensor| !has_vector_rows(tensor));
    let copies = needs_copy && queries < QUERIES_WORTH_A_COPY;
    if !has_width || !binds || copies || keys == 0 || out.sizes.contains(&0) {
        return Ok(None);
    }
    let dtype = if cx.element_of(out.dtype) == Element::F16 { "f16" } else { "f32" };
    let batch = shape::numel(&call.sizes.batch)?;
    Ok(ways::choose(profile, ChoiceKey { batch, m: queries, k: keys, n: width, dtype }))
}

/// Emits the call as `chosen`; gives the result, or `None` where its operands do not allow it.
///
/// # Errors
/// What an allocation or a copy cannot do.
pub fn lower(
    call: &Call,
    chosen: &Chosen<AttentionWay>,
    out: &Meta,
    cx: &mut Lowering<'_>,
) -> Result<Option<Tensor>> {
    let [queries, ..] = call.sizes.counts;
    let mut rows = |tensor: &Tensor| match has_vector_rows(tensor) {
        true => Ok(tensor.clone()),
        false => cx.contiguous_aligned4(tensor),
    };
    let [query, key, value] = [rows(&call.query)?, rows(&call.key)?, rows(&call.value)?];
    let mask = call.mask.as_ref().map(|mask| mask.broadcast_to(&call.sizes.scores())).transpose()?;
    let is_beside = heads_are_beside(call, &out.sizes);
    let y_strides = result_strides(&out.sizes, is_beside);
    let Some(y_split) = shape::view_strides(&out.sizes, &y_strides, &call.sizes.result()) else {
        return Ok(None);
    };
    let Some(grid) = Grid::new(call, [&query, &key, &value], mask.as_ref(), &y_split)? else {
        return Ok(None);
    };
    let fits = |tensor: &&Tensor| tensor.region().len_bytes <= reach_bytes(cx);
    let all_fit = [Some(&query), Some(&key), Some(&value), mask.as_ref()].iter().flatten().all(fits);
    let [most_x, _, most_z] = cx.profile().max_groups;
    if grid.batches() > most_z as usize || queries > most_x as usize || !all_fit {
        return Ok(None);
    }
    let y =
        if is_beside { swapped(&cx.alloc(out.dtype, &swapped_sizes(&out.sizes))?) } else { cx.output(out)? };
    let launch = Launch { call, query, key, value, mask, y: &y, grid };
    let Some(dispatch) = launch.dispatch(cx, chosen)? else { return Ok(None) };
    cx.emit(dispatch.chosen(chosen.record).of_ops(launch.ops()))?;
    Ok(Some(y))
}

/// Bytes of an operand that a kernel reaches, wherever it starts.
fn reach_bytes(cx: &Lowering<'_>) -> u64 {
    let profile = cx.profile();
    match profile.access {
        Access::Ssbo => {
            profile.max_storage_buffer_range_bytes.saturating_sub(profile.storage_offset_alignment_bytes)
        }
        Access::Bda => u64::MAX,
    }
}

/// Whether each row can be read as vectors of 4 elements.
fn has_vector_rows(tensor: &Tensor) -> bool {
    let Some((last, outer)) = tensor.strides.split_last() else { return false };
    let mut outer = outer.iter().zip(&tensor.sizes);
    *last == 1
        && tensor.starts_aligned4()
        && outer.all(|(stride, &size)| size == 1 || stride.is_multiple_of(4))
}

/// Whether the heads of a query lie side by side, as linear layers leave them; the result, of sizes `sizes`, then does too.
fn heads_are_beside(call: &Call, sizes: &[usize]) -> bool {
    let (rank, strides) = (call.query.sizes.len(), &call.query.strides);
    sizes.len() > 2 && rank > 2 && strides[rank - 2] > strides[rank - 3] && strides[rank - 3] > 0
}

/// Sizes with queries before heads.
fn swapped_sizes(sizes: &[usize]) -> Vec<usize> {
    let mut sizes = sizes.to_vec();
    let rank = sizes.len();
    sizes.swap(rank - 3, rank - 2);
    sizes
}

/// The tensor with heads and queries swapped.
fn swapped(tensor: &Tensor) -> Tensor {
    tensor.restrided(swapped_sizes(&tensor.sizes), swapped_sizes(&tensor.strides), 0)
}

fn result_strides(sizes: &[usize], heads_are_beside: bool) -> Vec<usize> {
    if heads_are_beside {
        swapped_sizes(&shape::contiguous_strides(&swapped_sizes(sizes)))
    } else {
        shape::contiguous_strides(sizes)
    }
}

/// Leading dims as the kernels take them: two, of which neighbours of the second may share keys and values.
struct Grid {
    sizes: [u32; 2],
    /// How many neighbours share.
    group: u32,
    query: [u32; 2],
    key: [u32; 2],
    value: [u32; 2],
    mask: [u32; 2],
    y: [u32; 2],
}

impl Grid {
    /// `None` where the dims do not merge. The strides of the result have the dim of groups.
    fn new(
        call: &Call,
        [query, key, value]: [&Tensor; 3],
        mask: Option<&Tensor>,
        y_strides: &[usize],
    ) -> Result<Option<Grid>> {
        let batch = &call.sizes.batch;
        let over_batch = |tensor: &Tensor| -> Result<Vec<usize>> {
            let rank = tensor.sizes.len() - 2;
            shape::broadcast_strides(&tensor.sizes[..rank], &tensor.strides[..rank], batch)
        };
        let mask = mask.map_or(Ok(vec![0; batch.len()]), over_batch)?;
        let (query, key, value) = (over_batch(query)?, over_batch(key)?, over_batch(value)?);
        let (mut sizes, mut strides) =
            shape::merge_dims(batch, &[&query, &key, &value, &mask, &y_strides[..batch.len()]]);
        let mut group = 1;
        if let [_, heads, members] = sizes[..] {
            // Members of a group read the same keys and values, and follow each other in all else.
            let merges = strides.iter().enumerate().all(|(operand, strides)| match operand {
                1 | 2 => strides[2] == 0,
                _ => strides[1] == members * strides[2],
            });
            if !merges {
                return Ok(None);
            }
            group = members;
            sizes = vec![sizes[0], heads * members];
            for (operand, strides) in strides.iter_mut().enumerate() {
                strides.remove(if operand == 1 || operand == 2 { 2 } else { 1 });
            }
        }
        if sizes.len() > 2 {
            return Ok(None);
        }
        let mut strides = strides.iter().map(|strides| pad(strides, 0));
        let mut next = || strides.next().unwrap_or(Ok([0; 2]));
        let (query, key, value, mask, y) = (next()?, next()?, next()?, next()?, next()?);
        Ok(Some(Grid { sizes: pad(&sizes, 1)?, group: group as u32, query, key, value, mask, y }))
    }

    fn batches(&self) -> usize {
        self.sizes[0] as usize * self.sizes[1] as usize
    }
}

/// A call that one dispatch computes.
struct Launch<'a> {
    call: &'a Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// Of the scores' sizes.
    mask: Option<Tensor>,
    y: &'a Tensor,
    grid: Grid,
}

/// The dispatch of one of the three kernels, whose parameters are the same.
macro_rules! dispatch_of {
    ($kernel:ident [$($head:ident)?], $launch:expr, $cx:expr, $queries_a_group:expr $(, $spec:ident)*) => {{
        let (launch, cx): (&Launch<'_>, &Lowering<'_>) = ($launch, $cx);
        let sizes = &launch.call.sizes;
        let [queries, keys, width] = sizes.counts;
        let axes = $kernel::Axes {
            dtype: float_axis!($kernel, launch.y.element)?,
            $($head: match width {
                0..=32 => $kernel::Head::Head32,
                33..=64 => $kernel::Head::Head64,
                _ => $kernel::Head::Head128,
            },)?
        };
        let spec = $kernel::Spec {
            round_mode: cx.round_mode(launch.y.dtype, launch.y.element),
            width: width as u32 / 4,
            mask_kind: match &launch.mask {
                None => $kernel::MaskKind::None,
                Some(_) if sizes.fill.is_some() => $kernel::MaskKind::Filled,
                Some(mask) if mask.dtype == DType::Bool => $kernel::MaskKind::Chosen,
                Some(_) => $kernel::MaskKind::Added,
            },
            is_causal: u32::from(sizes.is_causal),
            dead_is_nan: u32::from(sizes.dead_is_nan),
            $($spec,)*
        };
        let grid = &launch.grid;
        let row = |tensor: &Tensor| tensor.strides[tensor.strides.len() - 2] as u32;
        let of_mask = |from_last: usize| {
            launch.mask.as_ref().map_or(0, |mask| mask.strides[mask.strides.len() - from_last] as u32)
        };
        let params = $kernel::Params {
            queries: queries as u32,
            keys: keys as u32,
            batch_1: grid.sizes[1],
            group: grid.group,
            scale: sizes.scale as f32,
            fill: sizes.fill.unwrap_or(f64::NEG_INFINITY) as f32,
            q_strides: [grid.query[0], grid.query[1], row(&launch.query)],
            k_strides: [grid.key[0], grid.key[1], row(&launch.key)],
            v_strides: [grid.value[0], grid.value[1], row(&launch.value)],
            mask_strides: [grid.mask[0], grid.mask[1], of_mask(2), of_mask(1)],
            y_strides: [grid.y[0], grid.y[1], row(launch.y)],
        };
        let operands = $kernel::Operands {
            q: launch.query.region(),
            k: launch.key.region(),
            v: launch.value.region(),
            mask: launch.mask.as_ref().unwrap_or(&launch.query).region(),
            y: launch.y.region(),
        };
        let groups = [queries.div_ceil($queries_a_group) as u32, 1, grid.batches() as u32];
        $kernel::dispatch(axes, spec, operands, params, groups, cx.label())
    }};
}

impl Launch<'_> {
    /// Multiplications and additions of scores and of values.
    fn ops(&self) -> u64 {
        let sizes = self.call.sizes.counts.map(|size| size as u64);
        sizes.iter().fold(4 * self.grid.batches() as u64, |ops, &size| ops.saturating_mul(size))
    }

    fn dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<AttentionWay>) -> Result<Option<Dispatch>> {
        let [_, _, width] = self.call.sizes.counts;
        let local_x = chosen.local[0];
        Ok(Some(match chosen.value {
            AttentionWay::Lanes(tile) => {
                let lanes = cx.profile().subgroup_size.min(MAX_LANES);
                let span = cx.profile().subgroup_size.max(MAX_LANES);
                let queries = (local_x * tile) as usize;
                dispatch_of!(attention_query [], self, cx, queries, lanes, local_x, tile, span)
            }
            AttentionWay::Tile => {
                // The kernel's HEAD / 16: invocations that share a query.
                let sharers = match width {
                    0..=32 => 2,
                    33..=64 => 4,
                    _ => 8,
                };
                let queries = (local_x / sharers) as usize;
                dispatch_of!(attention_tile[head], self, cx, queries, local_x)
            }
            AttentionWay::Row(_) => dispatch_of!(attention_row[head], self, cx, 1, local_x),
            AttentionWay::Products => return Ok(None),
        }))
    }
}
