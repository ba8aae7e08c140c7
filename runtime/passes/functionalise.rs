//! Makes a graph functional: every in-place op becomes the op that computes the new value, and all later readers of the
//! written memory, through whatever view, read what it holds then.
//!
//! A value is a *base* (an input, or what a node computes) or a chain of views of one. A write to a view is a write to
//! its base: the new part is scattered back, step by step. A base that was written has a new version; a view is made
//! anew when it is read after that. What a base that is an input holds at the end becomes an output of the signature.
//!
//! Whether a `reshape` is a view depends on strides that the program does not tell. It counts as a base of its own, and
//! once either side is written, nothing may read the other.
//!
//! A program that writes in a way not understood here is left as it is; the check before planning then refuses its
//! in-place ops by name.

use std::collections::HashMap;

use super::scatter::{self, ViewKind};
use crate::{
    base::{Error, Result},
    ir::{
        Arg, Effect, Graph, GraphOutput, InputKind, IntArg, Node, NodeId, OpName, OutputKind, OutputSource,
        Type, ValueId, effect_of,
    },
};

/// What the exporter puts behind every tensor literal; it writes nothing.
const DETACH_IN_PLACE: &str = "detach_";

/// Runs the pass; a reason when the graph has writes that it cannot take, and so is as it was.
pub(super) fn run(graph: &mut Graph) -> Option<String> {
    let writes = graph.nodes().any(|(_, node)| effect_of(node) == Effect::Write);
    if !writes && !graph.nodes().any(|(_, node)| node.op.base() == DETACH_IN_PLACE) {
        return None;
    }
    let mut functionaliser = Functionaliser {
        graph: graph.clone(),
        writes,
        aliases: HashMap::new(),
        unclear: HashMap::new(),
        tainted: HashMap::new(),
        at: 0,
    };
    match functionaliser.run() {
        Ok(()) => {
            *graph = functionaliser.graph;
            None
        }
        Err(error) => Some(format!("in-place ops stay, and cannot run: {error}")),
    }
}

/// How a value came from the one whose memory it shares.
#[derive(Clone, Copy)]
enum Link {
    /// It is a base.
    Base,
    /// It is the same tensor.
    Same(ValueId),
    /// It is output `index` of the view `node` of a parent.
    View { parent: ValueId, node: NodeId, index: usize },
}

#[derive(Clone, Copy)]
struct Alias {
    base: ValueId,
    link: Link,
    /// The version of the base that `current` was made of.
    version: usize,
    /// The value that now holds what the program's value holds.
    current: ValueId,
}

struct Functionaliser {
    graph: Graph,
    /// Whether anything is written at all.
    writes: bool,
    aliases: HashMap<ValueId, Alias>,
    /// Bases that may or may not share the memory of another one.
    unclear: HashMap<ValueId, ValueId>,
    /// Bases of which it is not known what they hold, with the node that may have written to them.
    tainted: HashMap<ValueId, String>,
    /// Position in the order where new nodes go: before the node at hand, or behind it.
    at: usize,
}

impl Functionaliser {
    fn run(&mut self) -> Result<()> {
        while let Some(&id) = self.graph.order().get(self.at) {
            let node = self.graph.node(id)?.clone();
            self.add_node(id, &node).map_err(|error| error.at_node(&node.name))?;
        }
        self.add_outputs()
    }

    fn alias(&mut self, value: ValueId) -> Alias {
        let base = Alias { base: value, link: Link::Base, version: 0, current: value };
        *self.aliases.entry(value).or_insert(base)
    }

    fn version(&self, base: ValueId) -> usize {
        self.aliases.get(&base).map_or(0, |alias| alias.version)
    }

    fn set_current(&mut self, value: ValueId, version: usize, current: ValueId) {
        if let Some(alias) = self.aliases.get_mut(&value) {
            alias.version = version;
            alias.current = current;
        }
    }

    /// The value that holds what `value` holds now; views of a written base are made anew.
    fn current(&mut self, value: ValueId) -> Result<ValueId> {
        let base = self.alias(value).base;
        if let Some(writer) = self.tainted.get(&base) {
            return Err(Error::unsupported(format!(
                "`{}` is read after `{writer}`, which may or may not have written to it, depending on strides",
                self.graph.value_name(value)
            )));
        }
        let mut stale = Vec::new();
        let mut at = value;
        let mut current = loop {
            let alias = self.alias(at);
            if alias.version == self.version(alias.base) {
                break alias.current;
            }
            stale.push(at);
            at = match alias.link {
                Link::Base => break alias.current,
                Link::Same(parent) | Link::View { parent, .. } => parent,
            };
        };
        for &at in stale.iter().rev() {
            let alias = self.alias(at);
            if let Link::View { node, index, .. } = alias.link {
                current = self.repeat_view(node, index, current)?;
            }
            self.set_current(at, self.version(alias.base), current);
        }
        Ok(current)
    }

    /// Repeats the view `node` of `parent`; gives its output `index`.
    fn repeat_view(&mut self, node: NodeId, index: usize, parent: ValueId) -> Result<ValueId> {
        let Node { name, op, mut args, outputs } = self.graph.node(node)?.clone();
        if let Some((_, arg)) = args.iter_mut().find(|(name, _)| name == "self") {
            *arg = Arg::Value(parent);
        }
        let mut typed = Vec::with_capacity(outputs.len());
        for &output in &outputs {
            let data = self.graph.value(output)?;
            typed.push((data.name.clone(), data.ty.clone()));
        }
        let values = self.insert(&name, op, args, typed)?;
        values.get(index).copied().ok_or_else(|| Error::internal("a view lost an output"))
    }

    /// Inserts a node; the names of node and outputs are made unique.
    fn insert(
        &mut self,
        name: &str,
        op: OpName,
        args: Vec<(String, Arg)>,
        outputs: Vec<(String, Type)>,
    ) -> Result<Vec<ValueId>> {
        let name = self.graph.unique_name(name);
        let mut typed: Vec<(String, Type)> = Vec::with_capacity(outputs.len());
        let single = outputs.len() == 1;
        for (output, ty) in outputs {
            let unique = if single { name.clone() } else { self.graph.unique_name(&output) };
            typed.push((unique, ty));
        }
        let id = self.graph.insert_node(self.at, &name, op, args, typed)?;
        self.at += 1;
        Ok(self.graph.node(id)?.outputs.clone())
    }

    fn add_node(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let mut reads = Vec::new();
        node.for_each_operand(|operand| reads.push(operand));
        let mut now = HashMap::new();
        for operand in reads {
            now.insert(operand, self.current(operand)?);
        }
        for (_, arg) in &mut self.graph.node_mut(id)?.args {
            arg.map_values(|value| now.get(&value).copied().unwrap_or(value));
        }
        self.at += 1;
        match effect_of(node) {
            Effect::Write => self.add_write(id, node),
            Effect::View => self.add_view(id, node),
            Effect::Opaque => Err(Error::unsupported(format!("{} may write to what it reads", node.op))),
            _ => Ok(()),
        }
    }

    fn add_view(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let Some(parent) = node.value_arg("self").or_else(|| node.value_arg("input")) else {
            return match self.writes {
                true => Err(Error::unsupported("is a view of several tensors")),
                false => Ok(()),
            };
        };
        if node.op.base() == DETACH_IN_PLACE {
            self.graph.node_mut(id)?.op = OpName::new("aten.detach.default");
        }
        let alias = self.alias(parent);
        for (index, &output) in node.outputs.iter().enumerate() {
            let link = match scatter::view_kind(&self.graph, node, parent, output) {
                ViewKind::Copy => continue,
                ViewKind::Unclear => {
                    self.unclear.insert(output, alias.base);
                    continue;
                }
                ViewKind::Same => Link::Same(parent),
                ViewKind::View => Link::View { parent, node: id, index },
            };
            let version = self.version(alias.base);
            self.aliases.insert(output, Alias { base: alias.base, link, version, current: output });
        }
        Ok(())
    }

    /// Makes the in-place `node` functional, and carries what it computes back to the base.
    fn add_write(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let (op, drops_others) = functional(node)?;
        let (Some(target), &[output]) = (node.value_arg("self"), node.outputs.as_slice()) else {
            return Err(Error::unsupported("writes to other things than one tensor"));
        };
        let functional = self.graph.node_mut(id)?;
        functional.op = op;
        if drops_others {
            functional.args.retain(|(name, _)| name == "self");
        }
        let alias = self.alias(target);
        self.taint_others(alias.base, &node.name);
        let version = self.version(alias.base) + 1;
        let mut renewed = vec![(target, output)];
        let (mut at, mut value) = (target, output);
        loop {
            match self.alias(at).link {
                Link::Base => break,
                Link::Same(parent) => at = parent,
                Link::View { parent, node, index } => {
                    let whole = self.current(parent)?;
                    value = self.scatter(node, index, parent, whole, value)?;
                    at = parent;
                }
            }
            renewed.push((at, value));
        }
        for (at, value) in renewed {
            self.set_current(at, version, value);
        }
        let link = Link::Same(target);
        self.aliases.insert(output, Alias { base: alias.base, link, version, current: output });
        Ok(())
    }

    /// Everything that may share the memory of `base`, which `writer` writes, holds no one knows what.
    fn taint_others(&mut self, base: ValueId, writer: &str) {
        let origin = |mut at: ValueId| {
            while let Some(&next) = self.unclear.get(&at) {
                at = next;
            }
            at
        };
        let shared = origin(base);
        let related = self.unclear.keys().copied().filter(|&other| origin(other) == shared);
        let others: Vec<ValueId> = related.chain([shared]).filter(|&other| other != base).collect();
        for other in others {
            self.tainted.entry(other).or_insert_with(|| writer.to_string());
        }
    }

    /// `whole`, the current value of `parent`, with `part` in place of what the view `node` sees of it.
    fn scatter(
        &mut self,
        node: NodeId,
        index: usize,
        parent: ValueId,
        whole: ValueId,
        part: ValueId,
    ) -> Result<ValueId> {
        let view = self.graph.node(node)?.clone();
        let sizes = self.sizes_of(parent, whole)?;
        let (op, args) = scatter::inverse(&self.graph, &view, index, whole, part, sizes)?;
        let ty = self.graph.value(parent)?.ty.clone();
        let name = format!("{}_written", view.name);
        let values = self.insert(&name, OpName::new(op), args, vec![(name.clone(), ty)])?;
        values.first().copied().ok_or_else(|| Error::internal("a scatter without output"))
    }

    /// Sizes of `parent` as arguments: numbers, or host scalars taken from `whole`.
    fn sizes_of(&mut self, parent: ValueId, whole: ValueId) -> Result<Vec<IntArg>> {
        let ty = self.graph.value(parent)?.ty.clone();
        let Some(tensor) = ty.as_tensor() else { return Err(Error::invalid_graph("writes to no tensor")) };
        let mut sizes = Vec::with_capacity(tensor.sizes.len());
        for (dim, size) in tensor.sizes.iter().enumerate() {
            sizes.push(match size.as_const() {
                Some(size) => IntArg::Const(size),
                None => {
                    let op = OpName::new("aten.sym_size.int");
                    let args = [("self", Arg::Value(whole)), ("dim", Arg::Int(dim as i64))];
                    let args = args.map(|(name, arg)| (name.to_string(), arg)).to_vec();
                    let ty = Type::Int(Some(size.clone()));
                    let values = self.insert("size", op, args, vec![("size".to_string(), ty)])?;
                    let value = values.first().copied();
                    IntArg::Value(value.ok_or_else(|| Error::internal("a size without output"))?)
                }
            });
        }
        Ok(sizes)
    }

    /// Outputs give what their values hold at the end, and so do inputs that were written.
    fn add_outputs(&mut self) -> Result<()> {
        let mut outputs = self.graph.outputs().to_vec();
        for output in &mut outputs {
            if let OutputSource::Value(value) = &mut output.source {
                *value = self.current(*value)?;
            }
        }
        for input in self.graph.inputs().to_vec() {
            if self.version(input.value) == 0 && !self.tainted.contains_key(&input.value) {
                continue;
            }
            let kind = match input.kind {
                InputKind::User => OutputKind::InputMutation(input.value),
                _ => OutputKind::BufferMutation(input.value),
            };
            // What the signature writes back itself, it writes last.
            if !outputs.iter().any(|output| output.kind == kind) {
                let source = OutputSource::Value(self.current(input.value)?);
                outputs.push(GraphOutput { source, kind });
            }
        }
        self.graph.set_outputs(outputs);
        Ok(())
    }
}

/// In-place ops that change what a tensor is, not what it holds, or that give random numbers.
const NOT_TAKEN: &[&str] = &[
    "as_strided_",
    "bernoulli_",
    "cauchy_",
    "dropout_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "normal_",
    "random_",
    "requires_grad_",
    "resize_",
    "resize_as_",
    "set_",
    "squeeze_",
    "swapaxes_",
    "swapdims_",
    "t_",
    "transpose_",
    "uniform_",
    "unsqueeze_",
];

/// The op that computes what the in-place `node` writes, and whether it takes `self` alone.
fn functional(node: &Node) -> Result<(OpName, bool)> {
    let base = node.op.base();
    let plain = base.strip_suffix('_').filter(|plain| !plain.ends_with('_') && !plain.starts_with('_'));
    let known = node.op.without_overload().starts_with("aten.") && !NOT_TAKEN.contains(&base);
    let Some(plain) = plain.filter(|_| known && node.arg("out").is_none()) else {
        return Err(Error::unsupported(format!("{} has no form that does not write in place", node.op)));
    };
    if base == "zero_" {
        return Ok((OpName::new("aten.zeros_like.default"), true));
    }
    let overload = node.op.as_str().rsplit('.').next().unwrap_or("default");
    Ok((OpName::new(&format!("aten.{plain}.{overload}")), false))
}
