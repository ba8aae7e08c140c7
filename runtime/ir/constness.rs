//! Which values of a method never change, and why the others may.
//!
//! A value is constant when it is a parameter, a buffer that the program never writes back to, a lifted or
//! derived constant, or a deterministic function of nothing but those. Everything else is run-time data, with the
//! reason and the chain of values that leads to it. Each method is judged by its own graph.
//!
//! [`TensorRef`] can be made here only: holding one *is* the proof that a tensor is a constant of the program.

use std::collections::HashMap;

use super::{
    arg::Arg,
    constant::{Constant, ConstantId},
    effects::{Effect, effect_of, shared_operands, written_operands},
    graph::{Graph, InputKind, Node, OutputKind, OutputSource, Type, ValueId},
};
use crate::base::{DType, Error, IdVec, Result, shape};

/// Why a value is not constant, at the end of its chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// It is an input that the caller gives.
    UserInput(String),
    /// The program writes to it; `by` is the node or output that does.
    WrittenBack {
        /// What it is in the program, such as `buffer "w"`; `None` for what a node computes.
        what: Option<String>,
        /// What writes it.
        by: String,
    },
    /// The program has no signature, so the role of this input is not known.
    NoSignature(String),
    /// It depends on a size or number that is known only at run time.
    RuntimeNumber(String),
    /// The op gives other values at each call.
    Random(String),
    /// The op sounds like a quantise or dequantise, and is none that is known.
    UnknownOp(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::UserInput(name) => write!(f, "user input {name:?}"),
            Reason::WrittenBack { what: Some(what), by } => write!(f, "{what}, written by {by}"),
            Reason::WrittenBack { what: None, by } => write!(f, "written by {by}"),
            Reason::NoSignature(name) => write!(f, "input {name:?} of a program without signature"),
            Reason::RuntimeNumber(name) => write!(f, "run-time number {name:?}"),
            Reason::Random(op) => write!(f, "random op {op}"),
            Reason::UnknownOp(op) => write!(f, "{op}, not known, kept"),
        }
    }
}

/// What is known of one value.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// It never changes.
    Constant,
    /// It may change; `via` is the operand that carries the reason, `None` where the reason starts.
    Runtime {
        /// The reason at the end of the chain.
        reason: Reason,
        /// The next value of the chain.
        via: Option<ValueId>,
    },
}

/// The facts of one graph. Stale after the graph changes: analyse again.
pub struct Constness {
    facts: HashMap<ValueId, Fact>,
}

impl Constness {
    /// Analyses `graph`.
    ///
    /// # Errors
    /// When the graph refers to values that do not exist.
    pub fn analyse(graph: &Graph) -> Result<Constness> {
        let mut writes = Writes::of(graph)?;
        let mut facts: HashMap<ValueId, Fact> = HashMap::with_capacity(graph.values().len());
        for input in graph.inputs() {
            let name = || input_name(graph, input.value, input.kind);
            let fact = match (input.kind, writes.writer_of(graph, input.value)?) {
                (InputKind::User, _) => runtime(Reason::UserInput(name())),
                (_, Some(by)) => {
                    let what = Some(described(graph, input.value, input.kind));
                    runtime(Reason::WrittenBack { what, by })
                }
                _ if !graph.has_signature() => runtime(Reason::NoSignature(name())),
                (_, None) => Fact::Constant,
            };
            facts.insert(input.value, fact);
        }
        for (_, node) in graph.nodes() {
            let fact = node_fact(graph, &facts, &mut writes, node)?;
            for &output in &node.outputs {
                facts.insert(output, fact.clone());
            }
        }
        Ok(Constness { facts })
    }

    /// What is known of `value`.
    ///
    /// # Errors
    /// When the analysis never saw `value`.
    pub fn fact(&self, value: ValueId) -> Result<&Fact> {
        self.facts.get(&value).ok_or_else(|| Error::internal(format!("{value} has not been analysed")))
    }

    /// Whether `value` never changes.
    pub fn is_constant(&self, value: ValueId) -> bool {
        matches!(self.facts.get(&value), Some(Fact::Constant))
    }

    /// The chain from `value` to the reason why it is run-time data, in one line:
    /// `permute_5 <- view_9 <- addmm_1 <- user input "style"`; for a constant, what it is made of. The middle of a
    /// long chain is left out.
    pub fn chain(&self, graph: &Graph, value: ValueId) -> String {
        const SHOWN_AT_START: usize = 6;
        const SHOWN_AT_END: usize = 2;
        let (mut links, end) = self.links(graph, value);
        let left_out = links.len().saturating_sub(SHOWN_AT_START + SHOWN_AT_END);
        if left_out > 1 {
            let middle = format!("({left_out} more)");
            links.splice(SHOWN_AT_START..SHOWN_AT_START + left_out, [middle]);
        }
        links.push(end);
        links.join(" <- ")
    }

    /// The names on the chain, and the text at its end.
    fn links(&self, graph: &Graph, value: ValueId) -> (Vec<String>, String) {
        let mut names = Vec::new();
        let mut current = value;
        loop {
            let step = match self.facts.get(&current) {
                Some(Fact::Runtime { reason, via: None }) => Origin::End(reason.to_string()),
                Some(Fact::Runtime { via: Some(next), .. }) => Origin::Operand(*next),
                _ => constant_origin(graph, current),
            };
            let is_input = graph.input_of(current).is_some();
            match step {
                // An input is named by the text at the end; its value's own name would say it twice.
                Origin::End(text) if is_input => return (names, text),
                Origin::End(text) => {
                    names.push(graph.value_name(current));
                    return (names, text);
                }
                Origin::Operand(next) => {
                    names.push(link(graph, current, next));
                    current = next;
                }
            }
        }
    }

    /// The constant behind the input `value`, as a reference that proves its constness.
    ///
    /// # Errors
    /// When `value` may change, or is computed from constants and not (yet) one itself.
    pub fn tensor_ref(&self, graph: &Graph, value: ValueId) -> Result<TensorRef> {
        if !self.is_constant(value) {
            return Err(Error::unsupported(format!("not a constant: {}", self.chain(graph, value))));
        }
        let id = graph.input_of(value).and_then(|input| input.kind.constant()).ok_or_else(|| {
            Error::unsupported(format!(
                "`{}` is computed from constants, and was not folded",
                graph.value_name(value)
            ))
        })?;
        Ok(TensorRef { id, constant: graph.constant(id)?.clone() })
    }
}

/// A constant of the program by reference: dtype, sizes, strides, offset, bytes on the host.
///
/// Only [`Constness::tensor_ref`] makes one, and only for a value that it has shown to be constant:
///
/// ```compile_fail,E0451
/// let forged = vkdelegate::ir::TensorRef { constant: todo!(), id: todo!() };
/// ```
///
/// The path is right, and the type may be named; only its fields are out of reach:
///
/// ```
/// fn sizes(weight: &vkdelegate::ir::TensorRef) -> &[usize] {
///     weight.sizes()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct TensorRef {
    id: ConstantId,
    constant: Constant,
}

impl TensorRef {
    /// The constant's id in its graph.
    pub fn id(&self) -> ConstantId {
        self.id
    }

    /// The constant itself.
    pub fn constant(&self) -> &Constant {
        &self.constant
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.constant.dtype()
    }

    /// The sizes, outermost first.
    pub fn sizes(&self) -> &[usize] {
        self.constant.sizes()
    }
}

fn runtime(reason: Reason) -> Fact {
    Fact::Runtime { reason, via: None }
}

fn input_name(graph: &Graph, value: ValueId, kind: InputKind) -> String {
    kind.constant()
        .and_then(|id| graph.constant(id).ok())
        .map_or_else(|| graph.value_name(value), |constant| constant.name().to_string())
}

/// An input in words: `parameter "w"`.
fn described(graph: &Graph, value: ValueId, kind: InputKind) -> String {
    let name = input_name(graph, value, kind);
    match kind {
        InputKind::Parameter(_) => format!("parameter {name:?}"),
        InputKind::Buffer(_) => format!("buffer {name:?}"),
        InputKind::Lifted(_) => format!("constant {name:?}"),
        InputKind::Derived(_) => format!("folded {name:?}"),
        InputKind::User => format!("user input {name:?}"),
    }
}

/// Values that may share memory, as a forest: values with one root are one class.
struct Memory {
    parents: IdVec<ValueId, ValueId>,
}

impl Memory {
    fn of(graph: &Graph) -> Result<Memory> {
        let mut memory = Memory { parents: IdVec::new() };
        for id in graph.values().ids() {
            memory.parents.push(id);
        }
        memory.join_overlapping_constants(graph)?;
        for (_, node) in graph.nodes() {
            for operand in shared_operands(node) {
                for &output in &node.outputs {
                    memory.join(operand, output)?;
                }
            }
        }
        Ok(memory)
    }

    /// Tied weights are one memory, and so are buffers that are parts of one storage and overlap.
    fn join_overlapping_constants(&mut self, graph: &Graph) -> Result<()> {
        let mut ranges = Vec::new();
        for input in graph.inputs() {
            let Some(id) = input.kind.constant() else { continue };
            let constant = graph.constant(id)?;
            let width = constant.dtype().size_bytes();
            let extent = shape::extent_elems(constant.sizes(), constant.strides())?;
            let start = constant.offset_elems().saturating_mul(width);
            let end = start.saturating_add(extent.saturating_mul(width));
            ranges.push((constant.payload().id(), start, end, input.value));
        }
        ranges.sort_unstable();
        let mut current = None;
        for (payload, start, end, value) in ranges {
            current = match current {
                Some((same, reached, first)) if same == payload && start < reached => {
                    self.join(first, value)?;
                    Some((payload, end.max(reached), first))
                }
                _ => Some((payload, end, value)),
            };
        }
        Ok(())
    }

    fn root(&mut self, value: ValueId) -> Result<ValueId> {
        let mut current = value;
        loop {
            let parent = *self.parents.get(current)?;
            if parent == current {
                return Ok(current);
            }
            let grandparent = *self.parents.get(parent)?;
            *self.parents.get_mut(current)? = grandparent;
            current = grandparent;
        }
    }

    fn join(&mut self, a: ValueId, b: ValueId) -> Result<()> {
        let (a, b) = (self.root(a)?, self.root(b)?);
        *self.parents.get_mut(b)? = a;
        Ok(())
    }
}

/// What is written, and by what: an output of the signature, or an in-place op, through views too.
struct Writes {
    memory: Memory,
    /// By the root of a class: what writes it, and the value that it is written through.
    by: HashMap<ValueId, (String, ValueId)>,
}

impl Writes {
    fn of(graph: &Graph) -> Result<Writes> {
        let mut writes = Writes { memory: Memory::of(graph)?, by: HashMap::new() };
        for output in graph.outputs() {
            if let OutputKind::BufferMutation(target) | OutputKind::InputMutation(target) = output.kind {
                let by = match output.source {
                    OutputSource::Value(value) => format!("output `{}`", graph.value_name(value)),
                    _ => "an output".to_string(),
                };
                writes.add(target, by)?;
            }
        }
        for (_, node) in graph.nodes() {
            for operand in written_operands(node) {
                writes.add(operand, format!("node `{}` ({})", node.name, node.op))?;
            }
        }
        Ok(writes)
    }

    fn add(&mut self, value: ValueId, by: String) -> Result<()> {
        let root = self.memory.root(value)?;
        self.by.entry(root).or_insert((by, value));
        Ok(())
    }

    /// What writes the memory of `value`, if anything does.
    fn writer_of(&mut self, graph: &Graph, value: ValueId) -> Result<Option<String>> {
        let root = self.memory.root(value)?;
        Ok(self.by.get(&root).map(|(by, through)| {
            let is_other_input = *through != value && graph.input_of(*through).is_some();
            if is_other_input && graph.input_of(value).is_some() {
                format!("{by} through `{}`, which shares its memory", graph.value_name(*through))
            } else {
                by.clone()
            }
        }))
    }
}

fn node_fact(
    graph: &Graph,
    facts: &HashMap<ValueId, Fact>,
    writes: &mut Writes,
    node: &Node,
) -> Result<Fact> {
    match effect_of(node) {
        Effect::Random => return Ok(runtime(Reason::Random(node.op.to_string()))),
        Effect::Unknown => return Ok(runtime(Reason::UnknownOp(node.op.to_string()))),
        _ => {}
    }
    let mut fact = Fact::Constant;
    node.for_each_operand(|operand| {
        if fact != Fact::Constant {
            return;
        }
        fact = match facts.get(&operand) {
            Some(Fact::Runtime { reason, .. }) => {
                Fact::Runtime { reason: reason.clone(), via: Some(operand) }
            }
            Some(Fact::Constant) => Fact::Constant,
            None => runtime(Reason::RuntimeNumber(graph.value_name(operand))),
        };
    });
    if fact == Fact::Constant {
        for &output in &node.outputs {
            if let Some(by) = writes.writer_of(graph, output)? {
                return Ok(runtime(Reason::WrittenBack { what: None, by }));
            }
        }
    }
    Ok(fact)
}

enum Origin {
    Operand(ValueId),
    End(String),
}

/// The name of `value`; where a quantise or dequantise leads on through its scales or zero points, with that said.
fn link(graph: &Graph, value: ValueId, next: ValueId) -> String {
    let name = graph.value_name(value);
    let node = graph.defining_node(value).and_then(|id| graph.node(id).ok());
    let Some(node) = node.filter(|node| matches!(effect_of(node), Effect::Quantize | Effect::Dequantize))
    else {
        return name;
    };
    let leads_on = |arg: &Arg| {
        let mut found = false;
        arg.for_each_value(|operand| found |= operand == next);
        found
    };
    match node.args.iter().position(|(_, arg)| leads_on(arg)) {
        Some(position @ 1..) => format!("{name} ({})", node.args[position].0),
        _ => name,
    }
}

/// One step from a constant towards what it is made of.
fn constant_origin(graph: &Graph, value: ValueId) -> Origin {
    if let Some(input) = graph.input_of(value) {
        return Origin::End(described(graph, value, input.kind));
    }
    let Some(node) = graph.defining_node(value).and_then(|id| graph.node(id).ok()) else {
        return Origin::End("a constant".to_string());
    };
    let mut first = None;
    node.for_each_operand(|operand| {
        let is_tensor = graph.value(operand).is_ok_and(|data| matches!(data.ty, Type::Tensor(_)));
        if is_tensor {
            first.get_or_insert(operand);
        }
    });
    first.map_or_else(|| Origin::End(node.op.to_string()), Origin::Operand)
}

#[cfg(test)]
mod tests;
