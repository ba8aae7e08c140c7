//! From a softmax on to the product of weights and values.

use super::{Reason, View, product, scores::number};
use crate::{
    base::DType,
    ir::{Arg, Node, NodeId, TensorType, Type, ValueId},
};

/// What becomes of the scores.
pub struct Weights {
    /// The operand of the softmax.
    pub scores: ValueId,
    /// Whether a row of -inf gives NaN.
    pub dead_is_nan: bool,
    /// The product with the values.
    pub product: NodeId,
    /// The values, as the product takes them.
    pub values: ValueId,
    /// Names of the nodes, in order.
    pub nodes: Vec<String>,
}

impl Weights {
    /// The weights that begin with `softmax`; `None` when they go into no product.
    pub fn of(view: &View<'_>, softmax: NodeId) -> Option<Result<Weights, Reason>> {
        let node = view.graph.node(softmax).ok()?;
        let (&[output], scores) = (node.outputs.as_slice(), node.value_arg("self")?) else { return None };
        let mut nodes = vec![node.name.clone()];
        let mut dead_is_nan = node.op.base() != "_safe_softmax";
        let mut value = output;
        let mut fault = None;
        let guard = guard(view, scores, output);
        if let Some((node, guarded)) = guard {
            nodes.push(node.name.clone());
            (value, dead_is_nan) = (guarded, false);
        }
        let (product_id, values) = loop {
            let readers = view.readers.get(&value)?;
            let next = readers.iter().find_map(|&reader| {
                let node = view.graph.node(reader).ok()?;
                let weighs = product(node).filter(|operands| operands[0] == value);
                let goes_on = weighs.is_some() || view.looked_through(node) == Some(value);
                goes_on.then_some((reader, node, weighs))
            });
            let (reader, node, weighs) = next?;
            if view.sole_reader(value).is_none() {
                fault = Some(format!("`{}` is read elsewhere", view.name(value)));
            }
            if let Some([_, values]) = weighs {
                nodes.push(node.name.clone());
                break (reader, values);
            }
            value = *node.outputs.first()?;
        };
        let dim_is_last = match node.arg("dim") {
            Some(Arg::Int(dim)) => *dim == -1 || *dim + 1 == view.sizes(scores).len() as i64,
            _ => false,
        };
        if !dim_is_last {
            fault = Some("its softmax is not along the keys".to_string());
        }
        let keeps_dtype = view.dtype(scores) == view.dtype(output);
        if !keeps_dtype {
            fault = Some("its softmax changes the dtype".to_string());
        }
        if guard.is_none() && view.sole_reader(scores).is_none() {
            fault = Some(format!("`{}` is read elsewhere", view.name(scores)));
        }
        let weights = Weights { scores, dead_is_nan, product: product_id, values, nodes };
        Some(fault.map_or(Ok(weights), Err))
    }

    /// The view of the product's result that has the type `ty`; `None` when the result has it, or is to be viewed so.
    pub fn last(&self, view: &View<'_>, ty: &TensorType) -> Result<Option<NodeId>, Reason> {
        let node = view.graph.node(self.product).map_err(|error| error.to_string())?;
        let Some(&output) = node.outputs.first() else { return Err("its product gives nothing".to_string()) };
        if view.tensor(output) == Some(ty) {
            return Ok(None);
        }
        let has_type = |node: &&Node| {
            view.looked_through(node).is_some()
                && node.outputs.first().and_then(|&value| view.tensor(value)) == Some(ty)
        };
        match view.sole_reader(output).filter(|(_, node)| has_type(node)) {
            Some((reader, _)) => Ok(Some(reader)),
            None if view.sizes(output).len() == 3 && ty.sizes.len() > 3 => Ok(None),
            None => Err(format!("`{}` has other dims than the scores", view.name(output))),
        }
    }
}

/// `where(all scores are -inf, 0, softmax)`, as `_safe_softmax` is decomposed, when nothing else reads scores or softmax.
fn guard<'a>(view: &View<'a>, scores: ValueId, softmax: ValueId) -> Option<(&'a Node, ValueId)> {
    let node_of = |id: &NodeId| view.graph.node(*id).ok();
    let readers = view.readers(softmax)?;
    let choice = readers.iter().filter_map(node_of).find(|node| node.op == "aten.where.self")?;
    let zeros = choice.value_arg("self")?;
    let others_read = readers
        .iter()
        .filter_map(node_of)
        .any(|node| node.name != choice.name && node.outputs.as_slice() != [zeros]);
    let is_zero = number(view, &Arg::Value(zeros)) == Some(0.0);
    if others_read || !is_zero || choice.value_arg("other") != Some(softmax) {
        return None;
    }
    let is_dead = is_dead_row(view, choice.value_arg("condition")?, scores)?;
    let reads_scores = view.readers(scores)?.iter().filter_map(node_of);
    let known = |node: &Node| node.outputs.as_slice() == [softmax] || node.outputs.as_slice() == [is_dead];
    reads_scores.into_iter().all(known).then_some(())?;
    Some((choice, *choice.outputs.first()?))
}

/// `scores == -inf`, when `value` says that all of a row's scores are: `not any(not ...)` or `all(...)`.
fn is_dead_row(view: &View<'_>, value: ValueId, scores: ValueId) -> Option<ValueId> {
    let operand = |value: ValueId, op: &str| {
        let node = view.maker(value).filter(|node| node.op.base() == op)?;
        view.sole_reader(value)?;
        Some((node, node.value_arg("self")?))
    };
    let along_keys = |node: &Node| {
        let last = view.sizes(scores).len() as i64 - 1;
        let dim = matches!(node.arg("dim"), Some(Arg::Int(dim)) if *dim == -1 || *dim == last);
        dim && node.arg("keepdim") == Some(&Arg::Bool(true))
    };
    let is_dead = if let Some((all, is_dead)) = operand(value, "all") {
        Some(is_dead).filter(|_| along_keys(all))?
    } else {
        let (_, any) = operand(value, "logical_not")?;
        let (any, is_alive) = operand(any, "any")?;
        let (_, is_dead) = operand(is_alive, "logical_not").filter(|_| along_keys(any))?;
        is_dead
    };
    let (node, from) = operand(is_dead, "eq")?;
    let is_bool = matches!(view.graph.value(is_dead).map(|data| &data.ty), Ok(Type::Tensor(ty)) if ty.dtype == DType::Bool);
    let is_infinite = node.arg("other").and_then(|other| number(view, other)) == Some(f64::NEG_INFINITY);
    (from == scores && is_infinite && is_bool).then_some(is_dead)
}
