//! One node of a graph as a program of its own, and when its result counts as right.

use std::collections::HashMap;

use super::verify::{Mismatch, compare_tensors};
use crate::{
    base::{DType, Error, HostTensor, Result, Scalar, SymExpr, Value},
    ir::{
        Arg, Constant, Graph, InputKind, IntArg, Method, Node, OutputKind, OutputSource, TensorType, Type,
        ValueId,
    },
    ops::{self, Args, Meta, Op, Precision, Resolved},
};

/// A tensor that a node reads: run-time data, or a constant of the program.
#[derive(Clone)]
pub(super) enum Operand {
    Runtime(HostTensor),
    Constant(Constant),
}

impl Operand {
    pub(super) fn to_tensor(&self) -> Result<HostTensor> {
        match self {
            Operand::Runtime(tensor) => Ok(tensor.clone()),
            Operand::Constant(constant) => constant.to_tensor(),
        }
    }

    pub(super) fn meta(&self) -> Meta {
        match self {
            Operand::Runtime(tensor) => Meta::new(tensor.dtype(), tensor.sizes()),
            Operand::Constant(constant) => Meta::new(constant.dtype(), constant.sizes()),
        }
    }
}

/// A node with the values of its operands.
pub(super) struct Alone {
    operands: HashMap<ValueId, Resolved<Operand>>,
    op: &'static dyn Op,
    args: Args<Operand>,
    outs: Vec<Meta>,
}

impl Alone {
    /// # Errors
    /// An op that is not supported, or does not take such operands; an operand that is missing.
    pub(super) fn new(node: &Node, operands: HashMap<ValueId, Resolved<Operand>>) -> Result<Alone> {
        let args = ops::resolve(node, |value| find(&operands, value))?;
        let metas = args.try_map(|operand| Ok(operand.meta()))?;
        let op = ops::find(node.op.as_str()).ok_or_else(|| Error::unsupported("the op is not supported"))?;
        let outs = op.infer(&metas)?;
        Ok(Alone { operands, op, args, outs })
    }

    /// The results, as the host computes them.
    ///
    /// # Errors
    /// What the op cannot compute.
    pub(super) fn eval(&self) -> Result<Vec<HostTensor>> {
        self.op.eval(&self.args.try_map(Operand::to_tensor)?, &self.outs)
    }

    /// As [`program`], for `node` of `graph`, which this is.
    ///
    /// # Errors
    /// A node that breaks the rules of the IR.
    pub(super) fn program(&self, graph: &Graph, node: &Node) -> Result<(Method, Vec<Value>)> {
        program(graph, node, &self.outs, |value| find(&self.operands, value))
    }
}

fn find(operands: &HashMap<ValueId, Resolved<Operand>>, value: ValueId) -> Result<Resolved<Operand>> {
    operands.get(&value).cloned().ok_or_else(|| Error::internal("an operand has no value"))
}

/// `node` of `graph` alone, with outputs of `outs`, and the values of its inputs. `lookup` gives its operands.
///
/// # Errors
/// What `lookup` fails at; a node that breaks the rules of the IR.
pub(super) fn program(
    graph: &Graph,
    node: &Node,
    outs: &[Meta],
    lookup: impl Fn(ValueId) -> Result<Resolved<Operand>>,
) -> Result<(Method, Vec<Value>)> {
    let mut single = SingleNode {
        source: graph,
        lookup: &lookup,
        graph: Graph::new(&node.name),
        inputs: Vec::new(),
        known: HashMap::new(),
    };
    let args = node
        .args
        .iter()
        .map(|(name, arg)| Ok((name.clone(), single.argument(arg)?)))
        .collect::<Result<Vec<_>>>()?;
    let SingleNode { mut graph, inputs, .. } = single;
    let outputs = outs.iter().enumerate().map(|(index, meta)| {
        let name = graph.unique_name(&format!("{}_out{index}", node.name));
        (name, concrete(meta))
    });
    let outputs: Vec<(String, Type)> = outputs.collect();
    let id = graph.add_node(&node.name, node.op.clone(), args, outputs)?;
    for output in graph.node(id)?.outputs.clone() {
        graph.add_output(OutputSource::Value(output), OutputKind::User);
    }
    let (ranges, fixed_inputs) = (Default::default(), Default::default());
    Ok((Method { graph, ranges, fixed_inputs, dialect: String::new() }, inputs))
}

/// How `got` differs from what the host says. Floats are held to a tolerance relative to the largest value of the
/// tensor: what cancels in a sum is small beside its terms.
pub(super) fn mismatch(precision: Precision, got: &HostTensor, want: &HostTensor) -> Option<Mismatch> {
    let tolerance = match (precision, want.dtype()) {
        (Precision::F32, DType::F32) => 1e-4,
        _ => 1e-2,
    };
    let largest =
        want.to_f64s().into_iter().map(f64::abs).filter(|value| value.is_finite()).fold(1.0, f64::max);
    compare_tensors(got, want, tolerance, tolerance * largest)
}

/// A program of one node in the making.
struct SingleNode<'a> {
    source: &'a Graph,
    lookup: &'a dyn Fn(ValueId) -> Result<Resolved<Operand>>,
    graph: Graph,
    inputs: Vec<Value>,
    known: HashMap<ValueId, ValueId>,
}

impl SingleNode<'_> {
    /// The argument with values of the new graph in place of tensors, and numbers in place of host scalars.
    fn argument(&mut self, arg: &Arg) -> Result<Arg> {
        Ok(match arg {
            Arg::Value(value) => match (self.lookup)(*value)? {
                Resolved::None => Arg::None,
                Resolved::Scalar(Scalar::Int(value)) => Arg::Int(value),
                Resolved::Scalar(Scalar::Float(value)) => Arg::Float(value),
                Resolved::Scalar(Scalar::Bool(value)) => Arg::Bool(value),
                Resolved::Tensor(operand) => Arg::Value(self.operand(*value, operand)?),
            },
            Arg::Values(values) => Arg::Values(
                values
                    .iter()
                    .map(|value| {
                        match value.map(|value| Ok::<_, Error>((value, (self.lookup)(value)?))).transpose()? {
                            Some((value, Resolved::Tensor(operand))) => {
                                self.operand(value, operand).map(Some)
                            }
                            _ => Ok(None),
                        }
                    })
                    .collect::<Result<_>>()?,
            ),
            Arg::Ints(items) => Arg::Ints(
                items
                    .iter()
                    .map(|item| match item {
                        IntArg::Value(value) => match (self.lookup)(*value)? {
                            Resolved::Scalar(scalar) => Ok(IntArg::Const(scalar.as_i64())),
                            _ => Err(Error::invalid_graph("a list of integers holds something else")),
                        },
                        constant => Ok(*constant),
                    })
                    .collect::<Result<_>>()?,
            ),
            other => other.clone(),
        })
    }

    fn operand(&mut self, value: ValueId, operand: Operand) -> Result<ValueId> {
        if let Some(&known) = self.known.get(&value) {
            return Ok(known);
        }
        let name = self.source.value_name(value);
        let new = match operand {
            Operand::Constant(constant) => {
                self.graph.add_constant_input(&name, constant, InputKind::Parameter)?
            }
            Operand::Runtime(tensor) => {
                let ty = concrete(&Meta::new(tensor.dtype(), tensor.sizes()));
                self.inputs.push(Value::Tensor(tensor));
                self.graph.add_input(&name, ty, InputKind::User)?
            }
        };
        self.known.insert(value, new);
        Ok(new)
    }
}

fn concrete(meta: &Meta) -> Type {
    let sizes = meta.sizes.iter().map(|&size| SymExpr::Const(size as i64)).collect();
    Type::Tensor(TensorType { dtype: meta.dtype, sizes })
}
