//! What a device can do: features, limits, class. Read from the driver, never assumed; lowered by tests.

use ash::vk;

use super::features::{
    DEVICE_ADDRESS, DOT_PRODUCT, DRIVER_PROPERTIES, FeatureChain, Features, MAINTENANCE4, Support,
};
use super::select::{DeviceDescription, DeviceKind};

pub use crate::shader::DeviceClass;

const VENDOR_QUALCOMM: u32 = 0x5143;
const VENDOR_ARM: u32 = 0x13b5;

impl DeviceClass {
    /// The class of a device, by kind, vendor and name.
    pub fn of(device: &DeviceDescription) -> DeviceClass {
        match (device.kind, device.vendor_id) {
            (DeviceKind::Cpu, _) => DeviceClass::Cpu,
            (_, VENDOR_QUALCOMM) => DeviceClass::of_adreno(&device.name),
            (_, VENDOR_ARM) => DeviceClass::Mali,
            _ => DeviceClass::Desktop,
        }
    }

    /// The class of an Adreno: the generation is the first digit of the model number; older or unreadable ones count
    /// as 6xx, the most careful.
    pub fn of_adreno(name: &str) -> DeviceClass {
        if name.contains("X1") {
            return DeviceClass::Adreno7xx;
        }
        if name.contains("X2") {
            return DeviceClass::Adreno8xx;
        }
        let model = name.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() >= 3);
        match model.and_then(|digits| digits.chars().next()) {
            Some('8' | '9') => DeviceClass::Adreno8xx,
            Some('7') => DeviceClass::Adreno7xx,
            _ => DeviceClass::Adreno6xx,
        }
    }

    /// All classes.
    pub const ALL: [DeviceClass; 6] = [
        DeviceClass::Adreno6xx,
        DeviceClass::Adreno7xx,
        DeviceClass::Adreno8xx,
        DeviceClass::Mali,
        DeviceClass::Desktop,
        DeviceClass::Cpu,
    ];

    /// The class that listings call `word`.
    pub fn named(word: &str) -> Option<DeviceClass> {
        DeviceClass::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// The word for it in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceClass::Adreno6xx => "adreno6xx",
            DeviceClass::Adreno7xx => "adreno7xx",
            DeviceClass::Adreno8xx => "adreno8xx",
            DeviceClass::Mali => "mali",
            DeviceClass::Desktop => "desktop",
            DeviceClass::Cpu => "cpu",
        }
    }
}

/// Limits that planning and recording must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest range that one storage-buffer binding covers.
    pub max_storage_buffer_range_bytes: u64,
    /// Offsets of storage-buffer bindings are multiples of this.
    pub min_storage_buffer_offset_alignment_bytes: u64,
    /// Largest single memory allocation.
    pub max_memory_allocation_bytes: u64,
    /// Largest buffer.
    pub max_buffer_bytes: u64,
    /// Largest texel buffer view, in texels.
    pub max_texel_buffer_elems: u64,
    /// Offsets of texel buffer views are multiples of this.
    pub min_texel_buffer_offset_alignment_bytes: u64,
    /// Storage buffers that one kernel may bind.
    pub max_storage_buffers: u32,
    /// Work-groups of one dispatch, per axis.
    pub max_group_count: [u32; 3],
    /// Invocations of one work-group, per axis.
    pub max_group_size: [u32; 3],
    /// Invocations of one work-group.
    pub max_group_invocations: u32,
    /// Shared memory of one work-group.
    pub max_shared_memory_bytes: u32,
    /// Push constants of one pipeline.
    pub max_push_constant_bytes: u32,
    /// Granularity of flushes of non-coherent host memory.
    pub non_coherent_atom_bytes: u64,
    /// Size of the largest device-local heap.
    pub device_heap_bytes: u64,
}

/// Which packed 4x8-bit dot products are fast in hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DotProduct {
    /// Unsigned by unsigned.
    pub unsigned_accelerated: bool,
    /// Signed by signed.
    pub signed_accelerated: bool,
    /// Signed by unsigned.
    pub mixed_accelerated: bool,
}

/// How the host reaches the memory that kernels work in. Later ones offer more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnifiedMemory {
    /// Not at all, or across a bus: bytes go through staging buffers.
    #[default]
    None,
    /// Mapped, but not in the CPU's caches: good for writing, slow to read.
    Written,
    /// Mapped and cached: good for both.
    WrittenAndRead,
}

/// How the device's timestamps count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimestampCaps {
    /// Meaningful low bits of a timestamp, 1 to 64.
    pub valid_bits: u32,
    /// Nanoseconds of one tick.
    pub period_ns: f32,
}

/// What an opened device can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Caps {
    /// Family of hardware.
    pub class: DeviceClass,
    /// Optional features that are there, and enabled.
    pub features: Features,
    /// Limits.
    pub limits: Limits,
    /// Packed dot products with hardware behind them.
    pub dot_product: DotProduct,
    /// Invocations of one subgroup; kernels must not count on it.
    pub subgroup_size: u32,
    /// Timestamps of the compute queue, if it has any.
    pub timestamps: Option<TimestampCaps>,
    /// How the host reaches buffers of [`Gpu::create_shared_buffer`](super::Gpu::create_shared_buffer).
    pub unified_memory: UnifiedMemory,
}

/// Test hook: makes a device look weaker than it is. Limits are only ever lowered (the alignment raised).
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapsOverride {
    /// Features to treat as absent.
    pub features_off: Features,
    /// Treats the device as one of that class.
    pub class: Option<DeviceClass>,
    /// Treats the timestamps as absent.
    pub timestamps_off: bool,
    /// The most that the host may reach of the memory that kernels work in.
    pub unified_memory: Option<UnifiedMemory>,
    /// Whether unsigned packed dot products count as fast, where the device has them.
    pub unsigned_dot_accelerated: Option<bool>,
    /// See [`Limits`], as are those below.
    pub max_storage_buffer_range_bytes: Option<u64>,
    pub min_storage_buffer_offset_alignment_bytes: Option<u64>,
    pub max_memory_allocation_bytes: Option<u64>,
    pub max_buffer_bytes: Option<u64>,
    pub max_texel_buffer_elems: Option<u64>,
    pub min_texel_buffer_offset_alignment_bytes: Option<u64>,
    pub max_storage_buffers: Option<u32>,
    pub max_group_count: Option<[u32; 3]>,
    pub max_group_invocations: Option<u32>,
    pub max_shared_memory_bytes: Option<u32>,
    pub max_push_constant_bytes: Option<u32>,
}

impl CapsOverride {
    /// The least that the standard guarantees, with every optional feature off.
    pub fn spec_minimum() -> CapsOverride {
        CapsOverride {
            features_off: Features::ALL,
            unified_memory: Some(UnifiedMemory::None),
            max_storage_buffer_range_bytes: Some(1 << 27),
            min_storage_buffer_offset_alignment_bytes: Some(256),
            max_storage_buffers: Some(4),
            max_group_count: Some([65535; 3]),
            max_group_invocations: Some(128),
            max_shared_memory_bytes: Some(16 << 10),
            max_push_constant_bytes: Some(128),
            max_texel_buffer_elems: Some(65536),
            min_texel_buffer_offset_alignment_bytes: Some(256),
            ..CapsOverride::default()
        }
    }

    /// Lowers `caps`.
    pub fn apply(&self, caps: &mut Caps) {
        fn lower<T: Ord + Copy>(limit: &mut T, to: Option<T>) {
            *limit = to.map_or(*limit, |to| to.min(*limit));
        }
        caps.features = caps.features.without(&self.features_off);
        caps.class = self.class.unwrap_or(caps.class);
        if let Some(accelerated) = self.unsigned_dot_accelerated {
            caps.dot_product.unsigned_accelerated = accelerated;
        }
        if !caps.features.integer_dot_product {
            caps.dot_product = DotProduct::default();
        }
        if self.timestamps_off {
            caps.timestamps = None;
        }
        lower(&mut caps.unified_memory, self.unified_memory);
        let limits = &mut caps.limits;
        lower(&mut limits.max_storage_buffer_range_bytes, self.max_storage_buffer_range_bytes);
        lower(&mut limits.max_memory_allocation_bytes, self.max_memory_allocation_bytes);
        lower(&mut limits.max_buffer_bytes, self.max_buffer_bytes);
        lower(&mut limits.max_texel_buffer_elems, self.max_texel_buffer_elems);
        lower(&mut limits.max_storage_buffers, self.max_storage_buffers);
        lower(&mut limits.max_group_invocations, self.max_group_invocations);
        lower(&mut limits.max_shared_memory_bytes, self.max_shared_memory_bytes);
        lower(&mut limits.max_push_constant_bytes, self.max_push_constant_bytes);
        let counts = self.max_group_count.unwrap_or(limits.max_group_count);
        limits.max_group_count.iter_mut().zip(counts).for_each(|(limit, to)| lower(limit, Some(to)));
        let sizes = [limits.max_group_invocations; 3];
        limits.max_group_size.iter_mut().zip(sizes).for_each(|(limit, to)| lower(limit, Some(to)));
        let raise = |alignment: &mut u64, to: Option<u64>| *alignment = to.unwrap_or(1).max(*alignment);
        let storage = self.min_storage_buffer_offset_alignment_bytes;
        raise(&mut limits.min_storage_buffer_offset_alignment_bytes, storage);
        let texel = self.min_texel_buffer_offset_alignment_bytes;
        raise(&mut limits.min_texel_buffer_offset_alignment_bytes, texel);
    }
}

/// A physical device with what its driver says of it.
pub(super) struct Probe {
    pub description: DeviceDescription,
    pub caps: Caps,
    pub support: Support,
    pub queue_family: u32,
    /// Key of pipeline caches.
    pub cache_uuid: [u8; 16],
}

/// Reads a device; `None` if it is older than Vulkan 1.1 or has no compute queue.
pub(super) fn probe(
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

    fn device(kind: DeviceKind, vendor_id: u32, name: &str) -> DeviceDescription {
        DeviceDescription {
            index: 0,
            name: name.into(),
            kind,
            uuid: [0; 16],
            vendor_id,
            device_id: 0,
            driver_name: String::new(),
            driver_info: String::new(),
            driver_version: 0,
            api_version: (1, 1, 0),
        }
    }

    #[test]
    fn classes_follow_kind_vendor_and_name() {
        let class = |kind, vendor, name| DeviceClass::of(&device(kind, vendor, name));
        let phone = DeviceKind::Integrated;
        assert_eq!(class(phone, VENDOR_QUALCOMM, "Adreno (TM) 660"), DeviceClass::Adreno6xx);
        assert_eq!(class(phone, VENDOR_QUALCOMM, "Turnip Adreno (TM) 730"), DeviceClass::Adreno7xx);
        assert_eq!(class(phone, VENDOR_QUALCOMM, "Adreno (TM) 830"), DeviceClass::Adreno8xx);
        assert_eq!(class(phone, VENDOR_QUALCOMM, "Adreno X1-85"), DeviceClass::Adreno7xx);
        assert_eq!(class(phone, VENDOR_QUALCOMM, "FD512"), DeviceClass::Adreno6xx);
        assert_eq!(class(phone, VENDOR_ARM, "Mali-G715"), DeviceClass::Mali);
        assert_eq!(class(DeviceKind::Discrete, 0x10de, "NVIDIA H200"), DeviceClass::Desktop);
        assert_eq!(class(DeviceKind::Cpu, 0x10005, "llvmpipe (LLVM 19)"), DeviceClass::Cpu);
    }

    fn strong_caps() -> Caps {
        Caps {
            class: DeviceClass::Desktop,
            features: Features::ALL,
            limits: Limits {
                max_storage_buffer_range_bytes: 1 << 31,
                min_storage_buffer_offset_alignment_bytes: 16,
                max_memory_allocation_bytes: 1 << 32,
                max_buffer_bytes: 1 << 32,
                max_texel_buffer_elems: 1 << 27,
                min_texel_buffer_offset_alignment_bytes: 16,
                max_storage_buffers: 16,
                max_group_count: [1 << 31, 65535, 65535],
                max_group_size: [1024, 1024, 64],
                max_group_invocations: 1024,
                max_shared_memory_bytes: 48 << 10,
                max_push_constant_bytes: 256,
                non_coherent_atom_bytes: 64,
                device_heap_bytes: 1 << 33,
            },
            dot_product: DotProduct { unsigned_accelerated: true, ..DotProduct::default() },
            subgroup_size: 32,
            timestamps: Some(TimestampCaps { valid_bits: 64, period_ns: 1.0 }),
            unified_memory: UnifiedMemory::WrittenAndRead,
        }
    }

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

    #[test]
    fn an_override_lowers_what_the_host_reaches() {
        let most = |most| {
            let mut caps = strong_caps();
            CapsOverride { unified_memory: Some(most), ..CapsOverride::default() }.apply(&mut caps);
            caps.unified_memory
        };
        assert_eq!(most(UnifiedMemory::None), UnifiedMemory::None);
        assert_eq!(most(UnifiedMemory::Written), UnifiedMemory::Written);
    }

    #[test]
    fn an_empty_override_changes_nothing() {
        let mut caps = strong_caps();
        CapsOverride::default().apply(&mut caps);
        assert_eq!(caps, strong_caps());
    }

    #[test]
    fn the_spec_minimum_lowers_everything() {
        let mut caps = strong_caps();
        CapsOverride::spec_minimum().apply(&mut caps);
        assert_eq!(caps.features, Features::default());
        assert_eq!(caps.dot_product, DotProduct::default());
        let limits = caps.limits;
        assert_eq!(limits.max_group_count, [65535; 3]);
        assert_eq!(limits.max_group_size, [128, 128, 64]);
        assert_eq!(limits.min_storage_buffer_offset_alignment_bytes, 256);
        assert_eq!(limits.min_texel_buffer_offset_alignment_bytes, 256);
        assert_eq!(limits.max_texel_buffer_elems, 65536);
        assert_eq!((limits.max_push_constant_bytes, limits.max_storage_buffers), (128, 4));
    }

    #[test]
    fn an_override_never_raises_a_limit() {
        let mut caps = strong_caps();
        let over = CapsOverride { max_push_constant_bytes: Some(4096), ..CapsOverride::default() };
        over.apply(&mut caps);
        assert_eq!(caps.limits.max_push_constant_bytes, 256);
    }
}
