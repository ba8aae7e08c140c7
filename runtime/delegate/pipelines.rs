//! Pipelines, made once per device for each distinct kernel, access and set of spec constants.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    num::NonZero,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    context::{Context, lock},
    fault,
};
use crate::{
    base::{Error, Result},
    gpu::{BindingKind, Pipeline, PipelineDesc},
    shader::{
        self, Access, Bundle, BundleError, Dispatch, KernelRef, OperandAccess, OperandInfo, TemplateId,
    },
};

/// What tells pipelines apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PipelineKey {
    kernel: KernelRef,
    access: Access,
    spec: Vec<(u32, u32)>,
}

/// The SPIR-V of the templates that pipelines are made from, each inflated once.
#[derive(Default)]
struct Bundles(HashMap<TemplateId, OnceLock<Result<Bundle, BundleError>>>);

impl Bundles {
    /// Room for the templates of `kernels`.
    fn of(kernels: impl Iterator<Item = KernelRef>) -> Bundles {
        Bundles(kernels.map(|kernel| (kernel.template, OnceLock::new())).collect())
    }

    fn words(&self, kernel: KernelRef, access: Access) -> Result<Vec<u32>> {
        let template = kernel.info().ok_or_else(|| Error::internal("a dispatch names no kernel"))?;
        let bundle = self.0.get(&kernel.template).map(|slot| slot.get_or_init(|| Bundle::inflate(template)));
        match bundle {
            Some(Ok(bundle)) => Ok(bundle.words(kernel, access)?),
            Some(Err(error)) => Err(error.clone().into()),
            None => Err(Error::internal(format!("kernel {} was not expected", template.name))),
        }
    }
}

impl Context {
    /// The pipeline that `dispatch` runs; made now if no delegate has asked for it before.
    pub(super) fn pipeline(&self, dispatch: &Dispatch) -> Result<Pipeline> {
        let key = self.pipeline_key(dispatch);
        if let Some(pipeline) = lock(&self.pipelines).get(&key) {
            return Ok(pipeline.clone());
        }
        let pipeline = self.create_pipeline(dispatch, &Bundles::of(std::iter::once(dispatch.kernel)))?;
        lock(&self.pipelines).insert(key, pipeline.clone());
        Ok(pipeline)
    }

    /// Makes the pipelines of `dispatches` that no delegate has asked for before, on all cores, and keeps on disk what
    /// the driver made of them: a process that is killed later has not compiled in vain.
    ///
    /// # Errors
    /// Why one of them cannot be made.
    pub(super) fn create_pipelines<'a>(&self, dispatches: impl Iterator<Item = &'a Dispatch>) -> Result<()> {
        let missing = self.missing(dispatches);
        let bundles = Bundles::of(missing.iter().map(|(_, dispatch)| dispatch.kernel));
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while let Some((key, dispatch)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                match self.create_pipeline(dispatch, &bundles) {
                    Ok(pipeline) => drop(lock(&self.pipelines).insert(key.clone(), pipeline)),
                    Err(error) => {
                        next.store(missing.len(), Ordering::Relaxed);
                        lock(&failed).get_or_insert(error);
                    }
                }
            }
        };
        thread::scope(|scope| {
            (1..cores.min(missing.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        if !missing.is_empty() {
            self.gpu().save_pipeline_cache();
        }
        let failed = lock(&failed).take();
        failed.map_or(Ok(()), Err)
    }

    /// For each pipeline that is not there yet, the first dispatch that runs it; the longest kernels come first, so that
    /// short ones fill what time a core has left.
    fn missing<'a>(
        &self,
        dispatches: impl Iterator<Item = &'a Dispatch>,
    ) -> Vec<(PipelineKey, &'a Dispatch)> {
        let made = lock(&self.pipelines);
        let mut seen = HashSet::new();
        let keyed = dispatches.map(|dispatch| (self.pipeline_key(dispatch), dispatch));
        let missing = keyed.filter(|(key, _)| !made.contains_key(key) && seen.insert(key.clone()));
        let mut missing: Vec<_> = missing.collect();
        let words = |key: &PipelineKey| key.kernel.variant(key.access).map_or(0, |variant| variant.words);
        missing.sort_by_key(|(key, _)| Reverse(words(key)));
        missing
    }

    fn pipeline_key(&self, dispatch: &Dispatch) -> PipelineKey {
        PipelineKey { kernel: dispatch.kernel, access: self.profile().access, spec: dispatch.spec.clone() }
    }

    fn create_pipeline(&self, dispatch: &Dispatch, bundles: &Bundles) -> Result<Pipeline> {
        let access = self.profile().access;
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
        let mut spirv = bundles.words(dispatch.kernel, access)?;
        let is_broken = lock(&self.broken_kernel).as_ref().is_some_and(|broken| {
            broken.name == template.name
                && broken.local.as_ref().is_none_or(|local| *local == dispatch.local_size())
        });
        if is_broken {
            fault::break_arithmetic(&mut spirv)?;
        }
        let spirv = shader::specialise(spirv, &dispatch.spec);
        let kind = |operand: &OperandInfo| match operand.access {
            OperandAccess::ReadTexels => BindingKind::Texels,
            _ => BindingKind::Storage,
        };
        let bound = if access == Access::Ssbo { template.operands } else { &[] };
        let bindings: Vec<BindingKind> = bound.iter().map(kind).collect();
        let spec: Vec<String> = dispatch.spec.iter().map(|(id, value)| format!("{id}={value}")).collect();
        let pipeline = self.gpu().create_pipeline(&PipelineDesc {
            name: &format!("{} {} {}", template.name, variant.axes, spec.join(" ")),
            spirv: &spirv,
            spec: &dispatch.spec,
            push_bytes: push.size_bytes,
            bindings: &bindings,
        });
        pipeline.map_err(|error| Error::from(error).at_node(&dispatch.label))
    }
}
