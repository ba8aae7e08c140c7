//! Packed activations in device memory.
//!
//! Kernels bind 4 buffers, so all that they read of the activations is one allocation: rows of words, each row a
//! multiple of 4, then the sums of rows and groups, then room for a scale and zero point a row. `pack_codes` makes it,
//! and its outputs are parts of it; a product whose words come from elsewhere copies them.

use super::{Call, pack::Shape};
use crate::{
    base::{DType, Error, Result, Scalar, shape},
    ops::{Args, Element, Lowering, Operand, Tensor, fill::fill},
    shader::{Region, kernels},
};

/// Where things are in the allocation of packed activations, in words.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    rows: usize,
    pub row_words: usize,
    groups: usize,
}

impl Layout {
    fn new(rows: usize, columns: usize, groups: usize) -> Layout {
        Layout { rows, row_words: columns.div_ceil(4).next_multiple_of(4), groups }
    }

    /// Of rows and groups.
    pub fn sums_at(self) -> usize {
        self.rows * self.row_words
    }

    /// Of a scale and a zero point a row.
    pub fn factors_at(self) -> usize {
        self.sums_at() + self.rows * self.groups
    }

    fn total(self) -> usize {
        self.factors_at() + 2 * self.rows
    }

    fn alloc(self, cx: &mut Lowering<'_>) -> Result<Tensor> {
        cx.alloc_as(DType::I32, Element::I32, &[self.total()])
    }

    /// The words of all rows, in sizes `[outer.., words]`.
    fn words(self, whole: &Tensor, outer: &[usize], words: usize) -> Tensor {
        let mut strides = shape::contiguous_strides(&[outer, &[self.row_words]].concat());
        if let Some(last) = strides.last_mut() {
            *last = 1;
        }
        whole.restrided([outer, &[words]].concat(), strides, 0)
    }

    /// The sums, in sizes `[outer.., groups]`.
    fn sums(self, whole: &Tensor, outer: &[usize]) -> Tensor {
        let sizes = [outer, &[self.groups]].concat();
        let strides = shape::contiguous_strides(&sizes);
        whole.restrided(sizes, strides, self.sums_at())
    }
}

/// Packed activations.
pub(in crate::ops) struct Packed {
    whole: Tensor,
    layout: Layout,
}

/// Packs the codes of `input`, a tensor of sizes `[.., K]`.
///
/// # Errors
/// When it is too large for the device.
pub(in crate::ops) fn packed(cx: &mut Lowering<'_>, input: &Operand, groups: usize) -> Result<Packed> {
    let x = cx.live(input)?;
    let columns = x.sizes.last().copied().unwrap_or(1);
    let rows = x.sizes[..x.sizes.len() - 1].iter().product();
    let layout = Layout::new(rows, columns, groups);
    let whole = layout.alloc(cx)?;
    let packed = Packed { whole, layout };
    if rows == 0 {
        return Ok(packed);
    }
    let matrix = match x.viewed(&[rows, columns]) {
        Some(matrix) => matrix,
        None => cx.contiguous(&x)?.restrided(vec![rows, columns], vec![columns, 1], 0),
    };
    packed.emit(cx, &matrix)?;
    Ok(packed)
}

impl Packed {
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// All of it.
    pub(super) fn region(&self) -> Region {
        self.whole.region()
    }

    /// Room for the scales and zero points of `rows` rows.
    pub(super) fn factors(&self, rows: usize) -> Tensor {
        self.whole.restrided(vec![rows, 2], vec![2, 1], self.layout.factors_at())
    }

    fn emit(&self, cx: &mut Lowering<'_>, x: &Tensor) -> Result<()> {
        use kernels::pack_codes::{Axes, Operands, Params, Spec, dispatch};
        let Layout { rows, row_words, groups } = self.layout;
        let columns = x.sizes[1];
        let group_words = if groups == 1 { row_words } else { columns / groups / 4 };
        let aligned =
            x.strides[1] == 1 && x.starts_aligned4() && (rows == 1 || x.strides[0].is_multiple_of(4));
        let local_x = Spec::default().local_x;
        let lanes = (group_words.next_power_of_two() as u32).min(local_x);
        let params = Params {
            rows: rows as u32,
            k: columns as u32,
            groups: groups as u32,
            group_words: group_words as u32,
            row_words: row_words as u32,
            x_row_stride: u32_of(x.strides[0])?,
            x_k_stride: u32_of(x.strides[1])?,
            least: if x.dtype == DType::I8 { -128 } else { 0 },
            sums_at: self.layout.sums_at() as u32,
        };
        let spec = Spec { lanes, x_vec4: u32::from(aligned), ..Spec::default() };
        let operands = Operands { x: x.region(), y: self.whole.region() };
        let grid = cx.groups_1d(rows * groups, local_x / lanes)?;
        let dispatch = dispatch(Axes {}, spec, operands, params, grid, cx.label());
        cx.emit(dispatch)
    }

    /// The allocation that `words` and `sums` are parts of; a copy of them where they are not.
    ///
    /// # Errors
    /// When the copy is too large for the device.
    pub(super) fn of(cx: &mut Lowering<'_>, call: &Call, words: &Tensor, sums: &Tensor) -> Result<Packed> {
        let layout = Layout::new(call.rows, call.k, call.side.0.groups);
        let outer = &words.sizes[..words.sizes.len() - 1];
        let whole = words.restrided(vec![layout.total()], vec![1], 0);
        let is_whole = words.storage == sums.storage
            && cx.owns_its_storage(&whole)
            && layout.words(&whole, outer, call.k.div_ceil(4)) == *words
            && layout.sums(&whole, outer) == *sums;
        if is_whole {
            return Ok(Packed { whole, layout });
        }
        let whole = layout.alloc(cx)?;
        fill(cx, &whole, Scalar::Int(0))?;
        cx.copy(words, &layout.words(&whole, outer, call.k.div_ceil(4)))?;
        cx.copy(sums, &layout.sums(&whole, outer))?;
        Ok(Packed { whole, layout })
    }
}

/// Lowers a call of `pack_codes`.
pub(super) fn pack(args: &Args<Operand>, cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
    let input = args.tensor("input")?;
    let shape = Shape::of(args, input.sizes())?;
    let Packed { whole, layout } = packed(cx, input, shape.groups)?;
    let outer = &input.sizes()[..input.sizes().len() - 1];
    Ok(vec![layout.words(&whole, outer, shape.words()), layout.sums(&whole, outer)])
}

fn u32_of(stride: usize) -> Result<u32> {
    u32::try_from(stride).map_err(|_| Error::unsupported("a stride does not fit 32 bits"))
}
