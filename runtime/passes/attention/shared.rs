//! Keys and values whose heads serve several heads of the queries: where they lie before they are repeated.

use std::collections::HashSet;

use super::{super::Fusion, View, operand::swapped};
use crate::{
    base::{DType, Result, SymExpr},
    ir::{Arg, Graph, NodeId, Patch, TensorType, Type, ValueId},
};

/// Keys or values with fewer heads than the queries.
pub struct Shared {
    /// The tensor before its heads are repeated.
    pub value: ValueId,
    /// How many heads of the queries each head serves.
    pub group: i64,
    /// Whether its heads and rows are to be swapped.
    pub is_swapped: bool,
    /// Names of the nodes that repeat, the last first.
    pub nodes: Vec<String>,
}

/// What `value`, of sizes `[..., heads, rows, width]`, is made of by repeating each head several times in a row.
pub fn shared(view: &View<'_>, value: ValueId) -> Option<Shared> {
    let rank = view.sizes(value).len();
    let heads = rank.checked_sub(3)?;
    let (value, nodes) = copied(view, value, Vec::new());
    let node = view.maker(value)?;
    match swapped(view, node, 3) {
        Some(from) => {
            let (from, nodes) = copied(view, from, [nodes, vec![node.name.clone()]].concat());
            repeated(view, from, heads + 1, nodes).map(|shared| Shared { is_swapped: true, ..shared })
        }
        None => repeated(view, value, heads, nodes),
    }
}

/// What `value` repeats along `dim`; `nodes` are those behind it.
fn repeated(view: &View<'_>, value: ValueId, dim: usize, mut nodes: Vec<String>) -> Option<Shared> {
    let node = view.maker(value)?;
    nodes.push(node.name.clone());
    let from = node.value_arg("self")?;
    let whole = view.sizes(value);
    if node.op == "aten.repeat_interleave.self_int" {
        let (Some(Arg::Int(group)), Some(Arg::Int(along))) = (node.arg("repeats"), node.arg("dim")) else {
            return None;
        };
        let is_along = *along == dim as i64 || along + whole.len() as i64 == dim as i64;
        let is_shared = is_along && *group > 1 && view.sizes(from).len() == whole.len();
        return is_shared.then_some(Shared { value: from, group: *group, is_swapped: false, nodes });
    }
    // A view joins two dims, of which the second was expanded from 1.
    let is_view = matches!(node.op.base(), "view" | "_unsafe_view" | "reshape" | "flatten");
    let (expanded, mut nodes) = copied(view, from, nodes);
    let split = view.sizes(expanded);
    let [heads, group] = [split.get(dim)?.as_const()?, split.get(dim + 1)?.as_const()?];
    let is_joined = whole[..dim] == split[..dim]
        && whole[dim + 1..] == split[dim + 2..]
        && whole[dim].as_const() == heads.checked_mul(group);
    let expand = view.maker(expanded).filter(|node| node.op == "aten.expand.default")?;
    let column = expand.value_arg("self")?;
    let is_expanded = view.sizes(column).len() == split.len()
        && view
            .sizes(column)
            .iter()
            .zip(split)
            .enumerate()
            .all(|(at, (old, new))| if at == dim + 1 { old.as_const() == Some(1) } else { old == new });
    let unsqueeze = view.maker(column)?;
    let value = unsqueeze.value_arg("self")?;
    let kept: Vec<SymExpr> = [&split[..=dim], &split[dim + 2..]].concat();
    let adds_dim =
        matches!(unsqueeze.op.base(), "unsqueeze" | "view" | "reshape") && view.sizes(value) == kept;
    nodes.extend([expand.name.clone(), unsqueeze.name.clone()]);
    let is_shared = is_view && is_joined && is_expanded && adds_dim && group > 1;
    is_shared.then_some(Shared { value, group, is_swapped: false, nodes })
}

/// What `value` is a mere copy of.
fn copied(view: &View<'_>, mut value: ValueId, mut nodes: Vec<String>) -> (ValueId, Vec<String>) {
    while let Some(node) = view.maker(value)
        && matches!(node.op.base(), "alias" | "clone" | "contiguous" | "detach")
        && let Some(from) = node.value_arg("self")
    {
        nodes.push(node.name.clone());
        value = from;
    }
    (value, nodes)
}

/// Keys and values before their heads are repeated, where both are for all heads of the queries alike.
pub fn shared_pair(
    view: &View<'_>,
    [query, key, value]: [ValueId; 3],
    pinned: &HashSet<String>,
) -> Option<[Shared; 2]> {
    let (key, value) = (shared(view, key)?, shared(view, value)?);
    let heads = |value: ValueId, from_last: usize| {
        let sizes = view.sizes(value);
        sizes.get(sizes.len().checked_sub(from_last)?)?.as_const()
    };
    let of = |shared: &Shared| heads(shared.value, if shared.is_swapped { 2 } else { 3 });
    let fits = view.sizes(query).len() == view.sizes(key.value).len()
        && of(&key)?.checked_mul(key.group) == heads(query, 3)
        && of(&key) == of(&value);
    let is_free = [&key, &value].iter().all(|shared| !shared.nodes.iter().any(|node| pinned.contains(node)));
    (fits && is_free).then_some([key, value])
}

/// A tensor of a patch or a graph, with its sizes.
pub type Sized = (ValueId, Vec<SymExpr>);

impl Shared {
    /// The tensor of sizes `[..., heads, rows, width]`; where that swaps dims, a node of `patch` does.
    pub fn heads(&self, view: &View<'_>, patch: &mut Patch, name: &str) -> Sized {
        let own = (self.value, view.sizes(self.value).to_vec());
        match view.dtype(self.value) {
            Some(dtype) if self.is_swapped => swapped_by(patch, name, own, 3, dtype),
            _ => own,
        }
    }
}

/// `tensor` with two neighbouring dims swapped by a node of `patch`; `from_last` counts from the first of them to the end.
pub fn swapped_by(patch: &mut Patch, name: &str, tensor: Sized, from_last: usize, dtype: DType) -> Sized {
    let (value, mut sizes) = tensor;
    let first = sizes.len() - from_last;
    sizes.swap(first, first + 1);
    let dim = -(from_last as i64);
    let args = vec![("self", Arg::Value(value)), ("dim0", Arg::Int(dim)), ("dim1", Arg::Int(dim + 1))];
    let ty = Type::Tensor(TensorType { dtype, sizes: sizes.clone() });
    (patch.node(name, "aten.transpose.int", args, ty), sizes)
}

/// A whole attention of repeated keys and values becomes one of what is repeated.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub fn group(graph: &mut Graph, whole: NodeId, pinned: &HashSet<String>) -> Result<Option<Fusion>> {
    let view = View::of(graph)?;
    let node = graph.node(whole)?;
    let operand = |name: &str| node.value_arg(name);
    let (Some(query), Some(key), Some(value)) = (operand("query"), operand("key"), operand("value")) else {
        return Ok(None);
    };
    let is_free = !pinned.contains(&node.name) && node.arg("enable_gqa") != Some(&Arg::Bool(true));
    let Some([key, value]) = shared_pair(&view, [query, key, value], pinned).filter(|_| is_free) else {
        return Ok(None);
    };
    let (target, mut args) = (node.op.as_str().to_string(), node.args.clone());
    let mut nodes: Vec<String> =
        [&key, &value].into_iter().flat_map(|shared| shared.nodes.iter().rev().cloned()).collect();
    nodes.push(node.name.clone());
    let mut patch = Patch::new(graph);
    for (name, shared) in [("key", &key), ("value", &value)] {
        let (heads, _) = shared.heads(&view, &mut patch, &format!("{}_{name}_heads", node.name));
        args.iter_mut().filter(|(known, _)| known == name).for_each(|(_, arg)| *arg = Arg::Value(heads));
    }
    args.retain(|(name, _)| name != "enable_gqa");
    args.push(("enable_gqa".to_string(), Arg::Bool(true)));
    patch.becomes(&target, args.iter().map(|(name, arg)| (name.as_str(), arg.clone())).collect());
    patch.apply(graph, whole)?;
    Ok(Some(Fusion { kind: "attention".to_string(), nodes }))
}
