//! Makes a program of one node from an op case.

use std::{collections::BTreeMap, sync::Arc};

use vkdelegate::{
    base::{DType, HostTensor, Scalar, SymExpr, Value, shape},
    ir::{
        Arg, Constant, Graph, InlinePayload, InputKind, IntArg, Method, OpName, OutputKind, OutputSource,
        TensorType, Type, ValueId,
    },
    ops::Meta,
};

use super::cases::{Case, CaseArg, CaseTensor};

/// A one-node method, and the values of its user inputs.
pub struct OneOp {
    pub method: Method,
    pub inputs: Vec<Value>,
}

/// The type of a tensor with fixed sizes.
pub fn tensor_type(dtype: DType, sizes: &[usize]) -> Type {
    Type::Tensor(TensorType { dtype, sizes: sizes.iter().map(|&size| SymExpr::Const(size as i64)).collect() })
}

/// A method around `graph` without symbols.
pub fn static_method(graph: Graph) -> Method {
    Method { graph, ranges: BTreeMap::new(), fixed_inputs: BTreeMap::new(), dialect: String::new() }
}

/// The program of one call; `outs` are the metas of its outputs.
pub fn one_op(case: &Case, outs: &[Meta]) -> OneOp {
    let mut graph = Graph::new(case.name.as_str());
    let mut inputs = Vec::new();
    let args: Vec<(String, Arg)> = case
        .args
        .iter()
        .map(|(name, arg)| (name.clone(), argument(&mut graph, &mut inputs, name, arg)))
        .collect();
    let outputs: Vec<(String, Type)> = outs
        .iter()
        .enumerate()
        .map(|(index, meta)| (format!("out{index}"), tensor_type(meta.dtype, &meta.sizes)))
        .collect();
    let node = graph.add_node("the_node", OpName::new(&case.op), args, outputs).unwrap();
    for value in graph.node(node).unwrap().outputs.clone() {
        graph.add_output(OutputSource::Value(value), OutputKind::User);
    }
    OneOp { method: static_method(graph), inputs }
}

fn argument(graph: &mut Graph, inputs: &mut Vec<Value>, name: &str, arg: &CaseArg) -> Arg {
    match arg {
        CaseArg::None => Arg::None,
        CaseArg::Tensor(tensor) => Arg::Value(operand(graph, inputs, name, tensor)),
        CaseArg::Tensors(tensors) => Arg::Values(
            tensors
                .iter()
                .map(|tensor| tensor.as_ref().map(|tensor| operand(graph, inputs, name, tensor)))
                .collect(),
        ),
        CaseArg::Scalar(Scalar::Int(value)) => Arg::Int(*value),
        CaseArg::Scalar(Scalar::Float(value)) => Arg::Float(*value),
        CaseArg::Scalar(Scalar::Bool(value)) => Arg::Bool(*value),
        CaseArg::Ints(items) => Arg::Ints(items.iter().map(|&item| IntArg::Const(item)).collect()),
        CaseArg::Floats(items) => Arg::Floats(items.clone()),
        CaseArg::Bools(items) => Arg::Bools(items.clone()),
        CaseArg::Str(text) => Arg::Str(text.clone()),
        CaseArg::DType(dtype) => Arg::DType(*dtype),
    }
}

fn operand(graph: &mut Graph, inputs: &mut Vec<Value>, name: &str, operand: &CaseTensor) -> ValueId {
    if operand.constant {
        return graph.add_constant_input(name, constant(name, operand), InputKind::Parameter).unwrap();
    }
    inputs.push(Value::Tensor(operand.tensor.clone()));
    let name = graph.unique_name(name);
    graph
        .add_input(&name, tensor_type(operand.tensor.dtype(), operand.tensor.sizes()), InputKind::User)
        .unwrap()
}

/// The operand as the program stores it: its elements put at its strides.
fn constant(name: &str, operand: &CaseTensor) -> Constant {
    let Some(strides) = &operand.strides else { return Constant::from_tensor(name, operand.tensor.clone()) };
    let (tensor, width) = (&operand.tensor, operand.tensor.dtype().size_bytes());
    let extent = shape::extent_elems(tensor.sizes(), strides).unwrap();
    let mut bytes = vec![0u8; extent * width];
    let mut elements = tensor.bytes().chunks_exact(width);
    shape::for_each_offset(tensor.sizes(), strides, 0, |offset| {
        bytes[offset * width..(offset + 1) * width].copy_from_slice(elements.next().unwrap());
    });
    let payload = InlinePayload::new(HostTensor::new(tensor.dtype(), vec![extent], bytes).unwrap());
    Constant::new(name, tensor.dtype(), tensor.sizes().to_vec(), strides.clone(), 0, Arc::new(payload))
        .unwrap()
}
