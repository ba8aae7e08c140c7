//! The Vulkan layer on a real device (lavapipe by default), under core and synchronization validation.
//!
//! Every test fails without a device, and on any validation message that it does not provoke on purpose.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking, too")]

mod commands;
mod faults;
mod open;
mod support;
