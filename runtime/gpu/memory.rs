//! Buffers and their memory: limits checked, allocations accounted for.

use std::fmt;
use std::sync::Arc;

use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use gpu_allocator::{AllocationError, MemoryLocation};

use super::caps::UnifiedMemory;
use super::device::{Gpu, Shared, count, uncount};
use super::error::{GpuError, GpuResult};
use super::lock;
use super::mapping::HostGate;

/// What a device-local buffer is to be.
#[derive(Clone, Copy, Debug)]
pub struct BufferDesc<'a> {
    /// Name for messages and debuggers.
    pub name: &'a str,
    /// Size, at least 1 and within `max_buffer_bytes` and `max_memory_allocation_bytes`.
    pub size_bytes: u64,
}

/// Who uses a buffer, and how; chooses its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Kernels.
    Device,
    /// Kernels and the host.
    Shared,
    /// The host writes, copies read.
    Upload,
    /// Copies write, the host reads.
    Readback,
}

impl Purpose {
    fn location(self) -> MemoryLocation {
        match self {
            Purpose::Device => MemoryLocation::GpuOnly,
            Purpose::Shared | Purpose::Upload => MemoryLocation::CpuToGpu,
            Purpose::Readback => MemoryLocation::GpuToCpu,
        }
    }

    /// Whether kernels leave it alone.
    fn is_staging(self) -> bool {
        matches!(self, Purpose::Upload | Purpose::Readback)
    }
}

/// Bytes of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Device-local bytes now.
    pub device_bytes: u64,
    /// Most device-local bytes at one time.
    pub device_peak_bytes: u64,
    /// Staging bytes now.
    pub host_bytes: u64,
    /// Most staging bytes at one time.
    pub host_peak_bytes: u64,
    /// Bytes of all memory blocks that the allocator holds, used or not.
    pub reserved_bytes: u64,
}

impl MemoryUse {
    pub(super) fn with_reserved(mut self, reserved_bytes: u64) -> MemoryUse {
        self.reserved_bytes = reserved_bytes;
        self
    }

    fn add(&mut self, bytes: u64, on_host: bool) {
        let (now, peak) = self.side(on_host);
        *now = now.saturating_add(bytes);
        *peak = (*peak).max(*now);
    }

    fn remove(&mut self, bytes: u64, on_host: bool) {
        let (now, _) = self.side(on_host);
        *now = now.saturating_sub(bytes);
    }

    fn side(&mut self, on_host: bool) -> (&mut u64, &mut u64) {
        match on_host {
            true => (&mut self.host_bytes, &mut self.host_peak_bytes),
            false => (&mut self.device_bytes, &mut self.device_peak_bytes),
        }
    }
}

/// A buffer that kernels, copies and fills use. Clones share it; recordings that use it keep it alive.
#[derive(Clone)]
pub struct Buffer {
    inner: Arc<BufferInner>,
}

struct BufferInner {
    shared: Arc<Shared>,
    raw: vk::Buffer,
    name: String,
    size_bytes: u64,
    purpose: Purpose,
    address: Option<u64>,
    gate: Option<HostGate>,
    allocation: Allocation,
}

impl Gpu {
    /// Allocates a device-local buffer. Its bytes are undefined until written.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`]; [`GpuError::LimitExceeded`] when no buffer of this device can be so large.
    pub fn create_buffer(&self, desc: &BufferDesc<'_>) -> GpuResult<Buffer> {
        Buffer::create(&self.shared, desc.name, desc.size_bytes, Purpose::Device)
    }

    /// Allocates a buffer for kernels that the host reaches too, where the device has
    /// [unified memory](super::Caps::unified_memory); elsewhere one as [`Gpu::create_buffer`] gives.
    ///
    /// # Errors
    /// As for [`Gpu::create_buffer`].
    pub fn create_shared_buffer(&self, desc: &BufferDesc<'_>) -> GpuResult<Buffer> {
        let purpose = match self.caps().unified_memory {
            UnifiedMemory::None => Purpose::Device,
            UnifiedMemory::Written | UnifiedMemory::WrittenAndRead => Purpose::Shared,
        };
        Buffer::create(&self.shared, desc.name, desc.size_bytes, purpose)
    }
}

impl Buffer {
    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.inner.size_bytes
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its address for kernels, if the device has `buffer_device_address`.
    ///
    /// A recording does not see buffers used by address: tell it with [`Recorder::keep`](super::Recorder::keep).
    pub fn device_address(&self) -> Option<u64> {
        self.inner.address
    }

    pub(super) fn raw(&self) -> vk::Buffer {
        self.inner.raw
    }

    pub(super) fn gate(&self) -> Option<&HostGate> {
        self.inner.gate.as_ref()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// The memory behind it.
    pub(super) fn allocation(&self) -> &Allocation {
        &self.inner.allocation
    }

    /// Allocates a buffer; one that the host can reach gets a gate.
    pub(super) fn create(
        shared: &Arc<Shared>,
        name: &str,
        size_bytes: u64,
        purpose: Purpose,
    ) -> GpuResult<Buffer> {
        BufferInner::create(shared, name, size_bytes, purpose)
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.inner.shared, shared)
    }

    /// Checks that `[offset, offset + len)` lies within the buffer.
    pub(super) fn check_range(&self, offset_bytes: u64, len_bytes: u64) -> GpuResult<()> {
        match offset_bytes.checked_add(len_bytes) {
            Some(end) if end <= self.size_bytes() => Ok(()),
            _ => Err(GpuError::invalid(
                self.name(),
                format!(
                    "{len_bytes} bytes at offset {offset_bytes} are beyond its {} bytes",
                    self.size_bytes()
                ),
            )),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, {} bytes)", self.name(), self.size_bytes())
    }
}

impl BufferInner {
    fn create(shared: &Arc<Shared>, name: &str, size_bytes: u64, purpose: Purpose) -> GpuResult<Buffer> {
        shared.check_alive()?;
        check_size(shared, name, size_bytes)?;
        let on_host = purpose.is_staging();
        let out_of_memory = || GpuError::OutOfMemory {
            name: name.to_owned(),
            requested_bytes: size_bytes,
            heap: if on_host { "host" } else { "device" },
        };
        let raw = create_raw(shared, size_bytes).map_err(|result| match result {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => out_of_memory(),
            _ => shared.error("vkCreateBuffer", result),
        })?;
        let allocation = allocate(shared, name, raw, purpose.location()).inspect_err(|_| {
            // SAFETY: the buffer was just made and nothing uses it.
            unsafe { shared.raw.destroy_buffer(raw, None) };
        });
        let allocation = allocation.map_err(|error| match error {
            AllocationError::OutOfMemory => out_of_memory(),
            other => GpuError::Vulkan { call: "vkAllocateMemory", reason: other.to_string() },
        })?;
        lock(&shared.memory_use).add(size_bytes, on_host);
        count(&shared.counters.buffers, 1);
        count(&shared.counters.allocations, 1);
        let mut inner = BufferInner {
            shared: Arc::clone(shared),
            raw,
            name: name.to_owned(),
            size_bytes,
            purpose,
            address: None,
            gate: (purpose != Purpose::Device).then(HostGate::default),
            allocation,
        };
        inner.bind()?;
        Ok(Buffer { inner: Arc::new(inner) })
    }

    /// Gives the buffer its memory, address and name.
    fn bind(&mut self) -> GpuResult<()> {
        let shared = &self.shared;
        // SAFETY: the memory is used for binding only, while the allocation lives.
        let memory = unsafe { self.allocation.memory() };
        // SAFETY: the buffer is unbound, and the range was allocated for its requirements.
        unsafe { shared.raw.bind_buffer_memory(self.raw, memory, self.allocation.offset()) }
            .map_err(|result| shared.error("vkBindBufferMemory", result))?;
        if shared.info.caps.features.buffer_device_address {
            self.address = Some(shared.buffer_address(self.raw));
        }
        shared.set_name(self.raw, &self.name);
        Ok(())
    }
}

impl Drop for BufferInner {
    fn drop(&mut self) {
        // SAFETY: recordings hold their buffers, so no pending work uses this one.
        unsafe { self.shared.raw.destroy_buffer(self.raw, None) };
        let allocation = std::mem::take(&mut self.allocation);
        if let Some(allocator) = lock(&self.shared.allocator).as_mut()
            && let Err(error) = allocator.free(allocation)
        {
            log::error!("freeing the memory of `{}`: {error}", self.name);
        }
        lock(&self.shared.memory_use).remove(self.size_bytes, self.purpose.is_staging());
        uncount(&self.shared.counters.buffers, 1);
    }
}

fn check_size(shared: &Shared, name: &str, size_bytes: u64) -> GpuResult<()> {
    if size_bytes == 0 {
        return Err(GpuError::invalid(name, "a buffer has at least one byte"));
    }
    let limits = &shared.info.caps.limits;
    let limit = limits.max_buffer_bytes.min(limits.max_memory_allocation_bytes);
    if size_bytes > limit {
        let what = "the buffer's size in bytes";
        return Err(GpuError::LimitExceeded { name: name.to_owned(), what, requested: size_bytes, limit });
    }
    Ok(())
}

fn create_raw(shared: &Shared, size_bytes: u64) -> Result<vk::Buffer, vk::Result> {
    use vk::BufferUsageFlags as Usage;
    let mut usage =
        Usage::STORAGE_BUFFER | Usage::UNIFORM_TEXEL_BUFFER | Usage::TRANSFER_SRC | Usage::TRANSFER_DST;
    if shared.info.caps.features.buffer_device_address {
        usage |= Usage::SHADER_DEVICE_ADDRESS;
    }
    let info = vk::BufferCreateInfo::default().size(size_bytes).usage(usage);
    // SAFETY: the size is within the device's limits, and the usage needs no feature that is not enabled.
    unsafe { shared.raw.create_buffer(&info, None) }
}

fn allocate(
    shared: &Shared,
    name: &str,
    raw: vk::Buffer,
    location: MemoryLocation,
) -> Result<Allocation, AllocationError> {
    if shared.hooks.allocation_fails() {
        return Err(AllocationError::OutOfMemory);
    }
    // SAFETY: the buffer belongs to this device.
    let mut requirements = unsafe { shared.raw.get_buffer_memory_requirements(raw) };
    if location != MemoryLocation::GpuOnly {
        // No two buffers share an atom, so flushing one never touches another.
        let atom = shared.info.caps.limits.non_coherent_atom_bytes;
        requirements.alignment = requirements.alignment.max(atom);
        requirements.size =
            requirements.size.checked_next_multiple_of(atom).ok_or(AllocationError::OutOfMemory)?;
    }
    let mut allocator = lock(&shared.allocator);
    let allocator = allocator.as_mut().ok_or(AllocationError::OutOfMemory)?;
    allocator.allocate(&AllocationCreateDesc {
        name,
        requirements,
        location,
        linear: true,
        allocation_scheme: AllocationScheme::GpuAllocatorManaged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_when_bytes_go() {
        let mut memory = MemoryUse::default();
        memory.add(100, false);
        memory.add(50, false);
        memory.remove(100, false);
        memory.add(10, true);
        assert_eq!((memory.device_bytes, memory.device_peak_bytes), (50, 150));
        assert_eq!((memory.host_bytes, memory.host_peak_bytes), (10, 10));
    }
}
