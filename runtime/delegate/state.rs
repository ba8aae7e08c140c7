//! Buffers of the program that outlast a run: their initial values, and what the caller reads and sets.

use super::{
    context::Context,
    convert::{to_device, to_host},
};
use crate::{
    base::{Error, HostTensor, Result},
    gpu::{Buffer, BufferDesc},
    ir::Constant,
    ops::Tensor,
    plan::PlannedState,
};

/// One state on the device.
pub struct DeviceState {
    /// Name of the buffer in the program.
    pub name: String,
    /// Dtype, sizes and element kind; its storage means nothing outside a plan.
    pub tensor: Tensor,
    /// Where it lies.
    pub buffer: Buffer,
    initial: Constant,
}

impl DeviceState {
    /// Makes the state and gives it its initial value.
    pub fn new(context: &Context, planned: &PlannedState, initial: Constant) -> Result<DeviceState> {
        let len_bytes = planned.tensor.region().len_bytes;
        let desc = BufferDesc { name: &planned.name, size_bytes: len_bytes.max(4) };
        let buffer = context.gpu().create_shared_buffer(&desc)?;
        let state =
            DeviceState { name: planned.name.clone(), tensor: planned.tensor.clone(), buffer, initial };
        state.reset(context)?;
        Ok(state)
    }

    /// Gives the state its initial value.
    pub fn reset(&self, context: &Context) -> Result<()> {
        self.write(context, &self.bytes_of(&self.initial.to_tensor()?)?)
    }

    /// The bytes of a value that the state can hold.
    ///
    /// # Errors
    /// Another dtype, other sizes, or an integer that does not fit.
    pub fn bytes_of(&self, value: &HostTensor) -> Result<Vec<u8>> {
        if value.dtype() != self.tensor.dtype || value.sizes() != self.tensor.sizes {
            return Err(Error::invalid_input(format!(
                "state `{}` is {}{:?}, got {}{:?}",
                self.name,
                self.tensor.dtype,
                self.tensor.sizes,
                value.dtype(),
                value.sizes()
            )));
        }
        let mut bytes = vec![0u8; self.tensor.region().len_bytes as usize];
        to_device(value, &self.tensor, &mut bytes)
            .map_err(|error| error.context(format!("state `{}`", self.name)))?;
        Ok(bytes)
    }

    /// Gives the state the value with those bytes.
    ///
    /// # Errors
    /// What the device refuses; the state may then hold a part of the value.
    pub fn write(&self, context: &Context, bytes: &[u8]) -> Result<()> {
        context.upload(&self.buffer, bytes)
    }

    /// Reads the state back.
    pub fn read(&self, context: &Context) -> Result<HostTensor> {
        let len_bytes = self.tensor.region().len_bytes;
        context.download(&self.buffer, len_bytes, |bytes| to_host(&self.tensor, bytes))
    }
}

/// Finds a state by its name in the program.
///
/// # Errors
/// When there is none of that name; the message lists those there are.
pub fn find<'a>(states: &'a [DeviceState], name: &str) -> Result<&'a DeviceState> {
    states.iter().find(|state| state.name == name).ok_or_else(|| {
        let names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
        Error::invalid_input(format!("there is no state `{name}`; this method has: {}", names.join(", ")))
    })
}
