//! What a finished run left in the read-back buffer: status words and outputs.

use super::{
    convert::to_host,
    record::{self, STATUS_BYTES, TransferLayout},
};
use crate::{
    base::{Error, ErrorKind, Result, Value},
    gpu::{StagingBuffer, Timing},
    plan::{Plan, PlannedOutput},
};

/// Values of the user outputs, and of the mutated user inputs with their positions.
pub type RunOutputs = (Vec<Value>, Vec<(usize, Value)>);

/// Fails when a kernel of the run has reported data that it cannot process, naming the node.
///
/// # Errors
/// [`ErrorKind::BadData`]; what the device refuses.
pub fn check_status(plan: &Plan, layout: &TransferLayout, readback: &StagingBuffer) -> Result<()> {
    if plan.status.is_none() {
        return Ok(());
    }
    let words = readback.read_with(layout.status_offset, STATUS_BYTES as usize, |bytes| {
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
        _ => format!("an integer operation on {value} has no result"),
    };
    Err(Error::new(ErrorKind::BadData, text).at_node(name))
}

/// The outputs of the run.
///
/// # Errors
/// What the device refuses; a damaged file, for an output that is a constant.
pub fn read_outputs(plan: &Plan, layout: &TransferLayout, readback: &StagingBuffer) -> Result<RunOutputs> {
    let mut values = Vec::new();
    for (output, &offset) in record::outputs(plan).zip(&layout.output_offsets) {
        values.push(match output {
            PlannedOutput::Host(value) => value.clone(),
            PlannedOutput::Constant(constant) => Value::Tensor(constant.constant().to_tensor()?),
            PlannedOutput::Tensor(tensor) => {
                let len_bytes = tensor.region().len_bytes as usize;
                Value::Tensor(if len_bytes == 0 {
                    to_host(tensor, &[])?
                } else {
                    readback.read_with(offset, len_bytes, |bytes| to_host(tensor, bytes))??
                })
            }
        });
    }
    let mutated = values.split_off(plan.outputs.len());
    let positions = plan.mutated_inputs.iter().map(|(position, _)| *position);
    Ok((values, positions.zip(mutated).collect()))
}

/// The time of each dispatch: its label, its kernel, nanoseconds.
pub fn dispatch_times(plan: &Plan, timings: Vec<Timing>) -> Vec<(String, String, f64)> {
    // Timings hold copies and fills too; dispatches carry their labels in order.
    let mut timings = timings.into_iter().peekable();
    plan.dispatches
        .iter()
        .filter_map(|dispatch| {
            let timing = timings.by_ref().find(|timing| timing.label == dispatch.label)?;
            let kernel = dispatch.kernel.info().map_or("?", |template| template.name);
            Some((dispatch.label.clone(), kernel.to_string(), timing.gpu_ns))
        })
        .collect()
}
