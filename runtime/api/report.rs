//! What was built for a delegate, and why.

use std::collections::{BTreeMap, HashSet};

use super::{device::Gpu, program::MethodInfo};
use crate::{
    base::Result,
    delegate::{MemoryReport, Session},
    gpu::DeviceKind,
    ir::Method,
    passes::{self, Decision, Fusion, Unfused},
};

/// What a [`Delegate`](crate::Delegate) consists of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DelegateReport {
    /// Name of the method in the archive.
    pub method: String,
    /// Name of the device, as its driver gives it.
    pub device: String,
    /// Nodes by the base name of their op, after the linear rewrite, constant folding and dead code.
    pub ops: BTreeMap<String, usize>,
    /// What became of each matrix product, and why.
    pub decisions: Vec<Decision>,
    /// Groups of nodes that run as one, each with the kind of its fusion.
    pub fusions: Vec<Fusion>,
    /// What could run as one and does not, and why.
    pub unfused: Vec<Unfused>,
    /// Device memory in use, in bytes.
    pub memory: MemoryReport,
    /// Kernels of the plan of the last run (before the first run: of a plan made at build).
    pub kernels: Vec<KernelUse>,
    /// What was chosen for each launch of that plan whose kernel has several ways, each choice once.
    pub choices: Vec<KernelChoice>,
    /// What may surprise: the device is a CPU, for one.
    pub warnings: Vec<String>,
}

/// What was chosen for launches of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelChoice {
    /// Family of kernels, sizes and dtypes.
    pub choice: String,
    /// The kernel and its work-group shape.
    pub candidate: String,
    /// Whether it was measured on the device; else the device's class decided.
    pub tuned: bool,
    /// Launches in one run.
    pub count: usize,
}

/// How often a plan launches a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelUse {
    /// Name of the kernel.
    pub name: String,
    /// Launches in one run.
    pub count: usize,
}

/// Time of one launch on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchTime {
    /// The node that the launch belongs to.
    pub node: String,
    /// Name of the kernel.
    pub kernel: String,
    /// Milliseconds between the timestamps around the launch on the device.
    pub gpu_ms: f64,
}

/// What the passes did, known before a delegate is built.
pub(super) struct BuildFacts {
    pub ops: BTreeMap<String, usize>,
    pub decisions: Vec<Decision>,
    pub fusions: Vec<Fusion>,
    pub unfused: Vec<Unfused>,
    pub warnings: Vec<String>,
}

/// Rewrites the method for the device, and keeps what a report tells of it. Nodes named in `pinned` stay on their own.
pub(super) fn prepare(method: MethodInfo<'_>, pinned: &HashSet<String>) -> Result<(Method, BuildFacts)> {
    let options = passes::Options { pinned: pinned.clone(), ..method.pass_options() };
    let optimised = passes::optimise(method.ir(), &options)?;
    let ops = optimised.ops().clone();
    let passes::Optimised { method, decisions, fusions, unfused, warnings, .. } = optimised;
    Ok((method, BuildFacts { ops, decisions, fusions, unfused, warnings }))
}

/// The rewritten method with every node on its own, as the program has them.
pub(super) fn prepare_unfused(method: MethodInfo<'_>) -> Result<Method> {
    let options = passes::Options { unfused: true, ..method.pass_options() };
    Ok(passes::optimise(method.ir(), &options)?.method)
}

pub(super) fn assemble(gpu: &Gpu, session: &Session, facts: &BuildFacts) -> DelegateReport {
    let description = &gpu.info().description;
    let mut warnings = facts.warnings.clone();
    if description.kind == DeviceKind::Cpu {
        warnings.push(format!("`{}` runs Vulkan on the CPU", description.name));
    }
    DelegateReport {
        method: session.method().graph.name().to_string(),
        device: description.name.clone(),
        ops: facts.ops.clone(),
        decisions: facts.decisions.clone(),
        fusions: facts.fusions.clone(),
        unfused: facts.unfused.clone(),
        memory: session.memory_report(),
        kernels: kernels(session),
        choices: choices(session),
        warnings,
    }
}

fn choices(session: &Session) -> Vec<KernelChoice> {
    let mut found: BTreeMap<String, KernelChoice> = BTreeMap::new();
    let dispatches = session.plan().map_or(&[][..], |plan| &plan.dispatches);
    for record in dispatches.iter().filter_map(|dispatch| dispatch.choice) {
        let choice = record.name();
        let candidate = record.name_of(record.candidate);
        let new = KernelChoice { choice: choice.clone(), candidate, tuned: record.tuned, count: 0 };
        found.entry(choice).or_insert(new).count += 1;
    }
    found.into_values().collect()
}

fn kernels(session: &Session) -> Vec<KernelUse> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for dispatch in session.plan().map_or(&[][..], |plan| &plan.dispatches) {
        *counts.entry(dispatch.kernel.info().map_or("?", |template| template.name)).or_insert(0) += 1;
    }
    counts.into_iter().map(|(name, count)| KernelUse { name: name.to_string(), count }).collect()
}
