//! Kernels with several ways to launch: results that no replay and no work-group shape changes, and devices that take only
//! small ones. The tuner, which finds the fastest of them and strikes out what is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod attention;
#[path = "../common/mod.rs"]
mod common;
mod rows;
mod shapes;
mod subject;
mod submissions;
mod texels;
mod tuner;
