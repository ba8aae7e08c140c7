//! The command-line tool as its users meet it: exit codes, what goes to which stream, and the shape of its JSON.
//!
//! Standard error must be empty when all is well, which also keeps the validation layer silent.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod errors;
mod inspect;
mod run;
mod support;
#[path = "../../runtime/cli/tensors/mod.rs"]
#[allow(dead_code, unused_imports)]
mod tensors;
mod tune;
mod verify;
