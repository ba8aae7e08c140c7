//! Epilogues: what follows a matrix product element by element becomes part of it, so that one dispatch takes the place
//! of two or three.
//!
//! | program | becomes |
//! |---|---|
//! | `act(product)` | `vkdelegate.linear(..., activation="act")`, and so `mm`, `addmm`, `bmm`, `baddbmm`, `matmul`, convolutions and linears with quantised weights |
//! | `product + residual`, of the same sizes and dtype, `alpha = 1` | `vkdelegate.linear(..., residual=...)` |
//! | `act(product + residual)` | both |
//!
//! `act` is `relu`, `relu6`, `clamp`, `hardtanh`, `gelu` (both forms), `silu`, `sigmoid`, `tanh`, `hardswish`,
//! `hardsigmoid`, `leaky_relu`, or `mul` by a number. Views between that keep the elements in order come after the group
//! instead, and the residual takes the sizes of the product, of which one at most is symbolic. Nothing is fused where others read what comes between, where it
//! is an output, or where a node of the group is pinned. In half precision what comes between is not rounded.

use std::collections::{HashMap, HashSet};

use super::{Fusion, is_unscaled};
use crate::{
    base::{Error, Result},
    ir::{Arg, Effect, Graph, IntArg, Node, NodeId, Patch, Type, ValueId, effect_of},
};

/// Runs the pass.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph, pinned: &HashSet<String>) -> Result<Vec<Fusion>> {
    let changes = |(_, node): (NodeId, &Node)| matches!(effect_of(node), Effect::Write | Effect::Opaque);
    // A product moves behind what stands between it and the end of its group.
    if graph.nodes().any(changes) {
        return Ok(Vec::new());
    }
    let readers = Readers::of(graph);
    let mut groups: Vec<Group> = graph
        .nodes()
        .filter_map(|(id, _)| readers.group(graph, id))
        .filter(|group| group.is_free(pinned))
        .collect();
    // Of two products that are added, the first takes the other as its residual.
    let mut taken = HashSet::new();
    groups.retain(|group| taken.insert(group.last));
    groups.into_iter().map(|group| group.apply(graph)).collect()
}

/// How often each value is read, and one node that does.
pub(super) struct Readers {
    counts: HashMap<ValueId, usize>,
    reader: HashMap<ValueId, NodeId>,
}

/// A group before the graph is changed.
struct Group {
    product: NodeId,
    /// Views between that follow the group instead, in order.
    views: Vec<NodeId>,
    residual: Option<ValueId>,
    activation: Option<(String, Vec<(String, Arg)>)>,
    /// The node that becomes the group, or the view that follows it; the others are left to dead code.
    last: NodeId,
    /// Names of the nodes that become one.
    nodes: Vec<String>,
}

impl Readers {
    /// Those of `graph`.
    pub(super) fn of(graph: &Graph) -> Readers {
        let mut reader = HashMap::new();
        for (id, node) in graph.nodes() {
            node.for_each_operand(|value| {
                reader.insert(value, id);
            });
        }
        Readers { counts: graph.use_counts(), reader }
    }

    /// The node that alone reads `value`, which is no output, and its only result.
    pub(super) fn sole<'a>(&self, graph: &'a Graph, value: ValueId) -> Option<(NodeId, &'a Node, ValueId)> {
        let reader = self.reader.get(&value).filter(|_| self.counts.get(&value) == Some(&1))?;
        let node = graph.node(*reader).ok()?;
        let &[output] = node.outputs.as_slice() else { return None };
        Some((*reader, node, output))
    }

    /// The group that begins with the product `id`.
    fn group(&self, graph: &Graph, id: NodeId) -> Option<Group> {
        let product = graph.node(id).ok()?;
        let is_product = matches!(
            product.op.as_str(),
            "aten.linear.default"
                | "aten.mm.default"
                | "aten.addmm.default"
                | "aten.bmm.default"
                | "aten.baddbmm.default"
                | "aten.matmul.default"
                | "aten.convolution.default"
                | "aten.conv1d.default"
                | "aten.conv1d.padding"
                | "aten.conv2d.default"
                | "aten.conv2d.padding"
                | "aten.conv3d.default"
                | "aten.conv3d.padding"
                | "aten.conv_transpose1d.default"
                | "aten.conv_transpose2d.input"
                | "aten.conv_transpose3d.input"
                | "vkdelegate._weight_int8pack_mm.default"
                | "vkdelegate.linear_a8w4.default"
                | "vkdelegate.linear_a8w8.default"
                | "vkdelegate.linear_q4.default"
                | "vkdelegate.linear_q8.default"
        );
        let result =
            product.outputs.first().copied().filter(|&value| is_product && is_float(graph, value))?;
        let nodes = vec![product.name.clone()];
        let mut group =
            Group { product: id, views: Vec::new(), residual: None, activation: None, last: id, nodes };
        let (mut value, mut views) = (result, Vec::new());
        while let Some((reader, node, output)) =
            self.sole(graph, value).filter(|_| group.activation.is_none())
        {
            if let Some(view) = View::of(node) {
                if view == View::Whole {
                    views.clear();
                }
                views.push(reader);
                value = output;
                continue;
            }
            if !same_type(graph, value, output) {
                break;
            }
            match (residual(graph, node, value), activation(node, value)) {
                (Some(residual), _)
                    if group.residual.is_none() && (views.is_empty() || sizes(graph, result).is_some()) =>
                {
                    group.residual = Some(residual);
                }
                (_, Some(activation)) => group.activation = Some(activation),
                _ => break,
            }
            (group.last, group.views) = (reader, views.clone());
            group.nodes.push(node.name.clone());
            value = output;
        }
        Some(group)
    }
}

impl Group {
    /// Whether there is something to fuse, and nothing of it has to stay on its own.
    fn is_free(&self, pinned: &HashSet<String>) -> bool {
        self.nodes.len() > 1 && !self.nodes.iter().any(|node| pinned.contains(node))
    }

    fn apply(self, graph: &mut Graph) -> Result<Fusion> {
        let Group { product, views, residual, activation, last, nodes } = self;
        let mut patch = Patch::new(graph);
        let (product, name) = (graph.node(product)?, graph.node(last)?.name.clone());
        let (mut kind, mut args) = (product.op.base().to_string(), product.args.clone());
        let target = format!("vkdelegate.{kind}.default");
        let result =
            product.outputs.first().copied().ok_or_else(|| Error::internal("a product of nothing"))?;
        let result_type = graph.value(result)?.ty.clone();
        if let Some(mut residual) = residual {
            if !views.is_empty() {
                let shape =
                    sizes(graph, result).ok_or_else(|| Error::internal("a product of unknown sizes"))?;
                let args = vec![("self", Arg::Value(residual)), ("shape", shape)];
                let (name, ty) = (format!("{name}_rows"), result_type.clone());
                residual = patch.node(&name, "aten.reshape.default", args, ty);
            }
            args.push(("residual".to_string(), Arg::Value(residual)));
            kind += "_add";
        }
        if let Some((function, numbers)) = activation {
            kind = format!("{kind}_{function}");
            args.push(("activation".to_string(), Arg::Str(function)));
            args.extend(numbers);
        }
        let args = args.iter().map(|(name, arg)| (name.as_str(), arg.clone())).collect();
        match views.split_last() {
            None => patch.becomes(&target, args),
            Some((last_view, between)) => {
                let mut value = patch.node(&format!("{name}_product"), &target, args, result_type);
                for &view in between {
                    let view = graph.node(view)?;
                    let ty = view.outputs.first().map(|&output| graph.value(output)).transpose()?;
                    let ty = ty.map_or(Type::None, |value| value.ty.clone());
                    let (name, op) = (format!("{name}_{}", view.name), view.op.as_str());
                    value = patch.node(&name, op, of_value(view, value), ty);
                }
                let view = graph.node(*last_view)?;
                patch.becomes(view.op.as_str(), of_value(view, value));
            }
        }
        patch.apply(graph, last)?;
        Ok(Fusion { kind, nodes })
    }
}

/// A view that keeps the elements in order.
#[derive(PartialEq)]
enum View {
    /// To sizes that do not depend on those before.
    Whole,
    /// To sizes that do.
    Part,
}

impl View {
    fn of(node: &Node) -> Option<View> {
        match node.op.as_str() {
            "aten.view.default" | "aten._unsafe_view.default" | "aten.reshape.default" => Some(View::Whole),
            "aten.flatten.using_ints"
            | "aten.squeeze.default"
            | "aten.squeeze.dim"
            | "aten.squeeze.dims"
            | "aten.unflatten.int"
            | "aten.unsqueeze.default" => Some(View::Part),
            _ => None,
        }
    }
}

/// The arguments of `view`, of `value` in place of its tensor.
fn of_value(view: &Node, value: ValueId) -> Vec<(&str, Arg)> {
    let replaced =
        |(name, arg): &'_ (String, Arg)| if name == "self" { Arg::Value(value) } else { arg.clone() };
    view.args.iter().map(|arg| (arg.0.as_str(), replaced(arg))).collect()
}

/// The sizes of `value` as a reshape takes them: one at most may be symbolic.
fn sizes(graph: &Graph, value: ValueId) -> Option<Arg> {
    let sizes = &graph.value(value).ok()?.ty.as_tensor()?.sizes;
    let known: Vec<i64> = sizes.iter().map(|size| size.as_const().unwrap_or(-1)).collect();
    let is_clear = known.iter().filter(|&&size| size == -1).count() <= 1 && !known.contains(&0);
    is_clear.then(|| Arg::Ints(known.into_iter().map(IntArg::Const).collect()))
}

fn is_float(graph: &Graph, value: ValueId) -> bool {
    matches!(graph.value(value).map(|data| &data.ty), Ok(Type::Tensor(ty)) if ty.dtype.is_float())
}

fn same_type(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    matches!((graph.value(a), graph.value(b)), (Ok(a), Ok(b)) if a.ty == b.ty)
}

/// What `node` adds to `value`, where that has the same sizes and dtype.
fn residual(graph: &Graph, node: &Node, value: ValueId) -> Option<ValueId> {
    if node.op.as_str() != "aten.add.Tensor" || !is_unscaled(node) {
        return None;
    }
    let (left, right) = (node.value_arg("self")?, node.value_arg("other")?);
    let residual = if left == value { right } else { left };
    same_type(graph, residual, value).then_some(residual)
}

/// The function that `node` is of `value`, with its numbers; `None` where no product has it.
fn activation(node: &Node, value: ValueId) -> Option<(String, Vec<(String, Arg)>)> {
    let is_number = |arg: &Arg| matches!(arg, Arg::Int(_) | Arg::Float(_));
    let name = match node.op.as_str() {
        "aten.mul.Tensor" | "aten.mul.Scalar" if node.arg("other").is_some_and(is_number) => "mul",
        "aten.relu.default" => "relu",
        "aten.relu6.default" => "relu6",
        "aten.clamp.default" => "clamp",
        "aten.clamp_min.default" => "clamp_min",
        "aten.clamp_max.default" => "clamp_max",
        "aten.hardtanh.default" => "hardtanh",
        "aten.gelu.default" => "gelu",
        "aten.silu.default" => "silu",
        "aten.sigmoid.default" => "sigmoid",
        "aten.tanh.default" => "tanh",
        "aten.hardswish.default" => "hardswish",
        "aten.hardsigmoid.default" => "hardsigmoid",
        "aten.leaky_relu.default" => "leaky_relu",
        _ => return None,
    };
    let mut numbers = node.args.clone();
    numbers.retain(|(_, arg)| *arg != Arg::Value(value));
    // The right operand of a `matmul` is called `other` too.
    numbers.iter_mut().filter(|(name, _)| name == "other").for_each(|(name, _)| *name = "factor".to_string());
    let known = numbers.iter().all(|(_, arg)| is_number(arg) || matches!(arg, Arg::Str(_) | Arg::None));
    known.then(|| (name.to_string(), numbers))
}
