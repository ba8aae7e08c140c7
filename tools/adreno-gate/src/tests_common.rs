//! What reads the op cases of the library's tests. A case that cannot be read is a fault of the tests, and panics.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "tests use their own part, and panic")]

#[path = "../../../tests/common/cases.rs"]
pub mod cases;
#[path = "../../../tests/common/compare.rs"]
pub mod compare;
#[path = "../../../tests/common/one_op.rs"]
pub mod one_op;
