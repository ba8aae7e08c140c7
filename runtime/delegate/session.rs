//! One method on one device: runs it, and keeps its plans, memory and state.

use std::{collections::HashMap, sync::Arc, time::Instant};

use super::{
    build::BuildOptions,
    constants::PackedConstant,
    context::Context,
    memory::{MemoryReport, RunMemory, RunNeeds, Storages},
    record,
    state::{self, DeviceState},
    transfer::{self, RunOutputs, TransferLayout},
};
use crate::{
    base::{Error, ErrorKind, HostTensor, Result, Value},
    gpu::{Buffer, RecorderDesc, Recording, Timing},
    ir::Method,
    ops::{PackKey, Prepack},
    plan::{self, InputMeta, Plan, PlanOptions, PlannedInput, ShapeKey},
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
    /// Positions of the inputs whose memory a run uses for something else, too.
    overwritten_inputs: Vec<usize>,
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
        let layout = TransferLayout::of(&plan, self.context.gpu().caps().unified_memory);
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
        let overwritten_inputs = plan.overwritten_inputs();
        let recordings = Vec::new();
        self.plans.push(ReadyPlan { key, plan, layout, constants, overwritten_inputs, recordings });
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
        self.ensure_recording()?;
        let (ready, storages) = self.current()?;
        transfer::write_inputs(&storages, &ready.layout, inputs, |_| true)?;
        self.execute().inspect_err(|error| self.poison(error))
    }

    /// Runs again on `inputs`, those of the last run, and reads no outputs: what a benchmark of the device times. Inputs
    /// that the device still has are not written. States change as in any run.
    ///
    /// # Errors
    /// As [`Session::run`]; when nothing has run yet.
    #[doc(hidden)]
    pub fn repeat(&mut self, inputs: &[Value]) -> Result<()> {
        self.check_usable()?;
        let (ready, storages) = self.current()?;
        if ready.recordings.is_empty() {
            return Err(Error::internal("nothing has run yet"));
        }
        if ready.layout.upload.is_none() {
            let is_overwritten = |input: &PlannedInput| ready.overwritten_inputs.contains(&input.index);
            transfer::write_inputs(&storages, &ready.layout, inputs, is_overwritten)?;
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

    /// The plan of the last run, and where its storages lie.
    fn current(&self) -> Result<(&ReadyPlan, Storages<'_>)> {
        let (ready, memory) = self
            .plans
            .last()
            .zip(self.memory.as_ref())
            .ok_or_else(|| Error::internal("no plan or no memory"))?;
        let (constants, states) = (ready.constants.as_slice(), self.states.as_slice());
        Ok((ready, Storages { plan: &ready.plan, memory, constants, states }))
    }

    /// Records the current plan, unless that was done in the memory that there is.
    fn ensure_recording(&mut self) -> Result<()> {
        if self.plans.last().is_some_and(|ready| !ready.recordings.is_empty()) {
            return Ok(());
        }
        self.ensure_memory()?;
        let (ready, storages) = self.current()?;
        let recordings = record::record(&self.context, &storages, &ready.layout, &self.options)?;
        if let Some(ready) = self.plans.last_mut() {
            ready.recordings = recordings;
        }
        Ok(())
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

    fn execute(&mut self) -> Result<RunOutputs> {
        let (ready, storages) = self.current()?;
        self.submit(&ready.recordings)?;
        transfer::check_status(&storages, &ready.layout)?;
        let outputs = transfer::read_outputs(&storages, &ready.layout)?;
        if self.options.timestamps {
            let mut timings = Vec::new();
            for recording in &ready.recordings {
                timings.extend(recording.timings()?);
            }
            self.timing.dispatches = dispatch_times(&ready.plan, timings);
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
        let (_, Storages { memory, .. }) = self.current()?;
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
        let (_, Storages { memory, .. }) = self.current()?;
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

/// The time of each dispatch: its label, its kernel, nanoseconds.
pub fn dispatch_times(plan: &Plan, timings: Vec<Timing>) -> Vec<(String, String, f64)> {
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
