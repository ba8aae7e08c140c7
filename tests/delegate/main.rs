//! Delegates on a real device (lavapipe by default): planning, synchronisation, state, memory, limits and faults.
//!
//! Every test runs under core and synchronization validation, and fails without a device, on any validation
//! message that it does not provoke on purpose, and on any Vulkan object that outlives what made it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking, too")]

#[path = "../common/mod.rs"]
mod common;

mod chains;
mod dynamic;
mod epilogues;
mod faults;
mod guards;
mod inputs;
mod limits;
mod order;
mod outputs;
mod plans;
mod quantised;
mod replay;
mod sharing;
mod start;
mod state;
mod support;
mod transfers;
