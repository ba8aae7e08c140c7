//! What a node alone reads: constants of the program, and made-up values for the rest that go together.
//!
//! Values that one node gives together, such as codes packed in words and the sums of them, mean something only together:
//! where a node reads several results of another, that one computes them on the host from made-up values. Knows no op.

use std::collections::HashMap;

use crate::{
    api::{
        sample::Numbers,
        single::{Alone, Operand},
    },
    base::{DType, Result, SymEnv, shape},
    ir::{Constness, Graph, Node, NodeId, Type, ValueId},
    ops::Resolved,
    plan,
};

/// The values that `node` reads at the sizes of `env`, the same every time.
///
/// # Errors
/// A node that breaks the rules of the IR, or reads what the host cannot compute.
pub(super) fn of(graph: &Graph, node: &Node, env: &SymEnv) -> Result<HashMap<ValueId, Resolved<Operand>>> {
    Inputs { graph, constness: &Constness::analyse(graph)?, env }.of_node(node)
}

struct Inputs<'a> {
    graph: &'a Graph,
    constness: &'a Constness,
    env: &'a SymEnv,
}

impl Inputs<'_> {
    fn of_node(&self, node: &Node) -> Result<HashMap<ValueId, Resolved<Operand>>> {
        let mut read = Vec::new();
        node.for_each_operand(|value| read.push(value));
        let mut operands = HashMap::new();
        for (seed, &value) in read.iter().enumerate() {
            if operands.contains_key(&value) {
                continue;
            }
            match self.source_of_several(value, &read) {
                Some(source) => operands.extend(self.results_of(source)?),
                None => {
                    operands.insert(value, self.made_up(value, seed as u32 + 1)?);
                }
            }
        }
        Ok(operands)
    }

    /// The node that gives `value` and others of `read`.
    fn source_of_several(&self, value: ValueId, read: &[ValueId]) -> Option<NodeId> {
        let source = self.graph.defining_node(value).filter(|_| !self.constness.is_constant(value))?;
        let others = read.iter().filter(|&&other| other != value);
        others
            .map(|&other| self.graph.defining_node(other))
            .any(|other| other == Some(source))
            .then_some(source)
    }

    fn results_of(&self, source: NodeId) -> Result<Vec<(ValueId, Resolved<Operand>)>> {
        let node = self.graph.node(source)?;
        let results = Alone::new(node, self.of_node(node)?)?.eval()?;
        let operand = |tensor| Resolved::Tensor(Operand::Runtime(tensor));
        Ok(node.outputs.iter().copied().zip(results.into_iter().map(operand)).collect())
    }

    fn made_up(&self, value: ValueId, seed: u32) -> Result<Resolved<Operand>> {
        Ok(match (&self.graph.value(value)?.ty, self.constness.tensor_ref(self.graph, value)) {
            (Type::None, _) => Resolved::None,
            (Type::Tensor(_), Ok(constant)) => {
                Resolved::Tensor(Operand::Constant(constant.constant().clone()))
            }
            (Type::Tensor(ty), Err(_)) => {
                let sizes = plan::concrete_sizes(ty, self.env)?;
                shape::numel(&sizes)?;
                let mut numbers = Numbers(seed);
                let tensor = match ty.dtype {
                    DType::I8 | DType::U8 => numbers.codes(ty.dtype, &sizes)?,
                    dtype => numbers.tensor(dtype, &sizes)?,
                };
                Resolved::Tensor(Operand::Runtime(tensor))
            }
            (ty, _) => Resolved::Scalar(plan::scalar_of_type(ty, self.env)?),
        })
    }
}
