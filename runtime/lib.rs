//! `vkdelegate` runs PyTorch programs (what `torch.export.save` writes) on Vulkan GPUs.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod api;
#[doc(hidden)]
pub mod base;
#[doc(hidden)]
pub mod delegate;
#[doc(hidden)]
pub mod gpu;
#[doc(hidden)]
pub mod import;
#[doc(hidden)]
pub mod ir;
#[doc(hidden)]
pub mod ops;
#[doc(hidden)]
pub mod passes;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod shader;

pub use api::*;
