//! A .pt2 file, as `torch.export.save` of torch 2.9 to 2.15 writes it, becomes methods in the IR.
//!
//! Files are read as hostile: every size, name and offset is checked, a payload's CRC is checked
//! when something first uses it, and nothing in a file is ever executed.

pub mod archive;
pub mod error;
pub mod json;
pub mod layout;
pub mod pyexpr;
pub mod schema;
#[cfg(test)]
#[path = "../../tests/support/zip.rs"]
mod testing;

pub use error::{Error, Result};
