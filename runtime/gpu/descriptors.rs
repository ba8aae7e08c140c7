//! Bindings of storage buffers: checked against the device's limits, and written to sets from growing pools.

use std::sync::Arc;

use ash::vk;

use super::caps::Limits;
use super::device::{Shared, count, uncount};
use super::error::{GpuError, GpuResult};
use super::memory::Buffer;
use super::pipeline::Pipeline;

const FIRST_POOL_SETS: u32 = 64;
const MOST_POOL_SETS: u32 = 1024;

/// A byte range of a buffer, as a kernel sees it.
#[derive(Clone, Copy, Debug)]
pub struct BufferBinding<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// Start: a multiple of `min_storage_buffer_offset_alignment_bytes`.
    pub offset_bytes: u64,
    /// Length: at least 1 and at most `max_storage_buffer_range_bytes`.
    pub size_bytes: u64,
}

impl BufferBinding<'_> {
    /// Checks the range against the buffer and the device: what the driver would take silently is an error here.
    fn check(&self, limits: &Limits, label: &str) -> GpuResult<()> {
        self.buffer.check_range(self.offset_bytes, self.size_bytes)?;
        check_range(self.offset_bytes, self.size_bytes, limits, label)
    }
}

fn check_range(offset_bytes: u64, size_bytes: u64, limits: &Limits, label: &str) -> GpuResult<()> {
    let alignment = limits.min_storage_buffer_offset_alignment_bytes;
    if size_bytes == 0 {
        return Err(GpuError::invalid(label, "an empty range is bound"));
    }
    if !offset_bytes.is_multiple_of(alignment) {
        let reason =
            format!("a range is bound at offset {offset_bytes}, not a multiple of {alignment} bytes");
        return Err(GpuError::invalid(label, reason));
    }
    if size_bytes > limits.max_storage_buffer_range_bytes {
        return Err(GpuError::LimitExceeded {
            name: label.to_owned(),
            what: "the size of a bound range in bytes",
            requested: size_bytes,
            limit: limits.max_storage_buffer_range_bytes,
        });
    }
    Ok(())
}

/// The descriptor pools of one recording.
pub(super) struct DescriptorPools {
    shared: Arc<Shared>,
    pools: Vec<vk::DescriptorPool>,
    sets: u64,
    free_sets: u32,
    free_buffers: u32,
}

impl DescriptorPools {
    pub(super) fn new(shared: &Arc<Shared>) -> DescriptorPools {
        DescriptorPools {
            shared: Arc::clone(shared),
            pools: Vec::new(),
            sets: 0,
            free_sets: 0,
            free_buffers: 0,
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
            .zip(0..)
            .map(|(range, slot)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(slot)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(std::slice::from_ref(range))
            })
            .collect();
        // SAFETY: the set is new and unused and has as many bindings as there are writes; the ranges are within
        // limits and outlive the call.
        unsafe { self.shared.raw.update_descriptor_sets(&writes, &[]) };
        Ok(set)
    }

    fn allocate(&mut self, pipeline: &Pipeline, label: &str) -> GpuResult<vk::DescriptorSet> {
        let buffers = pipeline.storage_buffers();
        if self.free_sets == 0 || self.free_buffers < buffers {
            self.add_pool(buffers)?;
        }
        let pool = self.pools.last().copied().unwrap_or_default();
        let layouts = [pipeline.layouts().set];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: the pool has room for the set, and only this recording uses it.
        let sets = unsafe { self.shared.raw.allocate_descriptor_sets(&info) }
            .map_err(|result| self.shared.error("vkAllocateDescriptorSets", result))?;
        self.free_sets -= 1;
        self.free_buffers -= buffers;
        self.sets += 1;
        count(&self.shared.counters.descriptor_sets, 1);
        sets.first().copied().ok_or_else(|| GpuError::invalid(label, "no descriptor set was made"))
    }

    /// Adds a pool of twice the size of the last, with room for at least one set of `buffers`.
    fn add_pool(&mut self, buffers: u32) -> GpuResult<()> {
        let doublings = u32::try_from(self.pools.len()).unwrap_or(u32::MAX);
        let sets = 2u32.saturating_pow(doublings).saturating_mul(FIRST_POOL_SETS).min(MOST_POOL_SETS);
        let descriptors = sets.saturating_mul(buffers.max(4));
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(descriptors)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(sets).pool_sizes(&sizes);
        // SAFETY: the sizes are not zero, and all pointers outlive the call.
        let pool = unsafe { self.shared.raw.create_descriptor_pool(&info, None) }
            .map_err(|result| self.shared.error("vkCreateDescriptorPool", result))?;
        self.pools.push(pool);
        self.free_sets = sets;
        self.free_buffers = descriptors;
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
            assert_eq!(check_range(alignment * 3, 4, &limits(alignment, 4096), "k"), Ok(()));
            assert!(check_range(alignment * 3 + 4, 4, &limits(alignment, 4096), "k").is_err());
        }
    }

    #[test]
    fn a_range_is_bound_up_to_the_limit_and_not_beyond() {
        let limits = limits(16, 1 << 27);
        assert_eq!(check_range(0, 1 << 27, &limits, "k"), Ok(()));
        let error = check_range(0, (1 << 27) + 4, &limits, "embedding").unwrap_err();
        assert!(matches!(error, GpuError::LimitExceeded { requested: 134_217_732, limit: 134_217_728, .. }));
        assert!(check_range(0, 0, &limits, "k").is_err());
    }
}
