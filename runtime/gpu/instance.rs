//! The Vulkan instance: version, layers, extensions, and the messenger of the validation layer.

use std::ffi::CStr;

use ash::{ext, khr, vk};

use super::error::{GpuError, GpuResult, result_text};
use super::loader;
use super::options::GpuOptions;
use super::validation::{self, SyncSwitch, ValidationLog, messenger_info};

/// An instance with its loader; destroyed when dropped.
pub(super) struct Instance {
    pub raw: ash::Instance,
    /// The version that may be used: the lower of the loader's and ours.
    pub version: u32,
    pub has_debug_utils: bool,
    /// Boxed, as the messenger holds its address.
    pub log: Box<ValidationLog>,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    /// Last, as it must outlive the instance.
    entry: ash::Entry,
}

impl Instance {
    /// Loads Vulkan and creates an instance as `options` ask.
    pub(super) fn new(options: &GpuOptions) -> GpuResult<Instance> {
        let entry = loader::load(options.loader_path.as_deref())?;
        // SAFETY: no preconditions beyond a loaded entry.
        let loader_version = unsafe { entry.try_enumerate_instance_version() };
        let version = loader_version.ok().flatten().unwrap_or(vk::API_VERSION_1_0).min(vk::API_VERSION_1_3);
        if version < vk::API_VERSION_1_1 {
            return Err(GpuError::InstanceFailed { reason: "the Vulkan loader is older than 1.1".into() });
        }
        if options.hooks.instance_fails() {
            return Err(GpuError::InstanceFailed { reason: "injected by a test hook".into() });
        }
        let setup = Setup::new(&entry, options)?;
        Self::create(entry, version, &setup)
    }

    fn create(entry: ash::Entry, version: u32, setup: &Setup) -> GpuResult<Instance> {
        let log = Box::new(ValidationLog::default());
        let layers: Vec<_> = setup.layers.iter().map(|name| name.as_ptr()).collect();
        let extensions: Vec<_> = setup.extensions.iter().map(|name| name.as_ptr()).collect();
        let mut messenger = messenger_info(&log);
        let settings = validation::sync_settings();
        let mut sync_settings = vk::LayerSettingsCreateInfoEXT::default().settings(&settings);
        let mut sync_features =
            vk::ValidationFeaturesEXT::default().enabled_validation_features(&validation::SYNC_FEATURES);
        let app = vk::ApplicationInfo::default().engine_name(c"vkdelegate").api_version(version);
        let mut info = vk::InstanceCreateInfo::default()
            .flags(setup.flags)
            .application_info(&app)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&extensions);
        if setup.has_messenger() {
            info = info.push_next(&mut messenger);
        }
        match setup.sync {
            Some(SyncSwitch::Settings) => info = info.push_next(&mut sync_settings),
            Some(SyncSwitch::Features) => info = info.push_next(&mut sync_features),
            None => {}
        }
        // SAFETY: the layers and extensions named are there, and all that `info` points to outlives the call;
        // the log lives in the `Instance` until after the instance is destroyed.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(instance_error)?;
        let has_debug_utils = setup.has_debug_utils;
        let mut instance = Instance { raw, version, has_debug_utils, log, messenger: None, entry };
        if setup.has_messenger() {
            instance.listen()?;
        }
        Ok(instance)
    }

    /// Creates the messenger for all calls after instance creation.
    fn listen(&mut self) -> GpuResult<()> {
        let functions = ext::debug_utils::Instance::new(&self.entry, &self.raw);
        let info = messenger_info(&self.log);
        // SAFETY: the extension is enabled, and the log that `info` points to lives as long as the messenger.
        let messenger = unsafe { functions.create_debug_utils_messenger(&info, None) }
            .map_err(|result| GpuError::InstanceFailed { reason: result_text(result) })?;
        self.messenger = Some((functions, messenger));
        Ok(())
    }

    /// All physical devices.
    ///
    /// # Errors
    /// [`GpuError::NoDriver`] or [`GpuError::NoDevice`].
    pub(super) fn physical_devices(&self) -> GpuResult<Vec<vk::PhysicalDevice>> {
        // SAFETY: the instance is valid.
        let devices = unsafe { self.raw.enumerate_physical_devices() }
            .map_err(|result| GpuError::NoDriver { reason: result_text(result) })?;
        if devices.is_empty() { Err(GpuError::NoDevice) } else { Ok(devices) }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some((functions, messenger)) = self.messenger.take() {
            // SAFETY: the messenger belongs to this instance and is not used afterwards.
            unsafe { functions.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: devices hold the instance alive, so all its children are destroyed.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// What an instance is created with.
struct Setup {
    layers: Vec<&'static CStr>,
    extensions: Vec<&'static CStr>,
    flags: vk::InstanceCreateFlags,
    sync: Option<SyncSwitch>,
    has_debug_utils: bool,
}

impl Setup {
    fn new(entry: &ash::Entry, options: &GpuOptions) -> GpuResult<Setup> {
        // SAFETY: no preconditions beyond a loaded entry.
        let mut available =
            unsafe { entry.enumerate_instance_extension_properties(None) }.unwrap_or_default();
        let mut setup = Setup {
            layers: Vec::new(),
            extensions: Vec::new(),
            flags: vk::InstanceCreateFlags::empty(),
            sync: None,
            has_debug_utils: false,
        };
        if options.validation {
            let of_layer = validation::layer_extensions(entry)?;
            setup.layers.push(validation::LAYER);
            setup.sync = options.sync_validation.then(|| SyncSwitch::of(&of_layer));
            setup.extensions.extend(setup.sync.map(SyncSwitch::extension));
            available.extend(of_layer);
        }
        let has = |name: &CStr| available.iter().any(|ext| ext.extension_name_as_c_str() == Ok(name));
        if has(ext::debug_utils::NAME) {
            setup.extensions.push(ext::debug_utils::NAME);
            setup.has_debug_utils = true;
        }
        // Without it the loader hides devices such as MoltenVK's, which are not full implementations.
        if has(khr::portability_enumeration::NAME) {
            setup.extensions.push(khr::portability_enumeration::NAME);
            setup.flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        Ok(setup)
    }

    fn has_messenger(&self) -> bool {
        !self.layers.is_empty() && self.has_debug_utils
    }
}

fn instance_error(result: vk::Result) -> GpuError {
    match result {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => GpuError::NoDriver { reason: result_text(result) },
        _ => GpuError::InstanceFailed { reason: result_text(result) },
    }
}
