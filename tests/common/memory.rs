//! Runs a graph as PyTorch does: views share memory, in-place ops write to it.
//!
//! Slow and plain; the oracle for passes that make programs functional.

use std::collections::HashMap;

use vkdelegate::{
    base::{HostTensor, Result, Value, shape},
    ir::{Effect, Graph, Method, Node, OutputKind, OutputSource, ValueId, effect_of},
    ops::{
        self, Interpreted, Meta, Op as _, Resolved, States,
        view::{Layout, Views, views},
    },
};

/// A tensor: which storage, and where in it.
#[derive(Clone)]
struct Place {
    storage: usize,
    layout: Layout,
}

struct Run<'a> {
    graph: &'a Graph,
    storages: Vec<HostTensor>,
    values: HashMap<ValueId, Resolved<Place>>,
}

/// Runs `method` once; every buffer, and every constant that is written, is state.
pub fn run(method: &Method, inputs: &[Value], states: &mut States) -> Result<Interpreted> {
    let graph = &method.graph;
    let mut run = Run { graph, storages: Vec::new(), values: HashMap::new() };
    let mut given = inputs.iter();
    for input in graph.inputs() {
        let resolved = match input.kind.constant() {
            Some(id) => {
                let constant = graph.constant(id)?;
                let state = states.get(constant.name()).cloned();
                run.store(state.map_or_else(|| constant.to_tensor(), Ok)?)
            }
            None => match given.next().unwrap() {
                Value::Tensor(tensor) => run.store(tensor.clone()),
                Value::Int(value) => Resolved::Scalar(vkdelegate::base::Scalar::Int(*value)),
                Value::Float(value) => Resolved::Scalar(vkdelegate::base::Scalar::Float(*value)),
                Value::Bool(value) => Resolved::Scalar(vkdelegate::base::Scalar::Bool(*value)),
                _ => Resolved::None,
            },
        };
        run.values.insert(input.value, resolved);
    }
    for (_, node) in graph.nodes() {
        run.node(node)?;
    }
    run.finish(inputs, states)
}

impl Run<'_> {
    fn store(&mut self, tensor: HostTensor) -> Resolved<Place> {
        let layout = Layout::contiguous(tensor.sizes());
        self.storages.push(tensor);
        Resolved::Tensor(Place { storage: self.storages.len() - 1, layout })
    }

    fn offsets(place: &Place) -> Vec<usize> {
        let mut offsets = Vec::new();
        let Layout { sizes, strides, offset } = &place.layout;
        shape::for_each_offset(sizes, strides, *offset, |offset| offsets.push(offset));
        offsets
    }

    fn load(&self, place: &Place) -> Result<HostTensor> {
        let storage = &self.storages[place.storage];
        let width = storage.dtype().size_bytes();
        let bytes = Self::offsets(place)
            .into_iter()
            .flat_map(|offset| storage.bytes()[offset * width..(offset + 1) * width].to_vec());
        HostTensor::new(storage.dtype(), place.layout.sizes.clone(), bytes.collect())
    }

    fn write(&mut self, place: &Place, tensor: &HostTensor) -> Result<()> {
        let storage = &self.storages[place.storage];
        let (width, mut bytes) = (storage.dtype().size_bytes(), storage.bytes().to_vec());
        let elements = tensor.cast(storage.dtype())?;
        for (element, offset) in elements.bytes().chunks_exact(width).zip(Self::offsets(place)) {
            bytes[offset * width..(offset + 1) * width].copy_from_slice(element);
        }
        self.storages[place.storage] = HostTensor::new(storage.dtype(), storage.sizes().to_vec(), bytes)?;
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let args = ops::resolve(node, |value| Ok(self.values[&value].clone()))?;
        let metas = args.try_map(|place| {
            Ok(Meta::new(self.storages[place.storage].dtype(), place.layout.sizes.clone()))
        })?;
        if effect_of(node) == Effect::Assert {
            return Ok(());
        }
        if ops::is_scalar_target(node.op.as_str()) {
            let scalar = ops::eval_scalar(&metas)?;
            self.values.insert(node.outputs[0], Resolved::Scalar(scalar));
            return Ok(());
        }
        if node.op.base() == "detach_" {
            let place = args.tensor("self")?.clone();
            self.values.insert(node.outputs[0], Resolved::Tensor(place));
            return Ok(());
        }
        if effect_of(node) == Effect::View && Views.targets().contains(&node.op.as_str()) {
            let place = args.tensor("self")?.clone();
            for (view, &output) in views(&metas, &place.layout)?.into_iter().zip(&node.outputs) {
                let resolved = match view.strides() {
                    Some(strides) => Resolved::Tensor(Place {
                        storage: place.storage,
                        layout: Layout { sizes: view.sizes, strides, offset: view.layout.offset },
                    }),
                    None => {
                        let copied = self.load(&Place { storage: place.storage, layout: view.layout })?;
                        self.store(copied.reshaped(view.sizes)?)
                    }
                };
                self.values.insert(output, resolved);
            }
            return Ok(());
        }
        let writes = effect_of(node) == Effect::Write;
        let target = node.op.as_str();
        let target = if writes { target.replacen("_.", ".", 1) } else { target.to_string() };
        let op = ops::find(&target)
            .ok_or_else(|| vkdelegate::base::Error::unsupported(format!("{target} is not supported")))?;
        let mut functional = node.clone();
        functional.op = vkdelegate::ir::OpName::new(&target);
        let args = ops::resolve(&functional, |value| Ok(self.values[&value].clone()))?;
        let metas = args.try_map(|place| {
            Ok(Meta::new(self.storages[place.storage].dtype(), place.layout.sizes.clone()))
        })?;
        let tensors = args.try_map(|place| self.load(place))?;
        let results = op.eval(&tensors, &op.infer(&metas)?)?;
        if writes {
            let place = args.tensor("self")?.clone();
            self.write(&place, &results[0])?;
            self.values.insert(node.outputs[0], Resolved::Tensor(place));
            return Ok(());
        }
        for (tensor, &output) in results.into_iter().zip(&node.outputs) {
            let resolved = self.store(tensor);
            self.values.insert(output, resolved);
        }
        Ok(())
    }

    fn value(&self, value: ValueId) -> Result<Value> {
        Ok(match &self.values[&value] {
            Resolved::Tensor(place) => self.load(place)?.into(),
            Resolved::Scalar(scalar) => (*scalar).into(),
            Resolved::None => Value::None,
        })
    }

    fn finish(&self, inputs: &[Value], states: &mut States) -> Result<Interpreted> {
        let mut out = Interpreted { user: Vec::new(), mutated_inputs: Vec::new() };
        let user: Vec<ValueId> = self.graph.user_inputs().collect();
        for (index, &input) in user.iter().enumerate() {
            let now = self.value(input)?;
            if inputs.get(index) != Some(&now) {
                out.mutated_inputs.push((index, now));
            }
        }
        for input in self.graph.inputs() {
            if let Some(id) = input.kind.constant()
                && let Value::Tensor(now) = self.value(input.value)?
            {
                states.insert(self.graph.constant(id)?.name().to_string(), now);
            }
        }
        for output in self.graph.outputs() {
            let value = match &output.source {
                OutputSource::Value(value) => self.value(*value)?,
                OutputSource::Scalar(scalar) => (*scalar).into(),
                OutputSource::None => Value::None,
            };
            match output.kind {
                OutputKind::User => out.user.push(value),
                OutputKind::InputMutation(target) => {
                    let index = user.iter().position(|&input| input == target).unwrap();
                    out.mutated_inputs.retain(|(other, _)| *other != index);
                    out.mutated_inputs.push((index, value));
                }
                OutputKind::BufferMutation(target) => {
                    let id = self.graph.input_of(target).unwrap().kind.constant().unwrap();
                    let name = self.graph.constant(id)?.name().to_string();
                    if let Value::Tensor(tensor) = value {
                        states.insert(name, tensor);
                    }
                }
            }
        }
        Ok(out)
    }
}
