//! The Vulkan layer: instance, device, capabilities, memory, pipelines, commands.
//!
//! The only module that names `ash`, and the only one with `unsafe` for Vulkan. It knows SPIR-V words, buffers and
//! byte ranges; it must never know ops, programs or plans.
//!
//! [`Gpu`] opens a device; a [`Buffer`] holds bytes; [`Pipeline`] is a compiled kernel; a
//! [`Recorder`] makes a [`Recording`], which is submitted any number of times. Everything made from a `Gpu` keeps
//! it alive, so values may be dropped in any order, on any thread.
#![allow(unsafe_code)]

mod cache;
mod caps;
mod commands;
mod descriptors;
mod device;
mod error;
mod features;
mod hooks;
mod instance;
mod loader;
mod mapping;
mod memory;
mod options;
mod pipeline;
mod select;
mod staging;
mod submit;
mod timing;
mod validation;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use caps::{Caps, CapsOverride, DeviceClass, DotProduct, Limits, TimestampCaps, UnifiedMemory};
pub use commands::{CopyRegion, DispatchDesc, Recorder, RecorderDesc, Recording, Scope};
pub use descriptors::{BufferBinding, TexelFormat};
pub use device::{Counters, DeviceInfo, Gpu};
pub use error::{GpuError, GpuResult};
pub use features::Features;
pub use hooks::Hooks;
pub use memory::{Buffer, BufferDesc, MemoryUse};
pub use options::GpuOptions;
pub use pipeline::{BindingKind, Pipeline, PipelineDesc};
pub use select::{DeviceChoice, DeviceDescription, DeviceKind, select};
pub use staging::{StagingDesc, StagingDirection};
pub use submit::Submission;
pub use timing::Timing;
pub use validation::ValidationLog;

/// Locks, whatever another thread did while it held the lock: the guarded values stay consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
