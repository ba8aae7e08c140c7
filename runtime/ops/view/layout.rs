//! Where the elements of a tensor lie, and what each kind of view makes of that.

use crate::base::{Error, Result, shape};

/// Sizes, strides and the offset of the first element, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Sizes, outermost first.
    pub sizes: Vec<usize>,
    /// Strides; 0 where a dim repeats.
    pub strides: Vec<usize>,
    /// Elements before the first one.
    pub offset: usize,
}

impl Layout {
    /// A contiguous tensor of `sizes`.
    pub fn contiguous(sizes: &[usize]) -> Layout {
        Layout { sizes: sizes.to_vec(), strides: shape::contiguous_strides(sizes), offset: 0 }
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The dims in another order; `dims[i]` is the dim that becomes dim `i`.
    #[must_use]
    pub fn permuted(&self, dims: &[usize]) -> Layout {
        Layout {
            sizes: dims.iter().map(|&dim| self.sizes[dim]).collect(),
            strides: dims.iter().map(|&dim| self.strides[dim]).collect(),
            offset: self.offset,
        }
    }

    /// Dims `a` and `b` swapped.
    #[must_use]
    pub fn transposed(&self, a: usize, b: usize) -> Layout {
        let mut out = self.clone();
        if self.rank() > 0 {
            out.sizes.swap(a, b);
            out.strides.swap(a, b);
        }
        out
    }

    /// `len` elements of `dim` from `start` on, `step` apart.
    #[must_use]
    pub fn sliced(&self, dim: usize, start: usize, len: usize, step: usize) -> Layout {
        let mut out = self.clone();
        if len > 0 {
            out.offset = out.offset.saturating_add(start.saturating_mul(self.strides[dim]));
        }
        out.sizes[dim] = len;
        out.strides[dim] = self.strides[dim].saturating_mul(step);
        out
    }

    /// Without `dim`, at `index` of it.
    #[must_use]
    pub fn selected(&self, dim: usize, index: usize) -> Layout {
        let mut out = self.sliced(dim, index, 1, 1);
        out.sizes.remove(dim);
        out.strides.remove(dim);
        out
    }

    /// Without those of `dims` that have size 1.
    #[must_use]
    pub fn squeezed(&self, dims: &[usize]) -> Layout {
        let kept: Vec<usize> =
            (0..self.rank()).filter(|dim| self.sizes[*dim] != 1 || !dims.contains(dim)).collect();
        self.permuted(&kept)
    }

    /// With a dim of `size` in front of `dim` that repeats the same elements.
    #[must_use]
    pub fn repeated(&self, dim: usize, size: usize) -> Layout {
        let mut out = self.clone();
        out.sizes.insert(dim, size);
        out.strides.insert(dim, 0);
        out
    }

    /// With `dim` split into dims of `sizes`, whose product is its size.
    #[must_use]
    pub fn split(&self, dim: usize, sizes: &[usize]) -> Layout {
        let inner = shape::contiguous_strides(sizes);
        let strides = inner.iter().map(|&stride| stride.saturating_mul(self.strides[dim]));
        let mut out = self.clone();
        out.sizes.splice(dim..=dim, sizes.iter().copied());
        out.strides.splice(dim..=dim, strides);
        out
    }

    /// Dims of size 1 repeated, and dims added in front, to reach `sizes`; -1 keeps a size.
    ///
    /// # Errors
    /// When a size other than 1 would change.
    pub fn expanded(&self, sizes: &[i64]) -> Result<Layout> {
        let new_dims = sizes.len().checked_sub(self.rank()).ok_or_else(|| {
            Error::invalid_input(format!(
                "a tensor of sizes {:?} cannot be expanded to fewer dims: {sizes:?}",
                self.sizes
            ))
        })?;
        let mut target = Vec::with_capacity(sizes.len());
        for (position, &size) in sizes.iter().enumerate() {
            target.push(match (usize::try_from(size), position.checked_sub(new_dims)) {
                (Ok(size), _) => size,
                (Err(_), Some(dim)) if size == -1 => self.sizes[dim],
                _ => {
                    return Err(Error::invalid_input(format!(
                        "{size} is no size for dim {position} of an expanded tensor"
                    )));
                }
            });
        }
        let strides = shape::broadcast_strides(&self.sizes, &self.strides, &target)?;
        Ok(Layout { sizes: target, strides, offset: self.offset })
    }

    /// The diagonal of dims `dim1` and `dim2`, as a last dim; `shift` columns to the right of the main one.
    ///
    /// # Errors
    /// When the dims are the same.
    pub fn diagonal(&self, shift: i64, dim1: usize, dim2: usize) -> Result<Layout> {
        if dim1 == dim2 {
            return Err(Error::invalid_input("a diagonal needs two different dims"));
        }
        let down = usize::try_from(-shift.min(0)).unwrap_or(usize::MAX);
        let right = usize::try_from(shift.max(0)).unwrap_or(usize::MAX);
        let len = self.sizes[dim1].saturating_sub(down).min(self.sizes[dim2].saturating_sub(right));
        let kept: Vec<usize> = (0..self.rank()).filter(|&dim| dim != dim1 && dim != dim2).collect();
        let mut out = self.permuted(&kept);
        if len > 0 {
            let start = down.saturating_mul(self.strides[dim1]);
            out.offset = out.offset.saturating_add(start.saturating_add(right * self.strides[dim2]));
        }
        out.sizes.push(len);
        out.strides.push(self.strides[dim1].saturating_add(self.strides[dim2]));
        Ok(out)
    }

    /// All windows of `size` elements of `dim`, `step` apart; the window is a new last dim.
    ///
    /// # Errors
    /// When no window fits.
    pub fn unfolded(&self, dim: usize, size: usize, step: usize) -> Result<Layout> {
        let have = self.sizes.get(dim).copied().unwrap_or(1);
        if size > have || step == 0 {
            return Err(Error::invalid_input(format!(
                "windows of {size} elements, {step} apart, do not fit the {have} of dim {dim}"
            )));
        }
        if self.rank() == 0 {
            return Ok(Layout { sizes: vec![size], strides: vec![1], offset: self.offset });
        }
        let mut out = self.sliced(dim, 0, (have - size) / step + 1, step);
        out.sizes.push(size);
        out.strides.push(self.strides[dim]);
        Ok(out)
    }

    /// The same memory with other sizes, strides and offset.
    ///
    /// # Errors
    /// When this is no contiguous tensor, or an element would lie outside it.
    pub fn as_strided(&self, sizes: Vec<usize>, strides: Vec<usize>, offset: usize) -> Result<Layout> {
        if self.offset != 0 || !shape::is_contiguous(&self.sizes, &self.strides) {
            return Err(Error::internal("strides are set over a tensor that is not contiguous"));
        }
        if sizes.len() != strides.len() {
            return Err(Error::invalid_input("as_strided needs as many strides as sizes"));
        }
        let extent = shape::extent_elems(&sizes, &strides)?;
        let have = shape::numel(&self.sizes)?;
        if extent > 0 && offset.checked_add(extent).is_none_or(|end| end > have) {
            return Err(Error::invalid_input(format!(
                "sizes {sizes:?} with strides {strides:?} from element {offset} on leave the {have} elements"
            )));
        }
        Ok(Layout { sizes, strides, offset: if extent > 0 { offset } else { 0 } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_slice_starts_nowhere() {
        let layout = Layout::contiguous(&[4, 5]).sliced(0, 4, 0, 1);
        assert_eq!((layout.sizes, layout.offset), (vec![0, 5], 0));
    }

    #[test]
    fn splitting_keeps_the_stride_of_the_dim() {
        let layout = Layout::contiguous(&[6, 2]).transposed(0, 1).split(1, &[2, 3]);
        assert_eq!((layout.sizes, layout.strides), (vec![2, 2, 3], vec![1, 6, 2]));
    }

    #[test]
    fn expansion_keeps_and_adds_dims() {
        let layout = Layout::contiguous(&[3, 1]);
        assert_eq!(layout.expanded(&[2, -1, 4]).unwrap().strides, [0, 1, 0]);
        assert!(layout.expanded(&[-1, 3, 1]).is_err());
        assert!(layout.expanded(&[1]).is_err());
        assert!(layout.expanded(&[2, 1]).is_err());
    }

    #[test]
    fn strides_are_free_within_a_whole_tensor_only() {
        let whole = Layout::contiguous(&[24]);
        assert!(whole.as_strided(vec![4, 6], vec![1, 4], 0).is_ok());
        assert!(whole.as_strided(vec![4, 6], vec![1, 4], 1).is_err());
        assert!(whole.as_strided(vec![0], vec![1], 99).is_ok());
        assert!(whole.sliced(0, 3, 6, 1).as_strided(vec![2], vec![1], 0).is_err());
    }
}
