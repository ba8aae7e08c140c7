//! From a call to the views that it makes: which elements, in which order, with which sizes.

use super::layout::Layout;
use crate::{
    base::{Error, Result, shape},
    ir::BASE_IS_VIEW,
    ops::{Args, Meta},
};

/// More pieces than any program splits a tensor into.
const MAX_PIECES: usize = 1 << 16;

/// One output: the elements of `layout` in row-major order, as a tensor of `sizes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The elements.
    pub layout: Layout,
    /// The output's sizes.
    pub sizes: Vec<usize>,
}

impl View {
    fn new(layout: Layout) -> View {
        View { sizes: layout.sizes.clone(), layout }
    }

    /// Strides of the output over the operand's memory; `None` when the elements must be copied.
    pub fn strides(&self) -> Option<Vec<usize>> {
        shape::view_strides(&self.layout.sizes, &self.layout.strides, &self.sizes)
    }
}

/// The views that the call makes of `from`, its operand `self`.
///
/// # Errors
/// What PyTorch refuses, naming the argument.
pub fn views(args: &Args<Meta>, from: &Layout) -> Result<Vec<View>> {
    let rank = from.rank();
    let one = |layout: Layout| Ok(vec![View::new(layout)]);
    let target = args.op().as_str();
    match target {
        "aten.view.default" | "aten._unsafe_view.default" | "aten.view_copy.default" => {
            reshaped(from, &args.ints("size")?)
        }
        "aten._reshape_copy.default" => reshaped(from, &args.ints("size")?),
        "aten.reshape.default" => reshaped(from, &args.ints("shape")?),
        "aten.view_as.default" | "aten.reshape_as.default" => {
            reshaped(from, &signed(&args.tensor("other")?.sizes))
        }
        "aten.flatten.using_ints" => flattened(args, from),
        "aten.unflatten.int" => {
            let dim = args.dim_or("dim", 0, rank)?;
            let size = *from.sizes.get(dim).ok_or_else(|| no_dims("unflatten"))?;
            one(from.split(dim, &resolve_sizes(size, &args.ints("sizes")?)?))
        }
        "aten.permute.default" | "aten.permute_copy.default" => {
            let dims = args.ints("dims")?;
            if dims.len() != rank {
                let text = format!("{} dims are given for rank {rank}", dims.len());
                return Err(Error::invalid_input(text).at_operand("dims"));
            }
            one(from.permuted(&args.dims_or_all("dims", rank)?))
        }
        "aten.t.default" | "aten.t_copy.default" if rank > 2 => {
            Err(Error::invalid_input(format!("t takes rank 2 at most, not {rank}")).at_operand("self"))
        }
        "aten.t.default" | "aten.t_copy.default" | "aten.numpy_T.default" => {
            one(from.permuted(&(0..rank).rev().collect::<Vec<_>>()))
        }
        "aten.mT.default" if rank < 2 => {
            Err(Error::invalid_input("mT takes rank 2 at least").at_operand("self"))
        }
        "aten.mT.default" => one(from.transposed(rank - 2, rank - 1)),
        "aten.transpose.int" | "aten.transpose_copy.int" => {
            one(from.transposed(args.dim_or("dim0", 0, rank)?, args.dim_or("dim1", 0, rank)?))
        }
        "aten.swapaxes.default" => {
            one(from.transposed(args.dim_or("axis0", 0, rank)?, args.dim_or("axis1", 0, rank)?))
        }
        "aten.movedim.int" | "aten.movedim.intlist" => moved(args, from),
        "aten.squeeze.default" => one(from.squeezed(&(0..rank).collect::<Vec<_>>())),
        "aten.squeeze.dim" | "aten.squeeze.dims" | "aten.squeeze_copy.dims" => {
            let dims = match args.ints("dim")?.as_slice() {
                [] => Vec::new(),
                _ => args.dims_or_all("dim", rank)?,
            };
            one(from.squeezed(&dims))
        }
        "aten.unsqueeze.default" | "aten.unsqueeze_copy.default" => {
            one(from.repeated(args.dim_or("dim", 0, rank + 1)?, 1))
        }
        "aten.expand.default" | "aten.expand_copy.default" | "aten.broadcast_to.default" => {
            one(from.expanded(&args.ints("size")?).map_err(|error| error.at_operand("size"))?)
        }
        "aten.expand_as.default" => {
            let sizes = signed(&args.tensor("other")?.sizes);
            one(from.expanded(&sizes).map_err(|error| error.at_operand("other"))?)
        }
        "aten.slice.Tensor" | "aten.slice_copy.Tensor" => one(slice_of(args, from)?),
        "aten.select.int" | "aten.select_copy.int" => one(select_of(args, from)?),
        "aten.narrow.default" => one(narrowed(args, from)?),
        "aten.diagonal.default" | "aten.diagonal_copy.default" => {
            let (dim1, dim2) = (args.dim_or("dim1", 0, rank)?, args.dim_or("dim2", 1, rank)?);
            one(from.diagonal(args.int_or("offset", 0)?, dim1, dim2)?)
        }
        "aten.unfold.default" => {
            let dim = args.dim_or("dimension", 0, rank)?;
            one(from.unfolded(dim, size_arg(args, "size")?, size_arg(args, "step")?)?)
        }
        "aten.as_strided.default" => strided(args, from),
        "aten.split.Tensor" => split_evenly(args, from, size_arg(args, "split_size")?),
        "aten.split.sizes" => split_unevenly(args, from, "split_size"),
        "aten.split_with_sizes.default" => split_unevenly(args, from, "split_sizes"),
        "aten.chunk.default" => chunked(args, from),
        "aten.unbind.int" => {
            let dim = args.dim_or("dim", 0, rank)?;
            let size = checked_pieces(*from.sizes.get(dim).ok_or_else(|| no_dims("unbind"))?)?;
            Ok((0..size).map(|index| View::new(from.selected(dim, index))).collect())
        }
        "aten.repeat.default" => repeated(from, &args.ints("repeats")?),
        "aten.tile.default" => {
            let dims = args.ints("dims")?;
            let missing = rank.saturating_sub(dims.len());
            repeated(from, &[vec![1; missing], dims].concat())
        }
        "aten.repeat_interleave.self_int" => interleaved(args, from),
        "aten.pixel_shuffle.default" => pixel_shuffled(from, size_arg(args, "upscale_factor")?),
        "aten.pixel_unshuffle.default" => pixel_unshuffled(from, size_arg(args, "downscale_factor")?),
        "aten.alias.default"
        | "aten.alias_copy.default"
        | "aten.clone.default"
        | "aten.contiguous.default"
        | "aten.detach.default"
        | "aten.detach_copy.default"
        | "aten.lift.default"
        | "aten.lift_fresh.default"
        | "aten.lift_fresh_copy.default" => one(from.clone()),
        _ => Err(Error::internal(format!("{target} is no view"))),
    }
}

/// The slice that `dim`, `start`, `end` and `step` name.
///
/// # Errors
/// When the dim is out of range or the step is not positive.
pub fn slice_of(args: &Args<Meta>, from: &Layout) -> Result<Layout> {
    let dim = args.dim_or("dim", 0, from.rank())?;
    let size = *from.sizes.get(dim).ok_or_else(|| no_dims("slice"))?;
    let step = usize::try_from(args.int_or("step", 1)?).unwrap_or(0);
    if step == 0 {
        return Err(Error::invalid_input("a step is at least 1").at_operand("step"));
    }
    let start = clamped(args.int_or("start", 0)?, size);
    let end = clamped(args.int_or("end", i64::MAX)?, size);
    Ok(from.sliced(dim, start, end.saturating_sub(start).div_ceil(step), step))
}

/// The slice that `dim` and `index` name, without that dim.
///
/// # Errors
/// When either is out of range.
pub fn select_of(args: &Args<Meta>, from: &Layout) -> Result<Layout> {
    let dim = args.dim_or("dim", 0, from.rank())?;
    let size = *from.sizes.get(dim).ok_or_else(|| no_dims("select"))?;
    let index = args.int("index")?;
    let wrapped = if index < 0 { index.saturating_add(size as i64) } else { index };
    match usize::try_from(wrapped) {
        Ok(position) if position < size => Ok(from.selected(dim, position)),
        _ => {
            let text = format!("index {index} is out of range for the {size} elements of dim {dim}");
            Err(Error::invalid_input(text).at_operand("index"))
        }
    }
}

fn no_dims(what: &str) -> Error {
    Error::invalid_input(format!("{what} needs a tensor with dims")).at_operand("self")
}

fn signed(sizes: &[usize]) -> Vec<i64> {
    sizes.iter().map(|&size| size as i64).collect()
}

fn size_arg(args: &Args<Meta>, name: &str) -> Result<usize> {
    let size = args.int(name)?;
    usize::try_from(size).map_err(|_| Error::invalid_input(format!("{size} is no size")).at_operand(name))
}

fn sizes_arg(args: &Args<Meta>, name: &str) -> Result<Vec<usize>> {
    let size = |size: i64| {
        usize::try_from(size).map_err(|_| Error::invalid_input(format!("{size} is no size")).at_operand(name))
    };
    args.ints(name)?.into_iter().map(size).collect()
}

/// A slice bound as a position in `0..=size`; negative counts from the end.
fn clamped(index: i64, size: usize) -> usize {
    let size = size as i64;
    (if index < 0 { index.saturating_add(size) } else { index }).clamp(0, size) as usize
}

/// `sizes` with at most one -1, which takes what the others leave of `numel`.
///
/// # Errors
/// When they do not make up `numel` elements, or -1 has no one answer.
fn resolve_sizes(numel: usize, sizes: &[i64]) -> Result<Vec<usize>> {
    let wrong = || Error::invalid_input(format!("{numel} elements cannot become sizes {sizes:?}"));
    let known: Vec<usize> = sizes
        .iter()
        .filter(|&&size| size != -1)
        .map(|&size| usize::try_from(size).map_err(|_| wrong()))
        .collect::<Result<_>>()?;
    let product = shape::numel(&known)?;
    let inferred = match sizes.len() - known.len() {
        0 if product == numel => 0,
        1 if product > 0 && numel.is_multiple_of(product) => numel / product,
        _ => return Err(wrong()),
    };
    Ok(sizes.iter().map(|&size| usize::try_from(size).unwrap_or(inferred)).collect())
}

fn reshaped(from: &Layout, sizes: &[i64]) -> Result<Vec<View>> {
    let sizes = resolve_sizes(shape::numel(&from.sizes)?, sizes).map_err(|error| error.at_operand("size"))?;
    Ok(vec![View { layout: from.clone(), sizes }])
}

fn flattened(args: &Args<Meta>, from: &Layout) -> Result<Vec<View>> {
    let rank = from.rank();
    let (start, end) = (args.dim_or("start_dim", 0, rank)?, args.dim_or("end_dim", -1, rank)?);
    if start > end {
        return Err(Error::invalid_input(format!("dims {start} to {end} are no range")).at_operand("end_dim"));
    }
    let mut sizes = from.sizes.clone();
    if rank == 0 {
        sizes.push(1);
    } else {
        let flat = shape::numel(&sizes[start..=end])?;
        sizes.splice(start..=end, [flat]);
    }
    Ok(vec![View { layout: from.clone(), sizes }])
}

fn moved(args: &Args<Meta>, from: &Layout) -> Result<Vec<View>> {
    let rank = from.rank();
    let (source, target) = (args.dims_or_all("source", rank)?, args.dims_or_all("destination", rank)?);
    if source.len() != target.len() {
        return Err(Error::invalid_input("needs as many dims as `source`").at_operand("destination"));
    }
    let mut rest = (0..rank).filter(|dim| !source.contains(dim));
    let mut dims = Vec::with_capacity(rank);
    for position in 0..rank {
        dims.extend(match target.iter().position(|&dim| dim == position) {
            Some(entry) => Some(source[entry]),
            None => rest.next(),
        });
    }
    Ok(vec![View::new(from.permuted(&dims))])
}

fn narrowed(args: &Args<Meta>, from: &Layout) -> Result<Layout> {
    let dim = args.dim_or("dim", 0, from.rank())?;
    let size = *from.sizes.get(dim).ok_or_else(|| no_dims("narrow"))?;
    let (start, len) = (args.int("start")?, size_arg(args, "length")?);
    let first = if start < 0 { start.saturating_add(size as i64) } else { start };
    match usize::try_from(first) {
        Ok(first) if first.checked_add(len).is_some_and(|end| end <= size) => {
            Ok(from.sliced(dim, first, len, 1))
        }
        _ => {
            let text = format!("{len} elements from {start} on leave the {size} of dim {dim}");
            Err(Error::invalid_input(text).at_operand("start"))
        }
    }
}

fn strided(args: &Args<Meta>, from: &Layout) -> Result<Vec<View>> {
    if args.has(BASE_IS_VIEW) {
        let text = "as_strided of a tensor that is itself a view is not supported; index it instead";
        return Err(Error::unsupported(text).at_operand("self"));
    }
    let offset = args.int_or("storage_offset", 0)?;
    let offset = usize::try_from(offset)
        .map_err(|_| Error::invalid_input(format!("{offset} is no offset")).at_operand("storage_offset"))?;
    let layout = from
        .as_strided(sizes_arg(args, "size")?, sizes_arg(args, "stride")?, offset)
        .map_err(|error| error.at_operand("self"))?;
    Ok(vec![View::new(layout)])
}

fn checked_pieces(pieces: usize) -> Result<usize> {
    if pieces > MAX_PIECES {
        return Err(Error::unsupported(format!("splits into {pieces} pieces; {MAX_PIECES} are the most")));
    }
    Ok(pieces)
}

fn pieces(from: &Layout, dim: usize, lens: &[usize]) -> Vec<View> {
    let mut start = 0;
    lens.iter()
        .map(|&len| {
            let piece = from.sliced(dim, start, len, 1);
            start += len;
            View::new(piece)
        })
        .collect()
}

fn split_evenly(args: &Args<Meta>, from: &Layout, len: usize) -> Result<Vec<View>> {
    let dim = args.dim_or("dim", 0, from.rank())?;
    let size = *from.sizes.get(dim).ok_or_else(|| no_dims("split"))?;
    if len == 0 && size > 0 {
        return Err(Error::invalid_input("pieces of size 0 never end").at_operand("split_size"));
    }
    let count = checked_pieces(if size == 0 { 1 } else { size.div_ceil(len) })?;
    let lens: Vec<usize> = (0..count).map(|piece| len.min(size - piece * len)).collect();
    Ok(pieces(from, dim, &lens))
}

fn split_unevenly(args: &Args<Meta>, from: &Layout, name: &str) -> Result<Vec<View>> {
    let dim = args.dim_or("dim", 0, from.rank())?;
    let size = *from.sizes.get(dim).ok_or_else(|| no_dims("split"))?;
    let lens = sizes_arg(args, name)?;
    if lens.iter().try_fold(0usize, |sum, &len| sum.checked_add(len)) != Some(size) {
        let text = format!("pieces of {lens:?} do not make up the {size} elements of dim {dim}");
        return Err(Error::invalid_input(text).at_operand(name));
    }
    Ok(pieces(from, dim, &lens))
}

fn chunked(args: &Args<Meta>, from: &Layout) -> Result<Vec<View>> {
    let dim = args.dim_or("dim", 0, from.rank())?;
    let size = *from.sizes.get(dim).ok_or_else(|| no_dims("chunk"))?;
    let chunks = checked_pieces(size_arg(args, "chunks")?)?;
    if chunks == 0 {
        return Err(Error::invalid_input("at least 1 chunk is needed").at_operand("chunks"));
    }
    if size == 0 {
        return Ok(pieces(from, dim, &vec![0; chunks]));
    }
    split_evenly(args, from, size.div_ceil(chunks))
}

fn repeated(from: &Layout, repeats: &[i64]) -> Result<Vec<View>> {
    let added = repeats.len().checked_sub(from.rank()).ok_or_else(|| {
        let text = format!("{} repeats are fewer than the {} dims", repeats.len(), from.rank());
        Error::invalid_input(text).at_operand("repeats")
    })?;
    let mut layout = from.clone();
    let mut sizes = Vec::with_capacity(repeats.len());
    for (position, &count) in repeats.iter().enumerate() {
        let count = usize::try_from(count).map_err(|_| {
            Error::invalid_input(format!("{count} is no number of repeats")).at_operand("repeats")
        })?;
        let size = position.checked_sub(added).map_or(1, |dim| from.sizes[dim]);
        sizes.push(shape::numel(&[count, size])?);
        // Dims in front of this one have been doubled already, the new ones among them stand alone.
        layout = layout.repeated(position + position.saturating_sub(added), count);
    }
    Ok(vec![View { layout, sizes }])
}

fn interleaved(args: &Args<Meta>, from: &Layout) -> Result<Vec<View>> {
    let count = size_arg(args, "repeats")?;
    if !args.has("dim") {
        let sizes = vec![shape::numel(&[shape::numel(&from.sizes)?, count])?];
        return Ok(vec![View { layout: from.repeated(from.rank(), count), sizes }]);
    }
    let dim = args.dim_or("dim", 0, from.rank())?;
    let mut sizes = from.sizes.clone();
    match sizes.get_mut(dim) {
        Some(size) => *size = shape::numel(&[*size, count])?,
        None => return Err(no_dims("repeat_interleave")),
    }
    Ok(vec![View { layout: from.repeated(dim + 1, count), sizes }])
}

/// `[.., C * r * r, H, W]` to `[.., C, H * r, W * r]`.
fn pixel_shuffled(from: &Layout, factor: usize) -> Result<Vec<View>> {
    let rank = from.rank();
    let square = factor.checked_mul(factor).filter(|&square| square > 0);
    match (rank.checked_sub(3), square) {
        (Some(channel), Some(square)) if from.sizes[channel].is_multiple_of(square) => {
            let channels = from.sizes[channel] / square;
            let split = from.split(channel, &[channels, factor, factor]);
            let order = [channel, channel + 3, channel + 1, channel + 4, channel + 2];
            let dims: Vec<usize> = (0..channel).chain(order).collect();
            let mut sizes = from.sizes.clone();
            sizes[channel] = channels;
            sizes[channel + 1] = shape::numel(&[sizes[channel + 1], factor])?;
            sizes[channel + 2] = shape::numel(&[sizes[channel + 2], factor])?;
            Ok(vec![View { layout: split.permuted(&dims), sizes }])
        }
        _ => Err(not_shufflable(from, factor)),
    }
}

/// `[.., C, H * r, W * r]` to `[.., C * r * r, H, W]`.
fn pixel_unshuffled(from: &Layout, factor: usize) -> Result<Vec<View>> {
    let channel =
        from.rank().checked_sub(3).filter(|_| factor > 0).ok_or_else(|| not_shufflable(from, factor))?;
    let (rows, columns) = (from.sizes[channel + 1], from.sizes[channel + 2]);
    if !rows.is_multiple_of(factor) || !columns.is_multiple_of(factor) {
        return Err(not_shufflable(from, factor));
    }
    let split =
        from.split(channel + 2, &[columns / factor, factor]).split(channel + 1, &[rows / factor, factor]);
    let order = [channel, channel + 2, channel + 4, channel + 1, channel + 3];
    let dims: Vec<usize> = (0..channel).chain(order).collect();
    let mut sizes = from.sizes.clone();
    sizes[channel] = shape::numel(&[sizes[channel], factor, factor])?;
    sizes[channel + 1] = rows / factor;
    sizes[channel + 2] = columns / factor;
    Ok(vec![View { layout: split.permuted(&dims), sizes }])
}

fn not_shufflable(from: &Layout, factor: usize) -> Error {
    Error::invalid_input(format!("pixels of sizes {:?} cannot be shuffled by {factor}", from.sizes))
        .at_operand("self")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_size_can_be_inferred() {
        assert_eq!(resolve_sizes(6, &[2, -1]).unwrap(), [2, 3]);
        assert_eq!(resolve_sizes(0, &[-1, 3]).unwrap(), [0, 3]);
        assert_eq!(resolve_sizes(1, &[]).unwrap(), [0usize; 0]);
        for wrong in [&[-1i64, 4][..], &[-1, -1], &[7], &[-2, -3], &[i64::MAX, i64::MAX]] {
            assert!(resolve_sizes(6, wrong).is_err(), "{wrong:?}");
        }
        assert!(resolve_sizes(0, &[-1, 0]).is_err());
    }

    #[test]
    fn slice_bounds_are_clamped() {
        assert_eq!(
            [clamped(-2, 5), clamped(-9, 5), clamped(i64::MAX, 5), clamped(i64::MIN, 5)],
            [3, 0, 5, 0]
        );
    }

    #[test]
    fn repeats_double_the_dims_that_exist() {
        let view = repeated(&Layout::contiguous(&[2, 3]), &[4, 5, 6]).unwrap().remove(0);
        assert_eq!(view.sizes, [4, 10, 18]);
        assert_eq!(view.layout.sizes, [4, 5, 2, 6, 3]);
        assert_eq!(view.layout.strides, [0, 0, 3, 0, 1]);
    }
}
