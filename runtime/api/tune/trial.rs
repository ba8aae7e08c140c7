//! One choice: its node alone, with made-up inputs, run with each candidate.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Job, TriedCandidate, TunedChoice, choosing};
use crate::{
    api::{
        sample::Numbers,
        single::{self, Operand},
    },
    base::{Error, ErrorKind, HostTensor, Result, SymEnv, Value, shape},
    delegate::{BuildOptions, Context, Session},
    ir::{Constness, Graph, Method, Node, Type, ValueId},
    ops::{self, Args, Meta, Op, Precision, Resolved},
    plan::{self, PlanOptions},
    shader::{Candidate, Choices},
};

/// Runs that have to give the same bits.
const REPLAYS: usize = 5;

/// Timed runs of each candidate.
const ROUNDS: usize = 7;

/// The host checks products of at most so many operations; more would take it many seconds.
const HOST_OPS: u64 = if cfg!(debug_assertions) { 1 << 26 } else { 1 << 28 };

/// How long one run may take before its candidate counts as hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// A candidate replaces the default when it takes at most this part of its time: less is noise.
const WORTH_IT: f64 = 0.97;

/// A candidate that takes so many times the best is not timed again.
const HOPELESS: f64 = 2.0;

/// A candidate that gave right results.
struct Right {
    index: usize,
    session: Session,
    best_us: f64,
}

/// What is tried on one choice.
pub struct Trial<'a> {
    context: &'a Arc<Context>,
    plan_options: &'a PlanOptions,
    job: &'a Job,
    found: &'a Choices,
    method: Method,
    inputs: Vec<Value>,
    call: HostCall,
}

/// The call that the host makes to know the result.
struct HostCall {
    op: &'static dyn Op,
    args: Args<Operand>,
    outs: Vec<Meta>,
}

impl HostCall {
    fn eval(&self) -> Result<Vec<HostTensor>> {
        self.op.eval(&self.args.try_map(Operand::to_tensor)?, &self.outs)
    }
}

/// What was found of the candidates before any is timed.
#[derive(Default)]
struct Checked {
    tried: Vec<TriedCandidate>,
    right: Vec<Right>,
    /// The results of the first right candidate of each way, with its name.
    bits: BTreeMap<usize, (String, Vec<HostTensor>)>,
}

impl<'a> Trial<'a> {
    /// The node of `job` alone, and what the host gives for it.
    ///
    /// # Errors
    /// A node that cannot run alone.
    pub fn new(
        context: &'a Arc<Context>,
        method: &Method,
        plan_options: &'a PlanOptions,
        job: &'a Job,
        found: &'a Choices,
    ) -> Result<Trial<'a>> {
        let graph = &method.graph;
        let node = graph.nodes().map(|(_, node)| node).find(|node| node.name == job.node);
        let node = node.ok_or_else(|| Error::internal(format!("no node is called `{}`", job.node)))?;
        let operands = operands(graph, node, &job.env)?;
        let lookup = |value: ValueId| {
            let operand = operands.get(&value).cloned();
            operand.ok_or_else(|| Error::internal("an operand has no value"))
        };
        let args = ops::resolve(node, lookup)?;
        let metas = args.try_map(|operand| Ok(operand.meta()))?;
        let op = ops::find(node.op.as_str()).ok_or_else(|| Error::unsupported("the op is not supported"))?;
        let outs = op.infer(&metas)?;
        let (method, inputs) = single::program(graph, node, &outs, lookup)?;
        let call = HostCall { op, args, outs };
        Ok(Trial { context, plan_options, job, found, method, inputs, call })
    }

    /// Checks every candidate, then times those that are right, until `deadline`.
    ///
    /// # Errors
    /// A lost device.
    pub fn run(self, deadline: Instant) -> Result<TunedChoice> {
        let record = &self.job.record;
        let mut want = if record.key.ops() <= HOST_OPS { Some(self.call.eval()?) } else { None };
        let mut checked = self.check_all(want.as_deref(), deadline)?;
        if want.is_none() && checked.tried.iter().any(|tried| tried.fault.is_some()) {
            // They do not agree, so the host has to say which is right, however long it takes.
            let values = want.insert(self.call.eval()?);
            checked = self.check_all(Some(values.as_slice()), deadline)?;
        }
        if want.is_some() && checked.right.is_empty() {
            // Made-up inputs of a fused op may not go together, and then no result means anything: candidates that all
            // give the same are right as far as can be told.
            let apart = self.check_all(None, deadline)?;
            if apart.tried.iter().all(|tried| tried.fault.is_none()) {
                (checked, want) = (apart, None);
            }
        }
        let Checked { mut tried, mut right, .. } = checked;
        time(&mut right, &self.inputs, &self.job.node, deadline)?;
        for Right { index, best_us, .. } in &right {
            tried[*index].best_us = Some(*best_us);
        }
        Ok(TunedChoice {
            choice: record.name(),
            node: self.job.node.clone(),
            launches: self.job.launches,
            default: record.name_of(record.candidate),
            picked: pick(&tried),
            checked_on_host: want.is_some(),
            tried,
        })
    }

    /// Checks the default, then the others until `deadline`. `want` is what the host gives; without it the first right
    /// one stands for it.
    fn check_all(&self, want: Option<&[HostTensor]>, deadline: Instant) -> Result<Checked> {
        let record = &self.job.record;
        let mut candidates = record.candidates(&self.plan_options.profile);
        candidates.sort_by_key(|&candidate| candidate != record.candidate);
        let mut checked = Checked::default();
        for candidate in candidates {
            if !checked.tried.is_empty() && Instant::now() >= deadline {
                break;
            }
            let name = record.name_of(candidate);
            let mut found = self.check(candidate, &name, want, &mut checked.bits);
            if found.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout) {
                // Something else may have kept the device busy; a kernel that hangs does so again.
                found = self.check(candidate, &name, want, &mut checked.bits);
            }
            let fault = match found {
                Ok(session) => {
                    checked.right.push(Right { index: checked.tried.len(), session, best_us: f64::INFINITY });
                    None
                }
                Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
                Err(error) => Some(error.message().to_string()),
            };
            checked.tried.push(TriedCandidate { candidate: name, best_us: None, fault });
        }
        Ok(checked)
    }

    /// Runs a candidate several times, and holds it to itself, to what the host or the first candidate gave, and to other
    /// shapes of its kernel.
    fn check(
        &self,
        candidate: Candidate,
        name: &str,
        want: Option<&[HostTensor]>,
        bits: &mut BTreeMap<usize, (String, Vec<HostTensor>)>,
    ) -> Result<Session> {
        let record = &self.job.record;
        let options = BuildOptions {
            precision: self.plan_options.precision,
            pinned_f32: self.plan_options.pinned_f32.clone(),
            timestamps: true,
            timeout: PATIENCE,
            choices: Some(Arc::new(choosing(self.found, &record.name(), name))),
            ..BuildOptions::default()
        };
        let mut session = Session::build(self.context, self.method.clone(), options)?;
        let mut made = session.plan().into_iter().flat_map(|plan| &plan.dispatches);
        if !made.any(|dispatch| dispatch.choice.is_some_and(|made| made.candidate == candidate)) {
            return Err(Error::internal("the node alone does not take it"));
        }
        let runs = (0..REPLAYS).map(|_| outputs(&mut session, &self.inputs)).collect::<Result<Vec<_>>>()?;
        let want = want.or_else(|| bits.values().next().map(|(_, first)| first.as_slice()));
        let known = bits.get(&candidate.way).map(|(name, values)| (name.as_str(), values.as_slice()));
        if let Some(fault) = judge(&runs, want, known, self.plan_options.precision) {
            return Err(Error::invalid_input(fault));
        }
        if known.is_none() {
            let first = runs.into_iter().next().unwrap_or_default();
            bits.insert(candidate.way, (name.to_string(), first));
        }
        Ok(session)
    }
}

/// What is wrong with results of several runs: they differ from each other, from `want` by more than the precision
/// explains, or from the `known` ones of another work-group shape at all.
fn judge(
    runs: &[Vec<HostTensor>],
    want: Option<&[HostTensor]>,
    known: Option<(&str, &[HostTensor])>,
    precision: Precision,
) -> Option<String> {
    let first = runs.first()?;
    if let Some(run) = runs.iter().position(|run| !same_bits(run, first)) {
        return Some(format!("run {} gave other bits than the first", run + 1));
    }
    for (got, want) in first.iter().zip(want.into_iter().flatten()) {
        if let Some(mismatch) = single::mismatch(precision, got, want) {
            return Some(mismatch.reason);
        }
    }
    let (name, known) = known?;
    (!same_bits(first, known)).then(|| format!("gave other bits than `{name}`"))
}

/// The fastest that is right, or the default where that is hardly slower.
fn pick(tried: &[TriedCandidate]) -> Option<String> {
    let timed = tried.iter().filter_map(|tried| Some((tried, tried.best_us?)));
    let (best, best_us) = timed.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let default = tried.first().filter(|default| default.best_us.is_some_and(|us| best_us > WORTH_IT * us));
    Some(default.unwrap_or(best).candidate.clone())
}

/// Times candidates in turn, so that what else the device does meets them alike: all once, and again until `deadline`.
fn time(right: &mut [Right], inputs: &[Value], node: &str, deadline: Instant) -> Result<()> {
    let mut best_us = f64::INFINITY;
    for round in 0..ROUNDS {
        if round > 0 && Instant::now() >= deadline {
            break;
        }
        let limit_us = if round == 0 { f64::INFINITY } else { HOPELESS * best_us };
        for candidate in right.iter_mut().filter(|candidate| round == 0 || candidate.best_us <= limit_us) {
            let us = run_us(&mut candidate.session, inputs, node)?;
            candidate.best_us = candidate.best_us.min(us);
            best_us = best_us.min(us);
        }
    }
    Ok(())
}

/// Microseconds of one run: of the node's launches on the device, or of the whole run where nothing tells those.
fn run_us(session: &mut Session, inputs: &[Value], node: &str) -> Result<f64> {
    session.run(inputs)?;
    let own = session.timing().dispatches.iter().filter(|(label, ..)| label == node);
    let ns: f64 = own.map(|(_, _, ns)| ns).sum();
    if ns > 0.0 {
        return Ok(ns / 1e3);
    }
    let started = Instant::now();
    session.repeat(inputs)?;
    Ok(started.elapsed().as_secs_f64() * 1e6)
}

fn outputs(session: &mut Session, inputs: &[Value]) -> Result<Vec<HostTensor>> {
    let (values, _) = session.run(inputs)?;
    let tensors = values.into_iter().filter_map(|value| match value {
        Value::Tensor(tensor) => Some(tensor),
        _ => None,
    });
    Ok(tensors.collect())
}

fn same_bits(a: &[HostTensor], b: &[HostTensor]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.bytes() == b.bytes())
}

/// What a node reads: constants of the program, and made-up numbers for the rest.
fn operands(graph: &Graph, node: &Node, env: &SymEnv) -> Result<HashMap<ValueId, Resolved<Operand>>> {
    let constness = Constness::analyse(graph)?;
    let mut read = Vec::new();
    node.for_each_operand(|value| read.push(value));
    let mut operands = HashMap::new();
    for (seed, value) in read.into_iter().enumerate() {
        let resolved = match (&graph.value(value)?.ty, constness.tensor_ref(graph, value)) {
            (Type::None, _) => Resolved::None,
            (Type::Tensor(_), Ok(constant)) => {
                Resolved::Tensor(Operand::Constant(constant.constant().clone()))
            }
            (Type::Tensor(ty), Err(_)) => {
                let sizes = plan::concrete_sizes(ty, env)?;
                shape::numel(&sizes)?;
                let mut numbers = Numbers(seed as u32 + 1);
                Resolved::Tensor(Operand::Runtime(numbers.tensor(ty.dtype, &sizes)?))
            }
            (ty, _) => Resolved::Scalar(plan::scalar_of_type(ty, env)?),
        };
        operands.insert(value, resolved);
    }
    Ok(operands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(times: &[(&str, Option<f64>)]) -> Vec<TriedCandidate> {
        let one = |&(name, best_us): &(&str, Option<f64>)| TriedCandidate {
            candidate: name.to_string(),
            best_us,
            fault: best_us.is_none().then(|| "wrong".to_string()),
        };
        times.iter().map(one).collect()
    }

    #[test]
    fn the_fastest_is_picked_if_it_is_worth_it() {
        let picked = |times: &[(&str, Option<f64>)]| pick(&tried(times));
        assert_eq!(picked(&[("a", Some(10.0)), ("b", Some(5.0)), ("c", Some(7.0))]).unwrap(), "b");
        assert_eq!(picked(&[("a", Some(10.0)), ("b", Some(9.8))]).unwrap(), "a");
        assert_eq!(picked(&[("a", None), ("b", Some(9.9)), ("c", Some(9.8))]).unwrap(), "c");
        assert_eq!(picked(&[("a", None)]), None);
    }

    #[test]
    fn wrong_results_are_told_apart() {
        let run = |values: &[f32]| vec![HostTensor::from_f32(&[values.len()], values).unwrap()];
        let (good, near, far) = (run(&[1.0, 2.0]), run(&[1.0, 2.000_001]), run(&[1.0, 3.0]));
        let judge =
            |runs: &[&Vec<HostTensor>], want: Option<&Vec<HostTensor>>, known: Option<&Vec<HostTensor>>| {
                let runs: Vec<_> = runs.iter().map(|&run| run.clone()).collect();
                let known = known.map(|known| ("other", known.as_slice()));
                super::judge(&runs, want.map(Vec::as_slice), known, Precision::F32).unwrap_or_default()
            };
        assert_eq!(judge(&[&good, &good], Some(&near), None), "");
        assert_eq!(judge(&[&good, &good, &near], Some(&good), None), "run 3 gave other bits than the first");
        assert!(judge(&[&far, &far], Some(&good), None).contains('3'));
        assert_eq!(judge(&[&near], Some(&good), Some(&good)), "gave other bits than `other`");
    }

    #[test]
    fn equal_numbers_with_other_bits_are_not_the_same() {
        let tensor = |value: f32| vec![HostTensor::from_f32(&[1], &[value]).unwrap()];
        assert!(same_bits(&tensor(1.5), &tensor(1.5)) && same_bits(&tensor(f32::NAN), &tensor(f32::NAN)));
        assert!(!same_bits(&tensor(0.0), &tensor(-0.0)));
    }
}
