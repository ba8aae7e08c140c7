//! What a build would make of a method, without building it.

use std::collections::{BTreeMap, HashSet};

use super::{device::Gpu, program::MethodInfo, report};
use crate::{
    base::{Error, ErrorKind, Refusal, Result, SymEnv},
    delegate::MemoryReport,
    gpu::UnifiedMemory,
    ir::Method,
    ops::Precision,
    passes::{Decision, Fusion, Unfused},
    plan::{self, PlanOptions},
    shader::DeviceProfile,
};

/// What a build would make of one method.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Inspection {
    /// Nodes by the base name of their op, after the linear rewrite, constant folding and dead code.
    pub ops: BTreeMap<String, usize>,
    /// What became of each matrix product.
    pub decisions: Vec<Decision>,
    /// Groups of nodes that run as one, each with the kind of its fusion.
    pub fusions: Vec<Fusion>,
    /// What could run as one and does not, and why.
    pub unfused: Vec<Unfused>,
    /// Nodes that cannot run, with the operand and the reason; a build refuses all of them at once.
    pub unsupported: Vec<Refusal>,
    /// Device memory at the largest of the sizes that build tries (at most 1024 each); `None` when something
    /// cannot run.
    pub memory: Option<MemoryReport>,
    /// What may surprise, a sentence each: a program without a signature, for one.
    pub warnings: Vec<String>,
}

impl MethodInfo<'_> {
    /// What a build on `gpu` would make of the method; without a device, on the least one that this runtime takes.
    ///
    /// # Errors
    /// [`ErrorKind::BadFile`] for a constant whose bytes are damaged. What cannot run is no error here, but listed.
    pub fn inspect(self, gpu: Option<&Gpu>, precision: Precision) -> Result<Inspection> {
        let (method, facts) = report::prepare(self, &HashSet::new())?;
        let options = PlanOptions {
            profile: gpu.map_or_else(DeviceProfile::minimum, |gpu| gpu.context().profile().clone()),
            precision,
            pinned_f32: Default::default(),
        };
        let reached = gpu.map_or(UnifiedMemory::None, |gpu| gpu.context().gpu().caps().unified_memory);
        let envs = plan::sample_envs(&method, plan::SAMPLE_CAP);
        let mut unsupported = plan::check_all(&method, &envs)?;
        let memory = if unsupported.is_empty() {
            estimate(&method, &envs, &options, reached, &mut unsupported)?
        } else {
            None
        };
        Ok(Inspection {
            ops: facts.ops,
            decisions: facts.decisions,
            fusions: facts.fusions,
            unfused: facts.unfused,
            unsupported,
            memory,
            warnings: facts.warnings,
        })
    }
}

/// The memory of the largest plan that can be made; what keeps the smallest from being made goes to `unsupported`.
fn estimate(
    method: &Method,
    envs: &[SymEnv],
    options: &PlanOptions,
    reached: UnifiedMemory,
    unsupported: &mut Vec<Refusal>,
) -> Result<Option<MemoryReport>> {
    let mut largest: Option<MemoryReport> = None;
    for (index, env) in envs.iter().enumerate() {
        let planned =
            plan::sample_inputs(method, env).and_then(|inputs| plan::build(method, &inputs, options));
        match planned {
            Ok(plan) => {
                let memory = MemoryReport::of_plan(&plan, reached)?;
                largest = Some(largest.map_or(memory, |known| known.max(memory)));
            }
            Err(error) if index == 0 && error.kind() == ErrorKind::Unsupported => {
                unsupported.push(refusal(method, &error));
                return Ok(None);
            }
            Err(error) if index == 0 => return Err(error),
            Err(error) => log::debug!("not planned at {env:?}: {error}"),
        }
    }
    Ok(largest)
}

fn refusal(method: &Method, error: &Error) -> Refusal {
    let node = error.node().unwrap_or_default();
    let found = method.graph.nodes().find(|(_, candidate)| candidate.name == node);
    Refusal {
        node: node.to_string(),
        op: found.map_or(String::new(), |(_, node)| node.op.to_string()),
        operand: error.operand().map(str::to_string),
        reason: error.message().to_string(),
    }
}
