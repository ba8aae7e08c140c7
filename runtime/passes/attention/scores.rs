//! From the operand of a softmax back to the product of queries and keys.

use super::{Reason, View, Weights, product};
use crate::{
    ir::{Arg, Node, ValueId},
    passes::is_unscaled,
};

/// What the scores are made of.
pub struct Scores {
    /// Both operands of the product.
    pub product: [ValueId; 2],
    /// What they are multiplied by.
    pub scale: f64,
    /// What is added to them, or picks those that are replaced by `fill`.
    pub mask: Option<ValueId>,
    /// The score of what the mask picks.
    pub fill: Option<f64>,
    /// Names of the nodes, in order.
    pub nodes: Vec<String>,
}

impl Scores {
    /// The scores that `weights` are of.
    pub fn of(view: &View<'_>, weights: &Weights) -> Result<Scores, Reason> {
        let mut scores =
            Scores { product: [weights.scores; 2], scale: 1.0, mask: None, fill: None, nodes: Vec::new() };
        let mut at = weights.scores;
        loop {
            let is_first = at == weights.scores;
            if !is_first && view.sole_reader(at).is_none() {
                return Err(format!("`{}` is read elsewhere", view.name(at)));
            }
            let Some(node) = view.maker(at) else {
                return Err(format!("its scores are not computed here: `{}`", view.name(at)));
            };
            scores.nodes.insert(0, node.name.clone());
            if let Some(operands) = product(node) {
                scores.product = operands;
                return Ok(scores);
            }
            let same_sizes = view.sizes(at) == view.sizes(weights.scores);
            at = if let Some((from, factor)) = view.scaled(node) {
                scores.scale *= factor;
                from
            } else if let Some((from, mask, fill)) = masked(view, node, same_sizes) {
                if scores.mask.is_some() {
                    return Err("more than one mask".to_string());
                }
                if scores.scale != 1.0 {
                    return Err(format!("`{}` is scaled", view.name(at)));
                }
                (scores.mask, scores.fill) = (Some(mask), fill);
                from
            } else if let Some(from) = view.looked_through(node) {
                scores.nodes.remove(0);
                from
            } else {
                return Err(format!("its scores come from {}", node.op));
            };
        }
    }
}

/// The scores, the mask and what it fills in, where `node` joins them and has all the leading dims.
fn masked(view: &View<'_>, node: &Node, has_leading_dims: bool) -> Option<(ValueId, ValueId, Option<f64>)> {
    let out = *node.outputs.first().filter(|_| has_leading_dims)?;
    let is_scores = |value: ValueId| view.tensor(value) == view.tensor(out) && leads_to_product(view, value);
    match node.op.as_str() {
        "aten.add.Tensor" => {
            let (left, right) = (node.value_arg("self")?, node.value_arg("other")?);
            let (from, mask) = if is_scores(left) { (left, right) } else { (right, left) };
            let fits = is_scores(from) && view.dtype(mask) == view.dtype(out);
            (fits && is_unscaled(node)).then_some((from, mask, None))
        }
        "aten.where.self" | "aten.where.ScalarSelf" => {
            let (mask, from) = (node.value_arg("condition")?, node.value_arg("other")?);
            let fill = number(view, node.arg("self")?)?;
            is_scores(from).then_some((from, mask, Some(fill)))
        }
        "aten.masked_fill.Scalar" | "aten.masked_fill.Tensor" => {
            let (mask, from) = (node.value_arg("mask")?, node.value_arg("self")?);
            let fill = number(view, node.arg("value")?)?;
            is_scores(from).then_some((from, mask, Some(fill)))
        }
        _ => None,
    }
}

/// Whether `value` is a product, or such as one becomes by scaling and views.
fn leads_to_product(view: &View<'_>, mut value: ValueId) -> bool {
    while let Some(node) = view.maker(value) {
        if product(node).is_some() {
            return true;
        }
        match view.scaled(node).map(|(from, _)| from).or_else(|| view.looked_through(node)) {
            Some(from) => value = from,
            // Two joins: the caller finds the second and says so.
            None => {
                return masked_operands(node).into_iter().flatten().any(|from| leads_to_product(view, from));
            }
        }
    }
    false
}

fn masked_operands(node: &Node) -> [Option<ValueId>; 2] {
    match node.op.base() {
        "add" | "where" => [node.value_arg("self"), node.value_arg("other")],
        "masked_fill" => [node.value_arg("self"), None],
        _ => [None; 2],
    }
}

/// The number that `arg` is, as a constant of one element is one.
pub fn number(view: &View<'_>, arg: &Arg) -> Option<f64> {
    match arg {
        Arg::Float(number) => Some(*number),
        Arg::Int(number) => Some(*number as f64),
        Arg::Value(value) => {
            if let Some(node) = view.maker(*value) {
                let name = match node.op.base() {
                    "full" | "full_like" => "fill_value",
                    "scalar_tensor" => "s",
                    "zeros_like" | "zeros" => return Some(0.0),
                    _ => return None,
                };
                return match node.arg(name)? {
                    Arg::Float(number) => Some(*number),
                    Arg::Int(number) => Some(*number as f64),
                    _ => None,
                };
            }
            let constant = view.constness.tensor_ref(view.graph, *value).ok()?;
            let is_one = constant.sizes().iter().all(|&size| size == 1);
            let tensor = is_one.then(|| constant.constant().to_tensor().ok()).flatten()?;
            tensor.to_f64s().first().copied()
        }
        _ => None,
    }
}
