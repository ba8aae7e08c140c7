//! Finds the best kernels for a program on a device: checks each candidate before it is timed.
//!
//! The products, convolutions and attention of the program's plans are taken one by one, each distinct shape and dtype once, as a program of one node
//! with made-up inputs. Every candidate has to give the same bits in several replays, the bits of the other work-group
//! shapes of its kernel, and what the op's `eval` gives on the host. One that does not is struck out: the device never
//! runs it again. The rest are timed in turn, and the default is kept unless another is faster beyond doubt. Never knows Vulkan, nor how an op computes.

mod inputs;
mod timing;
mod trial;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{device::Gpu, program::Program, report};
use crate::{
    base::{Error, Result, SymEnv, Value},
    ir::Method,
    ops::Precision,
    plan::{self, InputMeta, PlanOptions},
    shader::{ChoiceRecord, Choices},
};
use trial::Trial;

/// How to tune.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// The method; not needed when the program has only one.
    pub method: Option<String>,
    /// How `float32` is stored.
    pub precision: Precision,
    /// Inputs whose sizes are tuned for; without them, sizes at the ends of the program's ranges.
    pub inputs: Option<Vec<Value>>,
    /// When to stop. What is being checked then is finished first.
    pub budget: Duration,
    /// Whether to measure again what has been measured before.
    pub again: bool,
}

impl Default for TuneOptions {
    fn default() -> TuneOptions {
        TuneOptions {
            method: None,
            precision: Precision::F32,
            inputs: None,
            budget: Duration::from_secs(60),
            again: false,
        }
    }
}

/// What [`tune`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TuneReport {
    /// Name of the device.
    pub device: String,
    /// Choices that were measured, those with the most work first.
    pub choices: Vec<TunedChoice>,
    /// Choices that had been measured before, and were left as they are.
    pub known: usize,
    /// Choices that the budget did not reach.
    pub not_reached: Vec<String>,
    /// Whether the cache folder has it for the next start.
    pub stored: bool,
}

impl TuneReport {
    /// Candidates that gave wrong results: choice, candidate, and what was wrong.
    pub fn faults(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.choices.iter().flat_map(|choice| {
            let faults = choice.tried.iter().filter_map(|tried| Some((tried, tried.fault.as_deref()?)));
            faults.map(|(tried, fault)| (choice.choice.as_str(), tried.candidate.as_str(), fault))
        })
    }
}

/// What was found of one shape of a kernel family.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedChoice {
    /// Family, sizes and dtypes.
    pub choice: String,
    /// The first node that it is for.
    pub node: String,
    /// Launches in one run.
    pub launches: usize,
    /// What the device's class would choose.
    pub default: String,
    /// What is chosen from now on; `None` when every candidate was wrong: nothing changes, unless there are kernels with
    /// another order of sums, which are taken then.
    pub picked: Option<String>,
    /// Whether results were held to the host's; larger ones are held to those of the default.
    pub checked_on_host: bool,
    /// What was tried, the default first.
    pub tried: Vec<TriedCandidate>,
}

/// One candidate of a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct TriedCandidate {
    /// Its name: kernel and work-group shape.
    pub candidate: String,
    /// The shortest time of a run on the device; `None` for a wrong one, and where time or memory did not suffice.
    pub best_us: Option<f64>,
    /// What was wrong with its results.
    pub fault: Option<String>,
}

/// A choice to be measured.
struct Job {
    record: ChoiceRecord,
    node: String,
    env: SymEnv,
    launches: usize,
}

/// Measures the kernels of a method on `gpu`, and keeps what it finds for later builds on the device; `progress` is told
/// how many choices are done, of how many, and the next.
///
/// # Errors
/// A method that cannot run; a device that fails altogether.
pub fn tune(
    gpu: &Gpu,
    program: &Program,
    options: &TuneOptions,
    progress: impl FnMut(usize, usize, &str),
) -> Result<TuneReport> {
    let info = match &options.method {
        Some(name) => program.method(name)?,
        None => program.only_method()?,
    };
    let (method, _) = report::prepare(info, &HashSet::new())?;
    tune_method(gpu, &method, &HashSet::new(), options, progress)
}

/// As [`tune`], for a method that the passes have rewritten.
pub(super) fn tune_method(
    gpu: &Gpu,
    method: &Method,
    pinned_f32: &HashSet<String>,
    options: &TuneOptions,
    mut progress: impl FnMut(usize, usize, &str),
) -> Result<TuneReport> {
    let started = Instant::now();
    let context = gpu.context();
    let known = context.choices();
    let mut found = Choices::default();
    // Only what was wrong counts while candidates are tried.
    known.all_struck_out().for_each(|(family, candidate)| found.strike_out(family, candidate));
    let mut profile = context.profile().clone();
    context.distrust_lanes(&mut profile, []);
    profile.choices = Arc::new(found.clone());
    let plan_options = PlanOptions { profile, precision: options.precision, pinned_f32: pinned_f32.clone() };
    let mut jobs = jobs(method, options, &plan_options)?;
    let all = jobs.len();
    jobs.retain(|job| options.again || known.tuned(job.record.family.name(), &job.record.key).is_none());
    let mut report = TuneReport {
        device: context.profile().name.clone(),
        known: all - jobs.len(),
        ..TuneReport::default()
    };
    let mut tuned = Choices::default();
    for (done, job) in jobs.iter().enumerate() {
        let name = job.record.name();
        if started.elapsed() >= options.budget {
            report.not_reached.push(name);
            continue;
        }
        progress(done, jobs.len(), &name);
        let deadline = started + options.budget;
        let choice = Trial::new(context, method, &plan_options, job, &found)?.run(deadline)?;
        learn(&choice, &job.record, [&mut tuned, &mut found]);
        report.choices.push(choice);
    }
    progress(jobs.len(), jobs.len(), "");
    if !tuned.is_empty() {
        report.stored = context.keep_choices(&tuned);
    }
    Ok(report)
}

/// Adds what `choice` tells: the fastest to the tuned ones if any was timed, and to both what is wrong where something else
/// can be taken.
fn learn(choice: &TunedChoice, record: &ChoiceRecord, [tuned, found]: [&mut Choices; 2]) {
    match &choice.picked {
        Some(picked) if choice.tried.iter().any(|tried| tried.best_us.is_some()) => {
            tuned.set(&choice.choice, picked);
        }
        Some(_) => {}
        None if record.has_others => {}
        None => return,
    }
    let family = record.family.name();
    for tried in choice.tried.iter().filter(|tried| tried.fault.is_some()) {
        tuned.strike_out(family, &tried.candidate);
        found.strike_out(family, &tried.candidate);
    }
}

/// The distinct choices of the method's plans that leave one, between candidates or to take others altogether, those with the
/// most work first.
fn jobs(method: &Method, options: &TuneOptions, plan_options: &PlanOptions) -> Result<Vec<Job>> {
    let envs = match &options.inputs {
        Some(inputs) => {
            let metas: Vec<InputMeta> = inputs.iter().map(InputMeta::of).collect();
            vec![plan::bind_inputs(method, &metas)?]
        }
        None => plan::sample_envs(method, plan::SAMPLE_CAP),
    };
    let refusals = plan::check_all(method, &envs)?;
    if !refusals.is_empty() {
        return Err(Error::refused(refusals));
    }
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for (index, env) in envs.iter().enumerate() {
        let planned =
            plan::sample_inputs(method, env).and_then(|key| plan::build(method, &key, plan_options));
        let plan = match planned {
            Ok(plan) => plan,
            // Sizes that the device's limits rule out are not run either.
            Err(_) if index > 0 => continue,
            Err(error) => return Err(error),
        };
        for dispatch in &plan.dispatches {
            let Some(record) = dispatch.choice else { continue };
            let node = dispatch.label.clone();
            let job = Job { record, node, env: env.clone(), launches: 0 };
            jobs.entry(record.name()).or_insert(job).launches += 1;
        }
    }
    let mut jobs: Vec<Job> = jobs.into_values().collect();
    jobs.retain(|job| job.record.has_others || job.record.candidates(&plan_options.profile).len() > 1);
    jobs.sort_by_key(|job| std::cmp::Reverse(job.record.key.ops().saturating_mul(job.launches as u64)));
    Ok(jobs)
}

/// What a build should tell of the device: what `report` found wrong, in one line each.
pub(super) fn warnings(report: &TuneReport) -> Vec<String> {
    let fault = |(choice, candidate, fault): (&str, &str, &str)| {
        format!("{choice}: the kernel `{candidate}` is wrong on `{}` and is not used: {fault}", report.device)
    };
    report.faults().map(fault).collect()
}

/// The choices under which candidates are tried: what is wrong is known, and `choice` is set.
fn choosing(found: &Choices, choice: &str, candidate: &str) -> Choices {
    let mut choices = found.clone();
    choices.set(choice, candidate);
    choices
}
