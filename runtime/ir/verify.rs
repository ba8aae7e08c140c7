//! Checks the rules that every pass may rely on and must keep.
//!
//! Values are defined once and before they are read; names of nodes are unique; a mutation names an input
//! of the right kind; a constant's type is that of its input.

use std::collections::HashSet;

use super::graph::{Graph, InputKind, OutputKind, OutputSource, Type, ValueDef, ValueId};
use crate::base::{Error, Result, SymExpr};

/// Checks `graph` against the rules of the IR.
///
/// # Errors
/// [`ErrorKind::InvalidGraph`](crate::base::ErrorKind::InvalidGraph), naming the node and the operand that break a rule.
pub fn verify(graph: &Graph) -> Result<()> {
    let mut defined: HashSet<ValueId> = HashSet::new();
    for input in graph.inputs() {
        if !defined.insert(input.value) {
            return Err(Error::invalid_graph(format!(
                "`{}` is an input twice",
                graph.value_name(input.value)
            )));
        }
        verify_constant(graph, input.value, input.kind)?;
    }
    let mut node_names = HashSet::new();
    for (id, node) in graph.nodes() {
        let at = |error: Error| error.at_node(&node.name);
        if !node_names.insert(node.name.as_str()) {
            return Err(at(Error::invalid_graph("two nodes have this name")));
        }
        for (arg_name, arg) in &node.args {
            let mut undefined = None;
            arg.for_each_value(|value| {
                if !defined.contains(&value) {
                    undefined.get_or_insert(value);
                }
            });
            if let Some(value) = undefined {
                let text = format!("reads `{}`, which nothing before it defines", graph.value_name(value));
                return Err(at(Error::invalid_graph(text).at_operand(arg_name)));
            }
        }
        for (index, &value) in node.outputs.iter().enumerate() {
            if graph.value(value)?.def != (ValueDef::Output { node: id, index }) || !defined.insert(value) {
                return Err(at(Error::invalid_graph(format!(
                    "`{}` has another definition",
                    graph.value_name(value)
                ))));
            }
        }
    }
    verify_outputs(graph, &defined)
}

fn verify_constant(graph: &Graph, value: ValueId, kind: InputKind) -> Result<()> {
    let Some(id) = kind.constant() else { return Ok(()) };
    let constant = graph.constant(id)?;
    let Type::Tensor(tensor) = &graph.value(value)?.ty else {
        return Err(Error::invalid_graph(format!("constant `{}` is no tensor", constant.name())));
    };
    let same_sizes = tensor.sizes.len() == constant.sizes().len()
        && tensor
            .sizes
            .iter()
            .zip(constant.sizes())
            .all(|(expr, &size)| *expr == SymExpr::Const(size as i64));
    if tensor.dtype != constant.dtype() || !same_sizes {
        return Err(Error::invalid_graph(format!(
            "input `{}` is {}, its constant `{}` is {}{:?}",
            graph.value_name(value),
            graph.value(value)?.ty,
            constant.name(),
            constant.dtype(),
            constant.sizes()
        )));
    }
    Ok(())
}

fn verify_outputs(graph: &Graph, defined: &HashSet<ValueId>) -> Result<()> {
    let mut mutated = HashSet::new();
    for output in graph.outputs() {
        if let OutputSource::Value(value) = output.source
            && !defined.contains(&value)
        {
            return Err(Error::invalid_graph(format!(
                "the output `{}` is not defined",
                graph.value_name(value)
            )));
        }
        let (target, wants_user) = match output.kind {
            OutputKind::User => continue,
            OutputKind::BufferMutation(target) => (target, false),
            OutputKind::InputMutation(target) => (target, true),
        };
        let name = graph.value_name(target);
        let kind = graph.input_of(target).map(|input| input.kind);
        let fits = kind.is_some_and(|kind| (kind == InputKind::User) == wants_user);
        if !fits || !mutated.insert(target) {
            return Err(Error::invalid_graph(format!("the mutation of `{name}` does not fit its input")));
        }
        if !matches!(output.source, OutputSource::Value(_)) {
            return Err(Error::invalid_graph(format!("the mutation of `{name}` gives it no value")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Arg, OpName, parse_graph};
    use super::*;

    #[test]
    fn a_value_read_before_its_definition_is_named() {
        let mut graph = parse_graph(
            "graph g\ninput %x: float32[2]\n%a: float32[2] = aten.neg.default(self=%x)\n%b: float32[2] = aten.neg.default(self=%a)\noutput %b",
        )
        .unwrap();
        verify(&graph).unwrap();
        let (first, later) = (graph.order()[0], graph.value_named("b").unwrap());
        graph.node_mut(first).unwrap().args[0].1 = Arg::Value(later);
        let error = verify(&graph).unwrap_err();
        assert_eq!((error.node(), error.operand()), (Some("a"), Some("self")));
    }

    #[test]
    fn a_node_name_is_unique() {
        let mut graph =
            parse_graph("graph g\ninput %x: float32[2]\n%a: float32[2] = aten.neg.default(self=%x)").unwrap();
        graph.add_node("a", OpName::new("aten.neg.default"), vec![], vec![]).unwrap();
        assert!(verify(&graph).is_err());
    }
}
