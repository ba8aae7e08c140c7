//! Staging buffers: mapped memory that copies move to and from the buffers that kernels use.

use super::device::Gpu;
use super::error::GpuResult;
use super::memory::{Buffer, Purpose};

/// What a staging buffer is to be.
#[derive(Clone, Copy, Debug)]
pub struct StagingDesc<'a> {
    /// Name for messages and debuggers.
    pub name: &'a str,
    /// Size, as in [`BufferDesc`](super::BufferDesc).
    pub size_bytes: u64,
    /// Which side writes.
    pub direction: StagingDirection,
}

/// Which way the bytes of a staging buffer go; chooses the kind of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagingDirection {
    /// The host writes, the device reads.
    Upload,
    /// The device writes, the host reads (memory that the CPU caches, where there is some).
    Readback,
}

impl Gpu {
    /// Allocates a buffer whose bytes the host reaches ([`Buffer::write_with`], [`Buffer::read_with`]).
    ///
    /// # Errors
    /// As for [`Gpu::create_buffer`].
    pub fn create_staging(&self, desc: &StagingDesc<'_>) -> GpuResult<Buffer> {
        let purpose = match desc.direction {
            StagingDirection::Upload => Purpose::Upload,
            StagingDirection::Readback => Purpose::Readback,
        };
        Buffer::create(&self.shared, desc.name, desc.size_bytes, purpose)
    }
}
