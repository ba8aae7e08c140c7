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
    one_op_at(case, outs, 0)
}

/// As [`one_op`], with every operand a slice of a larger input, `offset_elems` from its start; what lies around the
/// slice would show in a result.
pub fn one_op_at(case: &Case, outs: &[Meta], offset_elems: usize) -> OneOp {
    let mut program = Program { graph: Graph::new(case.name.as_str()), inputs: Vec::new(), offset_elems };
    let args: Vec<(String, Arg)> =
        case.args.iter().map(|(name, arg)| (name.clone(), program.argument(name, arg))).collect();
    let Program { mut graph, inputs, .. } = program;
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

/// The program in the making.
struct Program {
    graph: Graph,
    inputs: Vec<Value>,
    offset_elems: usize,
}

impl Program {
    fn argument(&mut self, name: &str, arg: &CaseArg) -> Arg {
        match arg {
            CaseArg::None => Arg::None,
            CaseArg::Tensor(tensor) => Arg::Value(self.operand(name, tensor)),
            CaseArg::Tensors(tensors) => Arg::Values(
                tensors
                    .iter()
                    .map(|tensor| tensor.as_ref().map(|tensor| self.operand(name, tensor)))
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

    fn operand(&mut self, name: &str, operand: &CaseTensor) -> ValueId {
        if operand.constant {
            let constant = constant(name, operand);
            return self.graph.add_constant_input(name, constant, InputKind::Parameter).unwrap();
        }
        let name = self.graph.unique_name(name);
        if self.offset_elems > 0 {
            return self.sliced_operand(&name, &operand.tensor);
        }
        self.inputs.push(Value::Tensor(operand.tensor.clone()));
        let ty = tensor_type(operand.tensor.dtype(), operand.tensor.sizes());
        self.graph.add_input(&name, ty, InputKind::User).unwrap()
    }

    /// `view(slice(whole, offset, offset + len))`, which costs nothing on the device.
    fn sliced_operand(&mut self, name: &str, tensor: &HostTensor) -> ValueId {
        let (dtype, len, offset) = (tensor.dtype(), tensor.len_elems(), self.offset_elems);
        let around = HostTensor::from_f64s(dtype, vec![offset], &vec![f64::NAN; offset]).unwrap();
        let bytes = [around.bytes(), tensor.bytes(), around.bytes()].concat();
        let whole = HostTensor::new(dtype, vec![len + 2 * offset], bytes).unwrap();
        let whole_name = format!("{name}_whole");
        let ty = tensor_type(dtype, whole.sizes());
        let input = self.graph.add_input(&whole_name, ty, InputKind::User).unwrap();
        self.inputs.push(Value::Tensor(whole));
        let int = |value: usize| Arg::Int(value as i64);
        let named = |args: [(&str, Arg); 4]| args.map(|(name, arg)| (name.to_string(), arg)).to_vec();
        let slice = [
            ("self", Arg::Value(input)),
            ("dim", int(0)),
            ("start", int(offset)),
            ("end", int(offset + len)),
        ];
        let slice = self.node("aten.slice.Tensor", &format!("{name}_slice"), named(slice), dtype, &[len]);
        let sizes = tensor.sizes().iter().map(|&size| IntArg::Const(size as i64)).collect();
        let view = vec![("self".to_string(), Arg::Value(slice)), ("size".to_string(), Arg::Ints(sizes))];
        self.node("aten.view.default", name, view, dtype, tensor.sizes())
    }

    fn node(
        &mut self,
        op: &str,
        name: &str,
        args: Vec<(String, Arg)>,
        dtype: DType,
        sizes: &[usize],
    ) -> ValueId {
        let outputs = vec![(name.to_string(), tensor_type(dtype, sizes))];
        let node = self.graph.add_node(name, OpName::new(op), args, outputs).unwrap();
        self.graph.node(node).unwrap().outputs[0]
    }
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
