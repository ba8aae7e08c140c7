//! Lays constants out as kernels want them, straight from the program's bytes and piece by piece.
//!
//! Nothing is held: each call writes one range of the packed bytes, so a caller with a small staging buffer can
//! pack a weight of any size.

use std::sync::Arc;

use half::f16;

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

/// Sizes of the weight of a convolution, for [`Packing::Kernels`].
struct Kernels {
    groups: usize,
    out_channels: usize,
    in_channels: usize,
    taps: usize,
    transposed: bool,
}

impl Kernels {
    fn new(sizes: &[usize], groups: u32, transposed: bool) -> Result<Kernels> {
        let groups = groups as usize;
        match sizes {
            &[first, second, ref taps @ ..] if groups > 0 && first.is_multiple_of(groups) => {
                let (out_channels, in_channels) =
                    if transposed { (second, first / groups) } else { (first / groups, second) };
                let taps = crate::base::shape::numel(taps)?;
                Ok(Kernels { groups, out_channels, in_channels, taps, transposed })
            }
            _ => Err(Error::internal(format!("{groups} groups of kernels in a constant of sizes {sizes:?}"))),
        }
    }

    /// Elements of all panels; `None` when there are too many.
    fn elems(&self) -> Option<usize> {
        let rows = self.out_channels.div_ceil(4).checked_mul(4)?.checked_mul(self.groups)?;
        rows.checked_mul(self.in_channels)?.checked_mul(self.taps)
    }

    /// Whether the panels are those of a matrix with a row for each output channel.
    fn are_rows(&self) -> bool {
        !self.transposed && (self.groups == 1 || self.out_channels.is_multiple_of(4))
    }

    fn matrix(&self) -> (usize, usize) {
        (self.groups * self.out_channels, self.in_channels * self.taps)
    }

    /// The flat index in the constant of packed element `index`; `None` past the last channel of a group.
    fn source_of(&self, index: usize) -> Option<usize> {
        let (_, k) = self.matrix();
        let (panel, within) = (index / 4 / k, index / 4 % k);
        let panels = self.out_channels.div_ceil(4);
        let (group, out_channel) = (panel / panels, panel % panels * 4 + index % 4);
        let (in_channel, tap) = (within / self.taps, within % self.taps);
        let kernel = if self.transposed {
            (group * self.in_channels + in_channel) * self.out_channels + out_channel
        } else {
            (group * self.out_channels + out_channel) * self.in_channels + in_channel
        };
        (out_channel < self.out_channels).then_some(kernel * self.taps + tap)
    }
}

/// The bytes of a matrix of codes.
struct Codes<'a> {
    source: Source<'a>,
    /// Bits of a code on the device.
    bits: u8,
    offset: i32,
    /// Bits of a code in the constant: 8, or what [`Packing::Split`] says.
    held_bits: u8,
}

impl Codes<'_> {
    /// The codes of `columns` of a row, the first in the low bits.
    fn word(&self, row: usize, columns: std::ops::Range<usize>) -> Result<u32> {
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
        let byte = source.bytes.get(source.at_matrix(row, column * held / 8)).copied();
        let byte =
            byte.ok_or_else(|| Error::internal(format!("constant `{}` left its payload", source.name)))?;
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

/// The bytes of the constant with what it takes to convert one element.
struct Source<'a> {
    name: &'a str,
    bytes: &'a [u8],
    dtype: DType,
    sizes: &'a [usize],
    strides: &'a [usize],
    offset_elems: usize,
    element: Element,
    rounds_to_f16: bool,
}

impl<'a> Source<'a> {
    fn new(prepack: &'a PackedRef) -> Result<Source<'a>> {
        let constant = prepack.constant.constant();
        Ok(Source {
            name: constant.name(),
            bytes: constant.payload().bytes()?,
            dtype: constant.dtype(),
            sizes: constant.sizes(),
            strides: constant.strides(),
            offset_elems: constant.offset_elems(),
            element: prepack.element,
            rounds_to_f16: prepack.rounds_to_f16,
        })
    }

    fn is_plain_copy(&self) -> bool {
        matches!(
            (self.dtype, self.element),
            (DType::F32, Element::F32) | (DType::F16, Element::F16) | (DType::I32, Element::I32)
        ) && !self.rounds_to_f16
            && crate::base::shape::is_contiguous(self.sizes, self.strides)
    }

    fn write_contiguous(&self, first: usize, out: &mut [u8]) -> Result<()> {
        let width = self.element.size_bytes();
        if self.is_plain_copy() {
            let start = (self.offset_elems + first) * width;
            let source = self.bytes.get(start..start + out.len());
            out.copy_from_slice(
                source
                    .ok_or_else(|| Error::internal(format!("constant `{}` left its payload", self.name)))?,
            );
            return Ok(());
        }
        for (position, slot) in out.chunks_exact_mut(width).enumerate() {
            self.write_one(self.at_flat(first + position), slot)?;
        }
        Ok(())
    }

    /// Writes panels of 4 rows of the contiguous matrix `[n, k]`, whose elements of `WIDTH` bytes stay what they are; as
    /// each weight goes this way, row by row instead of element by element.
    fn write_panels<const WIDTH: usize>(
        &self,
        (n, k): (usize, usize),
        first: usize,
        mut out: &mut [u8],
    ) -> Result<()> {
        let (mut panel, mut column) = (first / 4 / k.max(1), first / 4 % k.max(1));
        while !out.is_empty() {
            let columns = (k - column).min(out.len().div_ceil(4 * WIDTH));
            let (piece, rest) = out.split_at_mut((columns * 4 * WIDTH).min(out.len()));
            for lane in 0..4 {
                let row = panel * 4 + lane;
                let slots = piece.chunks_exact_mut(4 * WIDTH).map(|four| &mut four[lane * WIDTH..][..WIDTH]);
                if row >= n {
                    slots.for_each(|slot| slot.fill(0));
                    continue;
                }
                let start = (self.offset_elems + row * k + column) * WIDTH;
                let left = || Error::internal(format!("constant `{}` left its payload", self.name));
                let elems = self.bytes.get(start..start + columns * WIDTH).ok_or_else(left)?;
                slots.zip(elems.chunks_exact(WIDTH)).for_each(|(slot, elem)| slot.copy_from_slice(elem));
            }
            (out, panel, column) = (rest, panel + 1, 0);
        }
        Ok(())
    }

    fn at_flat(&self, mut flat: usize) -> usize {
        let mut offset = self.offset_elems;
        for (&size, &stride) in self.sizes.iter().zip(self.strides).rev() {
            offset += flat % size * stride;
            flat /= size;
        }
        offset
    }

    fn at_matrix(&self, row: usize, column: usize) -> usize {
        self.offset_elems + row * self.strides[0] + column * self.strides[1]
    }

    fn write_one(&self, elem: usize, slot: &mut [u8]) -> Result<()> {
        let width = self.dtype.size_bytes();
        let source = self.bytes.get(elem * width..(elem + 1) * width);
        let source =
            source.ok_or_else(|| Error::internal(format!("constant `{}` left its payload", self.name)))?;
        match self.element {
            Element::I32 => slot.copy_from_slice(&self.int(source)?.to_le_bytes()),
            Element::F32 => {
                let value = self.float(source);
                let value = if self.rounds_to_f16 { clamped_f16(value).to_f32() } else { value };
                slot.copy_from_slice(&value.to_le_bytes());
            }
            Element::F16 if self.dtype == DType::F16 => slot.copy_from_slice(source),
            Element::F16 => slot.copy_from_slice(&clamped_f16(self.float(source)).to_le_bytes()),
        }
        Ok(())
    }

    fn float(&self, bytes: &[u8]) -> f32 {
        match (self.dtype, bytes) {
            (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (DType::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
            (DType::BF16, &[a, b]) => half::bf16::from_le_bytes([a, b]).to_f32(),
            (DType::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
            _ => 0.0,
        }
    }

    fn int(&self, bytes: &[u8]) -> Result<i32> {
        let value = match (self.dtype, bytes) {
            (DType::I64, &[a, b, c, d, e, f, g, h]) => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            (DType::I32, &[a, b, c, d]) => i64::from(i32::from_le_bytes([a, b, c, d])),
            (DType::I16, &[a, b]) => i64::from(i16::from_le_bytes([a, b])),
            (DType::I8, &[a]) => i64::from(a as i8),
            (DType::Bool, &[a]) => i64::from(a != 0),
            (_, &[a]) => i64::from(a),
            _ => 0,
        };
        i32::try_from(value).map_err(|_| {
            Error::unsupported(format!("constant `{}` holds {value}, which does not fit the 32 bits that integers have on the device", self.name))
        })
    }
}

/// A half; a finite value beyond its range becomes the largest half, so that a mask's -1e9 stays finite.
fn clamped_f16(value: f32) -> f16 {
    if value.is_finite() { f16::from_f32(value.clamp(-65504.0, 65504.0)) } else { f16::from_f32(value) }
}

#[cfg(test)]
mod tests;
