//! Runs a graph on the host, node by node through `eval`: what the device must give.

use std::collections::HashMap;

use vkdelegate::{
    base::{HostTensor, Scalar, Value},
    ir::{Effect, Graph, OutputKind, OutputSource, ValueId, effect_of},
    ops::{self, Meta, Resolved},
};

/// The user outputs of `graph`, and the new values of its mutated buffers by name. `states` holds the values of
/// mutated buffers; every other constant has its own.
pub fn run(
    graph: &Graph,
    inputs: &[Value],
    states: &HashMap<String, HostTensor>,
) -> (Vec<HostTensor>, HashMap<String, HostTensor>) {
    let mut values: HashMap<ValueId, Resolved<HostTensor>> = HashMap::new();
    let mut names: HashMap<ValueId, String> = HashMap::new();
    let mut given = inputs.iter();
    for input in graph.inputs() {
        let value = match input.kind.constant() {
            Some(constant) => {
                let constant = graph.constant(constant).unwrap();
                names.insert(input.value, constant.name().to_string());
                let state = states.get(constant.name()).cloned();
                Resolved::Tensor(state.unwrap_or_else(|| constant.to_tensor().unwrap()))
            }
            None => match given.next().expect("an input is missing") {
                Value::Tensor(tensor) => Resolved::Tensor(tensor.clone()),
                Value::None => Resolved::None,
                Value::Int(value) => Resolved::Scalar(Scalar::Int(*value)),
                Value::Float(value) => Resolved::Scalar(Scalar::Float(*value)),
                Value::Bool(value) => Resolved::Scalar(Scalar::Bool(*value)),
                other => panic!("{other:?} is no input"),
            },
        };
        values.insert(input.value, value);
    }
    for (_, node) in graph.nodes() {
        if effect_of(node) == Effect::Assert {
            continue;
        }
        let args = ops::resolve(node, |value| Ok(values[&value].clone())).unwrap();
        let metas = args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes()))).unwrap();
        if ops::is_scalar_target(node.op.as_str()) {
            values.insert(node.outputs[0], Resolved::Scalar(ops::eval_scalar(&metas).unwrap()));
            continue;
        }
        let op = ops::find(node.op.as_str()).unwrap_or_else(|| panic!("{} is not supported", node.op));
        let outs = op.infer(&metas).unwrap();
        for (&output, tensor) in node.outputs.iter().zip(op.eval(&args, &outs).unwrap()) {
            values.insert(output, Resolved::Tensor(tensor));
        }
    }
    let mut outputs = Vec::new();
    let mut mutated = HashMap::new();
    for output in graph.outputs() {
        let OutputSource::Value(value) = &output.source else { continue };
        let Resolved::Tensor(tensor) = &values[value] else { continue };
        match output.kind {
            OutputKind::User => outputs.push(tensor.clone()),
            OutputKind::BufferMutation(target) => {
                mutated.insert(names[&target].clone(), tensor.clone());
            }
            OutputKind::InputMutation(_) => {}
        }
    }
    (outputs, mutated)
}
