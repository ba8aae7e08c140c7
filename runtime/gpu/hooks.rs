//! Faults that tests inject: each hook is a countdown that fires once, on the n-th call from when it was armed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Test hooks of one device. Clones share their state, so a test keeps one and arms it while the device is open.
#[derive(Clone, Debug, Default)]
pub struct Hooks(Arc<State>);

#[derive(Debug, Default)]
struct State {
    instance: Countdown,
    device: Countdown,
    allocation: Countdown,
    pipeline: Countdown,
    submit: Countdown,
    wait: Countdown,
    non_coherent: AtomicBool,
}

impl Hooks {
    /// Makes the n-th instance creation from now fail (n counts from 1; 0 disarms, here and below).
    pub fn fail_instance(&self, n: u64) {
        self.0.instance.arm(n);
    }

    /// Makes the n-th device creation from now fail.
    pub fn fail_device(&self, n: u64) {
        self.0.device.arm(n);
    }

    /// Makes the n-th buffer allocation from now fail.
    pub fn fail_allocation(&self, n: u64) {
        self.0.allocation.arm(n);
    }

    /// Makes the n-th pipeline creation from now fail.
    pub fn fail_pipeline(&self, n: u64) {
        self.0.pipeline.arm(n);
    }

    /// Loses the device at the n-th submission from now.
    pub fn lose_at_submit(&self, n: u64) {
        self.0.submit.arm(n);
    }

    /// Loses the device at the n-th wait from now.
    pub fn lose_at_wait(&self, n: u64) {
        self.0.wait.arm(n);
    }

    /// Treats host memory as non-coherent: every write is flushed, every read invalidated.
    pub fn force_non_coherent(&self, on: bool) {
        self.0.non_coherent.store(on, Ordering::Relaxed);
    }

    pub(super) fn instance_fails(&self) -> bool {
        self.0.instance.fires()
    }

    pub(super) fn device_fails(&self) -> bool {
        self.0.device.fires()
    }

    pub(super) fn allocation_fails(&self) -> bool {
        self.0.allocation.fires()
    }

    pub(super) fn pipeline_fails(&self) -> bool {
        self.0.pipeline.fires()
    }

    pub(super) fn submit_loses(&self) -> bool {
        self.0.submit.fires()
    }

    pub(super) fn wait_loses(&self) -> bool {
        self.0.wait.fires()
    }

    pub(super) fn is_non_coherent(&self) -> bool {
        self.0.non_coherent.load(Ordering::Relaxed)
    }
}

/// Counts calls down to the one that fires; 0 means not armed.
#[derive(Debug, Default)]
struct Countdown(AtomicU64);

impl Countdown {
    fn arm(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    fn fires(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_fires_once_on_the_nth_call() {
        let hooks = Hooks::default();
        assert!(!hooks.allocation_fails());
        hooks.clone().fail_allocation(2);
        let fired: Vec<bool> = (0..4).map(|_| hooks.allocation_fails()).collect();
        assert_eq!(fired, [false, true, false, false]);
    }
}
