//! Turns a plan into commands: uploads, dispatches with their barriers, read-backs.

use super::{
    build::BuildOptions,
    context::Context,
    memory::Storages,
    transfer::{STATUS_BYTES, TransferLayout, outputs},
};
use crate::{
    base::{Error, Result},
    gpu::{
        Buffer, BufferBinding, CopyRegion, DispatchDesc, Recorder, RecorderDesc, Recording, Scope,
        TexelFormat,
    },
    plan::{self, PlannedOutput},
    shader::{Access, Dispatch, OperandAccess},
};

/// Records one run of `plan`: what goes into each submission.
///
/// # Errors
/// What the GPU layer refuses; pipelines that cannot be made.
pub fn record(
    context: &Context,
    storages: &Storages<'_>,
    layout: &TransferLayout,
    options: &BuildOptions,
) -> Result<Vec<Recording>> {
    let plan = storages.plan;
    let desc = RecorderDesc { name: &plan.method, timestamps: options.timestamps };
    let writer = Writer { context, storages };
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
    storages: &'a Storages<'a>,
}

impl Writer<'_> {
    /// Copies what the host has staged, and clears the status words where the host does not.
    fn uploads(&self, recorder: &mut Recorder, layout: &TransferLayout) -> Result<()> {
        let Some(staged) = &layout.upload else { return Ok(()) };
        let plan = self.storages.plan;
        for (input, &src_offset_bytes) in plan.inputs.iter().zip(&staged.offsets) {
            let region = input.tensor.region();
            if region.len_bytes == 0 {
                continue;
            }
            let (buffer, dst_offset_bytes) = self.storages.locate(&region)?;
            let copy = CopyRegion { src_offset_bytes, dst_offset_bytes, len_bytes: region.len_bytes };
            recorder.copy(self.storages.upload()?, buffer, &[copy])?;
        }
        if plan.status.is_some() {
            recorder.fill(&self.storages.memory.status, 0, STATUS_BYTES, 0)?;
        }
        recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
        Ok(())
    }

    /// Copies what the host does not read in place.
    fn readbacks(&self, recorder: &mut Recorder, layout: &TransferLayout) -> Result<()> {
        let Some(staged) = &layout.readback else { return Ok(()) };
        let (plan, status) = (self.storages.plan, &self.storages.memory.status);
        recorder.barrier(Scope::COMPUTE, Scope::TRANSFER);
        for (output, &dst_offset_bytes) in outputs(plan).zip(&staged.offsets) {
            let PlannedOutput::Tensor(tensor) = output else { continue };
            let region = tensor.region();
            if region.len_bytes == 0 {
                continue;
            }
            let (buffer, src_offset_bytes) = self.storages.locate(&region)?;
            let copy = CopyRegion { src_offset_bytes, dst_offset_bytes, len_bytes: region.len_bytes };
            recorder.copy(buffer, self.storages.readback()?, &[copy])?;
        }
        if plan.status.is_some() {
            let (src_offset_bytes, dst_offset_bytes) = (0, staged.status_offset);
            let copy = CopyRegion { src_offset_bytes, dst_offset_bytes, len_bytes: STATUS_BYTES };
            recorder.copy(status, self.storages.readback()?, &[copy])?;
        }
        Ok(())
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
            let (buffer, start) = self.storages.locate(&operand.region)?;
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
                    let len_bytes = operand.region.len_bytes + slack;
                    bindings.push(match operand.access {
                        OperandAccess::ReadTexels => BufferBinding {
                            buffer,
                            offset_bytes: start - slack,
                            size_bytes: len_bytes,
                            texels: Some(texel_format(operand.region.element_bytes)?),
                        },
                        _ => binding(buffer, start - slack, len_bytes),
                    });
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
    BufferBinding { buffer, offset_bytes, size_bytes: end - offset_bytes, texels: None }
}

/// The format of texels of 4 elements.
fn texel_format(element_bytes: u32) -> Result<TexelFormat> {
    match element_bytes {
        2 => Ok(TexelFormat::Half4),
        4 => Ok(TexelFormat::Float4),
        _ => Err(Error::internal(format!("elements of {element_bytes} bytes make no texels"))),
    }
}
