//! From a plan to the GPU: packs constants, creates pipelines, records, submits, reads back.
//!
//! Knows plans and the GPU layer, and no op: what a dispatch computes was settled when it was lowered.

mod constants;
mod context;
mod convert;
mod error;
mod pipelines;
mod record;
mod session;
mod state;

pub use context::Context;
pub use session::{BuildOptions, MemoryReport, RunTiming, Session};
