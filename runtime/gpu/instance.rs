//! The Vulkan instance: versions, layers, and the messenger that keeps what the validation layer says.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex};

use ash::{ext, khr, vk};

use super::error::{GpuError, GpuResult, result_text};
use super::options::GpuOptions;
use super::{features, loader, lock};

const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// The warnings and errors that the validation layer gave; clones share it, and it outlives the device.
#[derive(Clone, Debug, Default)]
pub struct ValidationLog(Arc<Mutex<Vec<String>>>);

impl ValidationLog {
    /// All messages so far, oldest first.
    pub fn messages(&self) -> Vec<String> {
        lock(&self.0).clone()
    }
}

/// An instance with its loader; destroyed when dropped.
pub(super) struct Instance {
    pub raw: ash::Instance,
    /// The version that may be used: the lower of the loader's and ours.
    pub version: u32,
    pub has_debug_utils: bool,
    pub log: ValidationLog,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    /// What the messenger's callback writes to; boxed, for the address that Vulkan holds.
    _callback_log: Box<ValidationLog>,
    _entry: ash::Entry,
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
        Self::create(entry, version, options)
    }

    fn create(entry: ash::Entry, version: u32, options: &GpuOptions) -> GpuResult<Instance> {
        // SAFETY: no preconditions beyond a loaded entry.
        let available = unsafe { entry.enumerate_instance_extension_properties(None) }.unwrap_or_default();
        let has = |name: &CStr| available.iter().any(|ext| ext.extension_name_as_c_str() == Ok(name));
        let has_debug_utils = features::has_debug_utils(&available);
        let has_portability = has(khr::portability_enumeration::NAME);
        let mut extensions = Vec::new();
        if has_debug_utils {
            extensions.push(ext::debug_utils::NAME.as_ptr());
        }
        if has_portability {
            extensions.push(khr::portability_enumeration::NAME.as_ptr());
        }
        let mut layers = Vec::new();
        if options.validation {
            check_validation_layer(&entry)?;
            layers.push(VALIDATION_LAYER.as_ptr());
        }
        if options.sync_validation {
            extensions.push(ext::validation_features::NAME.as_ptr());
        }

        let log = ValidationLog::default();
        let callback_log = Box::new(log.clone());
        let mut messenger_info = messenger_info(&callback_log);
        let enabled_checks = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut checks = vk::ValidationFeaturesEXT::default().enabled_validation_features(&enabled_checks);
        let app = vk::ApplicationInfo::default().engine_name(c"vkdelegate").api_version(version);
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&app)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&extensions);
        if has_portability {
            info = info.flags(vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR);
        }
        if options.validation && has_debug_utils {
            info = info.push_next(&mut messenger_info);
        }
        if options.sync_validation {
            info = info.push_next(&mut checks);
        }
        // SAFETY: the layers and extensions named are there, and all that `info` points to outlives the call;
        // the callback's log lives in the `Instance` until after the instance is destroyed.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(instance_error)?;
        let mut instance = Instance {
            raw,
            version,
            has_debug_utils,
            log,
            messenger: None,
            _callback_log: callback_log,
            _entry: entry,
        };
        if options.validation && has_debug_utils {
            instance.listen()?;
        }
        Ok(instance)
    }

    /// Creates the messenger for all calls after instance creation.
    fn listen(&mut self) -> GpuResult<()> {
        let functions = ext::debug_utils::Instance::new(&self._entry, &self.raw);
        let info = messenger_info(&self._callback_log);
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

fn check_validation_layer(entry: &ash::Entry) -> GpuResult<()> {
    // SAFETY: no preconditions beyond a loaded entry.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }.unwrap_or_default();
    let is_there = layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(VALIDATION_LAYER));
    if is_there { Ok(()) } else { Err(GpuError::ValidationMissing) }
}

fn instance_error(result: vk::Result) -> GpuError {
    match result {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => GpuError::NoDriver { reason: result_text(result) },
        _ => GpuError::InstanceFailed { reason: result_text(result) },
    }
}

fn messenger_info(log: &ValidationLog) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::{DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Type};
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::WARNING | Severity::ERROR)
        .message_type(Type::VALIDATION | Type::PERFORMANCE)
        .pfn_user_callback(Some(on_message))
        .user_data(std::ptr::from_ref(log).cast_mut().cast())
}

/// Called by the layer, on any thread, for each warning and error.
unsafe extern "system" fn on_message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _types: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user_data: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: `messenger_info` set the pointer to a log that outlives the messenger, and it is only shared.
    let log = unsafe { user_data.cast::<ValidationLog>().as_ref() };
    // SAFETY: the layer passes valid data for the time of the call.
    let data = unsafe { data.as_ref() };
    // SAFETY: the struct's strings are null-terminated and valid for the time of the call.
    let message = data.and_then(|data| unsafe { data.message_as_c_str() });
    if let (Some(log), Some(message)) = (log, message) {
        let message = message.to_string_lossy().into_owned();
        log::warn!(target: "vkdelegate::validation", "{message}");
        lock(&log.0).push(message);
    }
    vk::FALSE
}
