//! Reads what a device can do from its driver.

use ash::vk;

use super::super::features::{
    DEVICE_ADDRESS, DOT_PRODUCT, DRIVER_PROPERTIES, FeatureChain, Features, MAINTENANCE4, Support,
};
use super::super::select::{DeviceDescription, DeviceKind};
use super::{Caps, DeviceClass, DotProduct, Limits, TimestampCaps, UnifiedMemory};

/// A physical device with what its driver says of it.
pub(in crate::gpu) struct Probe {
    pub description: DeviceDescription,
    pub caps: Caps,
    pub support: Support,
    pub queue_family: u32,
    /// Key of pipeline caches.
    pub cache_uuid: [u8; 16],
}

/// Reads a device; `None` if it is older than Vulkan 1.1 or has no compute queue.
pub(in crate::gpu) fn probe(
    instance: &ash::Instance,
    instance_version: u32,
    physical: vk::PhysicalDevice,
    index: usize,
) -> Option<Probe> {
    // SAFETY: `physical` belongs to `instance`.
    let base = unsafe { instance.get_physical_device_properties(physical) };
    // SAFETY: as above.
    let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }.unwrap_or_default();
    let support = Support::new(base.api_version.min(instance_version), &extensions);
    if support.api_version < vk::API_VERSION_1_1 {
        return None;
    }
    let (queue_family, timestamp_valid_bits) = compute_family(instance, physical)?;
    let read = read_properties(instance, physical, &support);
    let description = describe(&base, &read, index);
    let features = read_features(instance, physical, &support, &read);
    let timestamps = (timestamp_valid_bits > 0).then_some(TimestampCaps {
        valid_bits: timestamp_valid_bits.min(64),
        period_ns: base.limits.timestamp_period,
    });
    let dot = |accelerated: vk::Bool32| features.integer_dot_product && accelerated == vk::TRUE;
    // SAFETY: `physical` belongs to `instance`.
    let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
    let caps = Caps {
        class: DeviceClass::of(&description),
        features,
        limits: read_limits(&memory, &base, &read),
        dot_product: DotProduct {
            unsigned_accelerated: dot(read
                .dot_product
                .integer_dot_product4x8_bit_packed_unsigned_accelerated),
            signed_accelerated: dot(read.dot_product.integer_dot_product4x8_bit_packed_signed_accelerated),
            mixed_accelerated: dot(read
                .dot_product
                .integer_dot_product4x8_bit_packed_mixed_signedness_accelerated),
        },
        subgroup_size: read.subgroup.subgroup_size,
        timestamps,
        unified_memory: unified_memory(description.kind, memory.memory_types_as_slice()),
    };
    Some(Probe { description, caps, support, queue_family, cache_uuid: base.pipeline_cache_uuid })
}

/// Properties beyond Vulkan 1.0; what the device does not know stays zero.
#[derive(Default)]
struct Properties {
    id: vk::PhysicalDeviceIDProperties<'static>,
    subgroup: vk::PhysicalDeviceSubgroupProperties<'static>,
    maintenance3: vk::PhysicalDeviceMaintenance3Properties<'static>,
    maintenance4: vk::PhysicalDeviceMaintenance4Properties<'static>,
    driver: vk::PhysicalDeviceDriverProperties<'static>,
    dot_product: vk::PhysicalDeviceShaderIntegerDotProductProperties<'static>,
}

fn read_properties(instance: &ash::Instance, physical: vk::PhysicalDevice, support: &Support) -> Properties {
    let mut read = Properties::default();
    let mut root = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut read.id)
        .push_next(&mut read.subgroup)
        .push_next(&mut read.maintenance3);
    if support.has(MAINTENANCE4) {
        root = root.push_next(&mut read.maintenance4);
    }
    if support.has(DRIVER_PROPERTIES) {
        root = root.push_next(&mut read.driver);
    }
    if support.has(DOT_PRODUCT) {
        root = root.push_next(&mut read.dot_product);
    }
    // SAFETY: `physical` belongs to `instance`, and every struct in the chain is known to the device.
    unsafe { instance.get_physical_device_properties2(physical, &mut root) };
    read
}

fn describe(base: &vk::PhysicalDeviceProperties, read: &Properties, index: usize) -> DeviceDescription {
    let text = |field: Result<&std::ffi::CStr, std::ffi::FromBytesUntilNulError>| {
        field.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let version = base.api_version;
    DeviceDescription {
        index,
        name: text(base.device_name_as_c_str()),
        kind: match base.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
            vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
            vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
            vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
            _ => DeviceKind::Other,
        },
        uuid: read.id.device_uuid,
        vendor_id: base.vendor_id,
        device_id: base.device_id,
        driver_name: text(read.driver.driver_name_as_c_str()),
        driver_info: text(read.driver.driver_info_as_c_str()),
        driver_version: base.driver_version,
        api_version: (
            vk::api_version_major(version),
            vk::api_version_minor(version),
            vk::api_version_patch(version),
        ),
    }
}

fn read_features(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    support: &Support,
    read: &Properties,
) -> Features {
    let in_compute = read.subgroup.supported_stages.contains(vk::ShaderStageFlags::COMPUTE);
    let has = |operation| in_compute && read.subgroup.supported_operations.contains(operation);
    let mut features = FeatureChain::read(instance, physical, support);
    features.subgroup_arithmetic = has(vk::SubgroupFeatureFlags::ARITHMETIC);
    features.subgroup_shuffle = has(vk::SubgroupFeatureFlags::SHUFFLE);
    // Before Vulkan 1.2 the address functions exist only once the extension is enabled.
    features.buffer_device_address &= support.has(DEVICE_ADDRESS);
    features
}

fn read_limits(
    memory: &vk::PhysicalDeviceMemoryProperties,
    base: &vk::PhysicalDeviceProperties,
    read: &Properties,
) -> Limits {
    let heaps = memory.memory_heaps_as_slice().iter();
    let device_local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let limits = &base.limits;
    let max_memory_allocation_bytes = read.maintenance3.max_memory_allocation_size;
    let max_buffer_bytes = match read.maintenance4.max_buffer_size {
        0 => max_memory_allocation_bytes,
        max_buffer_size => max_buffer_size,
    };
    Limits {
        max_storage_buffer_range_bytes: limits.max_storage_buffer_range.into(),
        min_storage_buffer_offset_alignment_bytes: limits.min_storage_buffer_offset_alignment.max(1),
        max_memory_allocation_bytes,
        max_buffer_bytes,
        max_texel_buffer_elems: limits.max_texel_buffer_elements.into(),
        min_texel_buffer_offset_alignment_bytes: limits.min_texel_buffer_offset_alignment.max(1),
        max_storage_buffers: limits
            .max_per_stage_descriptor_storage_buffers
            .min(limits.max_descriptor_set_storage_buffers),
        max_group_count: limits.max_compute_work_group_count,
        max_group_size: limits.max_compute_work_group_size,
        max_group_invocations: limits.max_compute_work_group_invocations,
        max_shared_memory_bytes: limits.max_compute_shared_memory_size,
        max_push_constant_bytes: limits.max_push_constants_size,
        non_coherent_atom_bytes: limits.non_coherent_atom_size.max(1),
        device_heap_bytes: device_local.map(|heap| heap.size).max().unwrap_or(0),
    }
}

/// How the host reaches the memory of a device of that kind, by the first type that the allocator takes for memory that
/// both use. A discrete device may have such memory too, but the host reads it across the bus.
fn unified_memory(kind: DeviceKind, types: &[vk::MemoryType]) -> UnifiedMemory {
    use vk::MemoryPropertyFlags as Flags;
    let shared = Flags::HOST_VISIBLE | Flags::HOST_COHERENT | Flags::DEVICE_LOCAL;
    let found = types.iter().find(|memory| memory.property_flags.contains(shared));
    match found.filter(|_| matches!(kind, DeviceKind::Integrated | DeviceKind::Cpu)) {
        None => UnifiedMemory::None,
        Some(memory) if memory.property_flags.contains(Flags::HOST_CACHED) => UnifiedMemory::WrittenAndRead,
        Some(_) => UnifiedMemory::Written,
    }
}

/// The queue family for compute, with the valid bits of its timestamps: the first that computes, which is the one
/// with graphics where there is one, and the best tested.
fn compute_family(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Option<(u32, u32)> {
    // SAFETY: `physical` belongs to `instance`.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let (index, family) = families
        .iter()
        .enumerate()
        .find(|(_, family)| family.queue_flags.contains(vk::QueueFlags::COMPUTE))?;
    Some((u32::try_from(index).ok()?, family.timestamp_valid_bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unified_memory_is_what_the_allocator_takes_first() {
        use vk::MemoryPropertyFlags as Flags;
        let device = Flags::DEVICE_LOCAL;
        let written = device | Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let cached = written | Flags::HOST_CACHED;
        let of = |kind, flags: &[Flags]| {
            let memory = |&property_flags| vk::MemoryType { property_flags, heap_index: 0 };
            unified_memory(kind, &flags.iter().map(memory).collect::<Vec<_>>())
        };
        assert_eq!(of(DeviceKind::Cpu, &[cached]), UnifiedMemory::WrittenAndRead);
        assert_eq!(of(DeviceKind::Integrated, &[device, written, cached]), UnifiedMemory::Written);
        assert_eq!(of(DeviceKind::Integrated, &[device, cached, written]), UnifiedMemory::WrittenAndRead);
        assert_eq!(of(DeviceKind::Discrete, &[device, written]), UnifiedMemory::None);
        let apart = [device, Flags::HOST_VISIBLE | Flags::HOST_COHERENT];
        assert_eq!(of(DeviceKind::Integrated, &apart), UnifiedMemory::None);
        // What the caches hold back needs flushes that the allocator does not know of.
        let incoherent = [device | Flags::HOST_VISIBLE | Flags::HOST_CACHED];
        assert_eq!(of(DeviceKind::Integrated, &incoherent), UnifiedMemory::None);
    }
}
