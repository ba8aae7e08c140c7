//! What all delegates on one device share: the device, its profile, pipelines, packed constants.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use super::{constants::PackedConstant, pipelines::PipelineKey};
use crate::{
    base::{Error, Result},
    gpu::{self, Gpu, GpuError, GpuOptions, Pipeline},
    ops::PackKey,
    shader::{Access, Choices, DeviceClass, DeviceProfile, Need, Needs},
};

/// An open device with what delegates share on it.
pub struct Context {
    gpu: Gpu,
    profile: DeviceProfile,
    pub(super) pipelines: Mutex<HashMap<PipelineKey, Pipeline>>,
    pub(super) constants: Mutex<HashMap<PackKey, Weak<PackedConstant>>>,
    /// Held while a constant is packed, so that two delegates built at once share it.
    pub(super) packing: Mutex<()>,
    /// What a tuner found; `None` until somebody asks.
    pub(super) choices: Mutex<Option<Arc<Choices>>>,
    /// Whether kernels whose lanes share loads are right; unset until somebody could use them.
    pub(super) lanes_share_loads: OnceLock<bool>,
    /// Whether the kernel that sums a row in parts is; unset until somebody uses it.
    pub(super) lanes_sum_parts: OnceLock<bool>,
    /// Test hook: the kernel that computes something else.
    pub(super) broken_kernel: Mutex<Option<BrokenKernel>>,
}

/// Test hook: which pipelines compute something else.
pub(super) struct BrokenKernel {
    pub name: String,
    /// Only those of this work-group size.
    pub local: Option<Vec<u32>>,
}

impl Context {
    /// Opens a device. `VKDELEGATE_ACCESS` (`ssbo` or `bda`) overrides how kernels reach their buffers, and
    /// `VKDELEGATE_CLASS` (`adreno7xx`, for one) the class that plans are made for, unless the overrides give one.
    ///
    /// # Errors
    /// No loader, no device, or an access that the device does not offer.
    pub fn open(options: GpuOptions, access: Option<Access>) -> Result<Arc<Context>> {
        let class = match options.overrides.class {
            Some(class) => Some(class),
            None => class_from_environment()?,
        };
        let gpu = Gpu::open(options)?;
        let access = match access {
            Some(access) => Some(access),
            None => access_from_environment()?,
        };
        let profile = profile_of(&gpu, access, class)?;
        Ok(Arc::new(Context {
            gpu,
            profile,
            pipelines: Mutex::default(),
            constants: Mutex::default(),
            packing: Mutex::default(),
            choices: Mutex::default(),
            lanes_share_loads: OnceLock::new(),
            lanes_sum_parts: OnceLock::new(),
            broken_kernel: Mutex::default(),
        }))
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Fails when the device is lost: nothing that it holds can be trusted any more.
    pub(super) fn check_alive(&self) -> Result<()> {
        if self.gpu.is_lost() { Err(GpuError::DeviceLost.into()) } else { Ok(()) }
    }

    /// Test hook: pipelines of the kernel `name` that are made from now on compute something else.
    #[doc(hidden)]
    pub fn break_kernel(&self, name: &str) {
        *lock(&self.broken_kernel) = Some(BrokenKernel { name: name.to_string(), local: None });
    }

    /// Test hook: as [`Context::break_kernel`], for work groups of the size `local` only.
    #[doc(hidden)]
    pub fn break_work_group(&self, name: &str, local: &[u32]) {
        *lock(&self.broken_kernel) =
            Some(BrokenKernel { name: name.to_string(), local: Some(local.to_vec()) });
    }

    /// What planners know of the device.
    pub fn profile(&self) -> &DeviceProfile {
        &self.profile
    }
}

/// Locks a mutex whose data stays sound when a thread that held it has panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn access_from_environment() -> Result<Option<Access>> {
    match std::env::var("VKDELEGATE_ACCESS").ok().as_deref().map(str::trim) {
        None | Some("") => Ok(None),
        Some("ssbo") => Ok(Some(Access::Ssbo)),
        Some("bda") => Ok(Some(Access::Bda)),
        Some(other) => {
            Err(Error::invalid_input(format!("VKDELEGATE_ACCESS is `{other}`; it takes ssbo or bda")))
        }
    }
}

fn class_from_environment() -> Result<Option<DeviceClass>> {
    let Ok(word) = std::env::var("VKDELEGATE_CLASS") else { return Ok(None) };
    match word.trim() {
        "" => Ok(None),
        word => DeviceClass::named(word).map(Some).ok_or_else(|| {
            let known = DeviceClass::ALL.map(DeviceClass::as_str).join(", ");
            Error::invalid_input(format!("VKDELEGATE_CLASS is `{word}`; it takes one of {known}"))
        }),
    }
}

/// Bytes of 4 elements of 32 bits.
const LARGEST_TEXEL_BYTES: u64 = 16;

/// Descriptors go through the texture cache on phones; device addresses skip the bounds checks that Vulkan on the
/// CPU makes for every lane.
fn profile_of(gpu: &Gpu, access: Option<Access>, class: Option<DeviceClass>) -> Result<DeviceProfile> {
    let caps = gpu.caps();
    let class = class.unwrap_or(caps.class);
    let features = needs_met(&caps.features, caps.limits.max_storage_buffers);
    let has_bda = features.contains(Need::BufferDeviceAddress);
    let access = match access {
        Some(Access::Bda) if !has_bda => {
            return Err(Error::unsupported(format!(
                "access through device addresses was asked for, and `{}` has no bufferDeviceAddress",
                gpu.info().description.name
            )));
        }
        Some(access) => access,
        None if has_bda && class == DeviceClass::Cpu => Access::Bda,
        None => Access::Ssbo,
    };
    let limits = &caps.limits;
    Ok(DeviceProfile {
        name: gpu.info().description.name.clone(),
        class,
        access,
        features,
        packed_dot: features.contains(Need::IntegerDot)
            && class.has_fast_packed_dot(caps.dot_product.unsigned_accelerated),
        max_storage_buffer_range_bytes: limits.max_storage_buffer_range_bytes,
        max_buffer_bytes: limits.max_buffer_bytes.min(limits.max_memory_allocation_bytes),
        storage_offset_alignment_bytes: limits
            .min_storage_buffer_offset_alignment_bytes
            .max(limits.min_texel_buffer_offset_alignment_bytes)
            .max(LARGEST_TEXEL_BYTES),
        max_texel_buffer_elems: limits.max_texel_buffer_elems,
        max_groups: limits.max_group_count,
        max_invocations: limits.max_group_invocations,
        max_group_size: limits.max_group_size,
        subgroup_size: caps.subgroup_size,
        max_shared_bytes: limits.max_shared_memory_bytes,
        submission_ops: class.submission_ops(),
        choices: Arc::default(),
    })
}

fn needs_met(features: &gpu::Features, max_storage_buffers: u32) -> Needs {
    let offered = [
        (features.buffer_device_address, Need::BufferDeviceAddress),
        (features.storage_16bit, Need::Storage16Bit),
        (features.storage_8bit, Need::Storage8Bit),
        (features.shader_float16, Need::ShaderFloat16),
        (features.shader_int8, Need::ShaderInt8),
        (features.shader_int16, Need::ShaderInt16),
        (features.shader_int64, Need::ShaderInt64),
        (features.integer_dot_product, Need::IntegerDot),
        (features.subgroup_arithmetic && features.subgroup_shuffle, Need::Subgroup),
        (max_storage_buffers >= 5, Need::StorageBuffers5),
    ];
    let met: Vec<Need> = offered.into_iter().filter(|(offered, _)| *offered).map(|(_, need)| need).collect();
    Needs::of(&met)
}
