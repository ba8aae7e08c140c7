//! Element types of tensors, as PyTorch names them.

use std::fmt;

/// The element type of a tensor.
///
/// The text form (`Display`, [`DType::parse`]) is PyTorch's name without the `torch.` prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// `torch.float32`
    F32,
    /// `torch.float16`
    F16,
    /// `torch.bfloat16`
    BF16,
    /// `torch.float64`: converted at entry or refused, never computed on a device.
    F64,
    /// `torch.int64`
    I64,
    /// `torch.int32`
    I32,
    /// `torch.int16`
    I16,
    /// `torch.int8`
    I8,
    /// `torch.uint8`
    U8,
    /// `torch.bool`
    Bool,
}

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 10] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes of one element in host memory.
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 | DType::I16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Whether the elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16 | DType::F64)
    }

    /// Whether the elements are integers; `bool` is not one.
    pub const fn is_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8)
    }

    /// The inclusive range of an integer dtype (`bool` counts as 0..=1); `None` for floats.
    pub const fn int_range(self) -> Option<(i64, i64)> {
        match self {
            DType::I64 => Some((i64::MIN, i64::MAX)),
            DType::I32 => Some((i32::MIN as i64, i32::MAX as i64)),
            DType::I16 => Some((i16::MIN as i64, i16::MAX as i64)),
            DType::I8 => Some((i8::MIN as i64, i8::MAX as i64)),
            DType::U8 => Some((0, 255)),
            DType::Bool => Some((0, 1)),
            _ => None,
        }
    }

    /// PyTorch's name without the `torch.` prefix, such as `float32`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F64 => "float64",
            DType::I64 => "int64",
            DType::I32 => "int32",
            DType::I16 => "int16",
            DType::I8 => "int8",
            DType::U8 => "uint8",
            DType::Bool => "bool",
        }
    }

    /// The dtype with that [`name`](DType::name), if there is one.
    pub fn parse(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The dtype of an element-wise result of two tensors of the same kind of rank (both dimensioned
    /// or both 0-d), by PyTorch's `torch.promote_types`.
    pub fn promote(self, other: DType) -> DType {
        use DType::*;
        if self == other {
            return self;
        }
        let (a, b) = if self.is_float() == other.is_float() || self.is_float() {
            (self, other)
        } else {
            (other, self)
        };
        match (a, b) {
            (x, Bool) => x,
            (Bool, x) => x,
            (f, i) if f.is_float() && !i.is_float() => f,
            (F64, _) | (_, F64) => F64,
            (F32, _) | (_, F32) => F32,
            (F16, BF16) | (BF16, F16) => F32,
            (I64, _) | (_, I64) => I64,
            (I32, _) | (_, I32) => I32,
            (I16, _) | (_, I16) => I16,
            (I8, U8) | (U8, I8) => I16,
            (x, _) => x,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::parse(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::parse("complex64"), None);
    }

    #[test]
    fn promotion_follows_torch() {
        assert_eq!(DType::F16.promote(DType::BF16), DType::F32);
        assert_eq!(DType::I64.promote(DType::F16), DType::F16);
        assert_eq!(DType::U8.promote(DType::I8), DType::I16);
        assert_eq!(DType::Bool.promote(DType::U8), DType::U8);
        assert_eq!(DType::I32.promote(DType::I64), DType::I64);
        assert_eq!(DType::F32.promote(DType::F64), DType::F64);
    }
}
