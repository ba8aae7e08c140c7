//! The handle of an open device.

use std::{fmt, sync::Arc};

use crate::{
    base::Result,
    delegate::Context,
    gpu::{self, DeviceInfo, GpuOptions},
};

/// An open Vulkan device, shared by the delegates built on it.
///
/// Clones are cheap and mean the same device. It closes when the last clone and the last delegate are gone, in
/// whatever order.
#[derive(Clone)]
pub struct Gpu {
    context: Arc<Context>,
}

impl Gpu {
    /// Opens the device that `options` choose: a discrete GPU before an integrated one before Vulkan on the CPU.
    ///
    /// `VKDELEGATE_DEVICE` (an index, part of a name, or a UUID) overrides the choice, and `VKDELEGATE_ACCESS`
    /// (`ssbo` or `bda`) how kernels reach their buffers. `VKDELEGATE_CLASS` (`adreno6xx`, `adreno7xx`, `adreno8xx`,
    /// `mali`, `desktop`, `cpu`) has plans made as for a device of that class.
    ///
    /// # Errors
    /// [`ErrorKind::NoDevice`](crate::ErrorKind::NoDevice) with the cause when there is no Vulkan loader, driver or
    /// device; [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) when no device fits the choice.
    pub fn open(options: GpuOptions) -> Result<Gpu> {
        Ok(Gpu { context: Context::open(options, None)? })
    }

    /// All Vulkan devices that could be opened, in the driver's order, without opening one.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn devices(options: &GpuOptions) -> Result<Vec<DeviceInfo>> {
        Ok(gpu::Gpu::list(options)?)
    }

    /// What the device is, and what it can do.
    pub fn info(&self) -> &DeviceInfo {
        self.context.gpu().info()
    }

    /// What the delegates of this device share; for this crate's own tests and tools.
    #[doc(hidden)]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// A handle to a device that is open already.
    #[doc(hidden)]
    pub fn from_context(context: Arc<Context>) -> Gpu {
        Gpu { context }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({})", self.info().description)
    }
}
