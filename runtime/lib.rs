//! `vkdelegate` runs PyTorch programs (what `torch.export.save` writes) on Vulkan GPUs.
//!
//! Open a device, load a program, build a delegate for one of its methods, run it:
//!
//! ```
//! use vkdelegate::{Delegate, Gpu, GpuOptions, HostTensor, Precision, Program};
//!
//! # fn main() -> vkdelegate::Result<()> {
//! let gpu = Gpu::open(GpuOptions::default())?;
//! let program = Program::open("examples/digits/digits.pt2")?;
//! let mut delegate =
//!     Delegate::builder(&gpu).method("forward").precision(Precision::F32).build(&program)?;
//!
//! let image = HostTensor::from_f32(&[1, 1, 8, 8], &[0.0; 64])?;
//! let outputs = delegate.run(&[image.into()])?;
//! assert_eq!(outputs.tensor(0)?.sizes(), [1, 10]);
//! # Ok(())
//! # }
//! ```
//!
//! A program gives the result that PyTorch gives, or [`DelegateBuilder::build`] refuses it with every node that cannot
//! run, the operand and the reason ([`Error::refusals`]). Only what the program proves to be constant is packed for
//! the device ahead of time; [`Delegate::report`] says what became of each matrix product and why.
//!
//! Inputs and outputs are [`Value`]s: a [`HostTensor`], a host scalar, or `None`. Buffers that the program writes to stay
//! on the device from run to run, and are read and set by name: [`Delegate::state`], [`Delegate::set_state`],
//! [`Delegate::reset`].
//!
//! The feature `cli`, on by default, is for the command-line tool; apps switch it off.
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

/// The README's examples, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
