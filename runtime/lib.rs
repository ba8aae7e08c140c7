//! `vkdelegate` runs PyTorch programs (what `torch.export.save` writes) on Vulkan GPUs.
#![deny(unsafe_code)]

pub mod import;
