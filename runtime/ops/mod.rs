//! What each op means, and how it runs: one file per family, end to end.
//!
//! A family gives the result's metas ([`Op::infer`]), its values on the host ([`Op::eval`], plain loops with
//! wide accumulators, held to PyTorch's own values), and its dispatches ([`Op::lower`]). Ops see concrete sizes
//! only, and never a device: they emit [`Dispatch`](crate::shader::Dispatch) values.

/// The `dtype` axis of a kernel that has `f32`, `f16` and `i32`: `element_axis!(copy, element)`.
macro_rules! element_axis {
    ($kernel:ident, $element:expr) => {
        match $element {
            $crate::ops::Element::F32 => $crate::shader::kernels::$kernel::Dtype::F32,
            $crate::ops::Element::F16 => $crate::shader::kernels::$kernel::Dtype::F16,
            $crate::ops::Element::I32 => $crate::shader::kernels::$kernel::Dtype::I32,
        }
    };
}

/// The `dtype` axis of a kernel that has `f32` and `f16`; an error for integers.
macro_rules! float_axis {
    ($kernel:ident, $element:expr) => {
        match $element {
            $crate::ops::Element::F32 => Ok($crate::shader::kernels::$kernel::Dtype::F32),
            $crate::ops::Element::F16 => Ok($crate::shader::kernels::$kernel::Dtype::F16),
            $crate::ops::Element::I32 => {
                Err($crate::base::Error::unsupported("takes floating-point tensors only"))
            }
        }
    };
}

/// The `dtype` axis of a kernel that moves elements as they are: `i32` for every 32-bit element, and `f16`.
macro_rules! move_axis {
    ($kernel:ident, $element:expr) => {
        match $element {
            $crate::ops::Element::F16 => $crate::shader::kernels::$kernel::Dtype::F16,
            $crate::ops::Element::F32 | $crate::ops::Element::I32 => {
                $crate::shader::kernels::$kernel::Dtype::I32
            }
        }
    };
}

mod arg_reduce;
mod args;
mod attention;
mod batch_norm;
mod binary;
mod cast;
pub mod chain;
mod choose;
mod compare;
mod conv;
mod create;
pub mod elementwise;
mod embedding_q;
mod epilogue;
mod fill;
mod grid_sample;
mod grouped;
mod histogram;
mod index;
mod int8pack;
mod interpret;
mod join;
mod linear;
mod linear_a8;
mod linear_q;
mod lowering;
pub mod matmul;
mod norm;
mod operands;
mod packing;
mod pool;
mod product;
mod quantize;
mod rearrange;
mod reduce;
mod resize;
mod resolve;
mod rows;
mod scalar;
mod scan;
mod softmax;
mod sort;
mod table;
mod tensor;
mod ternary;
mod triangle;
mod unary;
pub mod view;
mod ways;

pub use args::{ArgValue, Args};
pub use interpret::{Interpreted, States, interpret};
pub use linear_a8::{DotSide, code_sums};
pub use linear_q::{IntMm, Side, SideValues};
pub use lowering::{Lowered, Lowering, Precision, Storage, StorageKind};
pub use operands::Typed;
pub use packing::{PackKey, Packing, Prepack};
pub use quantize::QuantizeCall;
pub use resolve::{Resolved, resolve};
pub use scalar::{SCALAR_TARGETS, eval_scalar, is_scalar_target};
pub use table::{OPS, find, supported_targets};
pub use tensor::{Element, Operand, Tensor};
pub use ways::lanes_share;

use crate::base::{DType, HostTensor, Result};

/// Dtype and concrete sizes of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub sizes: Vec<usize>,
}

impl Meta {
    /// A meta of `dtype` and `sizes`.
    pub fn new(dtype: DType, sizes: impl Into<Vec<usize>>) -> Meta {
        Meta { dtype, sizes: sizes.into() }
    }
}

/// Whether an op's first output may take the memory of an operand that nobody needs afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// Never: an output element may depend on several elements of the operand.
    Never,
    /// With any tensor operand of the same sizes and dtype that is contiguous: each output element
    /// reads operands at its own position only.
    Elementwise,
    /// With the operand of that name: the op copies it and then overwrites a part. Given a place for
    /// output 0 that *is* the operand, the copy is left out (see [`Lowering::updated`]).
    Update(&'static str),
}

/// An op family.
///
/// `outs` are what [`Op::infer`] gave for the same call; the planner has checked them against the program.
pub trait Op: Sync {
    /// ATen targets that the family takes, such as `aten.softmax.int`.
    fn targets(&self) -> &'static [&'static str];

    /// Dtype and sizes of every output.
    ///
    /// # Errors
    /// What PyTorch would refuse, and what this family does not support, naming the operand.
    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>>;

    /// The values of every output, computed on the host.
    ///
    /// # Errors
    /// Data that the op cannot process, such as an index out of range.
    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>>;

    /// Emits the dispatches that compute every output, and says where the outputs are.
    ///
    /// # Errors
    /// What the device cannot do, naming the operand and the limit.
    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>>;

    /// Whether the output may take an operand's memory.
    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Never
    }
}
