//! Constant folding: values that never change are evaluated once, at build.
//!
//! Only values that run-time nodes or outputs read become constants; what lies between is never held. What is too large
//! stays run-time work, and so does what has no kernel; the reason is kept for reports. What a constant is, only
//! [`Constness`] says: nothing that its own program writes is folded.

use std::collections::{HashMap, HashSet};

use super::evaluate::{Evaluator, FoldLimits};
use crate::{
    base::Result,
    ir::{Constant, Constness, Effect, Graph, Node, NodeId, OutputSource, Type, ValueId, effect_of},
};

/// Why each constant value that is still computed at run time was not folded.
pub(super) type Kept = HashMap<ValueId, String>;

/// Runs the pass.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph, limits: &FoldLimits) -> Result<Kept> {
    let constness = Constness::analyse(graph)?;
    let mut folder = Folder {
        graph,
        constness: &constness,
        evaluator: Evaluator::new(graph, limits),
        readers: HashMap::new(),
        kept: Kept::new(),
        folded: HashSet::new(),
        constants: Vec::new(),
    };
    folder.run()?;
    let Folder { kept, folded, constants, .. } = folder;
    for (value, constant) in constants {
        graph.define_as_constant(value, constant)?;
    }
    graph.retain_nodes(|id| !folded.contains(&id));
    Ok(kept)
}

/// Who reads a value at run time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A kernel that takes it packed, from the constant.
    Prepack,
    /// Anything else.
    Node,
}

struct Folder<'a> {
    graph: &'a Graph,
    constness: &'a Constness,
    evaluator: Evaluator<'a>,
    /// Values that are read at run time.
    readers: HashMap<ValueId, Reader>,
    kept: Kept,
    folded: HashSet<NodeId>,
    constants: Vec<(ValueId, Constant)>,
}

impl Folder<'_> {
    /// Walks from the outputs to the inputs, so that all readers of a value are known before the value's own node.
    fn run(&mut self) -> Result<()> {
        for output in self.graph.outputs() {
            if let OutputSource::Value(value) = output.source {
                self.readers.insert(value, Reader::Node);
            }
        }
        for &id in self.graph.order().iter().rev() {
            let node = self.graph.node(id)?;
            if !self.may_fold(node)? || !self.fold(id, node) {
                self.read_operands(node);
            }
        }
        Ok(())
    }

    fn may_fold(&self, node: &Node) -> Result<bool> {
        let computes =
            matches!(effect_of(node), Effect::Pure | Effect::View | Effect::Quantize | Effect::Dequantize);
        let mut gives_tensor = false;
        for &output in &node.outputs {
            gives_tensor |= matches!(self.graph.value(output)?.ty, Type::Tensor(_));
            if !self.constness.is_constant(output) {
                return Ok(false);
            }
        }
        Ok(computes && gives_tensor)
    }

    /// Evaluates the outputs that are read; `false` when the node has to stay.
    fn fold(&mut self, id: NodeId, node: &Node) -> bool {
        let mut constants = Vec::new();
        for &output in &node.outputs {
            let Some(&reader) = self.readers.get(&output) else { continue };
            match self.evaluator.evaluate(output, reader == Reader::Prepack) {
                Ok(constant) => constants.push((output, constant)),
                Err(reason) => {
                    self.kept.insert(output, reason);
                    return false;
                }
            }
        }
        self.constants.append(&mut constants);
        self.folded.insert(id);
        true
    }

    fn read_operands(&mut self, node: &Node) {
        let packed = packed_operand(node).and_then(|name| node.value_arg(name));
        node.for_each_operand(|operand| {
            let reader = if packed == Some(operand) { Reader::Prepack } else { Reader::Node };
            // A value that is packed somewhere is folded for every reader.
            let known = self.readers.entry(operand).or_insert(reader);
            if reader == Reader::Prepack {
                *known = reader;
            }
        });
    }
}

/// The operand that the kernels of an op want packed.
fn packed_operand(node: &Node) -> Option<&'static str> {
    match node.op.base() {
        "linear" | "convolution" | "conv1d" | "conv2d" => Some("weight"),
        _ => None,
    }
}
