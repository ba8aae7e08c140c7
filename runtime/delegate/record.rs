//! Turns a plan into commands: uploads, dispatches with their barriers, read-backs.

use std::sync::Arc;

use super::{build::BuildOptions, constants::PackedConstant, context::Context};
use crate::{
    base::{Error, Result},
    gpu::{
        Buffer, BufferBinding, CopyRegion, DispatchDesc, Recorder, RecorderDesc, Recording, Scope,
        StagingBuffer,
    },
    ops::StorageKind,
    plan::{self, Place, Plan, PlannedOutput},
    shader::{Access, Dispatch, Region},
};

/// The device memory that a recording of a plan refers to.
pub struct Memory<'a> {
    /// The buffers of the arena.
    pub arena: &'a [Buffer],
    /// The packed constants of the plan, in its order.
    pub constants: &'a [Arc<PackedConstant>],
    /// The states, in the plan's order.
    pub states: &'a [Buffer],
    /// The status words.
    pub status: &'a Buffer,
    /// Where the host puts inputs.
    pub upload: &'a StagingBuffer,
    /// Where the host finds outputs.
    pub readback: &'a StagingBuffer,
}

/// Where each input, output and the status words lie in the staging buffers.
#[derive(Clone, Debug, Default)]
pub struct TransferLayout {
    /// First byte of each input in the upload buffer.
    pub input_offsets: Vec<u64>,
    /// First byte of each output in the read-back buffer; mutated inputs follow the outputs. 0 for host values.
    pub output_offsets: Vec<u64>,
    /// First byte of the status words in the read-back buffer.
    pub status_offset: u64,
    /// Bytes of the upload buffer.
    pub upload_bytes: u64,
    /// Bytes of the read-back buffer.
    pub readback_bytes: u64,
}

/// Bytes of the status words.
pub const STATUS_BYTES: u64 = 16;

impl TransferLayout {
    /// The layout for `plan`.
    pub fn of(plan: &Plan) -> TransferLayout {
        let mut layout = TransferLayout::default();
        for input in &plan.inputs {
            layout.input_offsets.push(layout.upload_bytes);
            layout.upload_bytes += input.tensor.region().len_bytes.next_multiple_of(16);
        }
        for output in outputs(plan) {
            layout.output_offsets.push(layout.readback_bytes);
            if let PlannedOutput::Tensor(tensor) = output {
                layout.readback_bytes += tensor.region().len_bytes.next_multiple_of(16);
            }
        }
        layout.status_offset = layout.readback_bytes;
        layout.readback_bytes += STATUS_BYTES;
        layout
    }

    /// Fails when a staging buffer would be larger than buffers can be.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::base::ErrorKind::Unsupported), with the bytes and the limit.
    pub fn check(&self, max_buffer_bytes: u64) -> Result<()> {
        for (what, bytes) in [("inputs", self.upload_bytes), ("outputs", self.readback_bytes)] {
            if bytes > max_buffer_bytes {
                return Err(Error::unsupported(format!(
                    "the {what} take {bytes} bytes together; a buffer of this device holds {max_buffer_bytes}"
                )));
            }
        }
        Ok(())
    }
}

/// User outputs, then mutated inputs.
pub fn outputs(plan: &Plan) -> impl Iterator<Item = &PlannedOutput> {
    plan.outputs.iter().chain(plan.mutated_inputs.iter().map(|(_, output)| output))
}

/// Records one run of `plan`: what goes into each submission.
///
/// # Errors
/// What the GPU layer refuses; pipelines that cannot be made.
pub fn record(
    context: &Context,
    plan: &Plan,
    layout: &TransferLayout,
    memory: &Memory<'_>,
    options: &BuildOptions,
) -> Result<Vec<Recording>> {
    let desc = RecorderDesc { name: &plan.method, timestamps: options.timestamps };
    let writer = Writer { context, plan, memory };
    let most_ops = options.submission_ops.unwrap_or(context.profile().submission_ops);
    let most_dispatches = options.hooks.dispatches_per_submission.unwrap_or(usize::MAX);
    let runs = plan::submissions(&plan.dispatches, most_ops, most_dispatches);
    let mut recordings = Vec::with_capacity(runs.len());
    for run in runs {
        let (is_first, is_last) = (run.start == 0, run.end == plan.dispatches.len());
        let mut recorder = context.gpu().record(&desc)?;
        if is_first {
            writer.uploads(&mut recorder, layout)?;
        }
        for index in run {
            if plan.barriers[index] && options.hooks.dropped_barrier != Some(index) {
                recorder.barrier(Scope::COMPUTE, Scope::COMPUTE);
            }
            writer.dispatch(&mut recorder, &plan.dispatches[index])?;
        }
        if is_last {
            writer.readbacks(&mut recorder, layout)?;
        }
        recordings.push(recorder.end()?);
    }
    Ok(recordings)
}

struct Writer<'a> {
    context: &'a Context,
    plan: &'a Plan,
    memory: &'a Memory<'a>,
}

impl Writer<'_> {
    fn uploads(&self, recorder: &mut Recorder, layout: &TransferLayout) -> Result<()> {
        for (input, &src_offset_bytes) in self.plan.inputs.iter().zip(&layout.input_offsets) {
            let region = input.tensor.region();
            if region.len_bytes == 0 {
                continue;
            }
            let (buffer, base) = self.locate(&region)?;
            let dst_offset_bytes = base + region.offset_bytes;
            let copy = CopyRegion { src_offset_bytes, dst_offset_bytes, len_bytes: region.len_bytes };
            recorder.copy(self.memory.upload.buffer(), buffer, &[copy])?;
        }
        if self.plan.status.is_some() {
            recorder.fill(self.memory.status, 0, STATUS_BYTES, 0)?;
        }
        recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
        Ok(())
    }

    fn readbacks(&self, recorder: &mut Recorder, layout: &TransferLayout) -> Result<()> {
        recorder.barrier(Scope::COMPUTE, Scope::TRANSFER);
        for (output, &dst_offset_bytes) in outputs(self.plan).zip(&layout.output_offsets) {
            let PlannedOutput::Tensor(tensor) = output else { continue };
            let region = tensor.region();
            if region.len_bytes == 0 {
                continue;
            }
            let (buffer, base) = self.locate(&region)?;
            let src_offset_bytes = base + region.offset_bytes;
            let copy = CopyRegion { src_offset_bytes, dst_offset_bytes, len_bytes: region.len_bytes };
            recorder.copy(buffer, self.memory.readback.buffer(), &[copy])?;
        }
        if self.plan.status.is_some() {
            let copy = CopyRegion {
                src_offset_bytes: 0,
                dst_offset_bytes: layout.status_offset,
                len_bytes: STATUS_BYTES,
            };
            recorder.copy(self.memory.status, self.memory.readback.buffer(), &[copy])?;
        }
        Ok(())
    }

    /// The buffer of a region's storage, and the storage's first byte in it.
    fn locate(&self, region: &Region) -> Result<(&Buffer, u64)> {
        let index = region.storage.0 as usize;
        let lost = || Error::internal(format!("storage {index} has no memory"));
        let storage = self.plan.storages.get(index).ok_or_else(lost)?;
        let place = self.plan.places.get(index).ok_or_else(lost)?;
        match (place, &storage.kind) {
            (Place::Arena { buffer, offset_bytes }, _) => {
                Ok((self.memory.arena.get(*buffer as usize).ok_or_else(lost)?, *offset_bytes))
            }
            (_, StorageKind::Constant(number)) => {
                Ok((&self.memory.constants.get(*number).ok_or_else(lost)?.buffer, 0))
            }
            (_, StorageKind::State(number)) => Ok((self.memory.states.get(*number).ok_or_else(lost)?, 0)),
            (_, StorageKind::Status) => Ok((self.memory.status, 0)),
            _ => Err(lost()),
        }
    }

    fn dispatch(&self, recorder: &mut Recorder, dispatch: &Dispatch) -> Result<()> {
        let access = self.context.profile().access;
        let pipeline = self.context.pipeline(dispatch)?;
        let template = dispatch.kernel.info().ok_or_else(|| Error::internal("a dispatch names no kernel"))?;
        let push_layout =
            template.push(access).ok_or_else(|| Error::internal("a kernel lacks its access"))?;
        let mut push = Vec::with_capacity(push_layout.size_bytes as usize);
        let mut bindings = Vec::new();
        for operand in &dispatch.operands {
            let (buffer, base) = self.locate(&operand.region)?;
            let start = base + operand.region.offset_bytes;
            match access {
                Access::Bda => {
                    let address =
                        buffer.device_address().ok_or_else(|| Error::internal("a buffer has no address"))?;
                    push.extend_from_slice(&(address + start).to_le_bytes());
                    recorder.keep(buffer);
                }
                Access::Ssbo => {
                    let alignment = self.context.profile().storage_offset_alignment_bytes;
                    let slack = start % alignment;
                    push.extend_from_slice(
                        &((slack / u64::from(operand.region.element_bytes.max(1))) as u32).to_le_bytes(),
                    );
                    bindings.push(binding(buffer, start - slack, operand.region.len_bytes + slack));
                }
            }
        }
        push.resize(push_layout.params_at_bytes as usize, 0);
        push.extend_from_slice(&dispatch.params);
        push.resize(push_layout.size_bytes as usize, 0);
        recorder.dispatch(&DispatchDesc {
            label: &dispatch.label,
            pipeline: &pipeline,
            bindings: &bindings,
            push: &push,
            groups: dispatch.groups,
        })?;
        Ok(())
    }
}

/// A binding of at least one word: an operand that a kernel never touches may be empty, a descriptor may not.
fn binding(buffer: &Buffer, offset_bytes: u64, len_bytes: u64) -> BufferBinding<'_> {
    let end = (offset_bytes + len_bytes.max(4)).next_multiple_of(4).min(buffer.size_bytes());
    BufferBinding { buffer, offset_bytes, size_bytes: end - offset_bytes }
}
