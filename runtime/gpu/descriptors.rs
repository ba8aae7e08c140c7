//! Bindings of buffers, plain or as views of texels: checked against the device's limits, and written to sets from
//! growing pools.

use std::sync::Arc;

use ash::vk;

use super::caps::Limits;
use super::device::{Shared, count, uncount};
use super::error::{GpuError, GpuResult};
use super::memory::Buffer;
use super::pipeline::{BindingKind, Pipeline};

const FIRST_POOL_SETS: u32 = 64;
const MOST_POOL_SETS: u32 = 1024;

/// How a texel of four floats is stored. Kernels see 32-bit floats. Every device can read both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TexelFormat {
    /// Halves.
    Half4,
    /// 32-bit floats.
    Float4,
}

impl TexelFormat {
    /// Bytes of one texel.
    pub const fn bytes(self) -> u64 {
        match self {
            TexelFormat::Half4 => 8,
            TexelFormat::Float4 => 16,
        }
    }

    fn raw(self) -> vk::Format {
        match self {
            TexelFormat::Half4 => vk::Format::R16G16B16A16_SFLOAT,
            TexelFormat::Float4 => vk::Format::R32G32B32A32_SFLOAT,
        }
    }
}

/// A byte range of a buffer, as a kernel sees it.
#[derive(Clone, Copy, Debug)]
pub struct BufferBinding<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// Start: a multiple of `min_storage_buffer_offset_alignment_bytes`, or for texels of
    /// `min_texel_buffer_offset_alignment_bytes`.
    pub offset_bytes: u64,
    /// Length: at least 1 and at most `max_storage_buffer_range_bytes`, or `max_texel_buffer_elems` whole texels.
    pub size_bytes: u64,
    /// The format of a view of texels; `None` binds a storage buffer.
    pub texels: Option<TexelFormat>,
}

impl BufferBinding<'_> {
    fn kind(&self) -> BindingKind {
        if self.texels.is_some() { BindingKind::Texels } else { BindingKind::Storage }
    }

    /// Checks the range against the buffer and the device: what the driver would take silently is an error here.
    fn check(&self, limits: &Limits, label: &str) -> GpuResult<()> {
        self.buffer.check_range(self.offset_bytes, self.size_bytes)?;
        check_range(self.offset_bytes, self.size_bytes, self.texels, limits, label)
    }
}

fn check_range(
    offset_bytes: u64,
    size_bytes: u64,
    texels: Option<TexelFormat>,
    limits: &Limits,
    label: &str,
) -> GpuResult<()> {
    let (alignment, max_bytes) = match texels {
        None => (limits.min_storage_buffer_offset_alignment_bytes, limits.max_storage_buffer_range_bytes),
        Some(format) => (
            limits.min_texel_buffer_offset_alignment_bytes,
            limits.max_texel_buffer_elems.saturating_mul(format.bytes()),
        ),
    };
    if texels.is_some_and(|format| !size_bytes.is_multiple_of(format.bytes())) {
        return Err(GpuError::invalid(
            label,
            format!("{size_bytes} bytes are bound, no whole number of texels"),
        ));
    }
    if size_bytes == 0 {
        return Err(GpuError::invalid(label, "an empty range is bound"));
    }
    if !offset_bytes.is_multiple_of(alignment) {
        let reason =
            format!("a range is bound at offset {offset_bytes}, not a multiple of {alignment} bytes");
        return Err(GpuError::invalid(label, reason));
    }
    if size_bytes > max_bytes {
        return Err(GpuError::LimitExceeded {
            name: label.to_owned(),
            what: "the size of a bound range in bytes",
            requested: size_bytes,
            limit: max_bytes,
        });
    }
    Ok(())
}

/// The descriptor pools of one recording.
pub(super) struct DescriptorPools {
    shared: Arc<Shared>,
    pools: Vec<vk::DescriptorPool>,
    /// Views that the sets hold.
    views: Vec<vk::BufferView>,
    sets: u64,
    free_sets: u32,
    free: Descriptors,
}

/// Numbers of descriptors, by kind.
#[derive(Clone, Copy, Default)]
struct Descriptors {
    storage: u32,
    texels: u32,
}

impl Descriptors {
    fn of(kinds: &[BindingKind]) -> Descriptors {
        let texels = kinds.iter().filter(|kind| **kind == BindingKind::Texels).count() as u32;
        Descriptors { storage: kinds.len() as u32 - texels, texels }
    }
}

impl DescriptorPools {
    pub(super) fn new(shared: &Arc<Shared>) -> DescriptorPools {
        DescriptorPools {
            shared: Arc::clone(shared),
            pools: Vec::new(),
            views: Vec::new(),
            sets: 0,
            free_sets: 0,
            free: Descriptors::default(),
        }
    }

    /// A new set with the bindings of one dispatch.
    pub(super) fn bind(
        &mut self,
        pipeline: &Pipeline,
        bindings: &[BufferBinding<'_>],
        label: &str,
    ) -> GpuResult<vk::DescriptorSet> {
        let limits = &self.shared.info.caps.limits;
        bindings.iter().try_for_each(|binding| binding.check(limits, label))?;
        let is_declared = bindings.iter().map(BufferBinding::kind).eq(pipeline.bindings().iter().copied());
        if !is_declared {
            let reason = format!("`{}` takes {:?}", pipeline.name(), pipeline.bindings());
            return Err(GpuError::invalid(label, reason));
        }
        let views = self.create_views(bindings, label)?;
        let set = self.allocate(pipeline, label)?;
        let ranges: Vec<_> = bindings
            .iter()
            .map(|binding| {
                vk::DescriptorBufferInfo::default()
                    .buffer(binding.buffer.raw())
                    .offset(binding.offset_bytes)
                    .range(binding.size_bytes)
            })
            .collect();
        let writes: Vec<_> = ranges
            .iter()
            .zip(&views)
            .zip(bindings)
            .zip(0..)
            .map(|(((range, view), binding), slot)| {
                let kind = binding.kind();
                let write = vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(slot)
                    .descriptor_type(kind.raw());
                match kind {
                    BindingKind::Storage => write.buffer_info(std::slice::from_ref(range)),
                    BindingKind::Texels => write.texel_buffer_view(std::slice::from_ref(view)),
                }
            })
            .collect();
        // SAFETY: the set is new and unused and has as many bindings as there are writes, of the same kinds; ranges and
        // views are within limits and outlive the call.
        unsafe { self.shared.raw.update_descriptor_sets(&writes, &[]) };
        Ok(set)
    }

    /// A view for each binding of texels, and none for others. They live as long as the pools.
    fn create_views(
        &mut self,
        bindings: &[BufferBinding<'_>],
        label: &str,
    ) -> GpuResult<Vec<vk::BufferView>> {
        let mut views = vec![vk::BufferView::null(); bindings.len()];
        for (binding, view) in bindings.iter().zip(&mut views) {
            let Some(format) = binding.texels else { continue };
            let info = vk::BufferViewCreateInfo::default()
                .buffer(binding.buffer.raw())
                .format(format.raw())
                .offset(binding.offset_bytes)
                .range(binding.size_bytes);
            // SAFETY: the buffer is of this device and has the usage; the range was checked against limits and buffer.
            *view = unsafe { self.shared.raw.create_buffer_view(&info, None) }
                .map_err(|result| self.shared.error("vkCreateBufferView", result))?;
            self.shared.set_name(*view, label);
            self.views.push(*view);
            count(&self.shared.counters.buffer_views, 1);
        }
        Ok(views)
    }

    fn allocate(&mut self, pipeline: &Pipeline, label: &str) -> GpuResult<vk::DescriptorSet> {
        let needed = Descriptors::of(pipeline.bindings());
        let has_room = self.free.storage >= needed.storage && self.free.texels >= needed.texels;
        if self.free_sets == 0 || !has_room {
            self.add_pool(needed)?;
        }
        let pool = self.pools.last().copied().unwrap_or_default();
        let layouts = [pipeline.layouts().set];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: the pool has room for the set, and only this recording uses it.
        let sets = unsafe { self.shared.raw.allocate_descriptor_sets(&info) }
            .map_err(|result| self.shared.error("vkAllocateDescriptorSets", result))?;
        self.free_sets -= 1;
        self.free.storage -= needed.storage;
        self.free.texels -= needed.texels;
        self.sets += 1;
        count(&self.shared.counters.descriptor_sets, 1);
        sets.first().copied().ok_or_else(|| GpuError::invalid(label, "no descriptor set was made"))
    }

    /// Adds a pool of twice the size of the last, with room for at least one set of `needed`.
    fn add_pool(&mut self, needed: Descriptors) -> GpuResult<()> {
        let doublings = u32::try_from(self.pools.len()).unwrap_or(u32::MAX);
        let sets = 2u32.saturating_pow(doublings).saturating_mul(FIRST_POOL_SETS).min(MOST_POOL_SETS);
        let free = Descriptors {
            storage: sets.saturating_mul(needed.storage.max(4)),
            texels: sets.saturating_mul(needed.texels),
        };
        let mut sizes = Vec::new();
        for (kind, descriptors) in [(BindingKind::Storage, free.storage), (BindingKind::Texels, free.texels)]
        {
            if descriptors > 0 {
                sizes.push(vk::DescriptorPoolSize::default().ty(kind.raw()).descriptor_count(descriptors));
            }
        }
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(sets).pool_sizes(&sizes);
        // SAFETY: the sizes are not zero, and all pointers outlive the call.
        let pool = unsafe { self.shared.raw.create_descriptor_pool(&info, None) }
            .map_err(|result| self.shared.error("vkCreateDescriptorPool", result))?;
        self.pools.push(pool);
        self.free_sets = sets;
        self.free = free;
        count(&self.shared.counters.descriptor_pools, 1);
        Ok(())
    }
}

impl Drop for DescriptorPools {
    fn drop(&mut self) {
        for &pool in &self.pools {
            // SAFETY: the recording that owns the pools is not pending, and its sets go with it.
            unsafe { self.shared.raw.destroy_descriptor_pool(pool, None) };
        }
        for &view in &self.views {
            // SAFETY: as above; the sets that hold the views are gone.
            unsafe { self.shared.raw.destroy_buffer_view(view, None) };
        }
        uncount(&self.shared.counters.buffer_views, self.views.len() as u64);
        uncount(&self.shared.counters.descriptor_pools, self.pools.len() as u64);
        uncount(&self.shared.counters.descriptor_sets, self.sets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(alignment: u64, max_range: u64) -> Limits {
        Limits {
            max_storage_buffer_range_bytes: max_range,
            min_storage_buffer_offset_alignment_bytes: alignment,
            max_memory_allocation_bytes: 1 << 30,
            max_buffer_bytes: 1 << 30,
            max_texel_buffer_elems: 65536,
            min_texel_buffer_offset_alignment_bytes: 64,
            max_storage_buffers: 4,
            max_group_count: [65535; 3],
            max_group_size: [128, 128, 64],
            max_group_invocations: 128,
            max_shared_memory_bytes: 16384,
            max_push_constant_bytes: 128,
            non_coherent_atom_bytes: 64,
            device_heap_bytes: 1 << 30,
        }
    }

    #[test]
    fn offsets_must_be_aligned() {
        for alignment in [16, 64, 256] {
            assert_eq!(check_range(alignment * 3, 4, None, &limits(alignment, 4096), "k"), Ok(()));
            assert!(check_range(alignment * 3 + 4, 4, None, &limits(alignment, 4096), "k").is_err());
        }
    }

    #[test]
    fn a_range_is_bound_up_to_the_limit_and_not_beyond() {
        let limits = limits(16, 1 << 27);
        assert_eq!(check_range(0, 1 << 27, None, &limits, "k"), Ok(()));
        let error = check_range(0, (1 << 27) + 4, None, &limits, "embedding").unwrap_err();
        assert!(matches!(error, GpuError::LimitExceeded { requested: 134_217_732, limit: 134_217_728, .. }));
        assert!(check_range(0, 0, None, &limits, "k").is_err());
    }

    #[test]
    fn views_hold_whole_texels_up_to_their_own_limits() {
        let limits = limits(256, 4096);
        for format in [TexelFormat::Half4, TexelFormat::Float4] {
            let check = |offset, bytes| check_range(offset, bytes, Some(format), &limits, "k");
            assert_eq!(check(64, format.bytes() * 65536), Ok(()));
            assert!(check(32, format.bytes()).is_err(), "misaligned");
            assert!(check(0, format.bytes() + 4).is_err(), "part of a texel");
            assert!(check(0, 0).is_err());
            let error = check(0, format.bytes() * 65537).unwrap_err();
            assert!(
                matches!(error, GpuError::LimitExceeded { limit, .. } if limit == format.bytes() * 65536)
            );
        }
    }
}
