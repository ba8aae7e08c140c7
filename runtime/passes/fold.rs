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

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    };

    use super::*;
    use crate::{
        base::{DType, Error, SymExpr},
        ir::{Arg, InputKind, OpName, OutputKind, Payload, PayloadId, TensorType, parse_graph},
    };

    /// 64 MiB that say whether someone asked for them.
    #[derive(Debug)]
    struct Watched {
        id: PayloadId,
        is_read: AtomicBool,
    }

    impl Payload for Watched {
        fn id(&self) -> PayloadId {
            self.id
        }

        fn len_bytes(&self) -> usize {
            1 << 26
        }

        fn bytes(&self) -> Result<&[u8]> {
            self.is_read.store(true, Ordering::Relaxed);
            Err(Error::bad_file("not there"))
        }
    }

    fn add(graph: &mut Graph, name: &str, op: &str, operand: ValueId, sizes: &[i64]) -> ValueId {
        let sizes = sizes.iter().map(|&size| SymExpr::Const(size)).collect();
        let ty = Type::Tensor(TensorType { dtype: DType::F32, sizes });
        let args = vec![("self".to_string(), Arg::Value(operand))];
        let node = graph.add_node(name, OpName::new(op), args, vec![(name.to_string(), ty)]).unwrap();
        graph.node(node).unwrap().outputs[0]
    }

    #[test]
    fn views_of_a_constant_read_nothing() {
        let payload = Arc::new(Watched { id: PayloadId::unique(), is_read: AtomicBool::new(false) });
        let constant = Constant::new("w", DType::F32, vec![4096, 4096], vec![4096, 1], 0, payload.clone());
        let mut graph = Graph::new("g");
        let w = graph.add_constant_input("w", constant.unwrap(), InputKind::Parameter).unwrap();
        let t = add(&mut graph, "t", "aten.t.default", w, &[4096, 4096]);
        graph.add_output(OutputSource::Value(t), OutputKind::User);
        run(&mut graph, &FoldLimits::default()).unwrap();
        assert!(graph.order().is_empty() && !payload.is_read.load(Ordering::Relaxed));
    }

    #[test]
    fn what_cannot_be_folded_is_not_read() {
        let payload = Arc::new(Watched { id: PayloadId::unique(), is_read: AtomicBool::new(false) });
        let constant = Constant::new("w", DType::F32, vec![4096, 4096], vec![4096, 1], 0, payload.clone());
        let mut graph = Graph::new("g");
        let w = graph.add_constant_input("w", constant.unwrap(), InputKind::Parameter).unwrap();
        let neg = add(&mut graph, "neg", "aten.neg.default", w, &[4096, 4096]);
        let odd = add(&mut graph, "odd", "aten.no_such_op.default", neg, &[4096, 4096]);
        let abs = add(&mut graph, "abs", "aten.abs.default", odd, &[4096, 4096]);
        graph.add_output(OutputSource::Value(abs), OutputKind::User);
        let limits = FoldLimits { growth: 0, ..FoldLimits::default() };
        let kept = run(&mut graph, &limits).unwrap();
        assert_eq!(kept[&abs], "no kernel yet for aten.no_such_op.default");
        assert_eq!(kept[&neg], "`neg` takes 67108864 bytes, 1048576 are the most to fold");
        assert!(!payload.is_read.load(Ordering::Relaxed));
    }

    /// Two numbers that count how often someone asked for them.
    #[derive(Debug)]
    struct Counted {
        id: PayloadId,
        reads: AtomicUsize,
    }

    impl Payload for Counted {
        fn id(&self) -> PayloadId {
            self.id
        }

        fn len_bytes(&self) -> usize {
            8
        }

        fn bytes(&self) -> Result<&[u8]> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            Ok(&[0; 8])
        }
    }

    #[test]
    fn what_several_nodes_read_is_evaluated_once() {
        let payload = Arc::new(Counted { id: PayloadId::unique(), reads: AtomicUsize::new(0) });
        let constant = Constant::new("w", DType::F32, vec![2], vec![1], 0, payload.clone()).unwrap();
        let mut graph = Graph::new("g");
        let w = graph.add_constant_input("w", constant, InputKind::Parameter).unwrap();
        let neg = add(&mut graph, "neg", "aten.neg.default", w, &[2]);
        for (name, op) in [("abs", "aten.abs.default"), ("exp", "aten.exp.default")] {
            let output = add(&mut graph, name, op, neg, &[2]);
            graph.add_output(OutputSource::Value(output), OutputKind::User);
        }
        run(&mut graph, &FoldLimits::default()).unwrap();
        assert!(graph.order().is_empty());
        assert_eq!(payload.reads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_result_unlike_the_declared_one_is_not_taken() {
        for declared in ["float32[3]", "float32[2, 3]", "float16[2]"] {
            let text = format!(
                "graph g\ninput %w: float32[2] = parameter \"w\"\n\
                 %neg: {declared} = aten.neg.default(self=%w)\noutput %neg\n"
            );
            let mut graph = parse_graph(&text).unwrap();
            let kept = run(&mut graph, &FoldLimits::default()).unwrap();
            let reason = &kept[&graph.value_named("neg").unwrap()];
            let wanted = format!("gives float32[2], the program says {declared}");
            assert!(reason.contains(&wanted), "{reason}");
        }
    }

    #[test]
    fn a_missing_result_is_an_error_of_the_program() {
        let mut graph = parse_graph("graph g\ninput %w: float32[2] = parameter \"w\"\n").unwrap();
        let ty = Type::Tensor(TensorType { dtype: DType::F32, sizes: vec![SymExpr::Const(2)] });
        let args = vec![("self".to_string(), Arg::Value(graph.value_named("w").unwrap()))];
        let outputs = ["first", "second"].map(|name| (name.to_string(), ty.clone())).to_vec();
        let node = graph.add_node("neg", OpName::new("aten.neg.default"), args, outputs).unwrap();
        let second = graph.node(node).unwrap().outputs[1];
        graph.add_output(OutputSource::Value(second), OutputKind::User);
        let kept = run(&mut graph, &FoldLimits::default()).unwrap();
        assert!(kept[&second].contains("an output is missing"), "{}", kept[&second]);
    }

    #[test]
    fn a_deep_expression_needs_no_deep_stack() {
        let mut graph = parse_graph("graph g\ninput %w: float32[2] = parameter \"w\"\n").unwrap();
        let mut value = graph.value_named("w").unwrap();
        for index in 0..20_000 {
            value = add(&mut graph, &format!("neg_{index}"), "aten.neg.default", value, &[2]);
        }
        graph.add_output(OutputSource::Value(value), OutputKind::User);
        run(&mut graph, &FoldLimits::default()).unwrap();
        let id = graph.input_of(value).and_then(|input| input.kind.constant()).unwrap();
        assert_eq!(graph.constant(id).unwrap().to_tensor().unwrap().to_f32s(), [-0.75, 0.125]);
    }
}
