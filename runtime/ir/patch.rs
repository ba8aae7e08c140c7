//! A rewrite as a value: nodes to add, and what the rewritten node becomes.
//!
//! A rule builds a patch by looking at the graph, and only [`Patch::apply`] changes anything; so a rule that
//! gives up half-way leaves no trace. The rewritten node keeps its name and its output, so that messages still
//! name what the program's author knows.

use super::{
    arg::{Arg, OpName},
    graph::{Graph, NodeId, Type, ValueId},
};
use crate::base::{Error, Result, TypedId};

struct Addition {
    name: String,
    op: OpName,
    args: Vec<(String, Arg)>,
    ty: Type,
}

/// What replaces one node of a graph.
pub struct Patch {
    /// Values that the graph has: the patch's own come right behind.
    base: usize,
    additions: Vec<Addition>,
    becomes: Option<(OpName, Vec<(String, Arg)>)>,
}

impl Patch {
    /// An empty patch of `graph`, which must not change before the patch is applied.
    pub fn new(graph: &Graph) -> Patch {
        Patch { base: graph.values().len(), additions: Vec::new(), becomes: None }
    }

    /// Adds a node with one output of type `ty` before the rewritten one; gives the value that it will define.
    pub fn node(&mut self, name: &str, op: &str, args: Vec<(&str, Arg)>, ty: Type) -> ValueId {
        self.additions.push(Addition { name: name.to_string(), op: OpName::new(op), args: named(args), ty });
        ValueId::from_index(self.base + self.additions.len() - 1)
    }

    /// Says what the rewritten node becomes; it defines the same value as before.
    pub fn becomes(&mut self, op: &str, args: Vec<(&str, Arg)>) {
        self.becomes = Some((OpName::new(op), named(args)));
    }

    /// Rewrites `node`.
    ///
    /// # Errors
    /// When `node` is not in the graph, or the graph has changed since the patch was begun.
    pub fn apply(self, graph: &mut Graph, node: NodeId) -> Result<()> {
        if graph.values().len() != self.base {
            return Err(Error::internal("a patch was made for another state of the graph"));
        }
        let position = graph
            .position(node)
            .ok_or_else(|| Error::internal(format!("a patch of {node}, which is gone")))?;
        for (index, Addition { name, op, args, ty }) in self.additions.into_iter().enumerate() {
            let name = graph.unique_name(&name);
            graph.insert_node(position + index, &name, op, args, vec![(name.clone(), ty)])?;
        }
        if let Some((op, args)) = self.becomes {
            let node = graph.node_mut(node)?;
            node.op = op;
            node.args = args;
        }
        Ok(())
    }
}

fn named(args: Vec<(&str, Arg)>) -> Vec<(String, Arg)> {
    args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{parse_graph, verify};
    use super::*;

    const TEXT: &str =
        "graph g\ninput %x: float32[2]\n%a: float32[2] = aten.neg.default(self=%x)\noutput %a\n";

    #[test]
    fn the_rewritten_node_keeps_its_name() {
        let mut graph = parse_graph(TEXT).unwrap();
        let (node, x) = (graph.order()[0], graph.value_named("x").unwrap());
        let ty = graph.value(x).unwrap().ty.clone();
        let mut patch = Patch::new(&graph);
        let abs = patch.node("a", "aten.abs.default", vec![("self", Arg::Value(x))], ty);
        patch.becomes("aten.relu.default", vec![("self", Arg::Value(abs))]);
        patch.apply(&mut graph, node).unwrap();
        verify(&graph).unwrap();
        let text = graph.to_string();
        assert!(text.contains("%a_1: float32[2] = aten.abs.default(self=%x)"), "{text}");
        assert!(text.contains("%a: float32[2] = aten.relu.default(self=%a_1)"), "{text}");
    }

    #[test]
    fn a_stale_patch_changes_nothing() {
        let mut graph = parse_graph(TEXT).unwrap();
        let node = graph.order()[0];
        let patch = Patch::new(&graph);
        graph.add_input("y", Type::None, super::super::InputKind::User).unwrap();
        assert!(patch.apply(&mut graph, node).is_err());
    }
}
