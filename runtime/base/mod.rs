//! The words every layer speaks: dtypes, shapes, symbolic sizes, typed ids, errors and host tensors.
//!
//! Knows nothing of graphs, files or devices.

mod dtype;
mod error;
pub mod id;
pub mod shape;
mod symexpr;
mod tensor;

pub use dtype::DType;
pub use error::{Error, ErrorKind, Refusal, Result};
pub use id::{IdVec, TypedId};
pub use symexpr::{Range, SymEnv, SymExpr};
pub use tensor::{HostTensor, Scalar, Value};
