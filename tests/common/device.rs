//! The device that tests run on: lavapipe unless the environment chooses, with validation on.

use std::sync::{Arc, OnceLock};

use vkdelegate::{delegate::Context, gpu::GpuOptions};

/// The device that all tests of one binary share.
///
/// # Panics
/// When there is no Vulkan device: a test without one has failed, not passed.
pub fn context() -> Arc<Context> {
    static CONTEXT: OnceLock<Arc<Context>> = OnceLock::new();
    Arc::clone(CONTEXT.get_or_init(|| {
        let options = GpuOptions { validation: true, sync_validation: true, ..GpuOptions::default() };
        Context::open(options, None).unwrap_or_else(|error| panic!("no device to test on: {error}"))
    }))
}

/// What the validation layer has said so far. Any message is a failure.
pub fn validation_messages() -> Vec<String> {
    context().gpu().validation_messages()
}
