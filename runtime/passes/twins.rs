//! Codes that several layers compute alike from the same activations become one computation.
//!
//! Exporters quantise the input of each layer anew, so queries, keys and values choose the same scale three times. Only
//! what 8-bit codes are computed from is looked at; everything else keeps the nodes that the program has.

use std::collections::{HashMap, HashSet};

use crate::{
    base::{DType, Result},
    ir::{Effect, Graph, NodeId, ValueId, effect_of},
};

/// Runs the pass; what is replaced is left to dead code.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph) -> Result<()> {
    let cone = sources_of_codes(graph)?;
    let changes = |id: NodeId| {
        graph.node(id).map(|node| matches!(effect_of(node), Effect::Write | Effect::Opaque)).unwrap_or(true)
    };
    // Equal calls give equal results where nothing is written between them.
    if cone.is_empty() || graph.order().iter().any(|&id| changes(id)) {
        return Ok(());
    }
    let mut seen: HashMap<String, NodeId> = HashMap::new();
    for id in graph.order().to_vec() {
        let node = graph.node(id)?;
        let computes =
            matches!(effect_of(node), Effect::Pure | Effect::View | Effect::Quantize | Effect::Dequantize);
        if !computes || !cone.contains(&id) {
            continue;
        }
        let outputs = node.outputs.clone();
        match seen.get(&format!("{} {:?}", node.op, node.args)) {
            None => {
                seen.insert(format!("{} {:?}", node.op, node.args), id);
            }
            Some(&twin) => {
                let kept = graph.node(twin)?.outputs.clone();
                let same_types = kept.len() == outputs.len()
                    && kept.iter().zip(&outputs).all(|(&a, &b)| same_type(graph, a, b));
                if same_types {
                    outputs.into_iter().zip(kept).try_for_each(|(old, new)| graph.replace_uses(old, new))?;
                }
            }
        }
    }
    Ok(())
}

fn same_type(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    matches!((graph.value(a), graph.value(b)), (Ok(a), Ok(b)) if a.ty == b.ty)
}

/// The nodes that compute int8 or uint8 tensors, and all that they are computed from.
fn sources_of_codes(graph: &Graph) -> Result<HashSet<NodeId>> {
    let is_codes = |value: &ValueId| {
        let dtype = graph.value(*value).ok().and_then(|data| data.ty.as_tensor()).map(|ty| ty.dtype);
        matches!(dtype, Some(DType::I8 | DType::U8))
    };
    let mut cone = HashSet::new();
    for &id in graph.order().iter().rev() {
        let node = graph.node(id)?;
        if !cone.contains(&id) && !node.outputs.iter().any(is_codes) {
            continue;
        }
        cone.insert(id);
        node.for_each_operand(|operand| cone.extend(graph.defining_node(operand)));
    }
    Ok(cone)
}
