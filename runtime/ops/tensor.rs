//! Live tensors and constants as ops see them while they are lowered.

use super::Meta;
use crate::{
    base::{DType, Error, Result, shape},
    ir::TensorRef,
    shader::{Region, StorageId},
};

/// What one element of a live tensor is in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// A 32-bit float.
    F32,
    /// A 16-bit float.
    F16,
    /// A 32-bit integer; a bool is 0 or 1.
    I32,
}

impl Element {
    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Element::F32 | Element::I32 => 4,
            Element::F16 => 2,
        }
    }
}

/// A live tensor in device memory: a strided range of a storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The memory.
    pub storage: StorageId,
    /// The program's dtype.
    pub dtype: DType,
    /// What an element is in memory.
    pub element: Element,
    /// Sizes, outermost first.
    pub sizes: Vec<usize>,
    /// Strides in elements; 0 where a dim repeats.
    pub strides: Vec<usize>,
    /// Elements before the first one.
    pub offset_elems: usize,
}

impl Tensor {
    /// Number of elements that it stands for (repeats counted).
    pub fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Whether its elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        shape::is_contiguous(&self.sizes, &self.strides)
    }

    /// The bytes from its first to its last element.
    pub fn region(&self) -> Region {
        let width = self.element.size_bytes();
        let extent = shape::extent_elems(&self.sizes, &self.strides).unwrap_or(0);
        Region {
            storage: self.storage,
            offset_bytes: (self.offset_elems * width) as u64,
            len_bytes: (extent * width) as u64,
            element_bytes: width as u32,
        }
    }

    /// The same memory with other sizes and strides, `offset_elems` further on.
    #[must_use]
    pub fn restrided(&self, sizes: Vec<usize>, strides: Vec<usize>, offset_elems: usize) -> Tensor {
        Tensor { sizes, strides, offset_elems: self.offset_elems + offset_elems, ..self.clone() }
    }

    /// The same contiguous elements as other sizes; `None` when the strides do not allow it.
    pub fn viewed(&self, sizes: &[usize]) -> Option<Tensor> {
        let strides = shape::view_strides(&self.sizes, &self.strides, sizes)?;
        Some(self.restrided(sizes.to_vec(), strides, 0))
    }

    /// Repeats dims of size 1 (and adds dims in front) to reach `sizes`.
    ///
    /// # Errors
    /// When the sizes do not broadcast.
    pub fn broadcast_to(&self, sizes: &[usize]) -> Result<Tensor> {
        let strides = shape::broadcast_strides(&self.sizes, &self.strides, sizes)?;
        Ok(self.restrided(sizes.to_vec(), strides, 0))
    }

    /// Whether vector access to 4 elements is sound from its first element on.
    pub fn starts_aligned4(&self) -> bool {
        self.offset_elems.is_multiple_of(4)
    }

    /// The meta of the tensor.
    pub fn meta(&self) -> Meta {
        Meta::new(self.dtype, self.sizes.clone())
    }
}

/// A tensor operand of an op that is lowered: run-time data, or a constant of the program.
#[derive(Clone, Debug)]
pub enum Operand {
    /// Run-time data.
    Live(Tensor),
    /// A constant by reference, not on the device yet.
    Constant(TensorRef),
}

impl Operand {
    /// Dtype and sizes.
    pub fn meta(&self) -> Meta {
        match self {
            Operand::Live(tensor) => tensor.meta(),
            Operand::Constant(constant) => Meta::new(constant.dtype(), constant.sizes()),
        }
    }

    /// Sizes, outermost first.
    pub fn sizes(&self) -> &[usize] {
        match self {
            Operand::Live(tensor) => &tensor.sizes,
            Operand::Constant(constant) => constant.sizes(),
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match self {
            Operand::Live(tensor) => tensor.dtype,
            Operand::Constant(constant) => constant.dtype(),
        }
    }

    /// The constant, where a prepack needs one.
    ///
    /// # Errors
    /// When it is run-time data.
    pub fn constant(&self) -> Result<&TensorRef> {
        match self {
            Operand::Constant(constant) => Ok(constant),
            Operand::Live(_) => {
                Err(Error::unsupported("is run-time data, and only a constant can be prepacked"))
            }
        }
    }
}
