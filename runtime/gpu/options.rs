//! How to open a device.

use std::path::PathBuf;

use super::caps::CapsOverride;
use super::hooks::Hooks;
use super::select::DeviceChoice;

/// Options of [`Gpu::open`](super::Gpu::open).
///
/// Two environment variables act on top: `VKDELEGATE_DEVICE` (an index, a part of a name, or a UUID) overrides
/// `device`, and `VKDELEGATE_VALIDATION` switches validation on (`1`), with synchronization validation (`sync`).
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// Which device.
    pub device: DeviceChoice,
    /// The Vulkan loader library, if not the system's.
    pub loader_path: Option<PathBuf>,
    /// Runs under the Khronos validation layer; an error if it is not installed.
    pub validation: bool,
    /// Has the layer check barriers too; implies `validation`.
    pub sync_validation: bool,
    /// Folder of the pipeline cache; `None` keeps it in memory only.
    pub cache_dir: Option<PathBuf>,
    /// Test hook: a device weaker than it is.
    #[doc(hidden)]
    pub overrides: CapsOverride,
    /// Test hook: injected faults.
    #[doc(hidden)]
    pub hooks: Hooks,
}

impl GpuOptions {
    /// The options with what the environment asks for.
    pub(super) fn with_environment(&self) -> GpuOptions {
        let read = |name: &str| std::env::var(name).ok();
        self.with_variables(read("VKDELEGATE_DEVICE").as_deref(), read("VKDELEGATE_VALIDATION").as_deref())
    }

    fn with_variables(&self, device: Option<&str>, validation: Option<&str>) -> GpuOptions {
        let mut options = self.clone();
        if let Some(choice) = device.filter(|text| !text.trim().is_empty()) {
            options.device = DeviceChoice::parse(choice);
        }
        match validation {
            None | Some("" | "0") => {}
            Some("sync") => options.sync_validation = true,
            Some(_) => options.validation = true,
        }
        options.validation |= options.sync_validation;
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_overrides_the_device() {
        let asked = GpuOptions { device: DeviceChoice::Index(3), ..GpuOptions::default() };
        assert_eq!(
            asked.with_variables(Some("lavapipe"), None).device,
            DeviceChoice::Name("lavapipe".into())
        );
        assert_eq!(asked.with_variables(Some(" "), None).device, DeviceChoice::Index(3));
        assert_eq!(asked.with_variables(None, None).device, DeviceChoice::Index(3));
    }

    #[test]
    fn the_environment_switches_validation_on() {
        let flags = |value: Option<&str>| {
            let options = GpuOptions::default().with_variables(None, value);
            (options.validation, options.sync_validation)
        };
        assert_eq!(flags(None), (false, false));
        assert_eq!(flags(Some("0")), (false, false));
        assert_eq!(flags(Some("1")), (true, false));
        assert_eq!(flags(Some("sync")), (true, true));
    }
}
