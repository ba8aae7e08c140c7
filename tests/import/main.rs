//! Reading .pt2 files: real ones, hand-made ones, and hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod archive;
mod fixtures;
mod json;
mod mutated;
mod program;
mod weights;

use std::sync::Arc;

use vkdelegate::base::Result;
use vkdelegate::import::{self, LoadedProgram};
use vkdelegate::ir::Method;

fn load(bytes: impl Into<Arc<[u8]>>) -> Result<LoadedProgram> {
    import::from_bytes(bytes.into())
}

fn load_method(bytes: Vec<u8>) -> Result<Method> {
    load(bytes).map(|program| program.methods.into_iter().next().expect("a program has a method"))
}

/// The text of the refusal of `bytes`.
fn refusal(bytes: Vec<u8>) -> String {
    load(bytes).expect_err("must be refused").to_string()
}

/// Reads every constant, as a build would.
fn read_constants(program: &LoadedProgram) -> Result<()> {
    for method in &program.methods {
        for input in method.graph.inputs() {
            if let Some(id) = input.kind.constant() {
                method.graph.constant(id)?.to_tensor()?;
            }
        }
    }
    Ok(())
}

/// Path of a file of `tests/fixtures`.
fn fixture(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Runs `test` on a thread with as little stack as a phone's worker thread has.
fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(512 << 10).spawn(test).unwrap().join().unwrap();
}
