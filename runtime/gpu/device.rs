//! The opened device: queue, allocator, counters, and what happens when it is lost.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ash::{ext, khr, vk};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationSizes, AllocatorDebugSettings};

use super::cache::{self, CacheKey, Kind};
use super::caps::{Caps, Probe, probe};
use super::error::{GpuError, GpuResult, result_text};
use super::features::{DEVICE_ADDRESS, FeatureChain};
use super::hooks::Hooks;
use super::instance::Instance;
use super::lock;
use super::memory::MemoryUse;
use super::options::GpuOptions;
use super::pipeline::{BindingKind, Layouts};
use super::select::{DeviceDescription, select};
use super::validation::ValidationLog;

const MIB: u64 = 1 << 20;

/// A device as listed: what it is and what it can do.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Name, kind, ids, driver.
    pub description: DeviceDescription,
    /// Features and limits.
    pub caps: Caps,
}

/// An opened Vulkan device. Clones are cheap and share it; it closes when the last object made from it is gone.
#[derive(Clone)]
pub struct Gpu {
    pub(super) shared: Arc<Shared>,
}

impl Gpu {
    /// Lists the devices that can be opened, without opening one.
    ///
    /// # Errors
    /// When there is no loader, no driver or no device.
    pub fn list(options: &GpuOptions) -> GpuResult<Vec<DeviceInfo>> {
        let options = options.with_environment();
        let instance = Instance::new(&options)?;
        let probes = probe_all(&instance)?;
        Ok(probes.into_iter().map(|(_, probe)| device_info(probe, &options)).collect())
    }

    /// Opens the device that `options` and the environment choose (see [`GpuOptions`]).
    ///
    /// # Errors
    /// A typed error for each cause: no loader, no driver, no device, no such device, creation refused.
    pub fn open(options: GpuOptions) -> GpuResult<Gpu> {
        let options = options.with_environment();
        let instance = Instance::new(&options)?;
        let mut probes = probe_all(&instance)?;
        let descriptions: Vec<_> = probes.iter().map(|(_, probe)| probe.description.clone()).collect();
        let index = select(&descriptions, &options.device)?.index;
        probes.retain(|(_, probe)| probe.description.index == index);
        let (physical, probe) = probes.pop().ok_or(GpuError::NoDevice)?;
        let shared = Shared::open(instance, physical, probe, &options)?;
        log::info!("opened device {}", shared.info.description);
        Ok(Gpu { shared: Arc::new(shared) })
    }

    /// What the device is and can do, with the overrides of the options applied.
    pub fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// Features and limits; shorthand for `info().caps`.
    pub fn caps(&self) -> &Caps {
        &self.shared.info.caps
    }

    /// Live objects and totals since the device was opened.
    pub fn counters(&self) -> Counters {
        self.shared.counters.snapshot(self.shared.memory_blocks())
    }

    /// Bytes of buffers now and at their peak.
    pub fn memory_use(&self) -> MemoryUse {
        let reserved_bytes = lock(&self.shared.allocator).as_ref().map_or(0, Allocator::capacity);
        lock(&self.shared.memory_use).with_reserved(reserved_bytes)
    }

    /// Warnings and errors of the validation layer so far; always empty without validation.
    pub fn validation_messages(&self) -> Vec<String> {
        self.shared.instance.log.messages()
    }

    /// The log of the validation layer, to read after the device is closed.
    pub fn validation_log(&self) -> ValidationLog {
        ValidationLog::clone(&self.shared.instance.log)
    }

    /// Whether the device was lost; then every call on it returns [`GpuError::DeviceLost`].
    pub fn is_lost(&self) -> bool {
        self.shared.lost.load(Ordering::Acquire)
    }

    /// What [`Gpu::store_tuning`] wrote to the cache folder for this device, this version of its driver and this version
    /// of the crate; empty if there is none, or anything about the file is in doubt.
    pub fn load_tuning(&self) -> Vec<u8> {
        self.shared.load_file(Kind::Tuning)
    }

    /// Writes what a tuner found to the cache folder; `false` if there is none, or it cannot be written.
    pub fn store_tuning(&self, payload: &[u8]) -> bool {
        self.shared.store_file(Kind::Tuning, payload)
    }

    /// Writes the pipeline cache to disk, if it has a folder and grew. Closing the device does this too.
    pub fn save_pipeline_cache(&self) {
        self.shared.save_cache();
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({})", self.shared.info.description)
    }
}

fn device_info(probe: Probe, options: &GpuOptions) -> DeviceInfo {
    let mut caps = probe.caps;
    options.overrides.apply(&mut caps);
    DeviceInfo { description: probe.description, caps }
}

fn probe_all(instance: &Instance) -> GpuResult<Vec<(vk::PhysicalDevice, Probe)>> {
    let devices = instance.physical_devices()?;
    let probed = devices.into_iter().enumerate().filter_map(|(index, physical)| {
        let probe = probe(&instance.raw, instance.version, physical, index);
        if probe.is_none() {
            log::warn!("Vulkan device {index} is older than Vulkan 1.1 or has no compute queue; ignored");
        }
        Some((physical, probe?))
    });
    Ok(probed.collect())
}

/// Functions that return buffer addresses: core, or those of the extension.
enum AddressFunctions {
    Core,
    Extension(khr::buffer_device_address::Device),
}

/// The state that all objects of a device hold alive.
pub(super) struct Shared {
    pub raw: ash::Device,
    pub info: DeviceInfo,
    pub hooks: Hooks,
    pub queue: Mutex<vk::Queue>,
    pub queue_family: u32,
    /// `None` only while the device is being destroyed.
    pub allocator: Mutex<Option<Allocator>>,
    pub memory_use: Mutex<MemoryUse>,
    pub counters: LiveCounters,
    pub layouts: Mutex<HashMap<(Vec<BindingKind>, u32), Layouts>>,
    pub pipeline_cache: vk::PipelineCache,
    pub debug: Option<ext::debug_utils::Device>,
    /// What files in the cache folder are valid for, and the folder.
    cache: Option<(CacheKey, PathBuf)>,
    saved_cache_bytes: Mutex<usize>,
    address_functions: AddressFunctions,
    lost: AtomicBool,
    /// Last, as it must outlive the device.
    pub instance: Instance,
}

impl Shared {
    fn open(
        instance: Instance,
        physical: vk::PhysicalDevice,
        probe: Probe,
        options: &GpuOptions,
    ) -> GpuResult<Shared> {
        let key = CacheKey {
            vendor_id: probe.description.vendor_id,
            device_id: probe.description.device_id,
            driver_version: probe.description.driver_version,
            uuid: probe.cache_uuid,
        };
        let queue_family = probe.queue_family;
        let has_core_address = probe.support.is_core(DEVICE_ADDRESS);
        let mut enabled = probe.caps.features;
        enabled = enabled.without(&options.overrides.features_off);
        let extensions = probe.support.extensions_for(&enabled);
        let info = device_info(probe, options);
        let raw = create_device(&instance, physical, queue_family, &info, &extensions, &options.hooks)?;
        // SAFETY: the device was created with one queue of this family.
        let queue = unsafe { raw.get_device_queue(queue_family, 0) };
        let debug = instance.has_debug_utils.then(|| ext::debug_utils::Device::new(&instance.raw, &raw));
        let address_functions = if has_core_address || !enabled.buffer_device_address {
            AddressFunctions::Core
        } else {
            AddressFunctions::Extension(khr::buffer_device_address::Device::new(&instance.raw, &raw))
        };
        let cache = options.cache_dir.clone().map(|folder| (key, folder));
        let mut shared = Shared {
            raw,
            info,
            hooks: options.hooks.clone(),
            queue: Mutex::new(queue),
            queue_family,
            allocator: Mutex::new(None),
            memory_use: Mutex::default(),
            counters: LiveCounters::default(),
            layouts: Mutex::default(),
            pipeline_cache: vk::PipelineCache::null(),
            debug,
            cache,
            saved_cache_bytes: Mutex::new(0),
            address_functions,
            lost: AtomicBool::new(false),
            instance,
        };
        *lock(&shared.allocator) = Some(shared.create_allocator(physical)?);
        shared.pipeline_cache = shared.create_pipeline_cache()?;
        Ok(shared)
    }

    fn create_allocator(&self, physical: vk::PhysicalDevice) -> GpuResult<Allocator> {
        Allocator::new(&AllocatorCreateDesc {
            instance: self.instance.raw.clone(),
            device: self.raw.clone(),
            physical_device: physical,
            debug_settings: AllocatorDebugSettings::default(),
            buffer_device_address: self.info.caps.features.buffer_device_address,
            // Arenas and weights are large and get allocations of their own; blocks only serve small buffers.
            allocation_sizes: AllocationSizes::new(4 * MIB, 4 * MIB)
                .with_max_device_memblock_size(32 * MIB)
                .with_max_host_memblock_size(16 * MIB),
        })
        .map_err(|error| GpuError::DeviceFailed {
            device: self.info.description.name.clone(),
            reason: error.to_string(),
        })
    }

    fn create_pipeline_cache(&self) -> GpuResult<vk::PipelineCache> {
        let blob = self.load_file(Kind::Pipelines);
        *lock(&self.saved_cache_bytes) = blob.len();
        let mut info = vk::PipelineCacheCreateInfo::default();
        // Some drivers look at the pointer even when the size is zero, so it stays null then.
        if !blob.is_empty() {
            info = info.initial_data(&blob);
        }
        // SAFETY: the blob outlives the call, and was written by this driver for this device.
        unsafe { self.raw.create_pipeline_cache(&info, None) }
            .map_err(|result| self.error("vkCreatePipelineCache", result))
    }

    fn save_cache(&self) {
        if self.cache.is_none() {
            return;
        }
        // SAFETY: the cache belongs to this device.
        let Ok(blob) = (unsafe { self.raw.get_pipeline_cache_data(self.pipeline_cache) }) else { return };
        let mut saved_bytes = lock(&self.saved_cache_bytes);
        if blob.is_empty() || blob.len() == *saved_bytes {
            return;
        }
        if self.store_file(Kind::Pipelines, &blob) {
            *saved_bytes = blob.len();
        }
    }

    /// The payload of the device's file in the cache folder; empty without one.
    fn load_file(&self, kind: Kind) -> Vec<u8> {
        self.cache.as_ref().map(|(key, folder)| cache::load(key, kind, folder)).unwrap_or_default()
    }

    /// Whether the payload was written to the device's file in the cache folder.
    fn store_file(&self, kind: Kind, payload: &[u8]) -> bool {
        let Some((key, folder)) = &self.cache else { return false };
        let stored = cache::store(key, kind, folder, payload);
        if let Err(error) = &stored {
            log::warn!("{kind:?} not written to {}: {error}", folder.display());
        }
        stored.is_ok()
    }

    /// An error once the device is lost. Every public call asks first.
    pub(super) fn check_alive(&self) -> GpuResult<()> {
        if self.lost.load(Ordering::Acquire) { Err(GpuError::DeviceLost) } else { Ok(()) }
    }

    pub(super) fn lose(&self) -> GpuError {
        if !self.lost.swap(true, Ordering::AcqRel) {
            log::error!("the device {} is lost", self.info.description);
        }
        GpuError::DeviceLost
    }

    /// The error of a failed Vulkan call; a lost device stays lost.
    pub(super) fn error(&self, call: &'static str, result: vk::Result) -> GpuError {
        match result {
            vk::Result::ERROR_DEVICE_LOST => self.lose(),
            _ => GpuError::Vulkan { call, reason: result_text(result) },
        }
    }

    /// Gives an object the name that validation messages and debuggers show.
    pub(super) fn set_name<H: vk::Handle>(&self, handle: H, name: &str) {
        let Some(debug) = &self.debug else { return };
        let name = c_string(name);
        let info = vk::DebugUtilsObjectNameInfoEXT::default().object_handle(handle).object_name(&name);
        // SAFETY: the handle is a live object of this device. A name that was not set is only a name less.
        let _ = unsafe { debug.set_debug_utils_object_name(&info) };
    }

    /// The device address of a buffer made with that usage.
    pub(super) fn buffer_address(&self, buffer: vk::Buffer) -> u64 {
        let info = vk::BufferDeviceAddressInfo::default().buffer(buffer);
        match &self.address_functions {
            // SAFETY: the feature is enabled, and the buffer has the usage and its memory.
            AddressFunctions::Core => unsafe { self.raw.get_buffer_device_address(&info) },
            // SAFETY: as above.
            AddressFunctions::Extension(functions) => unsafe { functions.get_buffer_device_address(&info) },
        }
    }

    fn memory_blocks(&self) -> u64 {
        lock(&self.allocator).as_ref().map_or(0, |allocator| allocator.generate_report().blocks.len() as u64)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nobody else holds the device. A lost device has nothing to wait for, so errors do not matter.
        let _ = unsafe { self.raw.device_wait_idle() };
        if !*self.lost.get_mut() {
            self.save_cache();
        }
        for (_, layouts) in lock(&self.layouts).drain() {
            layouts.destroy(&self.raw);
        }
        // SAFETY: no pipeline creation can be running, and the handle is not used afterwards.
        unsafe { self.raw.destroy_pipeline_cache(self.pipeline_cache, None) };
        let leaked = self.counters.snapshot(0).live_objects();
        if leaked > 0 {
            log::error!("{leaked} Vulkan objects were still alive when their device closed");
        }
        drop(lock(&self.allocator).take());
        // SAFETY: all children are destroyed, as each holds this struct alive.
        unsafe { self.raw.destroy_device(None) };
    }
}

fn create_device(
    instance: &Instance,
    physical: vk::PhysicalDevice,
    queue_family: u32,
    info: &DeviceInfo,
    extensions: &[&std::ffi::CStr],
    hooks: &Hooks,
) -> GpuResult<ash::Device> {
    let failed = |reason: String| GpuError::DeviceFailed { device: info.description.name.clone(), reason };
    if hooks.device_fails() {
        return Err(failed("injected by a test hook".into()));
    }
    let names: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
    let queues =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(queue_family).queue_priorities(&[1.0])];
    let mut chain = FeatureChain::enabling(&info.caps.features);
    let create = chain
        .push_to(vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&names));
    // SAFETY: extensions and features are only those that the device reported; all pointers outlive the call.
    unsafe { instance.raw.create_device(physical, &create, None) }
        .map_err(|result| failed(result_text(result)))
}

/// A C string of a name; a null character within it is left out.
pub(super) fn c_string(name: &str) -> CString {
    CString::new(name.replace('\0', "")).unwrap_or_default()
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts of a device's objects (live ones) and calls (since it was opened).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            /// Live: memory blocks of the allocator, which keeps an empty one for reuse.
            pub memory_blocks: u64,
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters as they are kept.
        #[derive(Default)]
        pub(super) struct LiveCounters { $(pub $name: AtomicU64,)* }

        impl LiveCounters {
            fn snapshot(&self, memory_blocks: u64) -> Counters {
                Counters { memory_blocks, $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Live: buffers, device-local and staging.
    buffers,
    /// Live: pipelines.
    pipelines,
    /// Live: descriptor pools.
    descriptor_pools,
    /// Live: descriptor sets.
    descriptor_sets,
    /// Live: views of buffers as texels.
    buffer_views,
    /// Live: command pools.
    command_pools,
    /// Live: query pools.
    query_pools,
    /// Live: fences.
    fences,
    /// Total: buffers allocated.
    allocations,
    /// Total: pipelines created.
    pipelines_created,
    /// Total: commands recorded: launches, copies, fills and barriers.
    commands,
    /// Total: recordings made.
    recordings,
    /// Total: submissions.
    submissions,
    /// Total: flushes of non-coherent memory.
    flushes,
    /// Total: invalidations of non-coherent memory.
    invalidations,
}

impl Counters {
    /// All live Vulkan objects made from the device, memory blocks not counted.
    pub fn live_objects(&self) -> u64 {
        [
            self.buffers,
            self.pipelines,
            self.descriptor_pools,
            self.descriptor_sets,
            self.buffer_views,
            self.command_pools,
            self.query_pools,
            self.fences,
        ]
        .iter()
        .sum()
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Takes from a counter of live objects.
pub(super) fn uncount(counter: &AtomicU64, n: u64) {
    counter.fetch_sub(n, Ordering::Relaxed);
}
