//! `pack_codes`: 8-bit codes that are computed at run time as words of 4, which products read 4 at a time.
//!
//! A live int8 or uint8 tensor takes 32 bits an element on the device. `vkdelegate.pack_codes(input, groups)` gives of
//! `input`, int8 or uint8 of sizes `[..., K]`:
//!
//! | output | |
//! |---|---|
//! | `words` | int32, sizes `[..., ceil(K / 4)]`: 4 bytes each, the first in the low bits; a byte is the code less the least of its dtype; those past K are 0 |
//! | `sums` | int32, sizes `[..., groups]`: the bytes' sum over each K / `groups` columns |
//!
//! With several groups each has a multiple of 4 columns.

use super::packed;
use crate::{
    base::{DType, Error, HostTensor, Result},
    ops::{Args, Lowering, Meta, Op, Operand, Tensor},
};

/// Columns beyond which 32 bits might not hold a sum of bytes.
pub(super) const MAX_COLUMNS: usize = 1 << 22;

/// The family of the one op.
pub struct PackCodes;

/// Columns and groups of one call.
pub(super) struct Shape {
    columns: usize,
    pub groups: usize,
}

impl Shape {
    pub(super) fn of<T>(args: &Args<T>, sizes: &[usize]) -> Result<Shape> {
        let columns = sizes
            .last()
            .copied()
            .filter(|&columns| columns > 0)
            .ok_or_else(|| Error::unsupported("has no columns to pack").at_operand("input"))?;
        if columns > MAX_COLUMNS {
            let text = format!("has {columns} columns; sums in 32 bits take {MAX_COLUMNS}");
            return Err(Error::unsupported(text).at_operand("input"));
        }
        let groups = group_count(args, columns, 4)?;
        Ok(Shape { columns, groups })
    }

    pub(super) fn words(&self) -> usize {
        self.columns.div_ceil(4)
    }
}

/// The attribute `groups`, which divides `columns`; several groups are whole words of `codes_a_word`.
pub(super) fn group_count<T>(args: &Args<T>, columns: usize, codes_a_word: usize) -> Result<usize> {
    let groups = args.int("groups")?;
    let count = usize::try_from(groups).ok().filter(|&groups| {
        groups == 1 || groups > 1 && columns.is_multiple_of(groups.saturating_mul(codes_a_word))
    });
    count.ok_or_else(|| {
        let text = format!("{groups} groups of {columns} codes are not whole words of {codes_a_word}");
        Error::unsupported(text).at_operand("groups")
    })
}

impl Op for PackCodes {
    fn targets(&self) -> &'static [&'static str] {
        &["vkdelegate.pack_codes.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let input = args.tensor("input")?;
        if !matches!(input.dtype, DType::I8 | DType::U8) {
            let text = format!("is {}; int8 and uint8 are packed", input.dtype);
            return Err(Error::unsupported(text).at_operand("input"));
        }
        let shape = Shape::of(args, &input.sizes)?;
        let outer = &input.sizes[..input.sizes.len() - 1];
        let sized = |last: usize| Meta::new(DType::I32, [outer, &[last]].concat());
        Ok(vec![sized(shape.words()), sized(shape.groups)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let input = args.tensor("input")?;
        let shape = Shape::of(args, input.sizes())?;
        let least = if input.dtype() == DType::I8 { -128 } else { 0 };
        let (mut words, mut sums) = (Vec::new(), Vec::new());
        for row in input.to_i64s().chunks_exact(shape.columns) {
            let bytes: Vec<i64> = row.iter().map(|code| code - least).collect();
            words
                .extend(bytes.chunks(4).map(|four| four.iter().rev().fold(0, |word, byte| word << 8 | byte)));
            sums.extend(bytes.chunks(shape.columns / shape.groups).map(|group| group.iter().sum::<i64>()));
        }
        Ok(vec![
            HostTensor::from_i64s(DType::I32, outs[0].sizes.clone(), &words)?,
            HostTensor::from_i64s(DType::I32, outs[1].sizes.clone(), &sums)?,
        ])
    }

    fn lower(&self, args: &Args<Operand>, _outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        packed::pack(args, cx)
    }
}
