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
    /// Allocates a mapped buffer.
    ///
    /// # Errors
    /// As for [`Gpu::create_buffer`].
    pub fn create_staging(&self, desc: &StagingDesc<'_>) -> GpuResult<StagingBuffer> {
        let purpose = match desc.direction {
            StagingDirection::Upload => Purpose::Upload,
            StagingDirection::Readback => Purpose::Readback,
        };
        Ok(StagingBuffer { buffer: Buffer::create(&self.shared, desc.name, desc.size_bytes, purpose)? })
    }
}

/// A mapped buffer. Host access is refused while a submission that uses it is pending, so bytes are never stale.
#[derive(Debug)]
pub struct StagingBuffer {
    buffer: Buffer,
}

impl StagingBuffer {
    /// The buffer, for copies and bindings.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Copies `bytes` to `offset_bytes`.
    ///
    /// # Errors
    /// As for [`StagingBuffer::write_with`].
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> GpuResult<()> {
        self.write_with(offset_bytes, bytes.len(), |mapped| mapped.copy_from_slice(bytes))
    }

    /// Copies the bytes at `offset_bytes` to `bytes`.
    ///
    /// # Errors
    /// As for [`StagingBuffer::read_with`].
    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> GpuResult<()> {
        self.read_with(offset_bytes, bytes.len(), |mapped| bytes.copy_from_slice(mapped))
    }

    /// As [`Buffer::write_with`].
    ///
    /// # Errors
    /// As for [`Buffer::write_with`].
    pub fn write_with<R>(
        &mut self,
        offset_bytes: u64,
        len_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> GpuResult<R> {
        self.buffer.write_with(offset_bytes, len_bytes, fill)
    }

    /// As [`Buffer::read_with`].
    ///
    /// # Errors
    /// As for [`Buffer::write_with`].
    pub fn read_with<R>(
        &self,
        offset_bytes: u64,
        len_bytes: usize,
        use_bytes: impl FnOnce(&[u8]) -> R,
    ) -> GpuResult<R> {
        self.buffer.read_with(offset_bytes, len_bytes, use_bytes)
    }
}
