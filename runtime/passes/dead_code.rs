//! Drops nodes that nothing reads and that change nothing, checks, and constants that nothing uses.
//!
//! A dropped constant's payload is never read. User inputs stay: the caller gives them by position.

use std::collections::HashSet;

use crate::ir::{Effect, Graph, InputKind, NodeId, OutputKind, OutputSource, ValueId, effect_of};

/// Runs the pass.
pub(super) fn run(graph: &mut Graph) {
    let mut live: HashSet<ValueId> = HashSet::new();
    for output in graph.outputs() {
        if let OutputSource::Value(value) = output.source {
            live.insert(value);
        }
        if let OutputKind::BufferMutation(target) = output.kind {
            live.insert(target);
        }
    }
    let mut kept: HashSet<NodeId> = HashSet::new();
    for &id in graph.order().iter().rev() {
        let Ok(node) = graph.node(id) else { continue };
        let acts = matches!(effect_of(node), Effect::Write | Effect::Opaque);
        let is_read = node.outputs.iter().any(|output| live.contains(output));
        if acts || is_read {
            kept.insert(id);
            node.for_each_operand(|operand| {
                live.insert(operand);
            });
        }
    }
    graph.retain_nodes(|id| kept.contains(&id));
    graph.retain_inputs(|input| input.kind == InputKind::User || live.contains(&input.value));
}
