//! Arithmetic on concrete sizes and strides, in elements, all of it checked.

use super::{Error, Result};

/// The largest rank any op takes.
pub const MAX_RANK: usize = 8;

/// Elements of a tensor of `sizes`.
///
/// # Errors
/// When the product does not fit `usize`.
pub fn numel(sizes: &[usize]) -> Result<usize> {
    if sizes.contains(&0) {
        return Ok(0);
    }
    sizes
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size))
        .ok_or_else(|| Error::invalid_input(format!("a tensor of sizes {sizes:?} has too many elements")))
}

/// Strides of a contiguous (row-major) tensor of `sizes`.
pub fn contiguous_strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(sizes[dim].max(1));
    }
    strides
}

/// Whether `strides` are those of a contiguous tensor; strides of dims of size 1 do not matter.
pub fn is_contiguous(sizes: &[usize], strides: &[usize]) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let mut expected = 1usize;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size != 1 {
            if stride != expected {
                return false;
            }
            expected = expected.saturating_mul(size);
        }
    }
    true
}

/// Elements from the first to one past the last that a strided tensor touches; 0 when it is empty.
///
/// # Errors
/// When the extent does not fit `usize`.
pub fn extent_elems(sizes: &[usize], strides: &[usize]) -> Result<usize> {
    if sizes.contains(&0) {
        return Ok(0);
    }
    sizes
        .iter()
        .zip(strides)
        .try_fold(1usize, |extent, (&size, &stride)| extent.checked_add((size - 1).checked_mul(stride)?))
        .ok_or_else(|| Error::invalid_input(format!("sizes {sizes:?} with strides {strides:?} overflow")))
}

/// The position that `dim` (negative counts from the end) stands for in a tensor of `rank`.
///
/// # Errors
/// When `dim` is outside `-rank..rank` (a rank of 0 allows -1 and 0, as PyTorch does).
pub fn normalize_dim(dim: i64, rank: usize) -> Result<usize> {
    let bound = rank.max(1) as i64;
    if dim < -bound || dim >= bound {
        return Err(Error::invalid_input(format!(
            "dim {dim} is out of range for rank {rank}: {} to {}",
            -bound,
            bound - 1
        )));
    }
    Ok((if dim < 0 { dim + bound } else { dim }) as usize)
}

/// The shape of an element-wise result of operands of sizes `a` and `b`, aligned from the right.
///
/// # Errors
/// When two sizes differ and neither is 1.
pub fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size_at =
        |sizes: &[usize], dim: usize| (dim + sizes.len()).checked_sub(rank).map_or(1, |index| sizes[index]);
    (0..rank)
        .map(|dim| match (size_at(a, dim), size_at(b, dim)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::invalid_input(format!("sizes {a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}

/// Strides that make a tensor of `sizes` and `strides` look like one of `target` sizes (stride 0 where it repeats).
///
/// # Errors
/// When `sizes` do not broadcast to `target`.
pub fn broadcast_strides(sizes: &[usize], strides: &[usize], target: &[usize]) -> Result<Vec<usize>> {
    let missing = target
        .len()
        .checked_sub(sizes.len())
        .ok_or_else(|| Error::invalid_input(format!("sizes {sizes:?} do not broadcast to {target:?}")))?;
    let mut out = vec![0usize; target.len()];
    for (dim, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
        let want = target[missing + dim];
        if size == want {
            out[missing + dim] = if size == 1 { 0 } else { stride };
        } else if size != 1 {
            return Err(Error::invalid_input(format!("sizes {sizes:?} do not broadcast to {target:?}")));
        }
    }
    Ok(out)
}

/// Strides of the same elements seen as `target` sizes, or `None` when that needs a copy (`torch.Tensor.view`'s rule).
pub fn view_strides(sizes: &[usize], strides: &[usize], target: &[usize]) -> Option<Vec<usize>> {
    if numel(sizes).ok()? != numel(target).ok()? {
        return None;
    }
    if target.contains(&0) {
        return Some(contiguous_strides(target));
    }
    let mut out = vec![0usize; target.len()];
    let mut to = target.len();
    let mut from = sizes.len();
    while from > 0 {
        // A chunk of source dims that are jointly contiguous, with the target dims that tile it exactly.
        let base_stride = strides[from - 1];
        let mut chunk = sizes[from - 1];
        from -= 1;
        while from > 0 && (sizes[from - 1] == 1 || strides[from - 1] == chunk.checked_mul(base_stride)?) {
            chunk = chunk.checked_mul(sizes[from - 1])?;
            from -= 1;
        }
        let mut filled = 1usize;
        while to > 0 && (filled < chunk || target[to - 1] == 1) {
            out[to - 1] = filled.checked_mul(base_stride)?;
            filled = filled.checked_mul(target[to - 1])?;
            to -= 1;
        }
        if filled != chunk {
            return None;
        }
    }
    for stride in &mut out[..to] {
        *stride = 1;
    }
    Some(out)
}

/// Drops dims of size 1 and merges dims that are jointly contiguous in *every* operand.
///
/// `strides[o]` are operand `o`'s strides over `sizes`. Returns the merged sizes and, per operand, strides.
/// The element order is kept, so a kernel over the result visits the same pairs of elements.
pub fn merge_dims(sizes: &[usize], strides: &[&[usize]]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut out_sizes: Vec<usize> = Vec::with_capacity(sizes.len());
    let mut out_strides: Vec<Vec<usize>> = vec![Vec::with_capacity(sizes.len()); strides.len()];
    for (dim, &size) in sizes.iter().enumerate() {
        if size == 1 {
            continue;
        }
        let merges = !out_sizes.is_empty()
            && strides.iter().zip(&out_strides).all(|(operand, merged)| {
                operand[dim].checked_mul(size).is_some_and(|step| merged.last() == Some(&step))
            });
        if merges {
            if let Some(last) = out_sizes.last_mut() {
                *last = last.saturating_mul(size);
            }
            for (operand, merged) in strides.iter().zip(&mut out_strides) {
                if let Some(last) = merged.last_mut() {
                    *last = operand[dim];
                }
            }
        } else {
            out_sizes.push(size);
            for (operand, merged) in strides.iter().zip(&mut out_strides) {
                merged.push(operand[dim]);
            }
        }
    }
    (out_sizes, out_strides)
}

/// Calls `visit` with the element offset of every element of a strided tensor, in row-major order.
pub fn for_each_offset(
    sizes: &[usize],
    strides: &[usize],
    offset_elems: usize,
    mut visit: impl FnMut(usize),
) {
    if sizes.contains(&0) {
        return;
    }
    let Some((&inner_size, outer_sizes)) = sizes.split_last() else {
        return visit(offset_elems);
    };
    let inner_stride = strides[sizes.len() - 1];
    let mut index = vec![0usize; outer_sizes.len()];
    let mut base = offset_elems;
    loop {
        for inner in 0..inner_size {
            visit(base + inner * inner_stride);
        }
        let mut dim = outer_sizes.len();
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            base += strides[dim];
            if index[dim] < outer_sizes[dim] {
                break;
            }
            base -= strides[dim] * outer_sizes[dim];
            index[dim] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numel_refuses_overflow() {
        assert_eq!(numel(&[]).unwrap(), 1);
        assert_eq!(numel(&[usize::MAX, 0, 2]).unwrap(), 0);
        assert!(numel(&[usize::MAX, 2]).is_err());
    }

    #[test]
    fn dims_normalise_as_in_torch() {
        assert_eq!(normalize_dim(-1, 3).unwrap(), 2);
        assert_eq!(normalize_dim(-1, 0).unwrap(), 0);
        assert!(normalize_dim(3, 3).is_err());
        assert!(normalize_dim(-4, 3).is_err());
    }

    #[test]
    fn view_needs_a_copy_only_where_torch_does() {
        assert_eq!(view_strides(&[2, 3, 4], &[12, 4, 1], &[6, 4]), Some(vec![4, 1]));
        assert_eq!(view_strides(&[3, 2], &[1, 3], &[6]), None);
        assert_eq!(view_strides(&[3, 2], &[1, 3], &[3, 1, 2]), Some(vec![1, 6, 3]));
        assert_eq!(view_strides(&[4, 1], &[2, 9], &[2, 2]), Some(vec![4, 2]));
        assert_eq!(view_strides(&[], &[], &[1, 1]), Some(vec![1, 1]));
        assert_eq!(view_strides(&[0, 3], &[3, 1], &[3, 0, 7]), Some(vec![7, 7, 1]));
        assert_eq!(view_strides(&[2, 3], &[0, 1], &[2, 3]), Some(vec![0, 1]));
        assert_eq!(view_strides(&[2, 3], &[0, 1], &[6]), None);
    }

    #[test]
    fn merging_keeps_pairs_of_elements() {
        let (sizes, strides) = merge_dims(&[2, 1, 3, 4], &[&[12, 0, 4, 1], &[12, 7, 4, 1]]);
        assert_eq!((sizes, strides), (vec![24], vec![vec![1], vec![1]]));
        let (sizes, strides) = merge_dims(&[2, 3, 4], &[&[12, 4, 1], &[0, 4, 1]]);
        assert_eq!((sizes, strides), (vec![2, 12], vec![vec![12, 1], vec![0, 1]]));
    }

    #[test]
    fn offsets_come_in_row_major_order() {
        let mut seen = Vec::new();
        for_each_offset(&[2, 3], &[1, 2], 5, |offset| seen.push(offset));
        assert_eq!(seen, [5, 7, 9, 6, 8, 10]);
        let mut scalar = Vec::new();
        for_each_offset(&[], &[], 4, |offset| scalar.push(offset));
        assert_eq!(scalar, [4]);
    }

    #[test]
    fn broadcasting_aligns_from_the_right() {
        assert_eq!(broadcast(&[4, 1], &[2, 1, 5]).unwrap(), [2, 4, 5]);
        assert_eq!(broadcast(&[1], &[0, 3]).unwrap(), [0, 3]);
        assert!(broadcast(&[2], &[3]).is_err());
        assert_eq!(broadcast_strides(&[3, 1], &[1, 1], &[2, 3, 4]).unwrap(), [0, 1, 0]);
    }
}
