//! The public face: open a device, load a program, build a delegate, run it.
//!
//! Everything an app needs is here and re-exported at the root of the crate. It must never name Vulkan, nor know
//! how an op computes.

pub mod compare;
mod delegate;
mod device;
pub mod graph;
mod host;
mod inspect;
mod program;
mod report;
mod sample;
mod single;
mod tune;
pub mod verify;

pub use delegate::{Delegate, DelegateBuilder, Outputs};
pub use device::Gpu;
pub use host::HostDelegate;
pub use inspect::Inspection;
pub use program::{InputInfo, MethodInfo, Program};
pub use report::{DelegateReport, DispatchTime, KernelChoice, KernelUse};
#[doc(hidden)]
pub use sample::{convolution_program, linear_program, quantised_linear_program};
pub use tune::{TriedCandidate, TuneOptions, TuneReport, TunedChoice, tune};

pub use crate::{
    base::{DType, Error, ErrorKind, HostTensor, Refusal, Result, Scalar, Value},
    delegate::{MemoryReport, Tuning},
    gpu::{DeviceChoice, DeviceDescription, DeviceInfo, DeviceKind, GpuOptions},
    ops::Precision,
    passes::{Decision, Fusion, Int4PackLayout, Unfused},
};
