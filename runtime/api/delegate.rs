//! The delegate: a method made ready on one device.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    device::Gpu,
    program::{MethodInfo, Program},
    report::{self, DelegateReport, DispatchTime},
    tune::{self, TuneOptions},
};
use crate::{
    base::{Error, HostTensor, Result, Value},
    delegate::{BuildOptions, Session, Tuning},
    ops::Precision,
    shader::Choices,
};

/// A method made ready on one device: its constants lie there, its kernels are compiled, its state lives there.
///
/// It may be moved to another thread and used from one thread at a time. Several delegates of one program share
/// constants, and each has its own state.
pub struct Delegate {
    gpu: Gpu,
    session: Session,
    report: report::BuildFacts,
}

/// What a run gives.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outputs {
    /// The method's outputs, in order.
    pub user: Vec<Value>,
    /// What the user inputs that the program writes to hold after the run: position among the inputs, and value.
    pub mutated_inputs: Vec<(usize, Value)>,
}

impl Outputs {
    /// Output `index`, which has to be a tensor.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) when there is no such output or it is no tensor.
    pub fn tensor(&self, index: usize) -> Result<&HostTensor> {
        let value = self.user.get(index).ok_or_else(|| {
            Error::invalid_input(format!("there is no output {index}, the run gave {}", self.user.len()))
        })?;
        value.as_tensor().ok_or_else(|| {
            Error::invalid_input(format!("output {index} is {}, no tensor", value.kind_name()))
        })
    }
}

/// How a [`Delegate`] is built; see [`Delegate::builder`].
#[derive(Clone, Debug)]
pub struct DelegateBuilder {
    gpu: Gpu,
    method: Option<String>,
    options: BuildOptions,
    tuning_budget: Duration,
}

impl DelegateBuilder {
    /// The method; not needed when the program has only one.
    #[must_use]
    pub fn method(mut self, name: impl Into<String>) -> Self {
        self.method = Some(name.into());
        self
    }

    /// How `float32` is stored; [`Precision::F32`] unless set. Sums are always 32 bits wide.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// Keeps the node of that name in `float32` whatever the precision.
    #[must_use]
    pub fn pin(mut self, node: impl Into<String>) -> Self {
        self.options.pinned_f32.insert(node.into());
        self
    }

    /// Times every dispatch on the device; see [`Delegate::dispatch_times`]. Costs a little speed.
    #[must_use]
    pub fn timestamps(mut self, on: bool) -> Self {
        self.options.timestamps = on;
        self
    }

    /// How long a run may take before it is given up with [`ErrorKind::Timeout`](crate::ErrorKind::Timeout); 10
    /// minutes unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// How much work goes into one submission, in estimated operations, so that the system does not take the device for
    /// hung; unless set, what takes devices of its class about 100 ms. Larger products are split.
    #[must_use]
    pub fn submission_ops(mut self, ops: u64) -> Self {
        self.options.submission_ops = Some(ops);
        self
    }

    /// Where choices of kernels come from; [`Tuning::Cached`] unless set, which finds what was measured before in
    /// [`GpuOptions::cache_dir`](crate::GpuOptions::cache_dir).
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.options.tuning = tuning;
        self
    }

    /// How long [`Tuning::Measure`] may take; 60 seconds unless set. What it does not reach is left for the next build.
    #[must_use]
    pub fn tuning_budget(mut self, budget: Duration) -> Self {
        self.tuning_budget = budget;
        self
    }

    /// Kernels to choose, whatever was found to be best.
    #[doc(hidden)]
    #[must_use]
    pub fn choices(mut self, choices: Choices) -> Self {
        self.options.choices = Some(Arc::new(choices));
        self
    }

    /// Rewrites the method for the device, uploads its constants and compiles its kernels.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) with every node that cannot run, in
    /// [`Error::refusals`], before anything is allocated on the device;
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory), or what else the device refuses.
    pub fn build(self, program: &Program) -> Result<Delegate> {
        let method = match &self.method {
            Some(name) => program.method(name)?,
            None => program.only_method()?,
        };
        check_pins(method, &self.options)?;
        let (method, mut facts) = report::prepare(method, &self.options.pinned_f32)?;
        if self.options.precision == Precision::F16 && !has_half_storage(&self.gpu) {
            facts.warnings.push(
                "the device cannot store half precision: values are rounded to it and take 32 bits"
                    .to_string(),
            );
        }
        if self.options.tuning == Tuning::Measure {
            let options = TuneOptions {
                precision: self.options.precision,
                budget: self.tuning_budget,
                ..TuneOptions::default()
            };
            let found =
                tune::tune_method(&self.gpu, &method, &self.options.pinned_f32, &options, |_, _, _| {})?;
            facts.warnings.extend(tune::warnings(&found));
        }
        let session = Session::build(self.gpu.context(), method, self.options)?;
        Ok(Delegate { gpu: self.gpu, session, report: facts })
    }
}

fn has_half_storage(gpu: &Gpu) -> bool {
    gpu.info().caps.features.storage_16bit
}

/// A pin that names no node is a slip that would cost accuracy without a word.
fn check_pins(method: MethodInfo<'_>, options: &BuildOptions) -> Result<()> {
    let graph = &method.ir().graph;
    for pin in &options.pinned_f32 {
        if !graph.nodes().any(|(_, node)| node.name == *pin) {
            return Err(Error::invalid_input(format!(
                "no node of method `{}` is called `{pin}`, so it cannot be pinned",
                method.name()
            )));
        }
    }
    Ok(())
}

impl Delegate {
    /// Starts to build a delegate on `gpu`.
    pub fn builder(gpu: &Gpu) -> DelegateBuilder {
        DelegateBuilder {
            gpu: gpu.clone(),
            method: None,
            options: BuildOptions::default(),
            tuning_budget: TuneOptions::default().budget,
        }
    }

    /// Runs the method. Shapes may differ from run to run within what the program allows.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) naming the input, what was expected and what was
    /// given: nothing has changed then. [`ErrorKind::BadData`](crate::ErrorKind::BadData) naming the node when a kernel
    /// met data it cannot process: state is then refused until [`reset`](Delegate::reset) or
    /// [`set_state`](Delegate::set_state). [`ErrorKind::DeviceLost`](crate::ErrorKind::DeviceLost).
    pub fn run(&mut self, inputs: &[Value]) -> Result<Outputs> {
        let (user, mutated_inputs) = self.session.run(inputs)?;
        Ok(Outputs { user, mutated_inputs })
    }

    /// The device that it runs on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// What was built: rewrites and their reasons, memory, kernels.
    pub fn report(&self) -> DelegateReport {
        report::assemble(&self.gpu, &self.session, &self.report)
    }

    /// Time of each dispatch of the last run; empty unless [`DelegateBuilder::timestamps`] asked for it.
    pub fn dispatch_times(&self) -> Vec<DispatchTime> {
        let dispatches = &self.session.timing().dispatches;
        dispatches
            .iter()
            .map(|(node, kernel, gpu_ns)| DispatchTime {
                node: node.clone(),
                kernel: kernel.clone(),
                gpu_ms: gpu_ns / 1e6,
            })
            .collect()
    }

    /// Names of the buffers that outlast a run.
    pub fn state_names(&self) -> impl Iterator<Item = &str> {
        self.session.state_names()
    }

    /// What the buffer `name` holds now.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) when no state has that name;
    /// [`ErrorKind::PoisonedState`](crate::ErrorKind::PoisonedState) after a failed run.
    pub fn state(&self, name: &str) -> Result<HostTensor> {
        self.session.state(name)
    }

    /// Sets the buffer `name`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) when no state has that name, or the value's dtype
    /// or sizes differ.
    pub fn set_state(&mut self, name: &str, value: &HostTensor) -> Result<()> {
        self.session.set_state(name, value)
    }

    /// Gives every state its initial value.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn reset(&mut self) -> Result<()> {
        self.session.reset()
    }

    /// Gives back the memory that only runs need. The next run takes it again.
    pub fn trim(&mut self) {
        self.session.trim();
    }

    /// What runs; for this crate's own tests and tools.
    #[doc(hidden)]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What runs; for this crate's own tests and tools.
    #[doc(hidden)]
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl fmt::Debug for Delegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delegate({} on {})", self.session.method().graph.name(), self.gpu.info().description)
    }
}

const _: () = {
    const fn moves_between_threads<T: Send + 'static>() {}
    moves_between_threads::<Delegate>();
    const fn shared_between_threads<T: Send + Sync + 'static>() {}
    shared_between_threads::<Gpu>();
    shared_between_threads::<Program>();
    shared_between_threads::<Error>();
};
