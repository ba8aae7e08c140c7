//! What the integration tests share.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod cases;
pub mod choices;
pub mod compare;
pub mod device;
pub mod dtypes;
pub mod equivalence;
pub mod memory;
pub mod one_op;
pub mod program;
pub mod random;
pub mod reference;
pub mod zip;
