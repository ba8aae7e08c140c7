//! What the planner knows of a device, as plain data: enough to plan without one.

use std::sync::Arc;

use super::{Access, Choices, Needs};

/// Device class: which first choices make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceClass {
    /// Qualcomm Adreno 6xx.
    Adreno6xx,
    /// Qualcomm Adreno 7xx, and the laptop part X1.
    Adreno7xx,
    /// Qualcomm Adreno 8xx, and the laptop part X2.
    Adreno8xx,
    /// Arm Mali and Immortalis.
    Mali,
    /// A discrete or integrated GPU of a computer.
    Desktop,
    /// Vulkan on the CPU.
    Cpu,
}

impl DeviceClass {
    /// Whether the class is one of Qualcomm's.
    pub fn is_adreno(self) -> bool {
        matches!(self, DeviceClass::Adreno6xx | DeviceClass::Adreno7xx | DeviceClass::Adreno8xx)
    }

    /// Whether unsigned dot products of packed bytes are fast, where there are any, given what the driver `reports`.
    /// Adreno 8xx has an instruction for them and Mesa's driver reports none.
    pub fn has_fast_packed_dot(self, reports: bool) -> bool {
        reports || self == DeviceClass::Adreno8xx
    }

    /// Invocations below which a product is shared among more of them: GPUs hide the latency of loads by having many, and a
    /// CPU by its caches.
    pub const fn invocations_to_split(self) -> usize {
        match self {
            DeviceClass::Adreno6xx | DeviceClass::Adreno7xx | DeviceClass::Adreno8xx | DeviceClass::Mali => {
                1024
            }
            DeviceClass::Desktop => 4096,
            DeviceClass::Cpu => 0,
        }
    }

    /// Operations that take the slowest device of the class about 100 ms. Systems reset a GPU after one or two seconds of
    /// one submission; nothing watches a CPU, where more submissions only cost time.
    pub const fn submission_ops(self) -> u64 {
        const GIGA: u64 = 1_000_000_000;
        match self {
            DeviceClass::Adreno6xx | DeviceClass::Mali => 5 * GIGA,
            DeviceClass::Adreno7xx | DeviceClass::Adreno8xx => 10 * GIGA,
            DeviceClass::Desktop => 20 * GIGA,
            DeviceClass::Cpu => 1000 * GIGA,
        }
    }
}

/// Features, limits and class that a plan depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceProfile {
    /// Name of the device, for reports.
    pub name: String,
    /// Class of the device.
    pub class: DeviceClass,
    /// How kernels reach their buffers.
    pub access: Access,
    /// What the device offers of the things that kernels may need.
    pub features: Needs,
    /// Whether unsigned dot products of packed bytes are there, and faster than plain arithmetic.
    pub packed_dot: bool,
    /// Bytes that one descriptor can reach.
    pub max_storage_buffer_range_bytes: u64,
    /// Bytes that one buffer can have.
    pub max_buffer_bytes: u64,
    /// A descriptor's offset is a multiple of this, be it of a storage buffer or of texels.
    pub storage_offset_alignment_bytes: u64,
    /// Texels that one view can have.
    pub max_texel_buffer_elems: u64,
    /// Work groups per axis of one dispatch.
    pub max_groups: [u32; 3],
    /// Invocations of one work group.
    pub max_invocations: u32,
    /// Invocations of one work group, per axis.
    pub max_group_size: [u32; 3],
    /// Invocations of one subgroup, where [`Need::Subgroup`](super::Need::Subgroup) is among the features.
    pub subgroup_size: u32,
    /// Shared memory of one work group.
    pub max_shared_bytes: u32,
    /// Estimated operations of one submission, so that no watchdog takes the device for hung.
    pub submission_ops: u64,
    /// What a tuner found on the device.
    pub choices: Arc<Choices>,
}

impl DeviceProfile {
    /// The least that this runtime runs on: the required minimum of Vulkan 1.1, no optional feature.
    pub fn minimum() -> DeviceProfile {
        DeviceProfile {
            name: "minimum device".to_string(),
            class: DeviceClass::Cpu,
            access: Access::Ssbo,
            features: Needs::default(),
            packed_dot: false,
            max_storage_buffer_range_bytes: 1 << 27,
            max_buffer_bytes: 1 << 30,
            storage_offset_alignment_bytes: 256,
            max_texel_buffer_elems: 65536,
            max_groups: [65535; 3],
            max_invocations: 128,
            max_group_size: [128, 128, 64],
            subgroup_size: 1,
            max_shared_bytes: 16 << 10,
            submission_ops: DeviceClass::Cpu.submission_ops(),
            choices: Arc::default(),
        }
    }
}
