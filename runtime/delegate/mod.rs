//! From a plan to the GPU: packs constants, creates pipelines, records, submits, reads back.
//!
//! Knows plans and the GPU layer, and no op: what a dispatch computes was settled when it was lowered.

mod build;
mod constants;
mod context;
mod convert;
mod error;
mod fault;
mod memory;
mod pipelines;
mod record;
mod self_check;
mod session;
mod state;
mod transfer;
mod tuning;

#[doc(hidden)]
pub use build::BuildHooks;
pub use build::BuildOptions;
pub use context::Context;
pub use memory::MemoryReport;
pub use session::{RunTiming, Session};
pub use transfer::RunOutputs;
pub use tuning::Tuning;
