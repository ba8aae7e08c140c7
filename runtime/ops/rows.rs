//! Rows: how softmax, norms, reductions and scans see a tensor.
//!
//! The dims of a tensor are split into those that are kept and those that belong together; the tensor is then
//! `[rows, cols]`, in the order of the kept dims and of the others. This file knows no op.

use super::{Lowering, Tensor, elementwise::pad};
use crate::{
    base::{Error, Result, shape},
    shader::DeviceClass,
};

/// Invocations of a work group of row kernels (their header's default).
pub const LOCAL_X: u32 = 64;

/// The dims of a tensor, split into kept ones (rows) and others (columns), each in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSplit {
    kept: Vec<usize>,
    reduced: Vec<usize>,
}

impl RowSplit {
    /// Splits the dims of a tensor of `rank`; `reduced` are within it and without repeats.
    pub fn new(rank: usize, reduced: &[usize]) -> RowSplit {
        let (reduced, kept) = (0..rank).partition(|dim| reduced.contains(dim));
        RowSplit { kept, reduced }
    }

    /// Number of rows of a tensor of `sizes`.
    pub fn rows(&self, sizes: &[usize]) -> usize {
        self.kept.iter().map(|&dim| sizes[dim]).product()
    }

    /// Elements of a row of a tensor of `sizes`.
    pub fn cols(&self, sizes: &[usize]) -> usize {
        self.reduced.iter().map(|&dim| sizes[dim]).product()
    }

    /// The sizes that are left of `sizes`; reduced dims stay with size 1 when `keepdim`.
    pub fn reduced_sizes(&self, sizes: &[usize], keepdim: bool) -> Vec<usize> {
        let keep = |(dim, &size): (usize, &usize)| {
            if self.kept.contains(&dim) { Some(size) } else { keepdim.then_some(1) }
        };
        sizes.iter().enumerate().filter_map(keep).collect()
    }

    fn order<'a>(&'a self, values: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
        self.kept.iter().chain(&self.reduced).map(|&dim| values[dim])
    }

    /// Positions in a contiguous tensor of `sizes`, row by row.
    fn positions(&self, sizes: &[usize]) -> Vec<usize> {
        let strides = shape::contiguous_strides(sizes);
        let mut positions = Vec::new();
        let (sizes, strides): (Vec<_>, Vec<_>) =
            (self.order(sizes).collect(), self.order(&strides).collect());
        shape::for_each_offset(&sizes, &strides, 0, |offset| positions.push(offset));
        positions
    }

    /// The elements of a contiguous host tensor of `sizes`, row by row.
    pub fn gather<V: Copy>(&self, sizes: &[usize], values: &[V]) -> Vec<V> {
        self.positions(sizes).into_iter().map(|position| values[position]).collect()
    }

    /// The inverse of [`RowSplit::gather`].
    pub fn scatter<V: Copy + Default>(&self, sizes: &[usize], rows: &[V]) -> Vec<V> {
        let mut values = vec![V::default(); rows.len()];
        for (position, &value) in self.positions(sizes).into_iter().zip(rows) {
            values[position] = value;
        }
        values
    }

    /// `tensor` with its dims in the order kept, reduced.
    pub fn permuted(&self, tensor: &Tensor) -> Tensor {
        tensor.restrided(self.order(&tensor.sizes).collect(), self.order(&tensor.strides).collect(), 0)
    }
}

/// What kernels over rows take: see `shaders/lib/rows.glsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGrid<const TENSORS: usize> {
    /// Number of rows.
    pub rows: u32,
    /// Elements of a row.
    pub cols: u32,
    /// Invocations that share a row.
    pub lanes: u32,
    /// Sizes of the kept dims, merged, dim 0 outermost.
    pub row_sizes: [u32; 4],
    /// Strides of each tensor over those.
    pub row_strides: [[u32; 4]; TENSORS],
    /// Size of the last of the reduced dims, merged.
    pub inner: u32,
    /// Strides of each tensor over the two reduced dims that are left.
    pub col_strides: [[u32; 2]; TENSORS],
}

impl<const TENSORS: usize> RowGrid<TENSORS> {
    /// The rows of `tensors` (all of the same sizes); `None` when their dims do not merge to 4 kept and 2 reduced ones.
    pub fn new(
        class: DeviceClass,
        split: &RowSplit,
        tensors: [&Tensor; TENSORS],
    ) -> Option<RowGrid<TENSORS>> {
        let sizes = &tensors.first()?.sizes;
        let merged = |dims: &[usize]| {
            let pick = |values: &[usize]| dims.iter().map(|&dim| values[dim]).collect::<Vec<usize>>();
            let strides: Vec<Vec<usize>> = tensors.iter().map(|tensor| pick(&tensor.strides)).collect();
            let strides: Vec<&[usize]> = strides.iter().map(Vec::as_slice).collect();
            shape::merge_dims(&pick(sizes), &strides)
        };
        let (row_sizes, row_strides) = merged(&split.kept);
        let (col_sizes, col_strides) = merged(&split.reduced);
        let (rows, cols) = (split.rows(sizes), split.cols(sizes));
        let mut grid = RowGrid {
            rows: u32::try_from(rows).ok()?,
            cols: u32::try_from(cols).ok()?,
            lanes: 1,
            row_sizes: pad(&row_sizes, 1).ok()?,
            row_strides: [[0; 4]; TENSORS],
            inner: u32::try_from(col_sizes.last().copied().unwrap_or(1)).ok()?,
            col_strides: [[0; 2]; TENSORS],
        };
        for tensor in 0..TENSORS {
            grid.row_strides[tensor] = pad(&row_strides[tensor], 0).ok()?;
            grid.col_strides[tensor] = pad(&col_strides[tensor], 0).ok()?;
        }
        if col_sizes.len() > 2 {
            return None;
        }
        grid.lanes = lanes(class, rows, cols, grid.rows_are_adjacent());
        Some(grid)
    }

    /// Whether kernels may read the rows of `tensors`, of which this is the grid, in steps of 4 elements: no gaps, and
    /// every row and its length at a multiple of 4. If so, the lanes are those for so many steps.
    pub fn takes_steps_of_4(&mut self, class: DeviceClass, tensors: [&Tensor; TENSORS]) -> bool {
        let is_multiple = |strides: &[u32]| strides.iter().all(|stride| stride % 4 == 0);
        let takes = self.inner.is_multiple_of(4)
            && tensors.iter().all(|tensor| tensor.starts_aligned4())
            && self.col_strides.iter().all(|strides| strides[1] == 1 && strides[0] % 4 == 0)
            && self.row_strides.iter().all(|strides| is_multiple(strides));
        if takes {
            self.lanes = lanes(class, self.rows as usize, self.cols as usize / 4, false);
        }
        takes
    }

    /// Whether neighbouring rows are neighbours in memory and the elements of a row are not.
    fn rows_are_adjacent(&self) -> bool {
        self.row_strides.first().is_some_and(|strides| strides[3] == 1)
            && self.col_strides.first().is_some_and(|strides| strides[1] != 1)
    }

    /// Work groups that cover every row.
    ///
    /// # Errors
    /// When the device does not take that many.
    pub fn groups(&self, cx: &Lowering<'_>) -> Result<[u32; 3]> {
        cx.groups_1d(self.rows as usize * self.lanes as usize, LOCAL_X)
    }
}

impl RowGrid<2> {
    /// The rows of `x` and of `y`, whose kept dims have the same sizes. Where dims of `x` do not merge, it becomes a
    /// contiguous copy.
    ///
    /// # Errors
    /// A `y` whose dims do not merge; more elements than kernels count; no room for the copy.
    pub fn of(cx: &mut Lowering<'_>, split: &RowSplit, x: &mut Tensor, y: &Tensor) -> Result<RowGrid<2>> {
        let class = cx.profile().class;
        if let Some(grid) = RowGrid::new(class, split, [x, y]) {
            return Ok(grid);
        }
        *x = cx.contiguous(x)?;
        RowGrid::new(class, split, [x, y])
            .ok_or_else(|| Error::internal("a contiguous tensor has rows along any dim"))
    }
}

/// Invocations that share a row of `steps` loads: enough to use the device, few enough to have work for each.
/// Where rows lie side by side in memory, one invocation a row reads best, if there are rows enough; on a CPU, whose
/// barriers cost more than a row's work, it does unless a sum of that many terms would lose precision.
pub fn lanes(class: DeviceClass, rows: usize, steps: usize, rows_are_adjacent: bool) -> u32 {
    const ROWS_TO_SHARE_GROUPS: usize = 64;
    const ROWS_TO_GO_ALONE: usize = 256;
    match steps {
        0..=4096 if class == DeviceClass::Cpu && rows >= ROWS_TO_SHARE_GROUPS => 1,
        0..=8 => 1,
        9..=1024 if rows_are_adjacent && rows >= ROWS_TO_GO_ALONE => 1,
        9..=16 => 8,
        17..=128 if rows >= ROWS_TO_SHARE_GROUPS => 8,
        129..=512 if rows >= ROWS_TO_SHARE_GROUPS => 16,
        _ => LOCAL_X,
    }
}

/// `tensor` with rows that kernels take, and its grid: itself where its dims merge, else a copy in row order.
///
/// # Errors
/// When the copy cannot be made.
pub fn gridded(cx: &mut Lowering<'_>, split: &RowSplit, tensor: &Tensor) -> Result<(Tensor, RowGrid<1>)> {
    let class = cx.profile().class;
    if let Some(grid) = RowGrid::new(class, split, [tensor]) {
        return Ok((tensor.clone(), grid));
    }
    let (rows, cols) = (split.rows(&tensor.sizes), split.cols(&tensor.sizes));
    let copy = cx.contiguous(&split.permuted(tensor))?;
    let matrix = copy.restrided(vec![rows, cols], vec![cols, 1], 0);
    let grid = RowGrid::new(class, &RowSplit::new(2, &[1]), [&matrix])
        .ok_or_else(|| crate::base::Error::internal("a matrix has rows"))?;
    Ok((matrix, grid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::DType,
        ops::{Element, Precision},
        shader::{DeviceProfile, StorageId},
    };

    fn tensor(sizes: &[usize], strides: &[usize]) -> Tensor {
        Tensor {
            storage: StorageId(0),
            dtype: DType::F32,
            element: Element::F32,
            sizes: sizes.to_vec(),
            strides: strides.to_vec(),
            offset_elems: 0,
        }
    }

    #[test]
    fn scatter_undoes_gather() {
        let split = RowSplit::new(3, &[1]);
        let values: Vec<i64> = (0..24).collect();
        let rows = split.gather(&[2, 3, 4], &values);
        assert_eq!(rows[..6], [0, 4, 8, 1, 5, 9]);
        assert_eq!(split.scatter(&[2, 3, 4], &rows), values);
    }

    #[test]
    fn kept_dims_stay_in_order() {
        let split = RowSplit::new(4, &[2, 0]);
        assert_eq!(split.reduced_sizes(&[2, 3, 4, 5], false), [3, 5]);
        assert_eq!(split.reduced_sizes(&[2, 3, 4, 5], true), [1, 3, 1, 5]);
        assert_eq!((split.rows(&[2, 3, 4, 5]), split.cols(&[2, 3, 4, 5])), (15, 8));
    }

    #[test]
    fn a_contiguous_tensor_has_two_column_dims_at_most() {
        let grid = RowGrid::new(
            DeviceClass::Desktop,
            &RowSplit::new(4, &[0, 2, 3]),
            [&tensor(&[2, 3, 4, 5], &[60, 20, 5, 1])],
        )
        .unwrap();
        assert_eq!((grid.rows, grid.cols, grid.inner), (3, 40, 20));
        assert_eq!(grid.col_strides, [[60, 1]]);
        assert_eq!(grid.row_strides, [[0, 0, 0, 20]]);
    }

    #[test]
    fn steps_of_4_need_aligned_rows_without_gaps() {
        let rows = |sizes: &[usize], strides: &[usize], offset_elems: usize| {
            let tensor = tensor(sizes, strides).restrided(sizes.to_vec(), strides.to_vec(), offset_elems);
            let split = RowSplit::new(sizes.len(), &[sizes.len() - 1]);
            let class = DeviceClass::Desktop;
            RowGrid::new(class, &split, [&tensor]).unwrap().takes_steps_of_4(class, [&tensor])
        };
        assert!(rows(&[3, 8], &[8, 1], 4));
        assert!(rows(&[3, 8], &[12, 1], 0));
        assert!(!rows(&[3, 8], &[8, 1], 2));
        assert!(!rows(&[3, 8], &[9, 1], 0));
        assert!(!rows(&[3, 6], &[8, 1], 0));
        assert!(!rows(&[4, 8], &[1, 4], 0));
    }

    #[test]
    fn what_does_not_merge_is_copied() {
        let profile = DeviceProfile::minimum();
        let mut cx = Lowering::new(&profile, Precision::F32);
        let split = RowSplit::new(5, &[0, 2, 4]);
        let contiguous = tensor(&[2, 3, 2, 3, 2], &[36, 12, 6, 2, 1]);
        let (copy, grid) = gridded(&mut cx, &split, &contiguous).unwrap();
        assert_eq!((copy.sizes.as_slice(), grid.rows, grid.cols), ([9, 8].as_slice(), 9, 8));
        assert_eq!(cx.dispatch_count(), 1);
    }
}
