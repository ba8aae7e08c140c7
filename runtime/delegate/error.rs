//! Errors of the GPU layer as the crate's one error.

use crate::{
    base::{Error, ErrorKind},
    gpu::GpuError,
    shader::BundleError,
};

impl From<GpuError> for Error {
    fn from(error: GpuError) -> Error {
        let kind = match &error {
            GpuError::LoaderMissing { .. }
            | GpuError::NoDriver { .. }
            | GpuError::NoDevice
            | GpuError::InstanceFailed { .. }
            | GpuError::ValidationMissing
            | GpuError::DeviceUnsuitable { .. }
            | GpuError::DeviceFailed { .. } => ErrorKind::NoDevice,
            GpuError::UnknownDevice { .. } => ErrorKind::InvalidInput,
            GpuError::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            GpuError::LimitExceeded { .. } | GpuError::PipelineFailed { .. } => ErrorKind::Unsupported,
            GpuError::Timeout(_) => ErrorKind::Timeout,
            GpuError::DeviceLost => ErrorKind::DeviceLost,
            _ => ErrorKind::Internal,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<BundleError> for Error {
    fn from(error: BundleError) -> Error {
        Error::internal(error.to_string())
    }
}
