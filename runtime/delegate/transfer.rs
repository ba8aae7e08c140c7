//! Inputs and outputs of runs, between the host's tensors and the device's memory: in place where the host reaches it, else
//! through staging buffers.

use super::{
    convert::{to_device, to_host},
    memory::Storages,
};
use crate::{
    base::{Error, ErrorKind, Result, Value},
    gpu::UnifiedMemory,
    plan::{Plan, PlannedInput, PlannedOutput},
};

/// Values of the user outputs, and of the mutated user inputs with their positions.
pub type RunOutputs = (Vec<Value>, Vec<(usize, Value)>);

/// Bytes of the status words.
pub const STATUS_BYTES: u64 = 16;

/// What goes through staging buffers, and where it lies there.
#[derive(Clone, Debug, Default)]
pub struct TransferLayout {
    /// Inputs in the upload buffer; `None` where the host writes them, and clears the status words, in place.
    pub upload: Option<StagedInputs>,
    /// Outputs in the read-back buffer; `None` where the host reads them in place.
    pub readback: Option<StagedOutputs>,
}

/// Where inputs lie in the upload buffer.
#[derive(Clone, Debug, Default)]
pub struct StagedInputs {
    /// First byte of each.
    pub offsets: Vec<u64>,
    /// Bytes of the buffer.
    pub len_bytes: u64,
}

/// Where outputs and the status words lie in the read-back buffer.
#[derive(Clone, Debug, Default)]
pub struct StagedOutputs {
    /// First byte of each; mutated inputs follow the outputs. 0 for host values.
    pub offsets: Vec<u64>,
    /// First byte of the status words.
    pub status_offset: u64,
    /// Bytes of the buffer.
    pub len_bytes: u64,
}

impl TransferLayout {
    /// The layout for `plan` where the host reaches the device's memory as `reached` says.
    pub fn of(plan: &Plan, reached: UnifiedMemory) -> TransferLayout {
        TransferLayout {
            upload: (reached < UnifiedMemory::Written).then(|| StagedInputs::of(plan)),
            readback: (reached < UnifiedMemory::WrittenAndRead).then(|| StagedOutputs::of(plan)),
        }
    }

    /// Bytes of the upload buffer; 0 without one.
    pub fn upload_bytes(&self) -> u64 {
        self.upload.as_ref().map_or(0, |staged| staged.len_bytes)
    }

    /// Bytes of the read-back buffer; 0 without one.
    pub fn readback_bytes(&self) -> u64 {
        self.readback.as_ref().map_or(0, |staged| staged.len_bytes)
    }

    /// Fails when a staging buffer would be larger than buffers can be.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], with the bytes and the limit.
    pub fn check(&self, max_buffer_bytes: u64) -> Result<()> {
        for (what, bytes) in [("inputs", self.upload_bytes()), ("outputs", self.readback_bytes())] {
            if bytes > max_buffer_bytes {
                return Err(Error::unsupported(format!(
                    "the {what} take {bytes} bytes together; a buffer of this device holds {max_buffer_bytes}"
                )));
            }
        }
        Ok(())
    }
}

impl StagedInputs {
    fn of(plan: &Plan) -> StagedInputs {
        let mut staged = StagedInputs::default();
        for input in &plan.inputs {
            staged.offsets.push(staged.len_bytes);
            staged.len_bytes += input.tensor.region().len_bytes.next_multiple_of(16);
        }
        staged
    }
}

impl StagedOutputs {
    fn of(plan: &Plan) -> StagedOutputs {
        let mut staged = StagedOutputs::default();
        for output in outputs(plan) {
            staged.offsets.push(staged.len_bytes);
            if let PlannedOutput::Tensor(tensor) = output {
                staged.len_bytes += tensor.region().len_bytes.next_multiple_of(16);
            }
        }
        staged.status_offset = staged.len_bytes;
        staged.len_bytes += STATUS_BYTES;
        staged
    }
}

/// User outputs, then mutated inputs.
pub fn outputs(plan: &Plan) -> impl Iterator<Item = &PlannedOutput> {
    plan.outputs.iter().chain(plan.mutated_inputs.iter().map(|(_, output)| output))
}

/// Gives the device those of `inputs` that `is_wanted`, and clears the status words where no command does.
///
/// # Errors
/// An integer that does not fit the device's; what the device refuses.
pub fn write_inputs(
    storages: &Storages<'_>,
    layout: &TransferLayout,
    inputs: &[Value],
    is_wanted: impl Fn(&PlannedInput) -> bool,
) -> Result<()> {
    let plan = storages.plan;
    for (number, planned) in plan.inputs.iter().enumerate().filter(|(_, planned)| is_wanted(planned)) {
        let Some(Value::Tensor(host)) = inputs.get(planned.index) else { continue };
        let region = planned.tensor.region();
        if region.len_bytes == 0 {
            continue;
        }
        let (buffer, start) = match &layout.upload {
            Some(staged) => (storages.upload()?, staged.offsets.get(number).copied().unwrap_or(0)),
            None => storages.locate(&region)?,
        };
        let fill = |out: &mut [u8]| to_device(host, &planned.tensor, out);
        buffer
            .write_with(start, region.len_bytes as usize, fill)?
            .map_err(|error| error.context(format!("input {}", planned.index)))?;
    }
    if layout.upload.is_none() && plan.status.is_some() {
        storages.memory.status.write_with(0, STATUS_BYTES as usize, |words| words.fill(0))?;
    }
    Ok(())
}

/// Fails when a kernel of the run has reported data that it cannot process, naming the node.
///
/// # Errors
/// [`ErrorKind::BadData`]; what the device refuses.
pub fn check_status(storages: &Storages<'_>, layout: &TransferLayout) -> Result<()> {
    let plan = storages.plan;
    if plan.status.is_none() {
        return Ok(());
    }
    let (buffer, start) = match &layout.readback {
        Some(staged) => (storages.readback()?, staged.status_offset),
        None => (&storages.memory.status, 0),
    };
    let words = buffer.read_with(start, STATUS_BYTES as usize, |bytes| {
        let mut words = [0u32; 4];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        }
        words
    })?;
    let [node, kind, low, high] = words;
    if node == 0 {
        return Ok(());
    }
    let name = plan.node_names.get(node as usize - 1).cloned().unwrap_or_default();
    let value = i64::from(low) | (i64::from(high as i32) << 32);
    let text = match kind {
        1 => format!("the index {value} is out of range"),
        2 => {
            format!("a result does not fit the 32 bits that integers have on the device (low bits {value})")
        }
        4 => "the values that a range is taken from are not all finite".to_string(),
        _ => format!("an integer operation on {value} has no result"),
    };
    Err(Error::new(ErrorKind::BadData, text).at_node(name))
}

/// The outputs of the run.
///
/// # Errors
/// What the device refuses; a damaged file, for an output that is a constant.
pub fn read_outputs(storages: &Storages<'_>, layout: &TransferLayout) -> Result<RunOutputs> {
    let plan = storages.plan;
    let mut values = Vec::with_capacity(plan.outputs.len() + plan.mutated_inputs.len());
    for (number, output) in outputs(plan).enumerate() {
        values.push(match output {
            PlannedOutput::Host(value) => value.clone(),
            PlannedOutput::Constant(constant) => Value::Tensor(constant.constant().to_tensor()?),
            PlannedOutput::Tensor(tensor) if tensor.region().len_bytes == 0 => {
                Value::Tensor(to_host(tensor, &[])?)
            }
            PlannedOutput::Tensor(tensor) => {
                let region = tensor.region();
                let (buffer, start) = match &layout.readback {
                    Some(staged) => (storages.readback()?, staged.offsets.get(number).copied().unwrap_or(0)),
                    None => storages.locate(&region)?,
                };
                let read = |bytes: &[u8]| to_host(tensor, bytes);
                Value::Tensor(buffer.read_with(start, region.len_bytes as usize, read)??)
            }
        });
    }
    let mutated = values.split_off(plan.outputs.len());
    let positions = plan.mutated_inputs.iter().map(|(position, _)| *position);
    Ok((values, positions.zip(mutated).collect()))
}
