//! Making a method ready: refusals first, then plans at the corners of the ranges, constants, states and pipelines.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{context::Context, session::Session, state::DeviceState, tuning::Tuning};
use crate::{
    base::{Error, Result, SymEnv},
    ir::Method,
    ops::Precision,
    plan::{self, Plan, PlanOptions, ShapeKey},
    shader::{Choices, Dispatch},
};

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
    /// Estimated operations of one submission, if not those of the device's class.
    pub submission_ops: Option<u64>,
    /// Where choices of kernels come from.
    pub tuning: Tuning,
    /// Choices of kernels, in place of those.
    #[doc(hidden)]
    pub choices: Option<Arc<Choices>>,
    /// Test hook: faults and limits built in.
    #[doc(hidden)]
    pub hooks: BuildHooks,
}

/// Faults and limits that tests build in.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildHooks {
    /// The barrier before this dispatch is not recorded.
    pub dropped_barrier: Option<usize>,
    /// Copies of no more constants than this go into one submission.
    pub constants_per_submission: Option<usize>,
    /// No more dispatches than this go into one submission.
    pub dispatches_per_submission: Option<usize>,
    /// Kernels whose lanes share loads are taken without being tried first.
    pub trusts_lanes: bool,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            precision: Precision::F32,
            pinned_f32: HashSet::new(),
            timestamps: false,
            timeout: Duration::from_secs(600),
            submission_ops: None,
            tuning: Tuning::default(),
            choices: None,
            hooks: BuildHooks::default(),
        }
    }
}

impl Session {
    /// Makes `method` ready: refuses what cannot run before anything is allocated, packs constants, creates pipelines.
    ///
    /// # Errors
    /// Every node that cannot run, at once; what the device refuses.
    pub fn build(context: &Arc<Context>, method: Method, options: BuildOptions) -> Result<Session> {
        context.check_alive()?;
        let mut profile = context.profile().clone();
        profile.submission_ops = options.submission_ops.unwrap_or(profile.submission_ops);
        profile.choices = match &options.choices {
            Some(choices) => Arc::clone(choices),
            None if options.tuning == Tuning::Off => Arc::default(),
            None => context.choices(),
        };
        let mut plan_options =
            PlanOptions { profile, precision: options.precision, pinned_f32: options.pinned_f32.clone() };
        let envs = plan::sample_envs(&method, plan::SAMPLE_CAP);
        let refusals = plan::check_all(&method, &envs)?;
        if !refusals.is_empty() {
            return Err(Error::refused(refusals));
        }
        let mut plans = sample_plans(&method, &envs, &plan_options)?;
        let mut probes = probe_plans(&method, &envs, &plan_options);
        if !options.hooks.trusts_lanes && dispatches(&plans, &probes).any(may_use_lanes) {
            let wrong = context.distrust_lanes(&mut plan_options.profile, dispatches(&plans, &probes));
            if wrong {
                plans = sample_plans(&method, &envs, &plan_options)?;
                probes = probe_plans(&method, &envs, &plan_options);
            }
        }
        context.create_pipelines(dispatches(&plans, &probes))?;
        drop(probes);
        let states = match plans.first() {
            Some((_, plan)) => create_states(context, &method, plan)?,
            None => Vec::new(),
        };
        let mut session = Session::new(context, method, options, plan_options, states);
        for (key, plan) in plans {
            session.keep_plan(key, plan)?;
        }
        Ok(session)
    }
}

fn dispatches<'p>(plans: &'p [(ShapeKey, Plan)], probes: &'p [Plan]) -> impl Iterator<Item = &'p Dispatch> {
    plans.iter().map(|(_, plan)| plan).chain(probes).flat_map(|plan| &plan.dispatches)
}

/// Whether kernels whose lanes share loads could be taken in place of `dispatch` for some shapes.
fn may_use_lanes(dispatch: &Dispatch) -> bool {
    dispatch.choice.is_some_and(|choice| choice.family.may_use_subgroups())
}

fn create_states(context: &Context, method: &Method, plan: &Plan) -> Result<Vec<DeviceState>> {
    plan.states
        .iter()
        .map(|planned| {
            let initial = method.graph.constant(planned.constant)?.clone();
            DeviceState::new(context, planned, initial)
        })
        .collect()
}

/// Plans at the corners of the program's ranges. The smallest must work; a larger one that the device's limits
/// refuse is left for the run that asks for it.
fn sample_plans(method: &Method, envs: &[SymEnv], options: &PlanOptions) -> Result<Vec<(ShapeKey, Plan)>> {
    let mut plans = Vec::new();
    for (index, env) in envs.iter().enumerate() {
        let key = plan::sample_inputs(method, env)?;
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

/// Plans at sizes where another kernel may be taken, only for the pipelines that they need. Sizes that the program's own
/// checks or the device's limits rule out need none.
fn probe_plans(method: &Method, envs: &[SymEnv], options: &PlanOptions) -> Vec<Plan> {
    let probes = plan::probe_envs(method, plan::SAMPLE_CAP);
    let others = probes.iter().filter(|env| !envs.contains(env));
    let plan = |env| plan::sample_inputs(method, env).and_then(|key| plan::build(method, &key, options));
    others.filter_map(|env| plan(env).ok()).collect()
}
