//! `vkdelegate` runs PyTorch programs (what `torch.export.save` writes) on Vulkan GPUs.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod base;
pub mod delegate;
pub mod gpu;
pub mod import;
pub mod ir;
pub mod ops;
pub mod plan;
pub mod shader;
