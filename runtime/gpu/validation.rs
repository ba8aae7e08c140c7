//! The Khronos validation layer: what it offers, how its checks are switched on, and the log of what it says.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex};

use ash::{ext, vk};

use super::error::{GpuError, GpuResult};
use super::lock;

/// The warnings and errors that the validation layer gave; clones share it, and it outlives the device.
#[derive(Clone, Debug, Default)]
pub struct ValidationLog(Arc<Mutex<Vec<String>>>);

impl ValidationLog {
    /// All messages so far, oldest first.
    pub fn messages(&self) -> Vec<String> {
        lock(&self.0).clone()
    }
}

pub(super) const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// The instance extensions that the layer brings.
///
/// # Errors
/// When the layer is not installed.
pub(super) fn layer_extensions(entry: &ash::Entry) -> GpuResult<Vec<vk::ExtensionProperties>> {
    // SAFETY: no preconditions beyond a loaded entry.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }.unwrap_or_default();
    if !layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(LAYER)) {
        return Err(GpuError::ValidationMissing);
    }
    // SAFETY: as above; the layer is installed.
    Ok(unsafe { entry.enumerate_instance_extension_properties(Some(LAYER)) }.unwrap_or_default())
}

/// How a layer is told to check barriers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncSwitch {
    /// By a setting; such layers see what shaders access only if a second setting says so.
    Settings,
    /// By `VkValidationFeaturesEXT`, in layers that have no settings yet.
    Features,
}

impl SyncSwitch {
    pub(super) fn of(layer_extensions: &[vk::ExtensionProperties]) -> SyncSwitch {
        let has_settings =
            layer_extensions.iter().any(|ext| ext.extension_name_as_c_str() == Ok(ext::layer_settings::NAME));
        if has_settings { SyncSwitch::Settings } else { SyncSwitch::Features }
    }

    pub(super) fn extension(self) -> &'static CStr {
        match self {
            SyncSwitch::Settings => ext::layer_settings::NAME,
            SyncSwitch::Features => ext::validation_features::NAME,
        }
    }
}

/// For [`SyncSwitch::Features`].
pub(super) const SYNC_FEATURES: [vk::ValidationFeatureEnableEXT; 1] =
    [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];

/// For [`SyncSwitch::Settings`].
pub(super) fn sync_settings() -> [vk::LayerSettingEXT<'static>; 2] {
    static ON: vk::Bool32 = vk::TRUE;
    [c"validate_sync", c"syncval_shader_accesses_heuristic"].map(|name| vk::LayerSettingEXT {
        value_count: 1,
        p_values: std::ptr::from_ref(&ON).cast(),
        ..vk::LayerSettingEXT::default()
            .layer_name(LAYER)
            .setting_name(name)
            .ty(vk::LayerSettingTypeEXT::BOOL32)
    })
}

/// A messenger that writes warnings and errors to `log`, which must outlive it at its present address.
pub(super) fn messenger_info(log: &ValidationLog) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
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
