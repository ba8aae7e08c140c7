//! The host's turn on mapped buffers, kept apart from the device's use of them.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

use ash::vk;

use super::device::count;
use super::error::{GpuError, GpuResult};
use super::memory::Buffer;

/// Access of the host to mapped buffers: refused while a submission that uses one is pending, so bytes are never stale.
impl Buffer {
    /// Whether the host reaches the buffer's bytes.
    pub fn is_mapped(&self) -> bool {
        self.gate().is_some()
    }

    /// Copies `bytes` to `offset_bytes`.
    ///
    /// # Errors
    /// As for [`Buffer::write_with`].
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> GpuResult<()> {
        self.write_with(offset_bytes, bytes.len(), |mapped| mapped.copy_from_slice(bytes))
    }

    /// Copies the bytes at `offset_bytes` to `bytes`.
    ///
    /// # Errors
    /// As for [`Buffer::write_with`].
    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> GpuResult<()> {
        self.read_with(offset_bytes, bytes.len(), |mapped| bytes.copy_from_slice(mapped))
    }

    /// Lets `fill` write a range in place (it may be write-combined memory: write in order, don't read).
    ///
    /// # Errors
    /// When the buffer is not mapped, the range is beyond it, a pending submission uses the buffer, or the device is lost.
    pub fn write_with<R>(
        &self,
        offset_bytes: u64,
        len_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> GpuResult<R> {
        let access = self.host_access(offset_bytes, len_bytes)?;
        // SAFETY: the range was checked against the mapping, and the gate keeps device and other host access out.
        let mapped = unsafe { std::slice::from_raw_parts_mut(access.start.as_ptr(), len_bytes) };
        let result = fill(mapped);
        self.flush(offset_bytes, len_bytes as u64)?;
        Ok(result)
    }

    /// Lets `use_bytes` read a range in place.
    ///
    /// # Errors
    /// As for [`Buffer::write_with`].
    pub fn read_with<R>(
        &self,
        offset_bytes: u64,
        len_bytes: usize,
        use_bytes: impl FnOnce(&[u8]) -> R,
    ) -> GpuResult<R> {
        let access = self.host_access(offset_bytes, len_bytes)?;
        self.invalidate(offset_bytes, len_bytes as u64)?;
        // SAFETY: the range was checked against the mapping, and the gate keeps device writes out.
        let mapped = unsafe { std::slice::from_raw_parts(access.start.as_ptr(), len_bytes) };
        Ok(use_bytes(mapped))
    }

    fn host_access(&self, offset_bytes: u64, len_bytes: usize) -> GpuResult<HostAccess<'_>> {
        self.shared().check_alive()?;
        self.check_range(offset_bytes, len_bytes as u64)?;
        let not_mapped = || GpuError::invalid(self.name(), "its memory is not mapped");
        let gate = self.gate().ok_or_else(not_mapped)?;
        if !gate.enter_host() {
            let reason = "in use: wait for the submission that uses it first";
            return Err(GpuError::invalid(self.name(), reason));
        }
        let mapped = self.allocation().mapped_ptr().zip(usize::try_from(offset_bytes).ok());
        let Some((base, offset)) = mapped else {
            gate.leave_host();
            return Err(not_mapped());
        };
        // SAFETY: the offset lies within the mapping, which spans the whole buffer.
        let start = unsafe { base.cast::<u8>().add(offset) };
        Ok(HostAccess { gate, start })
    }

    fn flush(&self, offset_bytes: u64, len_bytes: u64) -> GpuResult<()> {
        let shared = self.shared();
        if self.is_coherent() || len_bytes == 0 {
            return Ok(());
        }
        count(&shared.counters.flushes, 1);
        // SAFETY: the range is of mapped memory, in whole atoms.
        unsafe { shared.raw.flush_mapped_memory_ranges(&[self.mapped_range(offset_bytes, len_bytes)]) }
            .map_err(|result| shared.error("vkFlushMappedMemoryRanges", result))
    }

    fn invalidate(&self, offset_bytes: u64, len_bytes: u64) -> GpuResult<()> {
        let shared = self.shared();
        if self.is_coherent() || len_bytes == 0 {
            return Ok(());
        }
        count(&shared.counters.invalidations, 1);
        // SAFETY: the range is of mapped memory, in whole atoms.
        unsafe { shared.raw.invalidate_mapped_memory_ranges(&[self.mapped_range(offset_bytes, len_bytes)]) }
            .map_err(|result| shared.error("vkInvalidateMappedMemoryRanges", result))
    }

    fn is_coherent(&self) -> bool {
        let coherent = self.allocation().memory_properties().contains(vk::MemoryPropertyFlags::HOST_COHERENT);
        coherent && !self.shared().hooks.is_non_coherent()
    }

    /// The range of memory to flush or invalidate for a range of the buffer.
    fn mapped_range(&self, offset_bytes: u64, len_bytes: u64) -> vk::MappedMemoryRange<'static> {
        let (shared, allocation) = (self.shared(), self.allocation());
        let atom = shared.info.caps.limits.non_coherent_atom_bytes;
        let range = atom_range(offset_bytes, len_bytes, atom, allocation.size());
        // SAFETY: the memory is only named in a flush or invalidation, while the allocation lives.
        let memory = unsafe { allocation.memory() };
        vk::MappedMemoryRange::default()
            .memory(memory)
            .offset(allocation.offset() + range.offset_bytes)
            .size(range.len_bytes.unwrap_or(vk::WHOLE_SIZE))
    }
}

/// Keeps host and device apart: negative while the host is in, else the number of pending submissions.
#[derive(Default)]
pub(super) struct HostGate(AtomicI32);

impl HostGate {
    /// Counts a submission in, unless the host is in.
    pub(super) fn enter_device(&self) -> bool {
        let enter = |users: i32| if users >= 0 { users.checked_add(1) } else { None };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }

    pub(super) fn leave_device(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    fn enter_host(&self) -> bool {
        self.0.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn leave_host(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// The host's turn on a mapped buffer; ends when dropped, also in a panic.
struct HostAccess<'a> {
    gate: &'a HostGate,
    start: NonNull<u8>,
}

impl Drop for HostAccess<'_> {
    fn drop(&mut self) {
        self.gate.leave_host();
    }
}

/// A range in whole atoms; `None` for the length means up to the end of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AtomRange {
    offset_bytes: u64,
    len_bytes: Option<u64>,
}

/// Widens a range to whole atoms of non-coherent memory, but not past the memory's end.
fn atom_range(offset_bytes: u64, len_bytes: u64, atom_bytes: u64, memory_bytes: u64) -> AtomRange {
    let atom = atom_bytes.max(1);
    let start = offset_bytes - offset_bytes % atom;
    let end = offset_bytes.saturating_add(len_bytes).checked_next_multiple_of(atom);
    let len_bytes = end.filter(|&end| end <= memory_bytes).map(|end| end - start);
    AtomRange { offset_bytes: start, len_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_widen_to_atoms_and_stop_at_the_memory() {
        for atom in [64, 256] {
            for memory in [4096, 4100] {
                for (offset, len) in [(0, 1), (100, 10), (255, 2), (4090, 6), (4090, 10)] {
                    if offset + len > memory {
                        continue;
                    }
                    let range = atom_range(offset, len, atom, memory);
                    let end = range.len_bytes.map_or(memory, |len| range.offset_bytes + len);
                    assert_eq!(range.offset_bytes % atom, 0);
                    assert!(range.offset_bytes <= offset && offset + len <= end && end <= memory);
                    assert!(range.len_bytes.is_none_or(|len| len % atom == 0));
                }
            }
        }
        let range = |offset_bytes, len_bytes| AtomRange { offset_bytes, len_bytes };
        assert_eq!(atom_range(0, 1, 64, 4096), range(0, Some(64)));
        assert_eq!(atom_range(100, 10, 64, 4096), range(64, Some(64)));
        assert_eq!(atom_range(255, 2, 64, 4096), range(192, Some(128)));
        assert_eq!(atom_range(255, 2, 256, 4096), range(0, Some(512)));
        assert_eq!(atom_range(4090, 10, 64, 4100), range(4032, None));
        assert_eq!(atom_range(4090, 10, 256, 4100), range(3840, None));
        assert_eq!(atom_range(u64::MAX - 1, 9, 64, 4100).len_bytes, None);
    }

    #[test]
    fn the_gate_keeps_host_and_device_apart() {
        let gate = HostGate::default();
        assert!(gate.enter_device() && gate.enter_device());
        assert!(!gate.enter_host());
        gate.leave_device();
        gate.leave_device();
        assert!(gate.enter_host());
        assert!(!gate.enter_device() && !gate.enter_host());
        gate.leave_host();
        assert!(gate.enter_device());
    }
}
