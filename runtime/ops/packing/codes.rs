//! Codes of a quantised weight, gathered into words.

use super::source::Source;
use crate::base::{DType, Result};

/// The bytes of a matrix of codes.
pub(super) struct Codes<'a> {
    pub(super) source: Source<'a>,
    /// Bits of a code on the device.
    pub(super) bits: u8,
    pub(super) offset: i32,
    /// Bits of a code in the constant: 8, or what [`Packing::Split`] says.
    pub(super) held_bits: u8,
}

impl Codes<'_> {
    /// The codes of `columns` of a row, the first in the low bits.
    pub(super) fn word(&self, row: usize, columns: std::ops::Range<usize>) -> Result<u32> {
        let mask = (1u32 << self.bits) - 1;
        let mut word = 0u32;
        for (position, column) in columns.enumerate() {
            let code = self.code(row, column)?;
            word |= ((code - self.offset) as u32 & mask) << (usize::from(self.bits) * position);
        }
        Ok(word)
    }

    fn code(&self, row: usize, column: usize) -> Result<i32> {
        let (source, held) = (&self.source, usize::from(self.held_bits));
        let byte = source.slice(source.at_matrix(row, column * held / 8), 1)?[0];
        Ok(match self.held_bits {
            8 if source.dtype == DType::I8 => i32::from(byte as i8),
            8 => i32::from(byte),
            _ => i32::from(split_code(byte, self.held_bits, column)),
        })
    }
}

/// The unsigned code of `column` in a byte of its row, which holds codes of `bits` (4 or 2) each.
pub fn split_code(byte: u8, bits: u8, column: usize) -> u8 {
    match bits {
        4 if column.is_multiple_of(2) => byte >> 4,
        4 => byte & 15,
        _ => byte >> (2 * (column % 4)) & 3,
    }
}
