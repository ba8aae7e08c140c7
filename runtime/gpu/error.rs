//! The typed errors of the GPU layer. Each says what failed and, where the user can act, what to do.

use std::time::Duration;

use ash::vk;

/// Shorthand for results of this module.
pub type GpuResult<T> = Result<T, GpuError>;

/// Why a GPU operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The Vulkan loader library could not be opened.
    #[error(
        "no Vulkan loader found (tried {}): {reason}; install it (Debian/Ubuntu: `apt-get install libvulkan1`; \
         Windows and Android ship it with the driver; macOS: MoltenVK) or give its path",
        tried.join(", ")
    )]
    LoaderMissing {
        /// The names or paths tried, in order.
        tried: Vec<String>,
        /// What the system said about the last of them.
        reason: String,
    },

    /// The loader has no driver to talk to.
    #[error(
        "the Vulkan loader found no driver ({reason}); install one for your GPU, or lavapipe for the CPU \
         (Debian/Ubuntu: `apt-get install mesa-vulkan-drivers`), and check VK_ICD_FILENAMES / VK_DRIVER_FILES"
    )]
    NoDriver {
        /// What the loader said.
        reason: String,
    },

    /// There are drivers, but no device.
    #[error(
        "no Vulkan device found; install a driver for your GPU, or lavapipe for the CPU \
         (Debian/Ubuntu: `apt-get install mesa-vulkan-drivers`)"
    )]
    NoDevice,

    /// The instance could not be created.
    #[error(
        "creating the Vulkan instance failed ({reason}); check the driver and the layers that are enabled"
    )]
    InstanceFailed {
        /// What the loader or a layer said.
        reason: String,
    },

    /// Validation was asked for, but its layer is not installed.
    #[error(
        "validation was asked for, but the layer VK_LAYER_KHRONOS_validation is not installed \
         (Debian/Ubuntu: `apt-get install vulkan-validationlayers`)"
    )]
    ValidationMissing,

    /// The device asked for does not exist, or the text names more than one kind of choice.
    #[error("no Vulkan device matches {choice}; available: {}", devices.join("; "))]
    UnknownDevice {
        /// What was asked for.
        choice: String,
        /// The devices there are, one line each.
        devices: Vec<String>,
    },

    /// The device lacks something that every program needs.
    #[error(
        "the device `{device}` can't be used: {reason}; choose another (VKDELEGATE_DEVICE) or update its driver"
    )]
    DeviceUnsuitable {
        /// Name of the device.
        device: String,
        /// What it lacks.
        reason: String,
    },

    /// The driver refused to create the logical device.
    #[error(
        "the driver refused to create the device `{device}` ({reason}); update the driver or choose another device"
    )]
    DeviceFailed {
        /// Name of the device.
        device: String,
        /// What the driver said.
        reason: String,
    },

    /// An allocation was refused.
    #[error(
        "out of {heap} memory: {requested_bytes} bytes for `{name}` were refused; free memory or use a smaller shape"
    )]
    OutOfMemory {
        /// Name of the buffer.
        name: String,
        /// Bytes that were asked for.
        requested_bytes: u64,
        /// The heap: `device` or `host`.
        heap: &'static str,
    },

    /// A request is beyond what the device allows.
    #[error("`{name}`: {what} is {requested}, but this device allows {limit}")]
    LimitExceeded {
        /// The buffer, pipeline or dispatch.
        name: String,
        /// The quantity, with its unit.
        what: &'static str,
        /// What was asked for.
        requested: u64,
        /// The device's limit.
        limit: u64,
    },

    /// A byte range, count or state that the caller got wrong.
    #[error("`{name}`: {reason}")]
    InvalidUse {
        /// The object.
        name: String,
        /// What is wrong.
        reason: String,
    },

    /// The driver could not make a pipeline.
    #[error("the driver of `{device}` could not compile the kernel `{name}` ({reason})")]
    PipelineFailed {
        /// Name of the pipeline.
        name: String,
        /// Name of the device.
        device: String,
        /// What the driver said.
        reason: String,
    },

    /// The work was not done within the time allowed; it goes on, and may be waited for again.
    #[error("the GPU was not done after {} ms", .0.as_millis())]
    Timeout(Duration),

    /// The device is lost; every later call on it returns this too. Open a new one.
    #[error("the Vulkan device is lost; open it again and build the delegates anew")]
    DeviceLost,

    /// Another Vulkan call failed.
    #[error("{call} failed: {reason}")]
    Vulkan {
        /// The Vulkan function.
        call: &'static str,
        /// Its result code.
        reason: String,
    },
}

impl GpuError {
    pub(super) fn invalid(name: &str, reason: impl Into<String>) -> GpuError {
        GpuError::InvalidUse { name: name.to_owned(), reason: reason.into() }
    }
}

/// The text of a result code, with the constant's name, for error messages.
pub(super) fn result_text(result: vk::Result) -> String {
    format!("{result:?}: {result}")
}
