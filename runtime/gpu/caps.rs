//! What a device can do: features, limits, class. Read from the driver, never assumed; lowered by tests.

mod lowered;
mod probe;

use super::features::Features;
use super::select::{DeviceDescription, DeviceKind};

pub use self::lowered::CapsOverride;
pub(super) use self::probe::{Probe, probe};

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
}
