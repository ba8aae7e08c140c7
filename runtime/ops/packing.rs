//! Lays constants out as kernels want them, straight from the program's bytes and piece by piece.
//!
//! Nothing is held: each call writes one range of the packed bytes, so a caller with a small staging buffer can
//! pack a weight of any size.

mod codes;
mod kernels;
mod source;

use std::sync::Arc;

pub use self::codes::split_code;
use self::{codes::Codes, kernels::Kernels, source::Source};
use super::Element;
use crate::{
    base::{DType, Error, Result},
    ir::{PayloadId, TensorRef},
};

/// A layout of a constant in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Packing {
    /// Row-major, as the constant's sizes say.
    Contiguous,
    /// A matrix `[N, K]` as panels of 4 rows: element `(n, k)` at `((n / 4) * K + k) * 4 + n % 4`, rows past N are
    /// zero. One 4-vector load gives 4 outputs' weights at one k; what one work group reads is contiguous.
    Panels4,
    /// The weight of a convolution in panels of 4 output channels of one group: `[groups * O, I, taps...]` or, transposed,
    /// `[groups * I, O, taps...]`. Element `(g, o, i, tap)` at `((g * ceil(O / 4) + o / 4) * I * taps + i * taps + tap) * 4
    /// + o % 4`; channels past O are zero.
    Kernels {
        /// Groups of channels.
        groups: u32,
        /// Whether input channels come before output channels.
        transposed: bool,
    },
    /// Codes of a matrix `[N, K]` of 8-bit integers, `bits` (8 or 4) each, as signed `code - offset`, in panels of 4 rows
    /// and blocks of 4 words: bits `bits * i..` of word r of block b hold the code at row r of the panel and
    /// `k = b * 32 / bits + i`. What is past N or K is zero. See `shaders/lib/codes.glsl`.
    Codes {
        /// Bits of a code.
        bits: u8,
        /// What is subtracted so that a code fits as a signed number.
        offset: u8,
    },
    /// Codes of a matrix `[N, K / c]` of uint8 that holds `c = 8 / bits` unsigned codes a byte: of 4 bits with the first in
    /// the high half, of 2 bits with the first in the low ones. On the device they are [`Packing::Codes`] of 4 bits of
    /// `[N, K]`, as signed `code - 2^(bits - 1)`.
    Split {
        /// Bits of a code in the constant, 4 or 2.
        bits: u8,
    },
}

impl Packing {
    /// Consecutive k of one row that a word of codes holds; 1 for other packings.
    pub fn codes_a_word(self) -> usize {
        match self {
            Packing::Codes { bits: 4, .. } | Packing::Split { .. } => 8,
            Packing::Codes { .. } => 4,
            _ => 1,
        }
    }

    /// Codes that a byte of the constant holds; 1 where an element is a code.
    pub fn codes_a_byte(self) -> usize {
        match self {
            Packing::Split { bits } => 8 / usize::from(bits.clamp(1, 8)),
            _ => 1,
        }
    }
}

/// What makes two prepacks the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackKey(Key);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Constant {
        payload: PayloadId,
        dtype: DType,
        sizes: Vec<usize>,
        strides: Vec<usize>,
        offset_elems: usize,
        packing: Packing,
        element: Element,
        rounds_to_f16: bool,
    },
    Words(Arc<[u32]>),
}

/// What is to be laid out on the device, once, at build.
#[derive(Clone, Debug)]
pub enum Prepack {
    /// A constant of the program.
    Constant(PackedRef),
    /// Words that a kernel reads besides its operands, which the plan itself made.
    Words {
        /// The node that they are for.
        name: String,
        /// The words.
        words: Arc<[u32]>,
    },
}

/// A constant in a packing.
#[derive(Clone, Debug)]
pub struct PackedRef {
    constant: TensorRef,
    packing: Packing,
    element: Element,
    rounds_to_f16: bool,
}

impl Prepack {
    /// Asks for `constant` in `packing` with elements of kind `element`; `rounds_to_f16` says that 32-bit floats are
    /// to hold half-precision values (a device without 16-bit storage).
    pub fn new(constant: TensorRef, packing: Packing, element: Element, rounds_to_f16: bool) -> Prepack {
        Prepack::Constant(PackedRef { constant, packing, element, rounds_to_f16 })
    }

    /// The constant's name, or that of the node which words are for.
    pub fn name(&self) -> &str {
        match self {
            Prepack::Constant(packed) => packed.constant.constant().name(),
            Prepack::Words { name, .. } => name,
        }
    }

    /// Equal for two requests exactly when they give the same bytes.
    pub fn key(&self) -> PackKey {
        PackKey(match self {
            Prepack::Constant(packed) => packed.key(),
            Prepack::Words { words, .. } => Key::Words(Arc::clone(words)),
        })
    }

    /// Bytes on the device.
    ///
    /// # Errors
    /// When they do not fit `usize`, or the packing wants another rank.
    pub fn len_bytes(&self) -> Result<usize> {
        match self {
            Prepack::Constant(packed) => packed.len_bytes(),
            Prepack::Words { words, .. } => Ok(words.len() * size_of::<u32>()),
        }
    }

    /// Writes packed bytes `offset_bytes..offset_bytes + out.len()`; both are multiples of 4 elements' bytes, or the
    /// range ends with the packed constant.
    ///
    /// # Errors
    /// A damaged file, or an integer that does not fit 32 bits.
    pub fn write(&self, offset_bytes: usize, out: &mut [u8]) -> Result<()> {
        match self {
            Prepack::Constant(packed) => packed.write(offset_bytes, out),
            Prepack::Words { words, .. } => {
                let words = words.iter().skip(offset_bytes / size_of::<u32>());
                for (slot, word) in out.chunks_exact_mut(size_of::<u32>()).zip(words) {
                    slot.copy_from_slice(&word.to_le_bytes());
                }
                Ok(())
            }
        }
    }
}

impl PackedRef {
    fn key(&self) -> Key {
        let constant = self.constant.constant();
        Key::Constant {
            payload: constant.payload().id(),
            dtype: constant.dtype(),
            sizes: constant.sizes().to_vec(),
            strides: constant.strides().to_vec(),
            offset_elems: constant.offset_elems(),
            packing: self.packing,
            element: self.element,
            rounds_to_f16: self.rounds_to_f16,
        }
    }

    fn len_bytes(&self) -> Result<usize> {
        let sizes = self.constant.sizes();
        let elems = match self.packing {
            Packing::Contiguous => crate::base::shape::numel(sizes)?,
            Packing::Panels4 => {
                let (n, k) = self.matrix()?;
                n.div_ceil(4).checked_mul(4).and_then(|rows| rows.checked_mul(k)).ok_or_else(|| {
                    Error::unsupported(format!("a weight of sizes {sizes:?} has too many elements"))
                })?
            }
            Packing::Kernels { groups, transposed } => {
                let kernels = Kernels::new(sizes, groups, transposed)?;
                kernels.elems().ok_or_else(|| {
                    Error::unsupported(format!("a weight of sizes {sizes:?} has too many elements"))
                })?
            }
            Packing::Codes { .. } | Packing::Split { .. } => {
                let (n, k) = self.matrix()?;
                let blocks = k.div_ceil(self.packing.codes_a_word());
                n.div_ceil(4).checked_mul(4).and_then(|rows| rows.checked_mul(blocks)).ok_or_else(|| {
                    Error::unsupported(format!("a weight of sizes {sizes:?} has too many elements"))
                })?
            }
        };
        elems
            .checked_mul(self.element.size_bytes())
            .ok_or_else(|| Error::unsupported(format!("a constant of sizes {sizes:?} has too many bytes")))
    }

    /// Rows and columns of what is packed.
    fn matrix(&self) -> Result<(usize, usize)> {
        match self.constant.sizes() {
            &[n, k] => Ok((n, k * self.packing.codes_a_byte())),
            sizes => Err(Error::internal(format!("panels hold a matrix, not a constant of sizes {sizes:?}"))),
        }
    }

    fn write(&self, offset_bytes: usize, out: &mut [u8]) -> Result<()> {
        let source = Source::new(self)?;
        let width = self.element.size_bytes();
        let first = offset_bytes / width;
        match self.packing {
            Packing::Contiguous => source.write_contiguous(first, out),
            Packing::Panels4 if source.is_plain_copy() => match self.element {
                Element::F16 => source.write_panels::<2>(self.matrix()?, first, out),
                Element::F32 | Element::I32 => source.write_panels::<4>(self.matrix()?, first, out),
            },
            Packing::Panels4 => {
                let (n, k) = self.matrix()?;
                for (position, slot) in out.chunks_exact_mut(width).enumerate() {
                    let index = first + position;
                    let (panel, lane) = (index / (4 * k), index % 4);
                    let (row, column) = (panel * 4 + lane, (index / 4) % k);
                    if row < n {
                        source.write_one(source.at_matrix(row, column), slot)?;
                    } else {
                        slot.fill(0);
                    }
                }
                Ok(())
            }
            Packing::Kernels { groups, transposed } => {
                let kernels = Kernels::new(self.constant.sizes(), groups, transposed)?;
                match self.element {
                    Element::F16 if kernels.are_rows() && source.is_plain_copy() => {
                        source.write_panels::<2>(kernels.matrix(), first, out)
                    }
                    Element::F32 if kernels.are_rows() && source.is_plain_copy() => {
                        source.write_panels::<4>(kernels.matrix(), first, out)
                    }
                    _ => {
                        for (position, slot) in out.chunks_exact_mut(width).enumerate() {
                            match kernels.source_of(first + position) {
                                Some(flat) => source.write_one(source.at_flat(flat), slot)?,
                                None => slot.fill(0),
                            }
                        }
                        Ok(())
                    }
                }
            }
            Packing::Codes { bits, offset } => {
                let codes = Codes { source, bits, offset: i32::from(offset), held_bits: 8 };
                self.write_codes(&codes, first, out)
            }
            Packing::Split { bits } => {
                let codes = Codes { source, bits: 4, offset: 1 << (bits - 1), held_bits: bits };
                self.write_codes(&codes, first, out)
            }
        }
    }

    fn write_codes(&self, codes: &Codes<'_>, first: usize, out: &mut [u8]) -> Result<()> {
        let (n, k) = self.matrix()?;
        let codes_a_word = self.packing.codes_a_word();
        let blocks = k.div_ceil(codes_a_word);
        for (position, slot) in out.chunks_exact_mut(self.element.size_bytes()).enumerate() {
            let index = first + position;
            let (row, block) = (index / (4 * blocks) * 4 + index % 4, (index / 4) % blocks);
            let start = block * codes_a_word;
            let word = if row < n { codes.word(row, start..k.min(start + codes_a_word))? } else { 0 };
            slot.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
