//! Reads elements of a constant where they lie, and converts them.

use half::f16;

use super::{Element, PackedRef};
use crate::base::{DType, Error, Result};

/// The bytes of the constant with what it takes to convert one element.
pub(super) struct Source<'a> {
    name: &'a str,
    bytes: &'a [u8],
    pub(super) dtype: DType,
    sizes: &'a [usize],
    strides: &'a [usize],
    offset_elems: usize,
    element: Element,
    rounds_to_f16: bool,
}

impl<'a> Source<'a> {
    pub(super) fn new(prepack: &'a PackedRef) -> Result<Source<'a>> {
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

    /// Bytes of the payload.
    pub(super) fn slice(&self, start: usize, len_bytes: usize) -> Result<&'a [u8]> {
        let left = || Error::internal(format!("constant `{}` left its payload", self.name));
        self.bytes.get(start..start + len_bytes).ok_or_else(left)
    }

    /// Whether elements stay what they are, and lie in order.
    pub(super) fn is_plain_copy(&self) -> bool {
        matches!(
            (self.dtype, self.element),
            (DType::F32, Element::F32) | (DType::F16, Element::F16) | (DType::I32, Element::I32)
        ) && !self.rounds_to_f16
            && crate::base::shape::is_contiguous(self.sizes, self.strides)
    }

    /// Writes elements in the order of the sizes, from number `first` on.
    pub(super) fn write_contiguous(&self, first: usize, out: &mut [u8]) -> Result<()> {
        let width = self.element.size_bytes();
        if self.is_plain_copy() {
            let start = (self.offset_elems + first) * width;
            out.copy_from_slice(self.slice(start, out.len())?);
            return Ok(());
        }
        for (position, slot) in out.chunks_exact_mut(width).enumerate() {
            self.write_one(self.at_flat(first + position), slot)?;
        }
        Ok(())
    }

    /// Writes panels of 4 rows of the contiguous matrix `[n, k]`, whose elements of `WIDTH` bytes stay what they are; as
    /// each weight goes this way, row by row instead of element by element.
    pub(super) fn write_panels<const WIDTH: usize>(
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
                let elems = self.slice(start, columns * WIDTH)?;
                slots.zip(elems.chunks_exact(WIDTH)).for_each(|(slot, elem)| slot.copy_from_slice(elem));
            }
            (out, panel, column) = (rest, panel + 1, 0);
        }
        Ok(())
    }

    /// Where the element with that number in the order of the sizes lies, in elements.
    pub(super) fn at_flat(&self, mut flat: usize) -> usize {
        let mut offset = self.offset_elems;
        for (&size, &stride) in self.sizes.iter().zip(self.strides).rev() {
            offset += flat % size * stride;
            flat /= size;
        }
        offset
    }

    /// Where an element of a matrix lies, in elements.
    pub(super) fn at_matrix(&self, row: usize, column: usize) -> usize {
        self.offset_elems + row * self.strides[0] + column * self.strides[1]
    }

    /// Writes the element that lies at `elem`.
    pub(super) fn write_one(&self, elem: usize, slot: &mut [u8]) -> Result<()> {
        let width = self.dtype.size_bytes();
        let source = self.slice(elem * width, width)?;
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
pub(super) fn clamped_f16(value: f32) -> f16 {
    if value.is_finite() { f16::from_f32(value.clamp(-65504.0, 65504.0)) } else { f16::from_f32(value) }
}
