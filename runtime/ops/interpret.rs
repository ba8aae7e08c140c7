//! Runs a whole method on the host, node by node through [`Op::eval`](super::Op::eval): the oracle of tests, and what
//! a device's results are compared with.

use std::collections::HashMap;

use super::{Meta, Resolved, eval_scalar, find, is_scalar_target, resolve};
use crate::{
    base::{Error, HostTensor, Result, Scalar, Value},
    ir::{Effect, Graph, Method, Node, OutputKind, OutputSource, ValueId, effect_of},
};

/// What the buffers that a method writes back to hold, by their names in the program.
pub type States = HashMap<String, HostTensor>;

/// What a run gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Interpreted {
    /// What the caller gets, in order.
    pub user: Vec<Value>,
    /// What mutated user inputs hold after the run: position among the user inputs, and the value.
    pub mutated_inputs: Vec<(usize, Value)>,
}

/// Runs `method` once. A buffer that `states` does not have starts from its initial value; `states` then holds the
/// buffers after the run.
///
/// # Errors
/// Too few inputs, an op that no family evaluates, or data that an op cannot process, with the node's name.
pub fn interpret(method: &Method, inputs: &[Value], states: &mut States) -> Result<Interpreted> {
    let graph = &method.graph;
    let mut run = Run { graph, values: HashMap::new(), remaining: graph.use_counts() };
    run.add_inputs(inputs, states)?;
    for (_, node) in graph.nodes() {
        run.add_node(node).map_err(|error| error.at_node(&node.name))?;
    }
    run.finish(states)
}

struct Run<'a> {
    graph: &'a Graph,
    values: HashMap<ValueId, Resolved<HostTensor>>,
    /// Reads of each value that are still to come.
    remaining: HashMap<ValueId, usize>,
}

impl Run<'_> {
    fn add_inputs(&mut self, inputs: &[Value], states: &States) -> Result<()> {
        let mut given = inputs.iter();
        for input in self.graph.inputs() {
            let resolved = match input.kind.constant() {
                None => {
                    let value = given.next().ok_or_else(|| {
                        let name = self.graph.value_name(input.value);
                        Error::invalid_input(format!("no value is given for the input `{name}`"))
                    })?;
                    resolved(value)
                }
                Some(_) if !self.remaining.contains_key(&input.value) => continue,
                Some(id) => {
                    let constant = self.graph.constant(id)?;
                    let state = states.get(constant.name()).filter(|_| self.is_state(input.value));
                    Resolved::Tensor(state.cloned().map_or_else(|| constant.to_tensor(), Ok)?)
                }
            };
            self.values.insert(input.value, resolved);
        }
        Ok(())
    }

    fn is_state(&self, input: ValueId) -> bool {
        self.graph.outputs().iter().any(|output| output.kind == OutputKind::BufferMutation(input))
    }

    fn add_node(&mut self, node: &Node) -> Result<()> {
        if effect_of(node) == Effect::Assert {
            return Ok(());
        }
        let args = resolve(node, |value| self.value(value))?;
        node.for_each_operand(|operand| self.forget(operand));
        let metas = args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?;
        if is_scalar_target(node.op.as_str()) {
            let scalar = eval_scalar(&metas)?;
            self.values.extend(node.outputs.iter().map(|&output| (output, Resolved::Scalar(scalar))));
            return Ok(());
        }
        let op = find(node.op.as_str())
            .ok_or_else(|| Error::unsupported(format!("{} is not supported", node.op)))?;
        let outs = op.infer(&metas)?;
        let tensors = op.eval(&args, &outs)?;
        self.values.extend(node.outputs.iter().copied().zip(tensors.into_iter().map(Resolved::Tensor)));
        Ok(())
    }

    fn value(&self, value: ValueId) -> Result<Resolved<HostTensor>> {
        self.values.get(&value).cloned().ok_or_else(|| {
            Error::internal(format!("`{}` has not been computed", self.graph.value_name(value)))
        })
    }

    /// Frees a value after its last reader.
    fn forget(&mut self, value: ValueId) {
        if let Some(count) = self.remaining.get_mut(&value) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.values.remove(&value);
            }
        }
    }

    fn finish(&self, states: &mut States) -> Result<Interpreted> {
        let inputs: Vec<ValueId> = self.graph.user_inputs().collect();
        let mut out = Interpreted { user: Vec::new(), mutated_inputs: Vec::new() };
        for output in self.graph.outputs() {
            let value = match &output.source {
                OutputSource::Value(value) => given(self.value(*value)?),
                OutputSource::Scalar(scalar) => (*scalar).into(),
                OutputSource::None => Value::None,
            };
            match output.kind {
                OutputKind::User => out.user.push(value),
                OutputKind::InputMutation(target) => {
                    let position = inputs.iter().position(|&input| input == target);
                    let position =
                        position.ok_or_else(|| Error::invalid_graph("a mutated input is no user input"))?;
                    out.mutated_inputs.push((position, value));
                }
                OutputKind::BufferMutation(target) => {
                    let id = self.graph.input_of(target).and_then(|input| input.kind.constant());
                    let id = id.ok_or_else(|| Error::invalid_graph("a mutated buffer is no buffer"))?;
                    let Value::Tensor(tensor) = value else {
                        return Err(Error::invalid_graph("a mutated buffer is given no tensor"));
                    };
                    states.insert(self.graph.constant(id)?.name().to_string(), tensor);
                }
            }
        }
        Ok(out)
    }
}

fn resolved(value: &Value) -> Resolved<HostTensor> {
    match value {
        Value::Tensor(tensor) => Resolved::Tensor(tensor.clone()),
        Value::Int(value) => Resolved::Scalar(Scalar::Int(*value)),
        Value::Float(value) => Resolved::Scalar(Scalar::Float(*value)),
        Value::Bool(value) => Resolved::Scalar(Scalar::Bool(*value)),
        Value::None => Resolved::None,
    }
}

fn given(resolved: Resolved<HostTensor>) -> Value {
    match resolved {
        Resolved::Tensor(tensor) => tensor.into(),
        Resolved::Scalar(scalar) => scalar.into(),
        Resolved::None => Value::None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ir::parse_graph;

    fn method(text: &str) -> Method {
        let graph = parse_graph(text).unwrap();
        Method { graph, ranges: BTreeMap::new(), fixed_inputs: BTreeMap::new(), dialect: String::new() }
    }

    #[test]
    fn states_outlast_a_run() {
        let method = method(
            "graph g\ninput %b: float32[2] = buffer \"b\"\ninput %x: float32[2]\n\
             %old: float32[2] = aten.alias.default(self=%b)\n\
             output %x -> %b\noutput %old\noutput 3\noutput none\n",
        );
        let run = |values: &[f32], states: &mut States| {
            let input = HostTensor::from_f32(&[2], values).unwrap();
            interpret(&method, &[input.into()], states).unwrap().user
        };
        let mut states = States::new();
        let first = run(&[1.0, 2.0], &mut states);
        assert_eq!(first[0].as_tensor().unwrap().to_f32s(), [-0.75, 0.125]);
        assert_eq!(first[1..], [Value::Int(3), Value::None]);
        assert_eq!(run(&[3.0, 4.0], &mut states)[0].as_tensor().unwrap().to_f32s(), [1.0, 2.0]);
        assert_eq!(states["b"].to_f32s(), [3.0, 4.0]);
    }

    #[test]
    fn an_unknown_op_is_named() {
        let method =
            method("graph g\ninput %x: float32[2]\n%y: float32[2] = mylib.f.default(self=%x)\noutput %y\n");
        let input = HostTensor::from_f32(&[2], &[0.0; 2]).unwrap();
        let error = interpret(&method, &[input.into()], &mut States::new()).unwrap_err();
        assert!(error.to_string().contains("mylib.f.default"), "{error}");
        assert_eq!(error.node(), Some("y"));
        assert!(interpret(&method, &[], &mut States::new()).is_err());
    }
}
