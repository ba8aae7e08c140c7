//! Evaluates expressions of constants on the host, within limits.
//!
//! A view of a constant stays a view: other sizes, strides and offset over the same payload, without a copy. Everything
//! else goes through its op's `eval`. Never reads a payload before it is clear that the whole expression can be
//! evaluated within the limits.

use std::collections::{HashMap, HashSet};

use crate::{
    base::{Error, Result, Scalar},
    ir::{Constant, Effect, Graph, Node, NodeId, Type, ValueId, effect_of},
    ops::{
        self, Args, Meta, Op as _, Resolved,
        view::{Layout, Views, views},
    },
};

/// How large a folded constant may be.
#[derive(Clone, Debug)]
pub struct FoldLimits {
    /// How many times the bytes of its inputs.
    pub growth: usize,
    /// Bytes that are allowed whatever the inputs.
    pub min_bytes: usize,
    /// Bytes that are allowed, beyond that, for what has to be prepacked.
    pub prepack_bytes: usize,
}

impl Default for FoldLimits {
    /// Twice the inputs or 1 MiB; 1 GiB for a prepacked weight.
    fn default() -> FoldLimits {
        FoldLimits { growth: 2, min_bytes: 1 << 20, prepack_bytes: 1 << 30 }
    }
}

/// Evaluates values of one graph, which must not change meanwhile.
pub(super) struct Evaluator<'a> {
    graph: &'a Graph,
    limits: &'a FoldLimits,
    positions: HashMap<NodeId, usize>,
    use_counts: HashMap<ValueId, usize>,
    /// Values that are known already and that several nodes read.
    known: HashMap<ValueId, Resolved<Constant>>,
    /// Nodes that cannot be evaluated, with the reason.
    failed: HashMap<NodeId, String>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(graph: &'a Graph, limits: &'a FoldLimits) -> Evaluator<'a> {
        let positions = graph.order().iter().enumerate().map(|(position, &id)| (id, position)).collect();
        let use_counts = graph.use_counts();
        Evaluator { graph, limits, positions, use_counts, known: HashMap::new(), failed: HashMap::new() }
    }

    /// The tensor `value`, which must be constant, evaluated.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn evaluate(&mut self, value: ValueId, is_prepacked: bool) -> Result<Constant, String> {
        let (nodes, leaf_bytes) = self.cone(value)?;
        let most = self.limits.growth.saturating_mul(leaf_bytes).max(self.limits.min_bytes);
        let most = if is_prepacked { most.max(self.limits.prepack_bytes) } else { most };
        nodes.iter().try_for_each(|&id| self.check_kernel(id))?;
        nodes.iter().try_for_each(|&id| self.check_results(id, most))?;
        check_bytes(self.graph, value, most)?;
        let mut local = HashMap::new();
        for &id in &nodes {
            let evaluated = self.evaluate_node(id, most, &local);
            let outputs = evaluated.map_err(|error| {
                let reason = error.to_string();
                self.failed.insert(id, reason.clone());
                reason
            })?;
            for (output, resolved) in outputs {
                let is_shared = self.use_counts.get(&output).is_some_and(|&count| count > 1);
                let map = if is_shared { &mut self.known } else { &mut local };
                map.insert(output, resolved);
            }
        }
        match self.lookup(value, &local).map_err(|error| error.to_string())? {
            Resolved::Tensor(constant) => Ok(constant),
            _ => Err("is no tensor".to_string()),
        }
    }

    /// The nodes that `value` is computed by and that are not evaluated yet, in order, and the bytes of what they
    /// start from.
    fn cone(&self, value: ValueId) -> Result<(Vec<NodeId>, usize), String> {
        let mut nodes = Vec::new();
        let mut seen: HashSet<ValueId> = HashSet::new();
        let mut leaf_bytes = 0usize;
        let mut pending = vec![value];
        while let Some(value) = pending.pop() {
            if !seen.insert(value) {
                continue;
            }
            if let Some(known) = self.leaf(value) {
                if let Resolved::Tensor(constant) = known {
                    leaf_bytes = leaf_bytes.saturating_add(constant.len_bytes());
                }
                continue;
            }
            let id = self.graph.defining_node(value).ok_or("is no constant")?;
            if let Some(reason) = self.failed.get(&id) {
                return Err(reason.clone());
            }
            let node = self.graph.node(id).map_err(|error| error.to_string())?;
            node.for_each_operand(|operand| pending.push(operand));
            nodes.push(id);
        }
        nodes.sort_unstable_by_key(|id| self.positions.get(id).copied());
        nodes.dedup();
        Ok((nodes, leaf_bytes))
    }

    fn leaf(&self, value: ValueId) -> Option<Resolved<Constant>> {
        if let Some(known) = self.known.get(&value) {
            return Some(known.clone());
        }
        let id = self.graph.input_of(value)?.kind.constant()?;
        self.graph.constant(id).ok().cloned().map(Resolved::Tensor)
    }

    fn lookup(
        &self,
        value: ValueId,
        local: &HashMap<ValueId, Resolved<Constant>>,
    ) -> Result<Resolved<Constant>> {
        let known = local.get(&value).cloned().or_else(|| self.leaf(value));
        known.ok_or_else(|| Error::internal(format!("{value} has not been evaluated")))
    }

    /// Refuses a node that has no kernel, before anything is read.
    fn check_kernel(&mut self, id: NodeId) -> Result<(), String> {
        let node = self.graph.node(id).map_err(|error| error.to_string())?;
        let target = node.op.as_str();
        let is_known = ops::is_scalar_target(target) || ops::find(target).is_some();
        if !is_known && converts_nothing(self.graph, node).is_none() {
            let reason = format!("no kernel yet for {target}");
            self.failed.insert(id, reason.clone());
            return Err(reason);
        }
        Ok(())
    }

    /// Refuses a node whose results are too large, before anything is read.
    fn check_results(&self, id: NodeId, most: usize) -> Result<(), String> {
        let node = self.graph.node(id).map_err(|error| error.to_string())?;
        // Within an expression, a view of any size is free.
        if is_view(node) {
            return Ok(());
        }
        node.outputs.iter().try_for_each(|&output| check_bytes(self.graph, output, most))
    }

    fn evaluate_node(
        &self,
        id: NodeId,
        most: usize,
        local: &HashMap<ValueId, Resolved<Constant>>,
    ) -> Result<Vec<(ValueId, Resolved<Constant>)>> {
        let node = self.graph.node(id)?;
        let at_node = |error: Error| error.at_node(&node.name);
        if let Some(operand) = converts_nothing(self.graph, node) {
            let same = self.lookup(operand, local)?;
            return Ok(node.outputs.first().map(|&output| (output, same)).into_iter().collect());
        }
        let args = ops::resolve(node, |value| self.lookup(value, local))?;
        let metas = args.try_map(|constant| Ok(Meta::new(constant.dtype(), constant.sizes())))?;
        if ops::is_scalar_target(node.op.as_str()) {
            let scalar: Scalar = ops::eval_scalar(&metas).map_err(at_node)?;
            return Ok(node.outputs.iter().map(|&output| (output, Resolved::Scalar(scalar))).collect());
        }
        let constants = if is_view(node) {
            view_constants(node, &args, &metas, most).map_err(at_node)?
        } else {
            eval_constants(node, &args, &metas, most).map_err(at_node)?
        };
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for (index, &output) in node.outputs.iter().enumerate() {
            let resolved = match (&self.graph.value(output)?.ty, constants.get(index)) {
                (Type::Tensor(_), Some(constant)) => {
                    check_declared(self.graph, output, constant).map_err(at_node)?;
                    Resolved::Tensor(constant.clone())
                }
                (Type::Tensor(_), None) => return Err(Error::internal("an output is missing")),
                _ => Resolved::None,
            };
            outputs.push((output, resolved));
        }
        Ok(outputs)
    }
}

fn is_view(node: &Node) -> bool {
    Views.targets().contains(&node.op.as_str())
}

/// The operand of a conversion to the dtype that it has already.
fn converts_nothing(graph: &Graph, node: &Node) -> Option<ValueId> {
    let converts = ["_to_copy", "to", "convert_element_type", "type_as"].contains(&node.op.base());
    let (operand, output) = (node.args.iter().find_map(|(_, arg)| arg.as_value())?, *node.outputs.first()?);
    let same = converts
        && effect_of(node) != Effect::Write
        && graph.value(operand).ok()?.ty == graph.value(output).ok()?.ty
        && node.outputs.len() == 1;
    same.then_some(operand)
}

fn declared_bytes(graph: &Graph, value: ValueId) -> Option<usize> {
    let Type::Tensor(tensor) = &graph.value(value).ok()?.ty else { return Some(0) };
    tensor.sizes.iter().try_fold(tensor.dtype.size_bytes(), |product, size| {
        product.checked_mul(usize::try_from(size.as_const()?).ok()?)
    })
}

fn check_bytes(graph: &Graph, value: ValueId, most: usize) -> Result<(), String> {
    let name = || graph.value_name(value);
    match declared_bytes(graph, value) {
        None => Err(format!("the size of `{}` is not fixed", name())),
        Some(len_bytes) if len_bytes > most => {
            Err(format!("`{}` takes {len_bytes} bytes, {most} are the most to fold", name()))
        }
        Some(_) => Ok(()),
    }
}

fn check_declared(graph: &Graph, value: ValueId, constant: &Constant) -> Result<()> {
    let data = graph.value(value)?;
    let Type::Tensor(tensor) = &data.ty else { return Ok(()) };
    let same_sizes = tensor.sizes.len() == constant.sizes().len()
        && tensor
            .sizes
            .iter()
            .zip(constant.sizes())
            .all(|(expr, &size)| expr.as_const() == Some(size as i64));
    if tensor.dtype == constant.dtype() && same_sizes {
        return Ok(());
    }
    Err(Error::invalid_graph(format!(
        "gives {}{:?}, the program says {}",
        constant.dtype(),
        constant.sizes(),
        data.ty
    )))
}

fn view_constants(
    node: &Node,
    args: &Args<Constant>,
    metas: &Args<Meta>,
    most: usize,
) -> Result<Vec<Constant>> {
    let constant = args.tensor("self")?;
    let layout = Layout {
        sizes: constant.sizes().to_vec(),
        strides: constant.strides().to_vec(),
        offset: constant.offset_elems(),
    };
    views(metas, &layout)?
        .into_iter()
        .map(|view| {
            let strides = view.strides();
            let Layout { sizes, strides: old_strides, offset } = view.layout;
            match strides {
                Some(strides) => constant.restrided(constant.name(), view.sizes, strides, offset),
                None => {
                    let elements = constant.restrided(constant.name(), sizes, old_strides, offset)?;
                    let copied = host_tensor(&elements, most)?.reshaped(view.sizes)?;
                    Ok(Constant::from_tensor(&node.name, copied))
                }
            }
        })
        .collect()
}

fn eval_constants(
    node: &Node,
    args: &Args<Constant>,
    metas: &Args<Meta>,
    most: usize,
) -> Result<Vec<Constant>> {
    let op = ops::find(node.op.as_str())
        .ok_or_else(|| Error::unsupported(format!("no kernel yet for {}", node.op)))?;
    let outs = op.infer(metas)?;
    let tensors = args.try_map(|constant| host_tensor(constant, most))?;
    let values = op.eval(&tensors, &outs)?;
    Ok(values.into_iter().map(|tensor| Constant::from_tensor(&node.name, tensor)).collect())
}

/// The elements of a constant. A file's own tensors have any size; a repeating view must fit.
fn host_tensor(constant: &Constant, most: usize) -> Result<crate::base::HostTensor> {
    if constant.len_bytes() > most.max(constant.payload().len_bytes()) {
        return Err(Error::unsupported(format!(
            "a view of {} bytes of `{}` is too large to copy",
            constant.len_bytes(),
            constant.name()
        )));
    }
    constant.to_tensor()
}
