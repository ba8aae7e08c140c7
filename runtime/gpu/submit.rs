//! Submission of recordings to the queue, and waiting for them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ash::vk;

use super::commands::{Recording, RecordingInner};
use super::device::{Gpu, count};
use super::error::{GpuError, GpuResult};
use super::lock;
use super::mapping::HostGate;

/// How long a dropped submission waits before it says that it still does.
const DROP_PATIENCE: Duration = Duration::from_secs(10);

impl Gpu {
    /// Submits a recording. Threads may do so at the same time; submissions execute in order.
    ///
    /// # Errors
    /// When the recording is already pending, the host is in one of its mapped buffers, or the device is lost.
    pub fn submit(&self, recording: &Recording) -> GpuResult<Submission> {
        let shared = &self.shared;
        shared.check_alive()?;
        let inner = &recording.inner;
        if !std::sync::Arc::ptr_eq(shared, &inner.shared) {
            return Err(GpuError::invalid(recording.name(), "the recording is of another device"));
        }
        inner.enter()?;
        if let Err(error) = self.submit_entered(inner) {
            inner.leave();
            return Err(error);
        }
        count(&shared.counters.submissions, 1);
        Ok(Submission { recording: recording.clone(), is_done: false })
    }

    fn submit_entered(&self, inner: &RecordingInner) -> GpuResult<()> {
        let shared = &self.shared;
        if shared.hooks.submit_loses() {
            return Err(shared.lose());
        }
        // SAFETY: the recording is not pending, so its fence is unused.
        unsafe { shared.raw.reset_fences(&[inner.fence]) }
            .map_err(|result| shared.error("vkResetFences", result))?;
        let commands = [inner.commands];
        let submit = [vk::SubmitInfo::default().command_buffers(&commands)];
        let queue = lock(&shared.queue);
        // SAFETY: the queue is locked, and the recording and all that it uses live until its submission is over.
        unsafe { shared.raw.queue_submit(*queue, &submit, inner.fence) }
            .map_err(|result| shared.error("vkQueueSubmit", result))
    }
}

impl RecordingInner {
    fn gates(&self) -> impl Iterator<Item = &HostGate> {
        self.buffers.values().filter_map(|buffer| buffer.gate())
    }

    /// Marks the recording pending and shuts the host out of its mapped buffers.
    fn enter(&self) -> GpuResult<()> {
        if self.pending.swap(true, Ordering::AcqRel) {
            return Err(GpuError::invalid(&self.name, "it is pending: wait for its submission first"));
        }
        let mut entered = Vec::new();
        for gate in self.gates() {
            if !gate.enter_device() {
                entered.into_iter().for_each(HostGate::leave_device);
                self.pending.store(false, Ordering::Release);
                return Err(GpuError::invalid(&self.name, "the host is in one of its mapped buffers"));
            }
            entered.push(gate);
        }
        Ok(())
    }

    fn leave(&self) {
        self.gates().for_each(HostGate::leave_device);
        self.pending.store(false, Ordering::Release);
    }

    /// Whether an execution was waited for and none is pending.
    pub(super) fn has_results(&self) -> bool {
        self.executed.load(Ordering::Acquire) && !self.pending.load(Ordering::Acquire)
    }
}

/// A recording on its way. Dropping it waits for the work to be over.
#[must_use = "dropping a submission waits for it"]
pub struct Submission {
    recording: Recording,
    is_done: bool,
}

impl Submission {
    /// Waits until the work is over, at most `timeout`. May be called again after a time-out.
    ///
    /// # Errors
    /// [`GpuError::Timeout`], while the work goes on; [`GpuError::DeviceLost`], and then no result is valid.
    pub fn wait(&mut self, timeout: Duration) -> GpuResult<()> {
        let shared = &self.recording.inner.shared;
        shared.check_alive()?;
        if self.is_done {
            return Ok(());
        }
        if shared.hooks.wait_loses() {
            return Err(shared.lose());
        }
        match self.wait_fence(timeout) {
            Ok(()) => {
                self.recording.inner.executed.store(true, Ordering::Release);
                self.finish();
                Ok(())
            }
            Err(vk::Result::TIMEOUT) => Err(GpuError::Timeout(timeout)),
            Err(result) => Err(shared.error("vkWaitForFences", result)),
        }
    }

    fn wait_fence(&self, timeout: Duration) -> Result<(), vk::Result> {
        let inner = &self.recording.inner;
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the fence was submitted with the recording, and is reset only when that is over.
        unsafe { inner.shared.raw.wait_for_fences(&[inner.fence], true, nanoseconds) }
    }

    fn finish(&mut self) {
        self.is_done = true;
        self.recording.inner.leave();
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // Until the fence says so, the device may use the recording's memory, so there is nothing else to do.
        while self.wait_fence(DROP_PATIENCE) == Err(vk::Result::TIMEOUT) {
            log::warn!("still waiting for `{}` on the GPU", self.recording.name());
        }
        self.finish();
    }
}
