//! Making a method ready: refusals first, then plans at the corners of the ranges, constants, states and pipelines.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{context::Context, session::Session, state::DeviceState};
use crate::{
    base::{Error, Refusal, Result, SymEnv},
    ir::{Method, Type},
    ops::Precision,
    plan::{self, InputMeta, Plan, PlanOptions, ShapeKey},
};

/// The largest size that symbols are tried with at build: beyond it, no kernel is chosen that is not at it.
const SAMPLE_CAP: i64 = 1024;

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
    /// Test hook: faults built in.
    #[doc(hidden)]
    pub hooks: BuildHooks,
}

/// Faults that tests build in.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildHooks {
    /// The barrier before this dispatch is not recorded.
    pub dropped_barrier: Option<usize>,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            precision: Precision::F32,
            pinned_f32: HashSet::new(),
            timestamps: false,
            timeout: Duration::from_secs(600),
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
        let plan_options = PlanOptions {
            profile: context.profile().clone(),
            precision: options.precision,
            pinned_f32: options.pinned_f32.clone(),
        };
        let envs = plan::sample_envs(&method, SAMPLE_CAP);
        refuse(&method, &envs)?;
        let plans = sample_plans(&method, &envs, &plan_options)?;
        for (_, plan) in &plans {
            for dispatch in &plan.dispatches {
                context.pipeline(dispatch)?;
            }
        }
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

fn create_states(context: &Context, method: &Method, plan: &Plan) -> Result<Vec<DeviceState>> {
    plan.states
        .iter()
        .map(|planned| {
            let initial = method.graph.constant(planned.constant)?.clone();
            DeviceState::new(context, planned, initial)
        })
        .collect()
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
