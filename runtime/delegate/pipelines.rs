//! Pipelines, made once per device for each distinct kernel, access and set of spec constants.

use super::{
    context::{Context, lock},
    fault,
};
use crate::{
    base::{Error, Result},
    gpu::{Pipeline, PipelineDesc},
    shader::{self, Access, Dispatch, KernelRef},
};

/// What tells pipelines apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PipelineKey {
    kernel: KernelRef,
    access: Access,
    spec: Vec<(u32, u32)>,
}

impl Context {
    /// The pipeline that `dispatch` runs; made now if no delegate has asked for it before.
    pub(super) fn pipeline(&self, dispatch: &Dispatch) -> Result<Pipeline> {
        let access = self.profile().access;
        let key = PipelineKey { kernel: dispatch.kernel, access, spec: dispatch.spec.clone() };
        if let Some(pipeline) = lock(&self.pipelines).get(&key) {
            return Ok(pipeline.clone());
        }
        let pipeline = self.create_pipeline(dispatch, access)?;
        lock(&self.pipelines).insert(key, pipeline.clone());
        Ok(pipeline)
    }

    fn create_pipeline(&self, dispatch: &Dispatch, access: Access) -> Result<Pipeline> {
        let template = dispatch.kernel.info().ok_or_else(|| Error::internal("a dispatch names no kernel"))?;
        let variant = dispatch.kernel.variant(access);
        let variant = variant
            .ok_or_else(|| Error::internal(format!("kernel {} has no such variant", template.name)))?;
        let missing = variant.needs.missing(self.profile().features);
        if !missing.is_empty() {
            return Err(Error::unsupported(format!(
                "kernel {} needs {missing}, which this device lacks",
                template.name
            ))
            .at_node(&dispatch.label));
        }
        let push = template
            .push(access)
            .ok_or_else(|| Error::internal(format!("kernel {} lacks {access}", template.name)))?;
        let mut spirv = shader::spirv(dispatch.kernel, access)?;
        if lock(&self.broken_kernel).as_deref() == Some(template.name) {
            fault::break_arithmetic(&mut spirv)?;
        }
        let spec: Vec<String> = dispatch.spec.iter().map(|(id, value)| format!("{id}={value}")).collect();
        let pipeline = self.gpu().create_pipeline(&PipelineDesc {
            name: &format!("{} {} {}", template.name, variant.axes, spec.join(" ")),
            spirv: &spirv,
            spec: &dispatch.spec,
            push_bytes: push.size_bytes,
            storage_buffers: if access == Access::Ssbo { template.operands.len() as u32 } else { 0 },
        });
        pipeline.map_err(|error| Error::from(error).at_node(&dispatch.label))
    }
}
