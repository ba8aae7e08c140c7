//! Brings the parameters of a weight to one scale and zero point for each row and group, and chooses the codes' bits.

use super::{
    activation::Activation,
    weight::{Param, Weight},
};
use crate::{
    base::{DType, SymExpr, shape},
    ir::{Constant, Constness, Graph},
    passes::evaluate::Evaluator,
};

/// What groups a kernel takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Groups {
    /// Groups of whole words.
    OfWords,
    /// Groups of any size.
    Any,
}

/// A weight in the form of `linear_q8` and `linear_q4`.
pub(super) struct Packed {
    /// Rows.
    pub n: usize,
    /// Columns.
    pub k: usize,
    /// Groups of a row.
    pub groups: usize,
    /// Bits of a code on the device.
    pub bits: u8,
    /// Subtracted from a code so that it is a signed number of `bits`.
    pub offset: u8,
    /// `[N, K]`.
    pub codes: Constant,
    /// `[N, groups]`.
    pub scales: Vec<f32>,
    /// `[N, groups]`, with `offset` subtracted.
    pub zeros: Vec<f32>,
}

/// Columns of a product that is summed in integers.
const MOST_COLUMNS: usize = 1 << 22;

/// Zero points further from 0 than this are of no code.
const MOST_ZERO: f32 = 128.0;

impl Packed {
    /// Refuses what products of codes with the codes of `activation` do not take.
    ///
    /// # Errors
    /// Why they do not.
    pub fn check_sums(&self, activation: &Activation) -> Result<(), String> {
        if activation.sizes.last().and_then(SymExpr::as_const) != i64::try_from(self.k).ok() {
            return Err(format!("their rows are not of the weight's {} columns", self.k));
        }
        if self.k > MOST_COLUMNS {
            return Err(format!(
                "there are {} columns, at most {MOST_COLUMNS} are summed in integers",
                self.k
            ));
        }
        match self.zeros.iter().find(|zero| zero.abs() > MOST_ZERO) {
            Some(zero) => Err(format!("the weight has the zero point {}", zero + f32::from(self.offset))),
            None => Ok(()),
        }
    }

    /// For the report.
    pub fn remark(&self) -> String {
        let groups = if self.groups == 1 { String::new() } else { format!(", {} groups a row", self.groups) };
        format!("its weight stays in {}-bit codes{groups}", self.bits)
    }
}

/// Packs `weight`, whose codes, scales and zero points are given.
///
/// # Errors
/// Why no kernel takes it.
pub(super) fn pack(
    weight: &Weight,
    codes: Constant,
    (scale, zero): (Vec<f64>, Vec<f64>),
    takes: Groups,
) -> Result<Packed, String> {
    if !matches!(codes.dtype(), DType::I8 | DType::U8) {
        return Err(format!("the codes are {}; int8 and uint8 are packed", codes.dtype()));
    }
    let &[rows, columns] = codes.sizes() else { return Err("the codes are no matrix".to_string()) };
    if rows == 0 || columns == 0 {
        return Err("there are no codes".to_string());
    }
    let split =
        split_of(&weight.grouped, rows, columns).ok_or("the blocks are no blocks of rows and columns")?;
    let scale = Spread::new(&weight.grouped, split, &weight.scale, scale)?;
    let zero = Spread::new(&weight.grouped, split, &weight.zero, zero)?;
    let (n, k) = if weight.is_transposed { (columns, rows) } else { (rows, columns) };
    let group = scale.block(weight.is_transposed).min(zero.block(weight.is_transposed));
    let divides = |param: &Spread| param.block(weight.is_transposed).is_multiple_of(group);
    if group == 0 || !k.is_multiple_of(group) || !divides(&scale) || !divides(&zero) {
        return Err(format!("groups of {group} do not divide the {k} columns"));
    }
    let groups = k / group;
    let (bits, offset) = bits_of(weight, &codes, (group, groups), takes)?;
    let mut scales = Vec::with_capacity(n * groups);
    let mut zeros = Vec::with_capacity(n * groups);
    for row in 0..n {
        for index in 0..groups {
            let at = if weight.is_transposed { [index * group, row] } else { [row, index * group] };
            let (scale, zero) = (scale.at(at) as f32, zero.at(at) as f32);
            // Products of codes are scaled after they are summed, which gives another sum of what is not finite.
            if takes == Groups::OfWords && !(scale.is_finite() && zero.is_finite()) {
                return Err(format!("row {row} has the scale {scale} and the zero point {zero}"));
            }
            scales.push(scale);
            zeros.push(zero - f32::from(offset));
        }
    }
    let codes = if weight.is_transposed { transposed(&codes)? } else { codes };
    Ok(Packed { n, k, groups, bits, offset, codes, scales, zeros })
}

impl Param {
    /// Its elements, in order.
    ///
    /// # Errors
    /// Why they are not known.
    pub fn numbers(
        &self,
        graph: &Graph,
        constness: &Constness,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<Vec<f64>, String> {
        match self {
            Param::Number(number) => Ok(vec![*number]),
            Param::Value { value, .. } if constness.is_constant(*value) => {
                let constant = evaluator.evaluate(*value, false)?;
                Ok(constant.to_tensor().map_err(|error| error.to_string())?.to_f64s())
            }
            Param::Value { value, .. } => Err(format!("`{}` is run-time data", graph.value_name(*value))),
        }
    }
}

/// A matrix with its dims swapped, over the same bytes.
///
/// # Errors
/// When it is none.
pub(super) fn transposed(codes: &Constant) -> Result<Constant, String> {
    let swapped = |values: &[usize]| values.iter().rev().copied().collect::<Vec<usize>>();
    codes
        .restrided(codes.name(), swapped(codes.sizes()), swapped(codes.strides()), codes.offset_elems())
        .map_err(|error| error.to_string())
}

/// Bits of a code, and what to subtract. Reads the codes where 4 bits may do. Groups that fill words of 8-bit codes only keep those whatever is
/// taken, so that all readers of a table agree.
fn bits_of(
    weight: &Weight,
    codes: &Constant,
    (group, groups): (usize, usize),
    takes: Groups,
) -> Result<(u8, u8), String> {
    let is_free = takes == Groups::Any && !group.is_multiple_of(4);
    let fills = |codes_a_word: usize| groups == 1 || is_free || group.is_multiple_of(codes_a_word);
    if !fills(4) {
        return Err(format!("groups of {group}; multiples of 4 are packed"));
    }
    let may_be_narrow = weight.range.is_none_or(|(low, high)| high.saturating_sub(low) <= 15);
    if may_be_narrow && fills(8) {
        let (low, high) = range_of(codes)?;
        if low >= -8 && high <= 7 {
            return Ok((4, 0));
        }
        if low >= 0 && high <= 15 {
            return Ok((4, 8));
        }
    }
    Ok((8, if codes.dtype() == DType::U8 { 128 } else { 0 }))
}

/// The least and the largest code, at most and at least 0. Reads the bytes where they are.
fn range_of(codes: &Constant) -> Result<(i32, i32), String> {
    let bytes = codes.payload().bytes().map_err(|error| error.to_string())?;
    let (mut low, mut high) = (0, 0);
    let mut missing = false;
    shape::for_each_offset(codes.sizes(), codes.strides(), codes.offset_elems(), |at| match bytes.get(at) {
        Some(&byte) => {
            let code = if codes.dtype() == DType::U8 { i32::from(byte) } else { i32::from(byte as i8) };
            (low, high) = (code.min(low), code.max(high));
        }
        None => missing = true,
    });
    if missing { Err(format!("constant `{}` left its payload", codes.name())) } else { Ok((low, high)) }
}

/// How many leading dims of `grouped` make the rows; the others make the columns.
fn split_of(grouped: &[usize], rows: usize, columns: usize) -> Option<usize> {
    (0..=grouped.len()).find(|&split| {
        grouped[..split].iter().product::<usize>() == rows
            && grouped[split..].iter().product::<usize>() == columns
    })
}

/// A parameter over the elements of a matrix.
struct Spread<'a> {
    grouped: &'a [usize],
    split: usize,
    strides: Vec<usize>,
    values: Vec<f64>,
}

impl<'a> Spread<'a> {
    fn new(
        grouped: &'a [usize],
        split: usize,
        param: &Param,
        values: Vec<f64>,
    ) -> Result<Spread<'a>, String> {
        let strides = match param {
            Param::Number(_) => vec![0; grouped.len()],
            Param::Value { sizes, .. } => {
                if shape::numel(sizes).ok() != Some(values.len()) {
                    return Err("a scale or zero point has another size than its use says".to_string());
                }
                shape::broadcast_strides(sizes, &shape::contiguous_strides(sizes), grouped)
                    .map_err(|error| error.to_string())?
            }
        };
        Ok(Spread { grouped, split, strides, values })
    }

    /// Neighbours along the rows' dims, or along the columns', that share one value.
    fn block(&self, along_rows: bool) -> usize {
        let dims = if along_rows { 0..self.split } else { self.split..self.grouped.len() };
        let dims: Vec<usize> = dims.collect();
        let shared = dims.iter().rev().take_while(|&&dim| self.strides[dim] == 0 || self.grouped[dim] == 1);
        shared.map(|&dim| self.grouped[dim]).product()
    }

    /// The value at a row and a column.
    fn at(&self, [row, column]: [usize; 2]) -> f64 {
        let mut offset = 0;
        for (mut position, dims) in [(row, 0..self.split), (column, self.split..self.grouped.len())] {
            for dim in dims.rev() {
                offset += position % self.grouped[dim] * self.strides[dim];
                position /= self.grouped[dim];
            }
        }
        self.values.get(offset).copied().unwrap_or(f64::NAN)
    }
}
