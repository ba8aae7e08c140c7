//! A rewrite as a value: what to add, and which values to read from it instead.
//!
//! A rule builds a patch by looking at the graph, and only [`Patch::apply`] changes anything; so a rule that
//! gives up half-way leaves no trace.

use super::{
    arg::{Arg, OpName},
    constant::{Constant, ConstantId},
    graph::{Graph, InputKind, NodeId, Type, ValueId},
};
use crate::base::{Error, Result};

/// A value as a patch sees it: one of the graph, or one that the patch will add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchValue {
    /// A value of the graph.
    Old(ValueId),
    /// The value that addition number `.0` of the patch defines.
    New(usize),
}

impl From<ValueId> for PatchValue {
    fn from(value: ValueId) -> PatchValue {
        PatchValue::Old(value)
    }
}

enum Addition {
    Node { name: String, op: OpName, operands: Vec<(String, PatchValue)>, args: Vec<(String, Arg)>, ty: Type },
    Constant { name: String, constant: Constant, kind: fn(ConstantId) -> InputKind },
}

/// Additions to a graph, and replacements of its values by them.
#[derive(Default)]
pub struct Patch {
    additions: Vec<Addition>,
    replacements: Vec<(ValueId, PatchValue)>,
}

impl Patch {
    /// An empty patch.
    pub fn new() -> Patch {
        Patch::default()
    }

    /// Adds a node with one output of type `ty`. `operands` are its values, `args` everything else.
    pub fn node(
        &mut self,
        name: &str,
        op: &str,
        operands: Vec<(&str, PatchValue)>,
        args: Vec<(&str, Arg)>,
        ty: Type,
    ) -> PatchValue {
        self.additions.push(Addition::Node {
            name: name.to_string(),
            op: OpName::new(op),
            operands: operands.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
            args: args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect(),
            ty,
        });
        PatchValue::New(self.additions.len() - 1)
    }

    /// Adds a derived constant.
    pub fn constant(&mut self, name: &str, constant: Constant) -> PatchValue {
        self.additions.push(Addition::Constant {
            name: name.to_string(),
            constant,
            kind: InputKind::Derived,
        });
        PatchValue::New(self.additions.len() - 1)
    }

    /// Makes all readers of `old` read `new`.
    pub fn replace(&mut self, old: ValueId, new: PatchValue) {
        self.replacements.push((old, new));
    }

    /// Applies the patch: its nodes go right before `before`, in the order they were added.
    ///
    /// # Errors
    /// When `before` is not in the graph, or the patch refers to itself wrongly.
    pub fn apply(self, graph: &mut Graph, before: NodeId) -> Result<()> {
        let mut position = graph
            .position(before)
            .ok_or_else(|| Error::internal(format!("a patch before {before}, which is gone")))?;
        let mut added: Vec<ValueId> = Vec::with_capacity(self.additions.len());
        let resolve = |added: &[ValueId], value: PatchValue| match value {
            PatchValue::Old(value) => Ok(value),
            PatchValue::New(index) => {
                added.get(index).copied().ok_or_else(|| Error::internal("a patch reads what it adds later"))
            }
        };
        for addition in self.additions {
            let value = match addition {
                Addition::Constant { name, constant, kind } => {
                    graph.add_constant_input(&name, constant, kind)?
                }
                Addition::Node { name, op, operands, args, ty } => {
                    let mut all = Vec::with_capacity(operands.len() + args.len());
                    for (name, value) in operands {
                        all.push((name, Arg::Value(resolve(&added, value)?)));
                    }
                    all.extend(args);
                    let name = graph.unique_name(&name);
                    let node = graph.insert_node(position, &name, op, all, vec![(name.clone(), ty)])?;
                    position += 1;
                    graph
                        .node(node)?
                        .outputs
                        .first()
                        .copied()
                        .ok_or_else(|| Error::internal("a node without output"))?
                }
            };
            added.push(value);
        }
        for (old, new) in self.replacements {
            let new = resolve(&added, new)?;
            graph.replace_uses(old, new)?;
        }
        Ok(())
    }
}
