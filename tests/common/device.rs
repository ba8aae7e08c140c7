//! The device that tests run on: lavapipe unless the environment chooses, with validation on.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use vkdelegate::{
    delegate::Context,
    gpu::{CapsOverride, DeviceClass, GpuOptions},
    shader::Access,
};

/// The device that all tests of one binary share.
///
/// # Panics
/// When there is no Vulkan device: a test without one has failed, not passed.
pub fn context() -> Arc<Context> {
    static CONTEXT: OnceLock<Arc<Context>> = OnceLock::new();
    Arc::clone(CONTEXT.get_or_init(|| opened(CapsOverride::default(), None)))
}

/// The device opened anew, with other properties than it has.
///
/// # Panics
/// As [`context`].
pub fn opened(overrides: CapsOverride, access: Option<Access>) -> Arc<Context> {
    let options = GpuOptions { validation: true, sync_validation: true, overrides, ..GpuOptions::default() };
    Context::open(options, access).unwrap_or_else(|error| panic!("no device to test on: {error}"))
}

/// The device as one of `class`, whose kernels it then runs.
///
/// # Panics
/// As [`context`].
pub fn of_class(class: DeviceClass) -> Arc<Context> {
    opened(CapsOverride { class: Some(class), ..CapsOverride::default() }, None)
}

/// A test's turn on the shared device; held until the test is done with it.
///
/// Validation layer 1.3.239 (Debian 12) now and then crashes when one thread destroys command buffers while another
/// uses the device. Without the layer nothing of the kind was seen.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the validation layer has said so far. Any message is a failure.
pub fn validation_messages() -> Vec<String> {
    context().gpu().validation_messages()
}
