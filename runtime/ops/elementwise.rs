//! Lowering that all element-wise kernels share: broadcasting, merging of dims, and splitting of big tensors.
//!
//! Kernels get rank 4 at most, and a contiguous output. An input that does not merge that far is first copied
//! (the copy kernel takes rank 8). What is beyond a descriptor's reach or a dispatch's work groups is halved until it
//! is not.

use super::{Element, Lowering, Tensor};
use crate::{
    base::{Error, Result, shape},
    shader::{Access, Dispatch, Region, kernels},
};

/// Sizes and strides of one launch, as kernels take them: dim 0 outermost, unused leading dims of size 1 and stride 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid<const INPUTS: usize> {
    /// Elements of the output.
    pub n_elems: u32,
    /// 1 where an invocation takes four consecutive elements (only by [`launch_quads`]), else 0.
    pub quads: u32,
    /// Sizes of the output.
    pub sizes: [u32; 4],
    /// Strides of each input over those sizes.
    pub strides: [[u32; 4]; INPUTS],
}

/// What one launch binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<const INPUTS: usize> {
    /// The contiguous output.
    pub out: Region,
    /// The inputs, in order.
    pub inputs: [Region; INPUTS],
    /// Work groups for one invocation an element, or for four elements, 64 in a group.
    pub groups: [u32; 3],
}

/// Invocations of a work group of element-wise kernels (their header's default).
pub const LOCAL_X: u32 = 64;

/// Emits what computes `out` from `inputs` element by element; each input broadcasts to `out`'s sizes.
/// `make` gives the dispatch for one launch; it is called once, or once a piece where one launch cannot do it.
///
/// # Errors
/// When an input does not broadcast, or the device cannot bind a tensor.
pub fn launch<const INPUTS: usize>(
    cx: &mut Lowering<'_>,
    out: &Tensor,
    inputs: [&Tensor; INPUTS],
    make: impl Fn(&Grid<INPUTS>, &Binding<INPUTS>) -> Dispatch,
) -> Result<()> {
    launch_as(cx, out, inputs, false, make)
}

/// As [`launch`], for kernels over `lib/pointwise.glsl`, which take four elements an invocation where
/// [`Grid::quads`] says so.
///
/// # Errors
/// As [`launch`].
pub fn launch_quads<const INPUTS: usize>(
    cx: &mut Lowering<'_>,
    out: &Tensor,
    inputs: [&Tensor; INPUTS],
    make: impl Fn(&Grid<INPUTS>, &Binding<INPUTS>) -> Dispatch,
) -> Result<()> {
    launch_as(cx, out, inputs, true, make)
}

fn launch_as<const INPUTS: usize>(
    cx: &mut Lowering<'_>,
    out: &Tensor,
    inputs: [&Tensor; INPUTS],
    allow_quads: bool,
    make: impl Fn(&Grid<INPUTS>, &Binding<INPUTS>) -> Dispatch,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let mut tensors: Vec<Tensor> =
        inputs.iter().map(|input| input.broadcast_to(&out.sizes)).collect::<Result<_>>()?;
    if merged(out, &tensors).0.len() > 4 {
        for tensor in &mut tensors {
            *tensor = cx.contiguous(tensor)?;
        }
    }
    launch_within(cx, out, tensors, allow_quads, &make)
}

/// Halves the launch along its outermost dim while it is too large.
fn launch_within<const INPUTS: usize>(
    cx: &mut Lowering<'_>,
    out: &Tensor,
    mut tensors: Vec<Tensor>,
    allow_quads: bool,
    make: &impl Fn(&Grid<INPUTS>, &Binding<INPUTS>) -> Dispatch,
) -> Result<()> {
    let reach = Reach::of(cx);
    if !reach.is_exceeded(std::iter::once(out).chain(&tensors)) {
        return launch_one(cx, out, &tensors, allow_quads, make);
    }
    let (sizes, strides) = merged(out, &tensors);
    let Some(at) = half_of(&sizes) else { return launch_one(cx, out, &tensors, allow_quads, make) };
    let out = out.restrided(sizes.clone(), strides[0].clone(), 0);
    for (tensor, strides) in tensors.iter_mut().zip(&strides[1..]) {
        *tensor = tensor.restrided(sizes.clone(), strides.clone(), 0);
        if reach.is_beyond(tensor) && !shrinks_with_outermost(tensor) {
            *tensor = cx.contiguous(tensor)?;
        }
    }
    for (start, len) in [(0, at), (at, sizes[0] - at)] {
        let pieces = tensors.iter().map(|tensor| narrowed(tensor, 0, start, len)).collect();
        launch_within(cx, &narrowed(&out, 0, start, len), pieces, allow_quads, make)?;
    }
    Ok(())
}

/// What one launch can do.
struct Reach {
    bytes: u64,
    invocations: u64,
}

impl Reach {
    fn of(cx: &Lowering<'_>) -> Reach {
        let profile = cx.profile();
        let bytes = match profile.access {
            // A descriptor starts at an aligned offset at or before the tensor.
            Access::Ssbo => {
                profile.max_storage_buffer_range_bytes.saturating_sub(profile.storage_offset_alignment_bytes)
            }
            Access::Bda => u64::MAX,
        };
        let [x, y, _] = profile.max_groups.map(u64::from);
        Reach { bytes, invocations: x.saturating_mul(y).saturating_mul(u64::from(LOCAL_X)) }
    }

    fn is_beyond(&self, tensor: &Tensor) -> bool {
        tensor.region().len_bytes > self.bytes
    }

    fn is_exceeded<'a>(&self, mut tensors: impl Iterator<Item = &'a Tensor>) -> bool {
        tensors.any(|tensor| self.is_beyond(tensor) || tensor.numel() as u64 > self.invocations)
    }
}

/// Where to halve the outermost of `sizes`: a row of elements at a multiple of 256, so that both halves stay aligned
/// for any device. `None` where nothing is left to halve.
fn half_of(sizes: &[usize]) -> Option<usize> {
    const ALIGNED_ELEMS: usize = 256;
    match sizes {
        [] | [0 | 1, ..] => None,
        &[len] if len > 2 * ALIGNED_ELEMS => Some((len / 2).next_multiple_of(ALIGNED_ELEMS)),
        &[outermost, ..] => Some(outermost / 2),
    }
}

/// Whether half of the outermost dim reaches over about half of the bytes.
fn shrinks_with_outermost(tensor: &Tensor) -> bool {
    let outermost = tensor.strides.first().copied().unwrap_or(0);
    outermost == 0 || tensor.strides.iter().all(|&stride| stride <= outermost)
}

/// `len` positions of `dim`, from `start` on.
fn narrowed(tensor: &Tensor, dim: usize, start: usize, len: usize) -> Tensor {
    let mut sizes = tensor.sizes.clone();
    sizes[dim] = len;
    tensor.restrided(sizes, tensor.strides.clone(), start * tensor.strides[dim])
}

fn merged(out: &Tensor, tensors: &[Tensor]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let strides: Vec<&[usize]> = std::iter::once(out.strides.as_slice())
        .chain(tensors.iter().map(|tensor| tensor.strides.as_slice()))
        .collect();
    shape::merge_dims(&out.sizes, &strides)
}

fn launch_one<const INPUTS: usize>(
    cx: &mut Lowering<'_>,
    out: &Tensor,
    tensors: &[Tensor],
    allow_quads: bool,
    make: &impl Fn(&Grid<INPUTS>, &Binding<INPUTS>) -> Dispatch,
) -> Result<()> {
    let (sizes, strides) = merged(out, tensors);
    let quads = allow_quads && takes_quads(out, tensors, &sizes, &strides);
    let mut grid = Grid {
        n_elems: out.numel() as u32,
        quads: u32::from(quads),
        sizes: pad(&sizes, 1)?,
        strides: [[0; 4]; INPUTS],
    };
    let mut regions = [out.region(); INPUTS];
    for (index, tensor) in tensors.iter().enumerate() {
        grid.strides[index] = pad(&strides[index + 1], 0)?;
        regions[index] = tensor.region();
    }
    let groups = cx.groups_1d(out.numel() / if quads { 4 } else { 1 }, LOCAL_X)?;
    cx.emit(make(&grid, &Binding { out: out.region(), inputs: regions, groups }))
}

/// Whether every four consecutive elements of `out` lie in one row, and each input is constant along rows, or
/// contiguous there and aligned.
fn takes_quads(out: &Tensor, tensors: &[Tensor], sizes: &[usize], strides: &[Vec<usize>]) -> bool {
    let aligned = |tensor: &Tensor, strides: &[usize]| match strides.split_last() {
        Some((0, _)) => true,
        Some((1, outer)) => tensor.starts_aligned4() && outer.iter().all(|stride| stride.is_multiple_of(4)),
        _ => false,
    };
    sizes.last().is_some_and(|size| size.is_multiple_of(4))
        && std::iter::once(out).chain(tensors).zip(strides).all(|(tensor, strides)| aligned(tensor, strides))
}

/// Puts dims in front until there are `R`.
///
/// # Errors
/// When there are more than `R`, or a number does not fit 32 bits.
pub fn pad<const R: usize>(dims: &[usize], filler: u32) -> Result<[u32; R]> {
    let mut out = [filler; R];
    let missing = R
        .checked_sub(dims.len())
        .ok_or_else(|| Error::unsupported(format!("{} dims do not merge to {R}", dims.len())))?;
    for (slot, &dim) in out[missing..].iter_mut().zip(dims) {
        *slot = u32::try_from(dim).map_err(|_| {
            Error::unsupported(format!("{dim} does not fit the 32 bits of a kernel's offsets"))
        })?;
    }
    Ok(out)
}

/// Copies `src` to `dst` of the same sizes, converting where dtype or element kind differ.
pub(super) fn copy(cx: &mut Lowering<'_>, src: &Tensor, dst: &Tensor) -> Result<()> {
    if src.sizes != dst.sizes {
        return Err(Error::internal(format!("copies sizes {:?} to {:?}", src.sizes, dst.sizes)));
    }
    if dst.numel() == 0 {
        return Ok(());
    }
    if src.element == dst.element && (src.dtype == dst.dtype) {
        return copy_same(cx, src, dst);
    }
    if !dst.is_contiguous() {
        let converted = cx.converted(src, dst.dtype)?;
        return copy_same(cx, &converted, dst);
    }
    convert(cx, src, dst)
}

/// Copies in pieces that one launch can do, halving the dim over which the larger tensor reaches farthest.
fn copy_same(cx: &mut Lowering<'_>, src: &Tensor, dst: &Tensor) -> Result<()> {
    if !Reach::of(cx).is_exceeded([src, dst].into_iter()) {
        return copy_reversed(cx, src, dst, &[]);
    }
    let (sizes, strides) = shape::merge_dims(&src.sizes, &[&src.strides, &dst.strides]);
    let src = src.restrided(sizes.clone(), strides[0].clone(), 0);
    let dst = dst.restrided(sizes.clone(), strides[1].clone(), 0);
    let larger = if src.region().len_bytes > dst.region().len_bytes { &src } else { &dst };
    let farthest = (0..sizes.len()).max_by_key(|&dim| (sizes[dim] - 1) * larger.strides[dim]);
    let Some((dim, at)) = farthest.and_then(|dim| Some((dim, half_of(&sizes[dim..=dim])?))) else {
        return copy_reversed(cx, &src, &dst, &[]);
    };
    for (start, len) in [(0, at), (at, sizes[dim] - at)] {
        copy_same(cx, &narrowed(&src, dim, start, len), &narrowed(&dst, dim, start, len))?;
    }
    Ok(())
}

/// Copies `src` to `dst` of the same sizes, dtype and element kind, running backwards over the dims in `reversed`.
pub(super) fn copy_reversed(
    cx: &mut Lowering<'_>,
    src: &Tensor,
    dst: &Tensor,
    reversed: &[usize],
) -> Result<()> {
    if dst.numel() == 0 {
        return Ok(());
    }
    let mut src_strides = src.strides.clone();
    let mut x_start = 0;
    for &dim in reversed {
        x_start += (src.sizes[dim] - 1) * src.strides[dim];
        // A negative number in two's complement; it merges with no other dim.
        src_strides[dim] = src.strides[dim].wrapping_neg();
    }
    let (sizes, strides) = shape::merge_dims(&src.sizes, &[&src_strides, &dst.strides]);
    let wrapped: Vec<usize> = strides[0].iter().map(|&stride| stride as u32 as usize).collect();
    let groups = cx.groups_1d(dst.numel(), LOCAL_X)?;
    cx.emit(kernels::copy::dispatch(
        kernels::copy::Axes { dtype: element_axis!(copy, src.element) },
        kernels::copy::Spec::default(),
        kernels::copy::Operands { x: src.region(), y: dst.region() },
        kernels::copy::Params {
            n_elems: dst.numel() as u32,
            x_start: x_start as u32,
            sizes: pad(&sizes, 1)?,
            x_strides: pad(&wrapped, 0)?,
            y_strides: pad(&strides[1], 0)?,
        },
        groups,
        cx.label(),
    ))
}

fn convert(cx: &mut Lowering<'_>, src: &Tensor, dst: &Tensor) -> Result<()> {
    use kernels::convert::{Axes, Operands, Params, Source, Spec};
    let axes = Axes {
        source: match src.element {
            Element::F32 => Source::F32,
            Element::F16 => Source::F16,
            Element::I32 => Source::I32,
        },
        dtype: element_axis!(convert, dst.element),
    };
    let spec = Spec { round_mode: cx.round_mode(dst.dtype, dst.element), ..Spec::default() };
    let label = cx.label();
    launch(cx, dst, [src], |grid, binding| {
        let operands = Operands { x: binding.inputs[0], y: binding.out };
        let params = Params { n_elems: grid.n_elems, sizes: grid.sizes, x_strides: grid.strides[0] };
        kernels::convert::dispatch(axes, spec, operands, params, binding.groups, label.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::DType,
        ops::Precision,
        shader::{DeviceProfile, StorageId},
    };

    fn takes(sizes: &[usize], strides: &[usize], offset_elems: usize) -> bool {
        let tensor = |strides: Vec<usize>, offset_elems| Tensor {
            storage: StorageId(0),
            dtype: DType::F32,
            element: Element::F32,
            sizes: sizes.to_vec(),
            strides,
            offset_elems,
        };
        let out = tensor(shape::contiguous_strides(sizes), 0);
        let input = [tensor(strides.to_vec(), offset_elems)];
        let (sizes, strides) = merged(&out, &input);
        takes_quads(&out, &input, &sizes, &strides)
    }

    /// Copies and converts a transposed view on a device with small limits, and gives what the dispatches write.
    fn written(sizes: [usize; 2], limit_bytes: u64, max_groups: u32) -> Vec<Region> {
        let profile = DeviceProfile {
            max_storage_buffer_range_bytes: limit_bytes,
            max_groups: [max_groups; 3],
            ..DeviceProfile::minimum()
        };
        let mut cx = Lowering::new(&profile, Precision::F32);
        let x = cx.alloc(DType::F32, &[sizes[1], sizes[0]]).unwrap();
        let transposed = x.restrided(sizes.to_vec(), vec![1, sizes[0]], 0);
        cx.converted(&transposed, DType::I32).unwrap();
        cx.duplicate(&transposed).unwrap();
        let lowered = cx.finish();
        lowered.dispatches.iter().map(|dispatch| dispatch.operands[1].region).collect()
    }

    #[test]
    fn what_is_too_large_is_done_in_pieces() {
        assert_eq!(written([100, 200], 1 << 20, 65535).len(), 2, "all fits");
        for (limit_bytes, max_groups) in [(16 << 10, 65535), (1 << 20, 7), (16 << 10, 3)] {
            let regions = written([100, 200], limit_bytes, max_groups);
            assert!(regions.len() > 8 && regions.len() < 200, "{} pieces", regions.len());
            assert!(regions.iter().all(|region| region.len_bytes + 256 <= limit_bytes));
        }
    }

    #[test]
    fn quads_need_aligned_rows() {
        assert!(takes(&[3, 8], &[8, 1], 0));
        assert!(takes(&[3, 8], &[0, 1], 4));
        assert!(takes(&[3, 8], &[1, 0], 1));
        assert!(takes(&[3, 5, 4], &[20, 4, 1], 0));
        assert!(!takes(&[3, 8], &[8, 1], 2), "an unaligned start");
        assert!(!takes(&[3, 8], &[9, 1], 0), "unaligned rows");
        assert!(!takes(&[4, 8], &[1, 4], 0), "a transposed input");
        assert!(!takes(&[3, 6], &[0, 1], 0), "a row that is no multiple of 4");
        assert!(!takes(&[], &[], 0), "a single element");
    }
}
