//! Chains: element-wise functions that feed each other become one node, so that one dispatch takes the place of
//! many and what comes between stays in registers.
//!
//! `mul(silu(x), z) + 1.0` becomes `vkdelegate.elementwise(inputs=[x, z], steps="silu x; mul last z; add last 1.0")`.
//!
//! A node joins where only nodes of the chain read its result, which is no output and has the sizes of the chain's.
//! Operands may broadcast. Functions of one tensor, arithmetic of two tensors or of a tensor and a number, comparisons,
//! choices by a condition, and conversions; a node that is pinned stays on its own. What comes between are floats and
//! truth values: integers are inputs, and what a chain's end may be converted to. A chain reads at most three tensors, and
//! has as many steps and results that wait as the kernel takes; of three tensors 16 steps, which the pipeline then holds.
//! What is beyond that begins another one.
//!
//! In float32 every step gives the bits that it gives alone; in half precision what comes between is not rounded. So what
//! is there joins functions of its own dtype only: a comparison reads what was stored, and so does a conversion to
//! float32.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Fusion;
use crate::{
    base::{DType, Error, Result},
    ir::{Arg, Effect, Graph, Node, NodeId, Patch, TensorType, Type, ValueId, effect_of},
    ops::{
        self, Resolved, Typed,
        chain::{self, Call, MAX_STEPS, Steps},
    },
};

/// Runs the pass.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph, pinned: &HashSet<String>) -> Result<Vec<Fusion>> {
    let changes = |(_, node): (NodeId, &Node)| matches!(effect_of(node), Effect::Write | Effect::Opaque);
    // A node moves behind what stands between it and the end of its chain.
    if graph.nodes().any(changes) {
        return Ok(Vec::new());
    }
    let candidates = Candidates::of(graph, pinned);
    let mut taken = vec![false; candidates.nodes.len()];
    let mut chains = Vec::new();
    for end in (0..candidates.nodes.len()).rev() {
        if !taken[end] {
            let chain = candidates.chain(end, &taken);
            chain.members.iter().for_each(|&member| taken[member] = true);
            chains.push(chain);
        }
    }
    chains.retain(|chain| chain.members.len() > 1);
    chains.into_iter().rev().map(|chain| candidates.apply(graph, chain)).collect()
}

/// A node that can be part of a chain.
struct Candidate {
    id: NodeId,
    name: String,
    call: Call<ValueId>,
    result: ValueId,
    ty: TensorType,
}

/// All of them, in the order of the graph.
struct Candidates {
    nodes: Vec<Candidate>,
    by_result: HashMap<ValueId, usize>,
    use_counts: HashMap<ValueId, usize>,
}

/// Candidates that become one node, with what it reads and computes.
struct Chain {
    members: BTreeSet<usize>,
    inputs: Vec<ValueId>,
    steps: Option<Steps>,
}

impl Candidates {
    fn of(graph: &Graph, pinned: &HashSet<String>) -> Candidates {
        let is_free = |(_, node): &(NodeId, &Node)| !pinned.contains(&node.name);
        let nodes: Vec<Candidate> =
            graph.nodes().filter(is_free).filter_map(|(id, node)| candidate(graph, id, node)).collect();
        let by_result = nodes.iter().enumerate().map(|(index, node)| (node.result, index)).collect();
        Candidates { nodes, by_result, use_counts: graph.use_counts() }
    }

    /// The largest chain that ends with `end`, of candidates that are not `taken`.
    fn chain(&self, end: usize, taken: &[bool]) -> Chain {
        let alone = Chain { members: BTreeSet::from([end]), inputs: Vec::new(), steps: None };
        let whole = self.grown(alone.members.clone(), taken, false);
        if let Some(chain) = self.compiled(whole) {
            return chain;
        }
        self.compiled(self.grown(alone.members.clone(), taken, true)).unwrap_or(alone)
    }

    /// `members` with every candidate that only they read, the latest first; with `within` only those with which the
    /// whole fits a kernel at each step.
    fn grown(&self, mut members: BTreeSet<usize>, taken: &[bool], within: bool) -> BTreeSet<usize> {
        let mut refused = HashSet::new();
        while members.len() < MAX_STEPS
            && let Some(next) = self.next(&members, taken, &refused)
        {
            members.insert(next);
            if within && self.compiled(members.clone()).is_none() {
                members.remove(&next);
                refused.insert(next);
            }
        }
        members
    }

    /// The latest candidate whose result only `members` read.
    fn next(&self, members: &BTreeSet<usize>, taken: &[bool], refused: &HashSet<usize>) -> Option<usize> {
        let sizes = &self.nodes[*members.last()?].ty.sizes;
        let mut reads: HashMap<ValueId, Vec<DType>> = HashMap::new();
        for &member in members {
            let Candidate { call, ty, .. } = &self.nodes[member];
            call.values().for_each(|value| reads.entry(value).or_default().push(ty.dtype));
        }
        let is_next = |(value, readers): (&ValueId, &Vec<DType>)| {
            let index = *self.by_result.get(value)?;
            let ty = &self.nodes[index].ty;
            let is_free = !taken[index] && !members.contains(&index) && !refused.contains(&index);
            let is_inner = self.use_counts.get(value) == Some(&readers.len()) && ty.sizes == *sizes;
            let stays = match ty.dtype {
                DType::F32 | DType::Bool => true,
                dtype => dtype.is_float() && readers.iter().all(|reader| *reader == dtype),
            };
            (is_free && is_inner && stays).then_some(index)
        };
        reads.iter().filter_map(is_next).max()
    }

    fn compiled(&self, members: BTreeSet<usize>) -> Option<Chain> {
        let calls: Vec<_> = members.iter().map(|&member| &self.nodes[member]).collect();
        let calls: Vec<_> = calls.into_iter().map(|node| (node.call.clone(), node.result)).collect();
        let (inputs, steps) = Steps::of(&calls)?;
        Some(Chain { members, inputs, steps: Some(steps) })
    }

    fn apply(&self, graph: &mut Graph, chain: Chain) -> Result<Fusion> {
        let Chain { members, inputs, steps } = chain;
        let nodes = members.iter().map(|&member| self.nodes[member].name.clone()).collect();
        let end = members.last().map(|&member| self.nodes[member].id);
        let (Some(end), Some(steps)) = (end, steps) else { return Err(Error::internal("an empty chain")) };
        let dtype = members.last().map(|&member| self.nodes[member].ty.dtype);
        let first = inputs.first().map(|&input| graph.value(input)).transpose()?;
        let first = first.and_then(|value| value.ty.as_tensor()).map(|ty| ty.dtype);
        let mut patch = Patch::new(graph);
        let inputs = Arg::Values(inputs.into_iter().map(Some).collect());
        let mut args = vec![("inputs", inputs), ("steps", Arg::Str(steps.to_string()))];
        args.extend(dtype.filter(|_| dtype != first).map(|dtype| ("dtype", Arg::DType(dtype))));
        patch.becomes("vkdelegate.elementwise.default", args);
        patch.apply(graph, end)?;
        Ok(Fusion { kind: "elementwise".to_string(), nodes })
    }
}

/// A tensor of the graph, of which only the rank is known.
struct Wire {
    value: ValueId,
    dtype: DType,
    sizes: Vec<usize>,
}

impl Typed for Wire {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn sizes(&self) -> &[usize] {
        &self.sizes
    }
}

fn candidate(graph: &Graph, id: NodeId, node: &Node) -> Option<Candidate> {
    let &[result] = node.outputs.as_slice() else { return None };
    let ty = graph.value(result).ok()?.ty.as_tensor()?.clone();
    let args = ops::resolve(node, |value| match &graph.value(value)?.ty {
        Type::Tensor(ty) => {
            Ok(Resolved::Tensor(Wire { value, dtype: ty.dtype, sizes: vec![1; ty.sizes.len()] }))
        }
        _ => Err(Error::unsupported("is no tensor")),
    });
    let args = args.ok()?;
    let call = chain::call(&args).ok()??.map(|wire| wire.value);
    Some(Candidate { id, name: node.name.clone(), call, result, ty })
}
