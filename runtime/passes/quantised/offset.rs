//! Integer products of codes that were made unsigned on the way: `_int_mm(to_uint8(x + 128), W) - 128 * column sums of W`
//! is `_int_mm(x, W)` for int8 codes x.
//!
//! torchao writes this where the exporting CPU multiplies unsigned with signed bytes only. The kernels here choose
//! their own offsets.

use super::weight::{defined_by, dtype_of, first_value, is_codes, is_conversion, number_of};
use crate::{
    base::{DType, Result},
    ir::{Arg, Constness, Graph, Node, NodeId, Patch, ValueId},
    passes::{FoldLimits, dead_code, evaluate::Evaluator, is_unscaled},
};

/// What makes an int8 code unsigned.
const OFFSET: i64 = 128;

/// Rewrites every such difference, and removes what it read.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph, limits: &FoldLimits) -> Result<()> {
    if !graph.nodes().any(|(_, node)| node.op == *"aten._int_mm.default") {
        return Ok(());
    }
    let constness = Constness::analyse(graph)?;
    let mut finder = Finder { graph, constness: &constness, evaluator: Evaluator::new(graph, limits) };
    let found: Vec<(NodeId, [ValueId; 2])> =
        graph.nodes().filter_map(|(id, node)| Some((id, finder.operands(node)?))).collect();
    for (id, [x, weight]) in found {
        let mut patch = Patch::new(graph);
        let args = vec![("self", Arg::Value(x)), ("mat2", Arg::Value(weight))];
        patch.becomes("aten._int_mm.default", args);
        patch.apply(graph, id)?;
    }
    dead_code::run(graph);
    Ok(())
}

struct Finder<'a> {
    graph: &'a Graph,
    constness: &'a Constness,
    evaluator: Evaluator<'a>,
}

impl Finder<'_> {
    /// The signed codes and the weight of the product that the difference `node` is.
    fn operands(&mut self, node: &Node) -> Option<[ValueId; 2]> {
        if node.op != *"aten.sub.Tensor" || !is_unscaled(node) {
            return None;
        }
        let (product, sums) = (node.value_arg("self")?, node.value_arg("other")?);
        let product = defined_by(self.graph, product).filter(|node| node.op == *"aten._int_mm.default")?;
        let (x, weight) = (product.value_arg("self")?, product.value_arg("mat2")?);
        let is_constant = self.constness.is_constant(weight) && self.constness.is_constant(sums);
        let codes = self.signed(x)?;
        (is_constant && is_codes(self.graph, weight) && self.undoes(sums, weight)).then_some([codes, weight])
    }

    /// The int8 codes that `value` holds as uint8, 128 higher.
    fn signed(&self, value: ValueId) -> Option<ValueId> {
        let cast = |value: ValueId, to: DType| {
            let node = defined_by(self.graph, value)?;
            let source = first_value(node)?;
            (is_conversion(node) && dtype_of(self.graph, value) == Some(to)).then_some(source)
        };
        let raised = cast(value, DType::U8)?;
        let sum = defined_by(self.graph, raised)?;
        let is_sum = matches!(sum.op.as_str(), "aten.add.Tensor" | "aten.add.Scalar") && is_unscaled(sum);
        let added = sum.arg("other").and_then(number_of);
        if !is_sum || added != Some(OFFSET as f64) {
            return None;
        }
        let widened = sum.value_arg("self")?;
        let wide = dtype_of(self.graph, widened)?;
        let codes = cast(widened, wide).filter(|_| matches!(wide, DType::I16 | DType::I32 | DType::I64))?;
        (dtype_of(self.graph, codes) == Some(DType::I8)).then_some(codes)
    }

    /// Whether `sums` is 128 times the sum of each column of `weight`.
    fn undoes(&mut self, sums: ValueId, weight: ValueId) -> bool {
        let mut integers = |value| -> Option<(Vec<usize>, Vec<i64>)> {
            let tensor = self.evaluator.evaluate(value, true).ok()?.to_tensor().ok()?;
            Some((tensor.sizes().to_vec(), tensor.to_i64s()))
        };
        let (Some((sizes, sums)), Some((matrix, codes))) = (integers(sums), integers(weight)) else {
            return false;
        };
        let &[k, n] = matrix.as_slice() else { return false };
        let column = |column: usize| (0..k).map(|row| codes[row * n + column]).sum::<i64>();
        matches!(sizes.as_slice(), [1, _] | [_])
            && sums.len() == n
            && sums.iter().enumerate().all(|(index, &sum)| sum == OFFSET * column(index))
    }
}
