//! RMS norms that programs write out, as most decoders do and as decomposing `rms_norm` leaves them, become one node.
//!
//! | program | becomes |
//! |---|---|
//! | `x * rsqrt(mean(x^2, last dims) + eps)` | `aten.rms_norm(x, sizes of these dims, eps)` |
//! | that times a tensor of these sizes | its `weight` |
//! | that of `x` made float32, made `x`'s dtype again before or after the weight | the same of `x` |
//!
//! A square is `pow(x, 2)`, `x * x` or `square(x)`; a root `rsqrt`, `pow` by -0.5, or what is divided by `sqrt`. What
//! comes between must have no other reader, be no output, and not be pinned; what cannot be taken at the end (another
//! weight, another dtype) stays behind the node. In half precision what comes between is not rounded.

use std::collections::HashSet;

use super::{Fusion, epilogue::Readers, is_unscaled};
use crate::{
    base::{DType, Result, SymExpr},
    ir::{Arg, Effect, Graph, IntArg, Node, NodeId, Patch, TensorType, ValueId, effect_of},
};

/// Runs the pass; what is replaced is left to dead code.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph, pinned: &HashSet<String>) -> Result<Vec<Fusion>> {
    // The node stands where its last one stood: what it reads must not have changed by then.
    let changes = |(_, node): (NodeId, &Node)| matches!(effect_of(node), Effect::Write | Effect::Opaque);
    if graph.nodes().any(changes) {
        return Ok(Vec::new());
    }
    let view = View { graph, readers: Readers::of(graph), pinned };
    let norms: Vec<Norm> = graph.nodes().filter_map(|(_, node)| view.norm(node)).collect();
    norms.into_iter().map(|norm| norm.apply(graph)).collect()
}

/// A norm before the graph is changed.
struct Norm {
    input: ValueId,
    sizes: Vec<i64>,
    weight: Option<ValueId>,
    eps: f64,
    /// The node that becomes the norm.
    last: NodeId,
    /// Names of the nodes that become one.
    nodes: Vec<String>,
}

/// The graph, who reads what, and what must stay on its own.
struct View<'a> {
    graph: &'a Graph,
    readers: Readers,
    pinned: &'a HashSet<String>,
}

impl View<'_> {
    /// The norm whose mean is `mean`.
    fn norm(&self, mean: &Node) -> Option<Norm> {
        let squares = mean.value_arg("self").filter(|_| mean.op == "aten.mean.dim")?;
        let (square, x) = self.square(squares)?;
        let mut nodes = vec![square.name.clone(), mean.name.clone()];
        let sizes = self.averaged_sizes(mean, x)?;
        let (_, add, sum) = self.next(*mean.outputs.first()?, &mut nodes)?;
        let eps = added_number(add)?;
        let (_, root, mut value) = self.next(sum, &mut nodes)?;
        let mut is_inverse = match (root.op.base(), root.arg("exponent").and_then(number)) {
            ("rsqrt", _) | ("pow", Some(-0.5)) => true,
            ("sqrt", _) => false,
            _ => return None,
        };
        if !is_inverse && self.readers.sole(self.graph, value)?.1.op == "aten.reciprocal.default" {
            (_, _, value) = self.next(value, &mut nodes)?;
            is_inverse = true;
        }
        let (last, scale, normed) = self.next(value, &mut nodes)?;
        let operands = [scale.value_arg("self")?, scale.value_arg("other")?];
        let takes_x = match (scale.op.as_str(), is_inverse) {
            ("aten.mul.Tensor", true) => operands == [x, value] || operands == [value, x],
            ("aten.div.Tensor", false) => operands == [x, value],
            _ => false,
        };
        let is_whole = takes_x && self.tensor(normed)? == self.tensor(x)?;
        let is_pinned = nodes.iter().any(|node| self.pinned.contains(node));
        let norm = Norm { input: x, sizes, weight: None, eps, last, nodes };
        (is_whole && !is_pinned).then(|| self.with_tail(norm, normed))
    }

    /// The norm with the weight and the conversion that belong to it; `value` is its result.
    fn with_tail(&self, mut norm: Norm, mut value: ValueId) -> Norm {
        let narrow = self.widened(norm.input);
        let (mut nodes, mut input, mut weight) = (norm.nodes.clone(), norm.input, None);
        while let Some((last, node, result)) = self.readers.sole(self.graph, value) {
            let narrows = input == norm.input && narrow.is_some_and(|narrow| self.same_type(narrow, result));
            if self.pinned.contains(&node.name) {
                break;
            } else if let (Some(factor), None) = (self.factor(node, value, &norm.sizes), weight) {
                weight = Some(factor);
            } else if converts(node) && (self.same_type(value, result) || narrows) {
                input = narrow.filter(|_| narrows).unwrap_or(input);
            } else {
                break;
            }
            nodes.push(node.name.clone());
            value = result;
            if self.same_type(input, value) {
                norm = Norm { input, weight, last, nodes: nodes.clone(), ..norm };
            }
        }
        norm
    }

    /// The node that alone reads `value`, whose name joins `nodes`, and its result.
    fn next(&self, value: ValueId, nodes: &mut Vec<String>) -> Option<(NodeId, &Node, ValueId)> {
        let (id, node, result) = self.readers.sole(self.graph, value)?;
        nodes.push(node.name.clone());
        Some((id, node, result))
    }

    fn maker(&self, value: ValueId) -> Option<&Node> {
        self.graph.node(self.graph.defining_node(value)?).ok()
    }

    /// The node that makes the squares, which only the mean reads, and what it squares.
    fn square(&self, squares: ValueId) -> Option<(&Node, ValueId)> {
        self.readers.sole(self.graph, squares)?;
        let node = self.maker(squares)?;
        let x = node.value_arg("self")?;
        let is_square = match node.op.as_str() {
            "aten.pow.Tensor_Scalar" => node.arg("exponent").and_then(number) == Some(2.0),
            "aten.mul.Tensor" => node.value_arg("other") == Some(x),
            "aten.square.default" => true,
            _ => false,
        };
        (is_square && self.same_type(x, squares)).then_some((node, x))
    }

    /// The sizes of the last dims of `x`, when `mean` is over these and keeps them.
    fn averaged_sizes(&self, mean: &Node, x: ValueId) -> Option<Vec<i64>> {
        let sizes = &self.tensor(x)?.sizes;
        let Some(Arg::Ints(dims)) = mean.arg("dim") else { return None };
        let rank = sizes.len() as i64;
        let dim = |dim: &IntArg| match dim {
            IntArg::Const(dim) => Some(if *dim < 0 { dim + rank } else { *dim }),
            IntArg::Value(_) => None,
        };
        let mut dims = dims.iter().map(dim).collect::<Option<Vec<i64>>>()?;
        dims.sort_unstable();
        let first = *dims.first()?;
        let are_last = dims.into_iter().eq(first..rank);
        let keeps_dims = mean.arg("keepdim") == Some(&Arg::Bool(true));
        let keeps_dtype = self.dtype(*mean.outputs.first()?) == self.dtype(x);
        let sizes = sizes.get(usize::try_from(first).ok()?..)?.iter().map(SymExpr::as_const);
        sizes.collect::<Option<_>>().filter(|_| are_last && keeps_dims && keeps_dtype)
    }

    /// What `node` multiplies `value` by, a tensor of `sizes`, when that keeps the type of `value`.
    fn factor(&self, node: &Node, value: ValueId, sizes: &[i64]) -> Option<ValueId> {
        let (left, right) = (node.value_arg("self")?, node.value_arg("other")?);
        let factor = if left == value { right } else { left };
        let ty = self.tensor(factor).filter(|ty| ty.dtype.is_float() && ty.dtype != DType::F64)?;
        let fits = ty.sizes.iter().map(SymExpr::as_const).eq(sizes.iter().map(|&size| Some(size)));
        let keeps_type = self.same_type(value, *node.outputs.first()?);
        (node.op == "aten.mul.Tensor" && fits && keeps_type).then_some(factor)
    }

    /// The tensor in half precision that `value` is in float32.
    fn widened(&self, value: ValueId) -> Option<ValueId> {
        let node = self.maker(value).filter(|node| converts(node))?;
        let from = node.value_arg("self").or_else(|| node.value_arg("a"))?;
        let is_half = matches!(self.dtype(from)?, DType::F16 | DType::BF16);
        (is_half && self.dtype(value)? == DType::F32).then_some(from)
    }

    fn tensor(&self, value: ValueId) -> Option<&TensorType> {
        self.graph.value(value).ok()?.ty.as_tensor()
    }

    fn dtype(&self, value: ValueId) -> Option<DType> {
        self.tensor(value).map(|ty| ty.dtype)
    }

    fn same_type(&self, a: ValueId, b: ValueId) -> bool {
        self.tensor(a).is_some() && self.tensor(a) == self.tensor(b)
    }
}

impl Norm {
    fn apply(self, graph: &mut Graph) -> Result<Fusion> {
        let Norm { input, sizes, weight, eps, last, nodes } = self;
        let mut args = vec![
            ("input", Arg::Value(input)),
            ("normalized_shape", Arg::Ints(sizes.into_iter().map(IntArg::Const).collect())),
        ];
        args.extend(weight.map(|weight| ("weight", Arg::Value(weight))));
        args.push(("eps", Arg::Float(eps)));
        let mut patch = Patch::new(graph);
        patch.becomes("aten.rms_norm.default", args);
        patch.apply(graph, last)?;
        Ok(Fusion { kind: "rms_norm".to_string(), nodes })
    }
}

fn number(arg: &Arg) -> Option<f64> {
    match arg {
        Arg::Int(number) => Some(*number as f64),
        Arg::Float(number) => Some(*number),
        _ => None,
    }
}

/// The number that `node` adds to its first operand.
fn added_number(node: &Node) -> Option<f64> {
    let adds = matches!(node.op.as_str(), "aten.add.Tensor" | "aten.add.Scalar");
    number(node.arg("other")?).filter(|_| adds && is_unscaled(node))
}

/// Whether `node` gives its operand in some dtype.
fn converts(node: &Node) -> bool {
    matches!(node.op.base(), "_to_copy" | "to" | "type_as" | "convert_element_type")
}
