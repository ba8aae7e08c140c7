//! Makes a plan: walks the graph once, node by node, with concrete shapes.

use std::collections::{HashMap, HashSet};

use super::{
    InputMeta, Place, Plan, PlannedInput, PlannedOutput, PlannedState, arena, barriers, bind::bind_inputs,
    check::check_outputs, dead,
};
use crate::{
    base::{DType, Error, Result, Scalar, SymEnv, Value},
    ir::{
        Constness, Effect, Fact, Graph, Method, Node, OutputKind, OutputSource, Reason, Type, ValueId,
        effect_of,
    },
    ops::{self, Args, InPlace, Lowering, Meta, Operand, Precision, Resolved, StorageKind, Tensor},
    shader::{DeviceProfile, StorageId},
};

/// What a plan depends on besides the method and the shapes.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// The device's profile.
    pub profile: DeviceProfile,
    /// How `float32` is stored.
    pub precision: Precision,
    /// Names of nodes that keep `float32` whatever the precision.
    pub pinned_f32: HashSet<String>,
}

/// Plans `method` for inputs of those shapes.
///
/// # Errors
/// Inputs that do not fit the method; a node that the device cannot run at these sizes, named.
pub fn build(method: &Method, inputs: &[InputMeta], options: &PlanOptions) -> Result<Plan> {
    let env = bind_inputs(method, inputs)?;
    let graph = &method.graph;
    let constness = Constness::analyse(graph)?;
    let mut planner = Planner {
        graph,
        constness: &constness,
        env: &env,
        options,
        cx: Lowering::new(&options.profile, options.precision),
        values: HashMap::new(),
        remaining: graph.use_counts(),
        states: Vec::new(),
        state_of: HashMap::new(),
        inputs: Vec::new(),
        node_names: Vec::new(),
    };
    planner.add_inputs(inputs)?;
    planner.expect_panels();
    for (_, node) in graph.nodes() {
        planner.add_node(node).map_err(|error| error.at_node(&node.name))?;
    }
    planner.finish()
}

/// Memory that an output may be written to, though something else lies there.
struct InPlaceOutput {
    /// The state that lies there, if it is one.
    state: Option<usize>,
    tensor: Tensor,
}

/// A plan in the making.
struct Planner<'a> {
    graph: &'a Graph,
    constness: &'a Constness,
    env: &'a SymEnv,
    options: &'a PlanOptions,
    cx: Lowering<'a>,
    values: HashMap<ValueId, Resolved<Operand>>,
    /// How many reads of each value are still to come; outputs count.
    remaining: HashMap<ValueId, usize>,
    states: Vec<PlannedState>,
    /// For each mutated buffer's input value: the number of its state.
    state_of: HashMap<ValueId, usize>,
    inputs: Vec<PlannedInput>,
    node_names: Vec<String>,
}

impl<'a> Planner<'a> {
    fn add_inputs(&mut self, given: &[InputMeta]) -> Result<()> {
        let mutated: HashSet<ValueId> = self
            .graph
            .outputs()
            .iter()
            .filter_map(|output| {
                if let OutputKind::BufferMutation(target) = output.kind { Some(target) } else { None }
            })
            .collect();
        let mut user_index = 0;
        for input in self.graph.inputs() {
            let resolved = match input.kind.constant() {
                None => {
                    let meta =
                        given.get(user_index).ok_or_else(|| Error::internal("inputs were not bound"))?;
                    user_index += 1;
                    self.user_input(input.value, user_index - 1, meta)?
                }
                // Without a signature, what the program holds may change: it is state, which nothing here writes.
                Some(constant) if mutated.contains(&input.value) || self.has_no_role(input.value) => {
                    let constant_data = self.graph.constant(constant)?;
                    self.cx.begin_node(0, constant_data.name(), false, None);
                    let tensor = self.state_tensor(
                        constant_data.dtype(),
                        constant_data.sizes(),
                        constant_data.name(),
                    )?;
                    self.state_of.insert(input.value, self.states.len());
                    self.states.push(PlannedState {
                        name: constant_data.name().to_string(),
                        constant,
                        tensor: tensor.clone(),
                        written: false,
                        in_place: false,
                    });
                    Resolved::Tensor(Operand::Live(tensor))
                }
                Some(_) => {
                    Resolved::Tensor(Operand::Constant(self.constness.tensor_ref(self.graph, input.value)?))
                }
            };
            self.values.insert(input.value, resolved);
        }
        Ok(())
    }

    fn has_no_role(&self, input: ValueId) -> bool {
        matches!(self.constness.fact(input), Ok(Fact::Runtime { reason: Reason::NoSignature(_), .. }))
    }

    /// Tells the lowering which constants are weights of a linear, before any node asks for another packing.
    fn expect_panels(&mut self) {
        for (_, node) in self.graph.nodes().filter(|(_, node)| node.op.base() == "linear") {
            let weight = node.value_arg("weight").and_then(|weight| self.values.get(&weight));
            if let Some(Resolved::Tensor(Operand::Constant(constant))) = weight {
                self.cx.expect_panels(constant);
            }
        }
    }

    /// Whether some node quantises `value`, or chooses a scale for it: half the bits would give other codes.
    fn is_quantised(&self, value: ValueId) -> bool {
        self.graph.nodes().any(|(_, node)| {
            let quantises =
                effect_of(node) == Effect::Quantize || node.op.base().starts_with("choose_qparams");
            quantises && node.args.iter().any(|(_, arg)| arg.as_value() == Some(value))
        })
    }

    fn user_input(&mut self, value: ValueId, index: usize, meta: &InputMeta) -> Result<Resolved<Operand>> {
        let name = self.graph.value_name(value);
        self.cx.begin_node(0, &name, self.is_quantised(value), None);
        Ok(match meta {
            InputMeta::Tensor(dtype, sizes) => {
                let tensor =
                    self.cx.alloc(*dtype, sizes).map_err(|error| error.context(format!("input `{name}`")))?;
                // An input that nothing reads needs no memory and no upload.
                if self.remaining.contains_key(&value) {
                    self.inputs.push(PlannedInput { index, tensor: tensor.clone() });
                }
                Resolved::Tensor(Operand::Live(tensor))
            }
            InputMeta::Int(value) => Resolved::Scalar(Scalar::Int(*value)),
            InputMeta::Float(bits) => Resolved::Scalar(Scalar::Float(f64::from_bits(*bits))),
            InputMeta::Bool(value) => Resolved::Scalar(Scalar::Bool(*value)),
            InputMeta::None => Resolved::None,
        })
    }

    fn state_tensor(&mut self, dtype: DType, sizes: &[usize], name: &str) -> Result<Tensor> {
        let element = self.cx.element_of(dtype);
        let len_bytes = self.cx.check_size(sizes, element)?;
        let storage = self.cx.add_storage(StorageKind::State(self.states.len()), len_bytes, name.to_string());
        let strides = crate::base::shape::contiguous_strides(sizes);
        Ok(Tensor { storage, dtype, element, sizes: sizes.to_vec(), strides, offset_elems: 0 })
    }

    fn add_node(&mut self, node: &Node) -> Result<()> {
        if effect_of(node) == Effect::Assert {
            self.forget_operands(node);
            return Ok(());
        }
        let values = &self.values;
        let args = ops::resolve(node, |value| {
            values
                .get(&value)
                .cloned()
                .ok_or_else(|| Error::internal(format!("{value} has not been planned")))
        })?;
        self.forget_operands(node);
        let metas = args.try_map(|operand| Ok(operand.meta()))?;
        if ops::is_scalar_target(node.op.as_str()) {
            let scalar = ops::eval_scalar(&metas)?;
            let output =
                node.outputs.first().copied().ok_or_else(|| Error::invalid_graph("gives nothing"))?;
            self.check_scalar(output, scalar)?;
            self.values.insert(output, Resolved::Scalar(scalar));
            return Ok(());
        }
        let op = ops::find(node.op.as_str())
            .ok_or_else(|| Error::unsupported(format!("{} is not supported", node.op)))?;
        let outs = op.infer(&metas)?;
        check_outputs(self.graph, node, &outs, self.env)?;
        let place =
            outs.first().and_then(|out| self.place_for(node, &args, out, op.in_place(node.op.as_str())));
        let pinned = self.options.pinned_f32.contains(&node.name);
        let id = self.node_names.len() as u32;
        self.node_names.push(node.name.clone());
        self.cx.begin_node(id, &node.name, pinned, place.as_ref().map(|place| place.tensor.clone()));
        let tensors = op.lower(&args, &outs, &mut self.cx)?;
        if let Some(InPlaceOutput { state: Some(state), tensor }) = place
            && tensors.first() == Some(&tensor)
        {
            self.states[state].in_place = true;
        }
        for (&output, tensor) in node.outputs.iter().zip(tensors) {
            self.values.insert(output, Resolved::Tensor(Operand::Live(tensor)));
        }
        Ok(())
    }

    fn check_scalar(&self, output: ValueId, scalar: Scalar) -> Result<()> {
        if let (Type::Int(Some(expr)), Scalar::Int(got)) = (&self.graph.value(output)?.ty, scalar) {
            let expected = expr.eval(self.env)?;
            if expected != got {
                return Err(Error::invalid_graph(format!(
                    "gives {got}, but the program says `{expr}` = {expected}"
                )));
            }
        }
        Ok(())
    }

    fn forget_operands(&mut self, node: &Node) {
        node.for_each_operand(|value| {
            if let Some(count) = self.remaining.get_mut(&value) {
                *count -= 1;
            }
        });
    }

    /// Where the first output of `node` may be written over the memory of an operand: a state whose new value it is, or
    /// an operand that nobody reads afterwards.
    fn place_for(
        &self,
        node: &Node,
        args: &Args<Operand>,
        out: &Meta,
        in_place: InPlace,
    ) -> Option<InPlaceOutput> {
        let state = self.state_written_by(node).and_then(|state| {
            let tensor = self.states.get(state)?.tensor.clone();
            Some(InPlaceOutput { state: Some(state), tensor })
        });
        let mut candidates: Vec<InPlaceOutput> = state.into_iter().collect();
        args.for_each_tensor(|_, operand| {
            if let Operand::Live(tensor) = operand
                && tensor.meta() == *out
                && self.cx.owns_its_storage(tensor)
            {
                candidates.push(InPlaceOutput { state: None, tensor: tensor.clone() });
            }
        });
        candidates.into_iter().find(|candidate| self.is_sound(candidate, args, in_place))
    }

    /// The state whose new value the first output of `node` is, if it is that of one.
    fn state_written_by(&self, node: &Node) -> Option<usize> {
        let output = *node.outputs.first()?;
        let mut targets = self.graph.outputs().iter().filter_map(|out| match (&out.source, out.kind) {
            (OutputSource::Value(value), OutputKind::BufferMutation(target)) if *value == output => {
                Some(target)
            }
            _ => None,
        });
        let target = targets.next()?;
        if targets.next().is_some() {
            return None;
        }
        self.state_of.get(&target).copied()
    }

    /// Whether nobody reads the memory afterwards, and the node itself reads it only in a way that `in_place` allows.
    fn is_sound(&self, candidate: &InPlaceOutput, args: &Args<Operand>, in_place: InPlace) -> bool {
        let InPlaceOutput { state, tensor } = candidate;
        let read_later = self.values.iter().any(|(value, resolved)| {
            matches!(resolved, Resolved::Tensor(Operand::Live(live)) if live.storage == tensor.storage)
                && self.remaining.get(value).is_some_and(|&count| count > 0)
        });
        // A state may be overwritten without being read; memory of a run is taken from an operand that allows it.
        let mut sound = !read_later && (state.is_some() || in_place != InPlace::Never);
        args.for_each_tensor(|name, operand| {
            let Operand::Live(live) = operand else { return };
            if live.storage == tensor.storage {
                sound &= live == tensor
                    && match in_place {
                        InPlace::Never => false,
                        InPlace::Elementwise => true,
                        InPlace::Update(updated) => name == updated,
                    };
            }
        });
        sound
    }

    fn finish(mut self) -> Result<Plan> {
        let outputs = self.collect_outputs()?;
        self.write_states()?;
        let status = self.cx.status_storage();
        let lowered = self.cx.finish();
        let mut plan = Plan {
            method: self.graph.name().to_string(),
            barriers: Vec::new(),
            places: vec![Place::Unused; lowered.storages.len()],
            dispatches: lowered.dispatches,
            storages: lowered.storages,
            arena_bytes: Vec::new(),
            live_bytes: 0,
            prepacks: lowered.prepacks,
            inputs: self.inputs,
            outputs: outputs.user,
            mutated_inputs: outputs.mutated_inputs,
            states: self.states,
            status,
            node_names: self.node_names,
        };
        let read_back: Vec<StorageId> = plan.read_back().map(|tensor| tensor.storage).collect();
        dead::remove(&mut plan.dispatches, &plan.storages, &read_back);
        place_storages(&mut plan, &self.options.profile);
        let alignment_bytes = self.options.profile.storage_offset_alignment_bytes;
        plan.barriers = barriers::barriers(&plan.dispatches, &plan.storages, &plan.places, alignment_bytes);
        Ok(plan)
    }

    fn collect_outputs(&mut self) -> Result<CollectedOutputs> {
        let mut collected = CollectedOutputs::default();
        let user_inputs: Vec<ValueId> = self.graph.user_inputs().collect();
        for (index, output) in self.graph.outputs().iter().enumerate() {
            self.cx.begin_node(0, &format!("output {index}"), false, None);
            match output.kind {
                OutputKind::User => {
                    let planned = self.output(&output.source)?;
                    collected.user.push(planned);
                }
                OutputKind::InputMutation(target) => {
                    let planned = self.output(&output.source)?;
                    let position = user_inputs.iter().position(|&input| input == target);
                    let position =
                        position.ok_or_else(|| Error::invalid_graph("a mutated input is no user input"))?;
                    collected.mutated_inputs.push((position, planned));
                }
                OutputKind::BufferMutation(_) => {}
            }
        }
        Ok(collected)
    }

    fn output(&mut self, source: &OutputSource) -> Result<PlannedOutput> {
        let value = match source {
            OutputSource::None => return Ok(PlannedOutput::Host(Value::None)),
            OutputSource::Scalar(scalar) => return Ok(PlannedOutput::Host((*scalar).into())),
            OutputSource::Value(value) => *value,
        };
        let resolved = self.values.get(&value).cloned();
        Ok(match resolved.ok_or_else(|| Error::internal(format!("output {value} has not been planned")))? {
            Resolved::None => PlannedOutput::Host(Value::None),
            Resolved::Scalar(scalar) => PlannedOutput::Host(scalar.into()),
            Resolved::Tensor(Operand::Constant(constant)) => PlannedOutput::Constant(constant),
            Resolved::Tensor(Operand::Live(tensor)) => {
                // The host reads outputs where they lie, which cannot be memory that other delegates use meanwhile.
                let tensor = if self.is_overwritten(&tensor) || self.cx.is_constant(&tensor) {
                    self.cx.duplicate(&tensor)?
                } else {
                    self.cx.contiguous(&tensor)?
                };
                PlannedOutput::Tensor(tensor)
            }
        })
    }

    /// Whether the copies at the end of the plan overwrite the state that `tensor` lies in.
    fn is_overwritten(&self, tensor: &Tensor) -> bool {
        self.states.iter().any(|state| state.tensor.storage == tensor.storage && !state.in_place)
    }

    /// Copies new values to states that were not written in place. Values that lie in another state which a copy
    /// overwrites are first saved, so that two buffers can swap.
    fn write_states(&mut self) -> Result<()> {
        let mut copies: Vec<(usize, Tensor)> = Vec::new();
        for output in self.graph.outputs() {
            let (OutputSource::Value(value), OutputKind::BufferMutation(target)) =
                (&output.source, output.kind)
            else {
                continue;
            };
            let state = *self
                .state_of
                .get(&target)
                .ok_or_else(|| Error::invalid_graph("a mutated buffer is no buffer"))?;
            self.states[state].written = true;
            if self.states[state].in_place {
                continue;
            }
            let name = self.states[state].name.clone();
            self.cx.begin_node(0, &name, false, None);
            let source = match self.values.get(value).cloned() {
                Some(Resolved::Tensor(operand)) => self.cx.live(&operand)?,
                _ => return Err(Error::invalid_graph(format!("the buffer `{name}` is given no tensor"))),
            };
            if source == self.states[state].tensor {
                continue;
            }
            let saved = if self.is_overwritten(&source) { self.cx.duplicate(&source)? } else { source };
            copies.push((state, saved));
        }
        for (state, source) in copies {
            let target = self.states[state].tensor.clone();
            self.cx.begin_node(0, &self.states[state].name.clone(), false, None);
            self.cx.copy(&source, &target)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct CollectedOutputs {
    user: Vec<PlannedOutput>,
    mutated_inputs: Vec<(usize, PlannedOutput)>,
}

/// Finds when each storage is alive and gives it a place. Inputs live from before the first dispatch, outputs until
/// after the last.
fn place_storages(plan: &mut Plan, profile: &DeviceProfile) {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; plan.storages.len()];
    let mut touch = |storage: StorageId, step: usize| {
        if let Some(life) = lives.get_mut(storage.0 as usize) {
            let (first, last) = life.unwrap_or((step, step));
            *life = Some((first.min(step), last.max(step)));
        }
    };
    for input in &plan.inputs {
        touch(input.tensor.storage, 0);
    }
    // Step 0 is the upload, dispatch i is step i + 1, and the read-back comes last.
    for (index, dispatch) in plan.dispatches.iter().enumerate() {
        dispatch.operands.iter().for_each(|operand| touch(operand.region.storage, index + 1));
    }
    plan.read_back().for_each(|tensor| touch(tensor.storage, plan.dispatches.len() + 1));
    let mut lifetimes = Vec::new();
    for (index, storage) in plan.storages.iter().enumerate() {
        match (&storage.kind, lives[index]) {
            (StorageKind::Arena, Some((first, last))) => {
                lifetimes.push(arena::Lifetime { storage: index, len_bytes: storage.len_bytes, first, last });
            }
            (StorageKind::Arena, None) => {}
            _ => plan.places[index] = Place::Own,
        }
    }
    let alignment_bytes = profile.storage_offset_alignment_bytes.max(16);
    let arena = arena::place(&lifetimes, alignment_bytes, profile.max_buffer_bytes);
    for (lifetime, place) in lifetimes.iter().zip(&arena.places) {
        plan.places[lifetime.storage] = *place;
    }
    plan.live_bytes = arena::live_bytes(&lifetimes);
    plan.arena_bytes = arena.buffer_bytes;
}
