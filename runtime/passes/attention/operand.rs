//! Queries, keys and values: where they lie before they are scaled, copied and viewed for a product.

use super::{Reason, View};
use crate::{
    base::SymExpr,
    ir::{Arg, IntArg, Node, ValueId},
};

/// An operand of a product, with the leading dims of the scores.
#[derive(Clone, Copy)]
pub struct Operand {
    /// The tensor.
    pub value: ValueId,
    /// What it is multiplied by.
    pub scale: f64,
    /// Whether its last two dims are to be swapped.
    pub is_transposed: bool,
}

impl Operand {
    /// What the product's operand `value` stands for.
    pub fn of(view: &View<'_>, value: ValueId, batch: &[SymExpr]) -> Result<Operand, Reason> {
        let mut operand = Operand { value, scale: 1.0, is_transposed: false };
        let mut found = None;
        loop {
            let sizes = view.sizes(operand.value);
            if sizes.len() == batch.len() + 2 && sizes.starts_with(batch) {
                found = Some(operand);
            } else if found.is_some() {
                break;
            }
            let Some(node) = view.maker(operand.value) else { break };
            if let Some((from, factor)) = view.scaled(node) {
                (operand.value, operand.scale) = (from, operand.scale * factor);
            } else if let Some(from) = swapped(view, node, 2) {
                (operand.value, operand.is_transposed) = (from, !operand.is_transposed);
            } else if let Some(from) = view.looked_through(node) {
                operand.value = from;
            } else {
                break;
            }
        }
        found.ok_or_else(|| format!("`{}` has other leading dims than the scores", view.name(value)))
    }

    /// The operand with its last two dims swapped.
    pub fn transposed(self) -> Operand {
        Operand { is_transposed: !self.is_transposed, ..self }
    }
}

/// What `node` swaps two neighbouring dims of, and nothing else; `from_last` counts from the first of them to the end.
pub fn swapped(view: &View<'_>, node: &Node, from_last: usize) -> Option<ValueId> {
    let from = node.value_arg("self")?;
    let rank = view.sizes(from).len();
    let first = rank.checked_sub(from_last)?;
    let place = |dim: i64| usize::try_from(if dim < 0 { dim + rank as i64 } else { dim }).ok();
    let int = |name: &str| match node.arg(name) {
        Some(Arg::Int(dim)) => place(*dim),
        _ => None,
    };
    let swaps = match (node.op.base(), node.arg("dims")) {
        ("mT", _) => from_last == 2,
        ("transpose", _) => {
            let mut dims = [int("dim0")?, int("dim1")?];
            dims.sort_unstable();
            dims == [first, first + 1]
        }
        ("permute", Some(Arg::Ints(dims))) => {
            let mut wanted: Vec<usize> = (0..rank).collect();
            wanted.swap(first, first + 1);
            let dim = |dim: &IntArg| match dim {
                IntArg::Const(dim) => place(*dim),
                IntArg::Value(_) => None,
            };
            dims.iter().map(dim).eq(wanted.into_iter().map(Some))
        }
        _ => false,
    };
    swaps.then_some(from)
}
