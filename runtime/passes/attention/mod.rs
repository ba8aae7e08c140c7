//! Attention in pieces, as exporters leave it, becomes one node that never writes its scores.
//!
//! | program | becomes |
//! |---|---|
//! | `softmax(q k^T) v`, products by `bmm` or `matmul` | `vkdelegate.attention(query, key, value, scale, dead_is_nan=True)` |
//! | scores, queries or keys times or over a number | its `scale` |
//! | scores `+ mask` | its `attn_mask` |
//! | scores where a mask of bools is not set, else a number | its `attn_mask` and `fill` |
//! | a softmax that gives zeros where all scores are -inf | without `dead_is_nan` |
//! | keys and values of which each head is repeated for several of the queries | `enable_gqa=True`, of what is repeated |
//!
//! So does `scaled_dot_product_attention` read keys and values before they are repeated.
//!
//! Views, copies and expands that exporters put between are looked through: the node reads queries, keys and values
//! where they lie. A softmax whose result goes into a product but which stays on its own gets a reason. Scores and
//! weights that others read, or that are outputs, are kept; so is a group of which a node is pinned. In half precision
//! what comes between is not rounded.

mod operand;
mod scores;
mod shared;
mod weights;

use std::collections::{HashMap, HashSet};

use super::{Fusion, Unfused};
use crate::{
    base::{DType, Result, SymExpr},
    ir::{Arg, Constness, Effect, Graph, Node, NodeId, Patch, TensorType, Type, ValueId, effect_of},
};
use operand::Operand;
use scores::Scores;
use shared::{Shared, shared_pair, swapped_by};
use weights::Weights;

/// What the fused kernels take: elements of a row.
const WIDTHS: std::ops::RangeInclusive<i64> = 4..=128;

/// Runs the pass; what is replaced is left to dead code.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph, pinned: &HashSet<String>) -> Result<(Vec<Fusion>, Vec<Unfused>)> {
    let (mut fusions, mut unfused) = (Vec::new(), Vec::new());
    let is_softmax = |node: &Node| matches!(node.op.base(), "softmax" | "_softmax" | "_safe_softmax");
    let is_whole = |node: &Node| node.op == "aten.scaled_dot_product_attention.default";
    let nodes_that = |picks: fn(&Node) -> bool| -> Vec<NodeId> {
        graph.nodes().filter(|(_, node)| picks(node)).map(|(id, _)| id).collect()
    };
    let (softmaxes, wholes) = (nodes_that(is_softmax), nodes_that(is_whole));
    // The node stands where its last product stood: what it reads must not have changed by then.
    let writes = graph.nodes().any(|(_, node)| matches!(effect_of(node), Effect::Write | Effect::Opaque));
    if writes || softmaxes.is_empty() && wholes.is_empty() {
        return Ok((fusions, unfused));
    }
    for whole in wholes {
        fusions.extend(shared::group(graph, whole, pinned)?);
    }
    for softmax in softmaxes {
        let view = View::of(graph)?;
        let Some(weights) = Weights::of(&view, softmax) else { continue };
        match weights.and_then(|weights| Attention::of(&view, weights, pinned)) {
            Ok(attention) => fusions.push(attention.apply(graph)?),
            Err(reason) => {
                let node = graph.node(softmax)?.name.clone();
                unfused.push(Unfused { kind: "attention".to_string(), node, reason });
            }
        }
    }
    Ok((fusions, unfused))
}

/// Why a softmax stays on its own.
type Reason = String;

/// The graph, and who reads what.
struct View<'a> {
    graph: &'a Graph,
    constness: Constness,
    counts: HashMap<ValueId, usize>,
    readers: HashMap<ValueId, Vec<NodeId>>,
}

impl<'a> View<'a> {
    fn of(graph: &'a Graph) -> Result<View<'a>> {
        let mut readers: HashMap<ValueId, Vec<NodeId>> = HashMap::new();
        for (id, node) in graph.nodes() {
            node.for_each_operand(|value| readers.entry(value).or_default().push(id));
        }
        Ok(View { graph, constness: Constness::analyse(graph)?, counts: graph.use_counts(), readers })
    }

    /// The node that gives `value` alone.
    fn maker(&self, value: ValueId) -> Option<&'a Node> {
        let node = self.graph.node(self.graph.defining_node(value)?).ok()?;
        (node.outputs == [value]).then_some(node)
    }

    /// The nodes that read `value`; `None` when it is an output too.
    fn readers(&self, value: ValueId) -> Option<&[NodeId]> {
        let readers = self.readers.get(&value).map_or(&[][..], Vec::as_slice);
        (self.counts.get(&value).copied().unwrap_or(0) == readers.len()).then_some(readers)
    }

    /// The node that alone reads `value`, which is no output.
    fn sole_reader(&self, value: ValueId) -> Option<(NodeId, &'a Node)> {
        match self.readers(value)? {
            &[reader] => Some((reader, self.graph.node(reader).ok()?)),
            _ => None,
        }
    }

    fn tensor(&self, value: ValueId) -> Option<&'a TensorType> {
        self.graph.value(value).ok()?.ty.as_tensor()
    }

    fn sizes(&self, value: ValueId) -> &'a [SymExpr] {
        self.tensor(value).map_or(&[], |ty| ty.sizes.as_slice())
    }

    fn dtype(&self, value: ValueId) -> Option<DType> {
        self.tensor(value).map(|ty| ty.dtype)
    }

    fn name(&self, value: ValueId) -> String {
        self.graph.value_name(value)
    }

    /// What `node` is a mere copy or view of, with other leading dims at most: the last two stay.
    fn looked_through(&self, node: &Node) -> Option<ValueId> {
        let is_view = matches!(
            node.op.base(),
            "alias"
                | "clone"
                | "contiguous"
                | "detach"
                | "expand"
                | "view"
                | "_unsafe_view"
                | "reshape"
                | "lift_fresh"
        );
        let from = node.value_arg("self").filter(|_| is_view)?;
        let (old, new) = (self.tensor(from)?, self.tensor(*node.outputs.first()?)?);
        // An expand that repeats is no copy of what it reads.
        let repeats = node.op.base() == "expand" && old.sizes != new.sizes;
        (!repeats && old.dtype == new.dtype && last_two(&old.sizes)? == last_two(&new.sizes)?).then_some(from)
    }

    /// The number that `node` multiplies by, and what it multiplies.
    fn scaled(&self, node: &Node) -> Option<(ValueId, f64)> {
        let from = node.value_arg("self")?;
        let factor = match (node.op.base(), node.arg("other")?) {
            ("mul", Arg::Float(factor)) => *factor,
            ("mul", Arg::Int(factor)) => *factor as f64,
            ("div", Arg::Float(divisor)) => 1.0 / divisor,
            ("div", Arg::Int(divisor)) => 1.0 / *divisor as f64,
            _ => return None,
        };
        let rounds = node.arg("rounding_mode").is_some_and(|mode| *mode != Arg::None);
        let keeps_type = self.tensor(from)? == self.tensor(*node.outputs.first()?)?;
        (keeps_type && !rounds && factor.is_finite()).then_some((from, factor))
    }
}

fn last_two(sizes: &[SymExpr]) -> Option<&[SymExpr]> {
    sizes.get(sizes.len().checked_sub(2)?..)
}

/// A product of two live tensors: both operands.
fn product(node: &Node) -> Option<[ValueId; 2]> {
    match node.op.as_str() {
        "aten.bmm.default" => Some([node.value_arg("self")?, node.value_arg("mat2")?]),
        "aten.matmul.default" => Some([node.value_arg("self")?, node.value_arg("other")?]),
        _ => None,
    }
}

/// A group before the graph is changed.
struct Attention {
    query: ValueId,
    key: Operand,
    value: ValueId,
    /// Keys and values before their heads are repeated.
    shared: Option<[Shared; 2]>,
    scores: Scores,
    scale: f64,
    dead_is_nan: bool,
    /// The last product.
    product: NodeId,
    /// The view of its result that has the leading dims of the scores, where the result itself has others.
    view: Option<NodeId>,
    /// Sizes of the result.
    ty: TensorType,
    /// Names of the nodes that become one.
    nodes: Vec<String>,
}

impl Attention {
    fn of(view: &View<'_>, weights: Weights, pinned: &HashSet<String>) -> Result<Attention, Reason> {
        let scores = Scores::of(view, &weights)?;
        let sizes = view.sizes(weights.scores);
        let batch = &sizes[..sizes.len().saturating_sub(2)];
        let query = Operand::of(view, scores.product[0], batch)?;
        let key = Operand::of(view, scores.product[1], batch)?.transposed();
        let value = Operand::of(view, weights.values, batch)?;
        if query.is_transposed || value.is_transposed {
            return Err("queries or values are transposed".to_string());
        }
        let nodes: Vec<String> =
            [&scores.nodes[..], &weights.nodes[..]].into_iter().flatten().cloned().collect();
        if let Some(node) = nodes.iter().find(|&node| pinned.contains(node)) {
            return Err(format!("`{node}` is pinned"));
        }
        let Some([_, width]) = last_two(view.sizes(value.value)) else {
            return Err("values have no rows".to_string());
        };
        let query_width = view.sizes(query.value).last();
        let takes = |width: &SymExpr| matches!(width, SymExpr::Const(n) if WIDTHS.contains(n) && n % 4 == 0);
        if query_width != Some(width) || !takes(width) {
            let text = query_width.map_or(String::new(), ToString::to_string);
            return Err(format!(
                "rows have {text} and {width} elements; one dispatch takes as many of both, {} to {} by fours",
                WIDTHS.start(),
                WIDTHS.end()
            ));
        }
        let dtype = view.dtype(query.value);
        let mask = scores.mask.and_then(|mask| view.dtype(mask)).filter(|&dtype| dtype != DType::Bool);
        let known = dtype.filter(|dtype| dtype.is_float() && *dtype != DType::F64);
        let alike =
            [view.dtype(key.value), view.dtype(value.value), view.dtype(weights.scores), mask.or(dtype)];
        let Some(dtype) = known.filter(|_| alike.iter().all(|other| *other == dtype)) else {
            return Err("its operands are not of one float dtype".to_string());
        };
        let ty =
            TensorType { dtype, sizes: [&sizes[..sizes.len() - 1], std::slice::from_ref(width)].concat() };
        let last = weights.last(view, &ty)?;
        let shared = shared_pair(view, [query.value, key.value, value.value], pinned);
        let nodes =
            shared.iter().flatten().flat_map(|shared| &shared.nodes).rev().cloned().chain(nodes).collect();
        Ok(Attention {
            query: query.value,
            scale: query.scale * key.scale * scores.scale,
            key,
            value: value.value,
            shared,
            dead_is_nan: weights.dead_is_nan,
            product: weights.product,
            view: last,
            ty,
            nodes,
            scores,
        })
    }

    fn apply(self, graph: &mut Graph) -> Result<Fusion> {
        let last = self.view.unwrap_or(self.product);
        let name = graph.node(last)?.name.clone();
        let rank = self.ty.sizes.len();
        let mut patch = Patch::new(graph);
        let view = View::of(graph)?;
        let whole = |value: ValueId| (value, view.sizes(value).to_vec());
        let (mut key, value) = match &self.shared {
            Some([key, value]) => (
                key.heads(&view, &mut patch, &format!("{name}_key_heads")),
                value.heads(&view, &mut patch, &format!("{name}_value_heads")),
            ),
            None => (whole(self.key.value), whole(self.value)),
        };
        if self.key.is_transposed {
            key = swapped_by(&mut patch, &format!("{name}_key"), key, 2, self.ty.dtype);
        }
        let mut args = vec![
            ("query", Arg::Value(self.query)),
            ("key", Arg::Value(key.0)),
            ("value", Arg::Value(value.0)),
            ("scale", Arg::Float(self.scale)),
        ];
        args.extend(self.scores.mask.map(|mask| ("attn_mask", Arg::Value(mask))));
        args.extend(self.scores.fill.map(|fill| ("fill", Arg::Float(fill))));
        if self.dead_is_nan {
            args.push(("dead_is_nan", Arg::Bool(true)));
        }
        if self.shared.is_some() {
            args.push(("enable_gqa", Arg::Bool(true)));
        }
        let result = graph.node(last)?.outputs.first().copied();
        let is_whole = match result {
            Some(result) => graph.value(result)?.ty == Type::Tensor(self.ty.clone()),
            None => false,
        };
        const TARGET: &str = "vkdelegate.attention.default";
        if is_whole {
            patch.becomes(TARGET, args);
        } else {
            let whole = patch.node(&format!("{name}_heads"), TARGET, args, Type::Tensor(self.ty));
            let flat = vec![
                ("self", Arg::Value(whole)),
                ("start_dim", Arg::Int(0)),
                ("end_dim", Arg::Int(rank as i64 - 3)),
            ];
            patch.becomes("aten.flatten.using_ints", flat);
        }
        patch.apply(graph, last)?;
        Ok(Fusion { kind: "attention".to_string(), nodes: self.nodes })
    }
}
