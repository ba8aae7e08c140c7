//! One method on one device: runs it, and keeps its plans, memory and state.

use std::{collections::HashMap, sync::Arc, time::Instant};

use super::{
    build::BuildOptions,
    constants::PackedConstant,
    context::Context,
    convert::to_device,
    memory::{MemoryReport, RunMemory, RunNeeds},
    record::{self, Memory, TransferLayout},
    results::{self, RunOutputs},
    state::{self, DeviceState},
};
use crate::{
    base::{Error, ErrorKind, HostTensor, Result, Value},
    gpu::{Buffer, RecorderDesc, Recording},
    ir::Method,
    ops::{PackKey, Prepack},
    plan::{self, InputMeta, Plan, PlanOptions, ShapeKey},
};

/// Plans kept, each with its recording.
const KEPT_PLANS: usize = 8;

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
    /// One for each submission; none before the first run.
    recordings: Vec<Recording>,
}

/// One method on one device.
pub struct Session {
    context: Arc<Context>,
    method: Method,
    options: BuildOptions,
    plan_options: PlanOptions,
    /// The one used last is at the end.
    plans: Vec<ReadyPlan>,
    constants: HashMap<PackKey, Arc<PackedConstant>>,
    states: Vec<DeviceState>,
    memory: Option<RunMemory>,
    /// Why nobody knows what the states hold, where that is so.
    poisoned: Option<String>,
    timing: RunTiming,
}

impl Session {
    /// A session without plans.
    pub(super) fn new(
        context: &Arc<Context>,
        method: Method,
        options: BuildOptions,
        plan_options: PlanOptions,
        states: Vec<DeviceState>,
    ) -> Session {
        Session {
            context: Arc::clone(context),
            method,
            options,
            plan_options,
            plans: Vec::new(),
            constants: HashMap::new(),
            states,
            memory: None,
            poisoned: None,
            timing: RunTiming::default(),
        }
    }

    /// Makes the constants of `plan` ready and keeps it as the current one.
    pub(super) fn keep_plan(&mut self, key: ShapeKey, plan: Plan) -> Result<()> {
        // Release builds trust the planner.
        if cfg!(debug_assertions) {
            plan::verify(&plan)?;
        }
        let layout = TransferLayout::of(&plan);
        layout.check(self.plan_options.profile.max_buffer_bytes)?;
        let missing: Vec<_> =
            plan.prepacks.iter().filter(|prepack| !self.constants.contains_key(&prepack.key())).collect();
        self.constants.extend(self.context.packed(&missing, self.options.hooks.constants_per_submission)?);
        let packed = |prepack: &Prepack| self.constants.get(&prepack.key()).map(Arc::clone);
        let constants = plan.prepacks.iter().map(packed).collect::<Option<Vec<_>>>();
        let constants = constants.ok_or_else(|| Error::internal("a constant was not packed"))?;
        if self.plans.len() >= KEPT_PLANS {
            self.plans.remove(0);
        }
        self.plans.push(ReadyPlan { key, plan, layout, constants, recordings: Vec::new() });
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
        let (arena_bytes, staging_bytes) = self.memory.as_ref().map_or((0, 0), RunMemory::bytes);
        MemoryReport {
            constant_bytes: self.constants.values().map(|constant| constant.len_bytes).sum(),
            state_bytes: self.states.iter().map(|state| state.buffer.size_bytes()).sum(),
            arena_bytes,
            live_bytes: self.plans.iter().map(|ready| ready.plan.live_bytes).max().unwrap_or(0),
            staging_bytes,
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
        self.check_usable()?;
        let key: ShapeKey = inputs.iter().map(InputMeta::of).collect();
        self.select_plan(key)?;
        self.ensure_memory()?;
        self.ensure_recording()?;
        self.write_inputs(inputs)?;
        self.execute().inspect_err(|error| self.poison(error))
    }

    /// Runs again on the inputs of the last run, which the device still has, and reads no outputs: what a benchmark of
    /// the device times. States change as in any run.
    ///
    /// # Errors
    /// As [`Session::run`]; when nothing has run yet.
    #[doc(hidden)]
    pub fn repeat(&mut self) -> Result<()> {
        self.check_usable()?;
        let (ready, _) = self.current()?;
        if ready.recordings.is_empty() {
            return Err(Error::internal("nothing has run yet"));
        }
        self.submit(&ready.recordings).inspect_err(|error| self.poison(error))
    }

    /// Fails when the device is lost, or nobody knows what the states hold.
    fn check_usable(&self) -> Result<()> {
        self.context.check_alive()?;
        match &self.poisoned {
            None => Ok(()),
            Some(reason) => Err(Error::new(
                ErrorKind::PoisonedState,
                format!(
                    "the state is unknown since a call failed ({reason}); call reset() or set_state() first"
                ),
            )),
        }
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

    fn current(&self) -> Result<(&ReadyPlan, &RunMemory)> {
        self.plans.last().zip(self.memory.as_ref()).ok_or_else(|| Error::internal("no plan or no memory"))
    }

    /// Grows the memory until the current plan fits. It is replaced as a whole, and recordings of the old one go with it.
    fn ensure_memory(&mut self) -> Result<()> {
        let ready = self.plans.last().ok_or_else(|| Error::internal("no plan"))?;
        let needs = RunNeeds::of(&ready.plan, &ready.layout);
        let needs = match &self.memory {
            Some(memory) if memory.fits(&needs) => return Ok(()),
            Some(memory) => memory.grown(&needs),
            None => needs,
        };
        self.trim();
        self.memory = Some(RunMemory::new(&self.context, needs)?);
        Ok(())
    }

    fn ensure_recording(&mut self) -> Result<()> {
        let (ready, memory) = self.current()?;
        if !ready.recordings.is_empty() {
            return Ok(());
        }
        let states: Vec<Buffer> = self.states.iter().map(|state| state.buffer.clone()).collect();
        let recordings = record::record(
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
            &self.options,
        )?;
        if let Some(ready) = self.plans.last_mut() {
            ready.recordings = recordings;
        }
        Ok(())
    }

    fn write_inputs(&mut self, inputs: &[Value]) -> Result<()> {
        let (ready, memory) =
            self.plans.last().zip(self.memory.as_mut()).ok_or_else(|| Error::internal("no memory"))?;
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

    fn execute(&mut self) -> Result<RunOutputs> {
        let (ready, memory) = self.current()?;
        self.submit(&ready.recordings)?;
        results::check_status(&ready.plan, &ready.layout, &memory.readback)?;
        let outputs = results::read_outputs(&ready.plan, &ready.layout, &memory.readback)?;
        if self.options.timestamps {
            let mut timings = Vec::new();
            for recording in &ready.recordings {
                timings.extend(recording.timings()?);
            }
            self.timing.dispatches = results::dispatch_times(&ready.plan, timings);
        }
        Ok(outputs)
    }

    /// Submits recordings one behind the other, and waits until all are over.
    fn submit(&self, recordings: &[Recording]) -> Result<()> {
        let started = Instant::now();
        let submitted = recordings.iter().map(|recording| self.context.gpu().submit(recording));
        for mut submission in submitted.collect::<Result<Vec<_>, _>>()? {
            submission.wait(self.options.timeout.saturating_sub(started.elapsed()))?;
        }
        Ok(())
    }

    /// After a run that failed on the device, nobody knows what the states that it writes hold.
    fn poison(&mut self, error: &Error) {
        if self.plans.last().is_some_and(|ready| ready.plan.states.iter().any(|state| state.written)) {
            self.poisoned = Some(error.to_string());
        }
    }

    /// Names of the states.
    pub fn state_names(&self) -> impl Iterator<Item = &str> {
        self.states.iter().map(|state| state.name.as_str())
    }

    /// The value of a state.
    ///
    /// # Errors
    /// No state of that name; a poisoned state; a lost device.
    pub fn state(&self, name: &str) -> Result<HostTensor> {
        self.check_usable()?;
        state::find(&self.states, name)?.read(&self.context)
    }

    /// Sets a state. The only state of a method is sound again afterwards; with several, `reset` is needed.
    ///
    /// # Errors
    /// No state of that name, another dtype or other sizes, a lost device: then nothing is changed. What the device
    /// refuses: then the states are poisoned.
    pub fn set_state(&mut self, name: &str, value: &HostTensor) -> Result<()> {
        self.context.check_alive()?;
        let bytes = state::find(&self.states, name)?.bytes_of(value)?;
        let written = state::find(&self.states, name)?.write(&self.context, &bytes);
        if let Err(error) = &written {
            self.poisoned = Some(error.to_string());
        } else if self.states.len() == 1 {
            self.poisoned = None;
        }
        written
    }

    /// Fills the arena with `word`; what runs read of it they write first.
    ///
    /// # Errors
    /// What the device refuses; when nothing has run yet.
    #[doc(hidden)]
    pub fn fill_arena(&mut self, word: u32) -> Result<()> {
        let (_, memory) = self.current()?;
        let gpu = self.context.gpu();
        let mut recorder = gpu.record(&RecorderDesc { name: "fill", timestamps: false })?;
        for buffer in &memory.arena {
            recorder.fill(buffer, 0, buffer.size_bytes() / 4 * 4, word)?;
        }
        Ok(gpu.submit(&recorder.end()?)?.wait(self.options.timeout)?)
    }

    /// The bytes of each buffer of the arena, as the last run left them.
    ///
    /// # Errors
    /// What the device refuses; when nothing has run yet.
    #[doc(hidden)]
    pub fn arena(&self) -> Result<Vec<Vec<u8>>> {
        let (_, memory) = self.current()?;
        let read =
            |buffer: &Buffer| self.context.download(buffer, buffer.size_bytes(), |bytes| Ok(bytes.to_vec()));
        memory.arena.iter().map(read).collect()
    }

    /// Name and bytes of each constant of the current plan as the device holds it, in the order of its prepacks.
    ///
    /// # Errors
    /// A lost device; no room for a copy.
    #[doc(hidden)]
    pub fn packed_constants(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let constants = self.plans.last().map(|ready| ready.constants.as_slice()).unwrap_or_default();
        let read = |constant: &Arc<PackedConstant>| {
            let bytes =
                self.context.download(&constant.buffer, constant.len_bytes, |bytes| Ok(bytes.to_vec()))?;
            Ok((constant.buffer.name().to_string(), bytes))
        };
        constants.iter().map(read).collect()
    }

    /// Gives every state its initial value.
    ///
    /// # Errors
    /// What the device refuses; then the states are poisoned.
    pub fn reset(&mut self) -> Result<()> {
        self.context.check_alive()?;
        let done = self.states.iter().try_for_each(|state| state.reset(&self.context));
        self.poisoned = done.as_ref().err().map(Error::to_string);
        done
    }

    /// Gives back the arena and staging memory, and all recordings. The next run allocates what it needs.
    pub fn trim(&mut self) {
        self.plans.iter_mut().for_each(|ready| ready.recordings.clear());
        self.memory = None;
    }
}
