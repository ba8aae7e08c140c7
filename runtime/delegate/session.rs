//! One method made ready on one device: builds, runs, keeps plans and state.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    constants::PackedConstant,
    context::Context,
    convert::{to_device, to_host},
    record::{self, Memory, STATUS_BYTES, TransferLayout},
    state::{self, DeviceState},
};
use crate::{
    base::{Error, ErrorKind, HostTensor, Refusal, Result, SymEnv, Value},
    gpu::{Buffer, BufferDesc, Recording, StagingBuffer, StagingDesc, StagingDirection, Timing},
    ir::{Method, Type},
    ops::{PackKey, Precision},
    plan::{self, InputMeta, Plan, PlanOptions, PlannedOutput, ShapeKey},
};

/// Plans kept, each with its recording.
const KEPT_PLANS: usize = 8;

/// Sizes that unbounded symbols are tried with at build.
const SAMPLE_CAP: i64 = 64;

/// How a delegate is built.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// How `float32` is stored.
    pub precision: Precision,
    /// Names of nodes that keep `float32` whatever the precision.
    pub pinned_f32: HashSet<String>,
    /// Whether each dispatch is timed.
    pub timestamps: bool,
    /// How long a run may take.
    pub timeout: Duration,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            precision: Precision::F32,
            pinned_f32: HashSet::new(),
            timestamps: false,
            timeout: Duration::from_secs(600),
        }
    }
}

/// Device memory of one delegate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Packed constants (each counted once, though other delegates may share it).
    pub constant_bytes: u64,
    /// States.
    pub state_bytes: u64,
    /// The arena in use.
    pub arena_bytes: u64,
    /// Staging for inputs and outputs.
    pub staging_bytes: u64,
}

/// Where the time of the last run went.
#[derive(Clone, Debug, Default)]
pub struct RunTiming {
    /// Time of each dispatch on the device, with its kernel; empty unless timestamps were asked for.
    pub dispatches: Vec<(String, String, f64)>,
}

struct ReadyPlan {
    key: ShapeKey,
    plan: Plan,
    layout: TransferLayout,
    constants: Vec<Arc<PackedConstant>>,
    recording: Option<(u64, Recording)>,
}

/// One method on one device.
pub struct Session {
    context: Arc<Context>,
    method: Method,
    options: BuildOptions,
    plan_options: PlanOptions,
    plans: Vec<ReadyPlan>,
    constants: HashMap<PackKey, Arc<PackedConstant>>,
    states: Vec<DeviceState>,
    memory: Option<RunMemory>,
    /// Grows with every new memory: recordings of an older one are stale.
    generation: u64,
    poisoned: Option<String>,
    timing: RunTiming,
}

struct RunMemory {
    arena: Vec<Buffer>,
    arena_bytes: Vec<u64>,
    status: Buffer,
    upload: StagingBuffer,
    upload_bytes: u64,
    readback: StagingBuffer,
    readback_bytes: u64,
}

/// Values of the user outputs, and of the mutated user inputs with their positions.
pub type RunOutputs = (Vec<Value>, Vec<(usize, Value)>);

impl Session {
    /// Makes `method` ready: refuses what cannot run before anything is allocated, packs constants, creates pipelines.
    ///
    /// # Errors
    /// Every node that cannot run, at once; what the device refuses.
    pub fn build(context: &Arc<Context>, method: Method, options: BuildOptions) -> Result<Session> {
        let plan_options = PlanOptions {
            profile: context.profile().clone(),
            precision: options.precision,
            pinned_f32: options.pinned_f32.clone(),
        };
        let envs = plan::sample_envs(&method, SAMPLE_CAP);
        refuse(&method, &envs)?;
        let plans = sample_plans(&method, &envs, &plan_options)?;
        let mut session = Session {
            context: Arc::clone(context),
            method,
            options,
            plan_options,
            plans: Vec::new(),
            constants: HashMap::new(),
            states: Vec::new(),
            memory: None,
            generation: 0,
            poisoned: None,
            timing: RunTiming::default(),
        };
        for (index, (key, plan)) in plans.into_iter().enumerate() {
            if index == 0 {
                session.create_states(&plan)?;
            }
            for dispatch in &plan.dispatches {
                session.context.pipeline(dispatch)?;
            }
            session.keep_plan(key, plan)?;
        }
        Ok(session)
    }

    fn create_states(&mut self, plan: &Plan) -> Result<()> {
        for planned in &plan.states {
            let initial = self.method.graph.constant(planned.constant)?.clone();
            self.states.push(DeviceState::new(&self.context, planned, initial)?);
        }
        Ok(())
    }

    fn keep_plan(&mut self, key: ShapeKey, plan: Plan) -> Result<()> {
        debug_verify(&plan)?;
        let mut constants = Vec::with_capacity(plan.prepacks.len());
        for prepack in &plan.prepacks {
            let key = prepack.key();
            let constant = match self.constants.get(&key) {
                Some(constant) => Arc::clone(constant),
                None => self.context.packed(prepack)?,
            };
            self.constants.insert(key, Arc::clone(&constant));
            constants.push(constant);
        }
        if self.plans.len() >= KEPT_PLANS {
            self.plans.remove(0);
        }
        let layout = TransferLayout::of(&plan);
        self.plans.push(ReadyPlan { key, plan, layout, constants, recording: None });
        Ok(())
    }

    /// The method that runs, after all passes.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The plan that the last run used; before the first run, the last of those made at build.
    pub fn plan(&self) -> Option<&Plan> {
        self.plans.last().map(|ready| &ready.plan)
    }

    /// Device memory in use.
    pub fn memory_report(&self) -> MemoryReport {
        let memory = self.memory.as_ref();
        MemoryReport {
            constant_bytes: self.constants.values().map(|constant| constant.len_bytes).sum(),
            state_bytes: self.states.iter().map(|state| state.buffer.size_bytes()).sum(),
            arena_bytes: memory.map_or(0, |memory| memory.arena_bytes.iter().sum()),
            staging_bytes: memory.map_or(0, |memory| memory.upload_bytes + memory.readback_bytes),
        }
    }

    /// Where the time of the last run went.
    pub fn timing(&self) -> &RunTiming {
        &self.timing
    }

    /// Runs the method.
    ///
    /// # Errors
    /// Inputs that do not fit; data that a kernel cannot process (then states are poisoned); a lost device.
    pub fn run(&mut self, inputs: &[Value]) -> Result<RunOutputs> {
        if let Some(reason) = &self.poisoned {
            return Err(Error::new(
                ErrorKind::PoisonedState,
                format!(
                    "the state is unknown since a run failed ({reason}); call reset() or set_state() first"
                ),
            ));
        }
        let key: ShapeKey = inputs.iter().map(InputMeta::of).collect();
        self.select_plan(key)?;
        self.ensure_memory()?;
        self.ensure_recording()?;
        self.write_inputs(inputs)?;
        if let Err(error) = self.execute() {
            self.poison(error.to_string());
            return Err(error);
        }
        if let Some(error) = self.status_error()? {
            self.poison(error.to_string());
            return Err(error);
        }
        self.read_outputs()
    }

    /// Puts the plan for `key` last.
    fn select_plan(&mut self, key: ShapeKey) -> Result<()> {
        if let Some(position) = self.plans.iter().position(|ready| ready.key == key) {
            let ready = self.plans.remove(position);
            self.plans.push(ready);
            return Ok(());
        }
        let started = Instant::now();
        let plan = plan::build(&self.method, &key, &self.plan_options)?;
        log::debug!("planned {} dispatches for new shapes in {:?}", plan.dispatches.len(), started.elapsed());
        self.keep_plan(key, plan)
    }

    fn current(&self) -> Result<&ReadyPlan> {
        self.plans.last().ok_or_else(|| Error::internal("no plan"))
    }

    /// Grows the memory until the current plan fits. Buffers are replaced as a whole, which makes recordings stale.
    fn ensure_memory(&mut self) -> Result<()> {
        let ready = self.current()?;
        let want_arena = ready.plan.arena_bytes.clone();
        let (want_upload, want_readback) =
            (ready.layout.upload_bytes.max(16), ready.layout.readback_bytes.max(16));
        let fits = self.memory.as_ref().is_some_and(|memory| {
            want_arena.len() <= memory.arena_bytes.len()
                && want_arena.iter().zip(&memory.arena_bytes).all(|(want, have)| want <= have)
                && want_upload <= memory.upload_bytes
                && want_readback <= memory.readback_bytes
        });
        if fits {
            return Ok(());
        }
        let old = self.memory.take();
        let old_arena = old.as_ref().map_or(Vec::new(), |memory| memory.arena_bytes.clone());
        let mut arena_bytes = want_arena;
        for (index, bytes) in old_arena.into_iter().enumerate() {
            match arena_bytes.get_mut(index) {
                Some(want) => *want = (*want).max(bytes),
                None => arena_bytes.push(bytes),
            }
        }
        let upload_bytes = old.as_ref().map_or(0, |memory| memory.upload_bytes).max(want_upload);
        let readback_bytes = old.as_ref().map_or(0, |memory| memory.readback_bytes).max(want_readback);
        drop(old);
        self.drop_recordings();
        self.memory = Some(RunMemory::new(&self.context, arena_bytes, upload_bytes, readback_bytes)?);
        Ok(())
    }

    fn drop_recordings(&mut self) {
        self.generation += 1;
        self.plans.iter_mut().for_each(|ready| ready.recording = None);
    }

    fn ensure_recording(&mut self) -> Result<()> {
        let generation = self.generation;
        let memory = self.memory.as_ref().ok_or_else(|| Error::internal("no memory"))?;
        let ready = self.plans.last_mut().ok_or_else(|| Error::internal("no plan"))?;
        if ready.recording.as_ref().is_some_and(|(made, _)| *made == generation) {
            return Ok(());
        }
        let states: Vec<Buffer> = self.states.iter().map(|state| state.buffer.clone()).collect();
        let recording = record::record(
            &self.context,
            &ready.plan,
            &ready.layout,
            &Memory {
                arena: &memory.arena,
                constants: &ready.constants,
                states: &states,
                status: &memory.status,
                upload: &memory.upload,
                readback: &memory.readback,
            },
            self.options.timestamps,
        )?;
        ready.recording = Some((generation, recording));
        Ok(())
    }

    fn write_inputs(&mut self, inputs: &[Value]) -> Result<()> {
        let ready = self.plans.last().ok_or_else(|| Error::internal("no plan"))?;
        let memory = self.memory.as_mut().ok_or_else(|| Error::internal("no memory"))?;
        for (planned, &offset) in ready.plan.inputs.iter().zip(&ready.layout.input_offsets) {
            let Some(Value::Tensor(host)) = inputs.get(planned.index) else { continue };
            let len_bytes = planned.tensor.region().len_bytes as usize;
            if len_bytes == 0 {
                continue;
            }
            let written =
                memory.upload.write_with(offset, len_bytes, |out| to_device(host, &planned.tensor, out))?;
            written.map_err(|error| error.context(format!("input {}", planned.index)))?;
        }
        Ok(())
    }

    fn execute(&mut self) -> Result<()> {
        let ready = self.plans.last().ok_or_else(|| Error::internal("no plan"))?;
        let (_, recording) = ready.recording.as_ref().ok_or_else(|| Error::internal("no recording"))?;
        let mut submission = self.context.gpu().submit(recording)?;
        submission.wait(self.options.timeout)?;
        if self.options.timestamps {
            self.timing.dispatches = dispatch_times(&ready.plan, recording.timings()?);
        }
        Ok(())
    }

    /// After a run that failed on the device, nobody knows what its states hold.
    fn poison(&mut self, reason: String) {
        if self.plans.last().is_some_and(|ready| ready.plan.states.iter().any(|state| state.written)) {
            self.poisoned = Some(reason);
        }
    }

    /// What the kernels of the last run reported.
    fn status_error(&self) -> Result<Option<Error>> {
        let ready = self.current()?;
        if ready.plan.status.is_none() {
            return Ok(None);
        }
        let memory = self.memory.as_ref().ok_or_else(|| Error::internal("no memory"))?;
        let words =
            memory.readback.read_with(ready.layout.status_offset, STATUS_BYTES as usize, |bytes| {
                let mut words = [0u32; 4];
                for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
                    *word = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
                }
                words
            })?;
        let [node, kind, low, high] = words;
        if node == 0 {
            return Ok(None);
        }
        let name = ready.plan.node_names.get(node as usize - 1).cloned().unwrap_or_default();
        let value = i64::from(low) | (i64::from(high as i32) << 32);
        let text = match kind {
            1 => format!("the index {value} is out of range"),
            2 => format!(
                "a result does not fit the 32 bits that integers have on the device (low bits {value})"
            ),
            _ => format!("an integer operation on {value} has no result"),
        };
        Ok(Some(Error::new(ErrorKind::BadData, text).at_node(name)))
    }

    fn read_outputs(&self) -> Result<RunOutputs> {
        let ready = self.current()?;
        let memory = self.memory.as_ref().ok_or_else(|| Error::internal("no memory"))?;
        let mut values = Vec::new();
        for (output, &offset) in record::outputs(&ready.plan).zip(&ready.layout.output_offsets) {
            values.push(match output {
                PlannedOutput::Host(value) => value.clone(),
                PlannedOutput::Constant(constant) => Value::Tensor(constant.constant().to_tensor()?),
                PlannedOutput::Tensor(tensor) => {
                    let len_bytes = tensor.region().len_bytes;
                    Value::Tensor(if len_bytes == 0 {
                        to_host(tensor, &[])?
                    } else {
                        memory
                            .readback
                            .read_with(offset, len_bytes as usize, |bytes| to_host(tensor, bytes))??
                    })
                }
            });
        }
        let mutated = values.split_off(ready.plan.outputs.len());
        let positions = ready.plan.mutated_inputs.iter().map(|(position, _)| *position);
        Ok((values, positions.zip(mutated).collect()))
    }

    /// Names of the states.
    pub fn state_names(&self) -> impl Iterator<Item = &str> {
        self.states.iter().map(|state| state.name.as_str())
    }

    /// The value of a state.
    ///
    /// # Errors
    /// No state of that name; a poisoned state.
    pub fn state(&self, name: &str) -> Result<HostTensor> {
        if let Some(reason) = &self.poisoned {
            return Err(Error::new(
                ErrorKind::PoisonedState,
                format!("the state is unknown since a run failed ({reason})"),
            ));
        }
        state::find(&self.states, name)?.read(&self.context)
    }

    /// Sets a state. The only state of a method is sound again afterwards; with several, `reset` is needed.
    ///
    /// # Errors
    /// No state of that name, or another dtype or other sizes.
    pub fn set_state(&mut self, name: &str, value: &HostTensor) -> Result<()> {
        state::find(&self.states, name)?.set(&self.context, value)?;
        if self.states.len() == 1 {
            self.poisoned = None;
        }
        Ok(())
    }

    /// Gives every state its initial value.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn reset(&mut self) -> Result<()> {
        for state in &self.states {
            state.reset(&self.context)?;
        }
        self.poisoned = None;
        Ok(())
    }

    /// Gives back the arena and staging memory, and all recordings. The next run allocates what it needs.
    pub fn trim(&mut self) {
        self.drop_recordings();
        self.memory = None;
    }
}

impl RunMemory {
    fn new(
        context: &Context,
        arena_bytes: Vec<u64>,
        upload_bytes: u64,
        readback_bytes: u64,
    ) -> Result<RunMemory> {
        let gpu = context.gpu();
        let arena = arena_bytes
            .iter()
            .map(|&size_bytes| {
                gpu.create_buffer(&BufferDesc { name: "arena", size_bytes: size_bytes.max(16) })
            })
            .collect::<Result<_, _>>()?;
        let staging =
            |name, size_bytes, direction| gpu.create_staging(&StagingDesc { name, size_bytes, direction });
        Ok(RunMemory {
            arena,
            arena_bytes,
            status: gpu.create_buffer(&BufferDesc { name: "status", size_bytes: STATUS_BYTES })?,
            upload: staging("inputs", upload_bytes, StagingDirection::Upload)?,
            upload_bytes,
            readback: staging("outputs", readback_bytes, StagingDirection::Readback)?,
            readback_bytes,
        })
    }
}

/// Every node that cannot run at one of the sample sizes, each named once.
fn refuse(method: &Method, envs: &[SymEnv]) -> Result<()> {
    let mut refusals: Vec<Refusal> = Vec::new();
    for env in envs {
        for refusal in plan::check(method, env)? {
            if !refusals.iter().any(|known| known.node == refusal.node) {
                refusals.push(refusal);
            }
        }
    }
    if refusals.is_empty() { Ok(()) } else { Err(Error::refused(refusals)) }
}

/// Plans at the corners of the program's ranges. The smallest must work; a larger one that the device's limits
/// refuse is left for the run that asks for it.
fn sample_plans(method: &Method, envs: &[SymEnv], options: &PlanOptions) -> Result<Vec<(ShapeKey, Plan)>> {
    let mut plans = Vec::new();
    for (index, env) in envs.iter().enumerate() {
        let key = sample_inputs(method, env)?;
        match plan::build(method, &key, options) {
            Ok(plan) => plans.push((key, plan)),
            Err(error) if index > 0 => {
                log::debug!("{}: not planned at {env:?}: {error}", method.graph.name())
            }
            Err(error) => return Err(error),
        }
    }
    Ok(plans)
}

fn sample_inputs(method: &Method, env: &SymEnv) -> Result<ShapeKey> {
    let graph = &method.graph;
    graph
        .user_inputs()
        .map(|value| {
            let data = graph.value(value)?;
            if let Some(fixed) = method.fixed_inputs.get(&data.name) {
                return Ok(InputMeta::of(fixed));
            }
            Ok(match &data.ty {
                Type::Tensor(tensor) => {
                    let sizes = tensor.sizes.iter().map(|size| {
                        let size = size.eval(env)?;
                        usize::try_from(size).map_err(|_| {
                            Error::invalid_input(format!("input `{}` has the size {size}", data.name))
                        })
                    });
                    InputMeta::Tensor(tensor.dtype, sizes.collect::<Result<_>>()?)
                }
                Type::Int(expr) => InputMeta::Int(expr.as_ref().map_or(Ok(1), |expr| expr.eval(env))?),
                Type::Float => InputMeta::Float(1.0f64.to_bits()),
                Type::Bool => InputMeta::Bool(true),
                Type::None => InputMeta::None,
            })
        })
        .collect()
}

/// In debug builds every plan is verified; release builds trust the planner.
fn debug_verify(plan: &Plan) -> Result<()> {
    if cfg!(debug_assertions) { plan::verify(plan) } else { Ok(()) }
}

fn dispatch_times(plan: &Plan, timings: Vec<Timing>) -> Vec<(String, String, f64)> {
    // Timings hold copies and fills too; dispatches carry their labels in order.
    let mut timings = timings.into_iter().peekable();
    plan.dispatches
        .iter()
        .filter_map(|dispatch| {
            let timing = timings.by_ref().find(|timing| timing.label == dispatch.label)?;
            let kernel = dispatch.kernel.info().map_or("?", |template| template.name);
            Some((dispatch.label.clone(), kernel.to_string(), timing.gpu_ns))
        })
        .collect()
}
