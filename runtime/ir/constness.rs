//! Which values of a method never change, and why the others may.
//!
//! A value is constant when it is a parameter, a buffer that the program never writes back to, a lifted or
//! derived constant, or a deterministic function of nothing but those. Everything else is run-time data, with the
//! reason and the chain of values that leads to it. Each method is judged by its own graph.
//!
//! [`TensorRef`] can be made here only: holding one *is* the proof that a tensor is a constant of the program.

use std::collections::{HashMap, HashSet};

use super::{
    arg::Arg,
    constant::{Constant, ConstantId},
    effects::{Effect, effect_of},
    graph::{Graph, InputKind, NodeId, OutputKind, Type, ValueId},
};
use crate::base::{DType, Error, IdVec, Result};

/// Why a value is not constant, at the end of its chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// It is an input that the caller gives.
    UserInput(String),
    /// It is a buffer (or constant) that the program writes to; `by` is the node or output that does.
    WrittenBack {
        /// Name of the buffer in the program.
        name: String,
        /// What writes it.
        by: String,
    },
    /// The program has no signature, so the role of this input is not known.
    NoSignature(String),
    /// It depends on a size or number that is known only at run time.
    RuntimeNumber(String),
    /// The op gives other values at each call.
    Random(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::UserInput(name) => write!(f, "user input {name:?}"),
            Reason::WrittenBack { name, by } => write!(f, "buffer {name:?}, written by {by}"),
            Reason::NoSignature(name) => write!(f, "input {name:?} of a program without signature"),
            Reason::RuntimeNumber(name) => write!(f, "run-time number {name:?}"),
            Reason::Random(op) => write!(f, "random op {op}"),
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
        let written = written_inputs(graph)?;
        let mut facts: HashMap<ValueId, Fact> = HashMap::with_capacity(graph.values().len());
        for input in graph.inputs() {
            let name = input_name(graph, input.value, input.kind);
            let fact = match (input.kind, written.get(&input.value)) {
                (InputKind::User, _) => runtime(Reason::UserInput(name)),
                _ if !graph.has_signature() => runtime(Reason::NoSignature(name)),
                (_, Some(by)) => runtime(Reason::WrittenBack { name, by: by.clone() }),
                (_, None) => Fact::Constant,
            };
            facts.insert(input.value, fact);
        }
        let written_nodes = written_node_roots(graph)?;
        for (_, node) in graph.nodes() {
            let fact = node_fact(graph, &facts, &written_nodes, node);
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
    /// `permute_5 <- view_9 <- addmm_1 <- user input "style"`; for a constant, what it is made of.
    pub fn chain(&self, graph: &Graph, value: ValueId) -> String {
        let mut parts = vec![graph.value_name(value)];
        let mut current = value;
        loop {
            match self.facts.get(&current) {
                Some(Fact::Runtime { reason, via: None }) => {
                    // The end of the chain names an input: its value's own name would say it twice.
                    if matches!(
                        reason,
                        Reason::UserInput(_) | Reason::WrittenBack { .. } | Reason::NoSignature(_)
                    ) && graph.input_of(current).is_some()
                    {
                        parts.pop();
                    }
                    parts.push(reason.to_string());
                    return parts.join(" <- ");
                }
                Some(Fact::Runtime { via: Some(next), .. }) => current = *next,
                _ => match constant_origin(graph, current) {
                    Origin::Operand(next) => current = next,
                    Origin::End(text) => {
                        parts.pop();
                        parts.push(text);
                        return parts.join(" <- ");
                    }
                },
            }
            parts.push(graph.value_name(current));
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
/// ```compile_fail
/// let forged = vkdelegate::ir::TensorRef { constant: todo!(), id: todo!() };
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

/// For each value, the value whose memory it may share, followed to the end.
fn roots(graph: &Graph) -> IdVec<ValueId, ValueId> {
    let mut roots: IdVec<ValueId, ValueId> = IdVec::new();
    for id in graph.values().ids() {
        roots.push(id);
    }
    for (_, node) in graph.nodes() {
        if !matches!(effect_of(&node.op), Effect::View | Effect::Write) {
            continue;
        }
        let Some(base) = written_operand(node).and_then(|base| roots.get(base).ok().copied()) else {
            continue;
        };
        for &output in &node.outputs {
            if let Ok(root) = roots.get_mut(output) {
                *root = base;
            }
        }
    }
    roots
}

/// The operand that a view looks at, or an in-place op writes: `self`, else the first value given.
fn written_operand(node: &super::graph::Node) -> Option<ValueId> {
    node.value_arg("self").or_else(|| {
        node.args.iter().find_map(|(_, arg)| if let Arg::Value(value) = arg { Some(*value) } else { None })
    })
}

/// Inputs that the program writes, by an output of the signature or by an in-place op (through views too).
fn written_inputs(graph: &Graph) -> Result<HashMap<ValueId, String>> {
    let mut written = HashMap::new();
    for output in graph.outputs() {
        if let OutputKind::BufferMutation(target) | OutputKind::InputMutation(target) = output.kind {
            let by = match output.source {
                super::graph::OutputSource::Value(value) => format!("output `{}`", graph.value_name(value)),
                _ => "an output".to_string(),
            };
            written.entry(target).or_insert(by);
        }
    }
    let roots = roots(graph);
    for (_, node) in graph.nodes() {
        if effect_of(&node.op) == Effect::Write
            && let Some(operand) = written_operand(node)
        {
            written
                .entry(*roots.get(operand)?)
                .or_insert_with(|| format!("node `{}` ({})", node.name, node.op));
        }
    }
    Ok(written)
}

/// Values that nodes compute and an in-place op writes later, with the node that writes.
fn written_node_roots(graph: &Graph) -> Result<HashMap<ValueId, NodeId>> {
    let roots = roots(graph);
    let mut written = HashMap::new();
    for (id, node) in graph.nodes() {
        if effect_of(&node.op) == Effect::Write
            && let Some(operand) = written_operand(node)
        {
            written.entry(*roots.get(operand)?).or_insert(id);
        }
    }
    Ok(written)
}

fn node_fact(
    graph: &Graph,
    facts: &HashMap<ValueId, Fact>,
    written: &HashMap<ValueId, NodeId>,
    node: &super::graph::Node,
) -> Fact {
    if effect_of(&node.op) == Effect::Random {
        return runtime(Reason::Random(node.op.to_string()));
    }
    if let Some(writer) = node.outputs.iter().find_map(|output| written.get(output)) {
        let by = graph
            .node(*writer)
            .map_or_else(|_| writer.to_string(), |writer| format!("node `{}` ({})", writer.name, writer.op));
        return runtime(Reason::WrittenBack { name: node.name.clone(), by });
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
    // A number without operands that are values is constant too; one that reads a tensor's symbolic size is not,
    // and its operand says so.
    fact
}

enum Origin {
    Operand(ValueId),
    End(String),
}

/// One step from a constant towards what it is made of.
fn constant_origin(graph: &Graph, value: ValueId) -> Origin {
    if let Some(input) = graph.input_of(value) {
        let name = input_name(graph, value, input.kind);
        return Origin::End(match input.kind {
            InputKind::Parameter(_) => format!("parameter {name:?}"),
            InputKind::Buffer(_) => format!("buffer {name:?}"),
            InputKind::Lifted(_) => format!("constant {name:?}"),
            InputKind::Derived(_) => format!("folded {name:?}"),
            InputKind::User => format!("user input {name:?}"),
        });
    }
    let node = graph.defining_node(value).and_then(|id| graph.node(id).ok());
    let mut operands: Vec<ValueId> = Vec::new();
    let mut seen = HashSet::new();
    if let Some(node) = node {
        node.for_each_operand(|operand| {
            if graph.value(operand).is_ok_and(|data| matches!(data.ty, Type::Tensor(_)))
                && seen.insert(operand)
            {
                operands.push(operand);
            }
        });
    }
    match operands.as_slice() {
        [one] => Origin::Operand(*one),
        _ => Origin::End(graph.value_name(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_graph;
    use super::*;

    fn chain(text: &str, value: &str) -> String {
        let graph = parse_graph(text).unwrap();
        let constness = Constness::analyse(&graph).unwrap();
        constness.chain(&graph, graph.value_named(value).unwrap())
    }

    #[test]
    fn the_chain_leads_to_the_user_input() {
        let text = r#"graph g
input %p_w: float32[4, 4] = parameter "w"
input %style: float32[1, 4]
%addmm: float32[1, 16] = aten.addmm.default(self=%p_w, mat1=%style, mat2=%p_w)
%view: float32[4, 4] = aten.view.default(self=%addmm, size=[4, 4])
%permute: float32[4, 4] = aten.permute.default(self=%view, dims=[1, 0])
%wt: float32[4, 4] = aten.permute.default(self=%p_w, dims=[1, 0])
"#;
        assert_eq!(chain(text, "permute"), "permute <- view <- addmm <- user input \"style\"");
        assert_eq!(chain(text, "wt"), "wt <- parameter \"w\"");
    }

    #[test]
    fn a_buffer_written_back_is_not_constant() {
        let text = r#"graph g
input %b_w: float32[4, 4] = buffer "w"
%neg: float32[4, 4] = aten.neg.default(self=%b_w)
output %neg -> %b_w
"#;
        assert_eq!(chain(text, "neg"), "neg <- buffer \"w\", written by output `neg`");
    }

    #[test]
    fn a_write_through_a_view_reaches_the_base_and_every_other_view() {
        let text = r#"graph g
input %c: float32[4, 4] = lifted "c"
%row: float32[4] = aten.select.int(self=%c, dim=0, index=0)
%other: float32[4, 4] = aten.permute.default(self=%c, dims=[1, 0])
%add_: float32[4] = aten.add_.Tensor(self=%row, other=1)
"#;
        assert_eq!(chain(text, "other"), "other <- buffer \"c\", written by node `add_` (aten.add_.Tensor)");
    }

    #[test]
    fn a_written_intermediate_is_not_constant_even_before_the_write() {
        let text = r#"graph g
input %c: float32[4] = lifted "c"
%copy: float32[4] = aten.clone.default(self=%c)
%alias: float32[4] = aten.alias.default(self=%copy)
%add_: float32[4] = aten.add_.Tensor(self=%alias, other=1)
"#;
        let graph = parse_graph(text).unwrap();
        let constness = Constness::analyse(&graph).unwrap();
        assert!(constness.is_constant(graph.value_named("c").unwrap()));
        assert!(!constness.is_constant(graph.value_named("copy").unwrap()));
        assert!(!constness.is_constant(graph.value_named("alias").unwrap()));
    }

    #[test]
    fn without_a_signature_nothing_is_constant() {
        let text = "graph g without signature\ninput %w: float32[4, 4] = parameter \"w\"\n";
        assert_eq!(chain(text, "w"), "input \"w\" of a program without signature");
    }

    #[test]
    fn a_tensor_ref_is_given_for_constants_only() {
        let graph =
            parse_graph("graph g\ninput %w: float32[2] = parameter \"w\"\ninput %x: float32[2]\n").unwrap();
        let constness = Constness::analyse(&graph).unwrap();
        assert_eq!(constness.tensor_ref(&graph, graph.value_named("w").unwrap()).unwrap().sizes(), [2]);
        let error = constness.tensor_ref(&graph, graph.value_named("x").unwrap()).unwrap_err();
        assert!(error.to_string().contains("user input \"x\""), "{error}");
    }
}
