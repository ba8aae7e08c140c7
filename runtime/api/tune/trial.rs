//! One choice: its node alone, with made-up inputs, run with each candidate.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Job, TriedCandidate, TunedChoice, choosing, inputs, timing};
use crate::{
    api::single::{self, Alone},
    base::{DType, Error, ErrorKind, HostTensor, Result, Value},
    delegate::{BuildOptions, Context, Session},
    ir::Method,
    ops::Precision,
    plan::PlanOptions,
    shader::{Candidate, Choices},
};

/// Runs that have to give the same bits.
const REPLAYS: usize = 5;

/// The host checks products of at most so many operations; more would take it many seconds.
const HOST_OPS: u64 = if cfg!(debug_assertions) { 1 << 26 } else { 1 << 28 };

/// How long one run may take before its candidate is left out.
const PATIENCE: Duration = Duration::from_secs(20);

/// A candidate that gave right results.
struct Right {
    index: usize,
    session: Session,
}

/// What is tried on one choice.
pub struct Trial<'a> {
    context: &'a Arc<Context>,
    plan_options: &'a PlanOptions,
    job: &'a Job,
    found: &'a Choices,
    method: Method,
    inputs: Vec<Value>,
    alone: Alone,
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
        let alone = Alone::new(node, inputs::of(graph, node, &job.env)?)?;
        let (method, inputs) = alone.program(graph, node)?;
        Ok(Trial { context, plan_options, job, found, method, inputs, alone })
    }

    /// Checks every candidate, then times those that are right, until `deadline`.
    ///
    /// # Errors
    /// A lost device.
    pub fn run(self, deadline: Instant) -> Result<TunedChoice> {
        let record = &self.job.record;
        let mut candidates = record.candidates(&self.plan_options.profile);
        candidates.sort_by_key(|&candidate| candidate != record.candidate);
        let mut want = if record.key.ops() <= HOST_OPS { Some(self.alone.eval()?) } else { None };
        let mut checked = self.check_all(&candidates, want.as_deref(), Some(deadline))?;
        if want.is_none() && checked.tried.iter().any(|tried| tried.fault.is_some()) {
            // They do not agree, so the host has to say which is right, however long it takes.
            let values = want.insert(self.alone.eval()?);
            let tried = &candidates[..checked.tried.len()];
            checked = self.check_all(tried, Some(values.as_slice()), None)?;
        }
        let Checked { mut tried, mut right, .. } = checked;
        let mut best_us = vec![f64::INFINITY; right.len()];
        let has_default = right.first().is_some_and(|first| first.index == 0);
        let fastest = timing::fastest(&mut best_us, has_default, deadline, |number| {
            match run_us(&mut right[number].session, &self.inputs, &self.job.node) {
                Ok(us) => Ok(Some(us)),
                Err(error) if is_for_want_of_room(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })?;
        let fastest = fastest.map(|number| right[number].index);
        for (Right { index, .. }, best_us) in right.iter().zip(best_us).filter(|(_, us)| us.is_finite()) {
            tried[*index].best_us = Some(best_us);
        }
        Ok(TunedChoice {
            choice: record.name(),
            node: self.job.node.clone(),
            launches: self.job.launches,
            default: record.name_of(record.candidate),
            picked: pick(&tried, fastest),
            checked_on_host: want.is_some(),
            tried,
        })
    }

    /// Checks the first candidate, then the others until `deadline`. `want` is what the host gives; without it the first
    /// right one stands for it.
    fn check_all(
        &self,
        candidates: &[Candidate],
        want: Option<&[HostTensor]>,
        deadline: Option<Instant>,
    ) -> Result<Checked> {
        let mut checked = Checked::default();
        for &candidate in candidates {
            if !checked.tried.is_empty() && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            let name = self.job.record.name_of(candidate);
            let fault = match self.check(candidate, &name, want, &mut checked.bits) {
                Ok(session) => {
                    checked.right.push(Right { index: checked.tried.len(), session });
                    None
                }
                Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
                Err(error) if is_for_want_of_room(&error) => {
                    log::info!("{}: `{name}` is left out: {}", self.job.record.name(), error.message());
                    None
                }
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

/// Whether the device had no time or no memory left, which does not say that the kernel is wrong: what else runs there may
/// have taken them. A kernel that hangs is another matter: its submission never ends, until the driver loses the device.
fn is_for_want_of_room(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Timeout | ErrorKind::OutOfMemory)
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
        // The sums that a product makes codes of may be rounded to either side of an edge.
        let are_near = matches!(want.dtype(), DType::I8 | DType::U8) && are_neighbours(got, want);
        if let Some(mismatch) = single::mismatch(precision, got, want).filter(|_| !are_near) {
            return Some(mismatch.reason);
        }
    }
    let (name, known) = known?;
    (!same_bits(first, known)).then(|| format!("gave other bits than `{name}`"))
}

/// Whether codes differ by 1 at most.
fn are_neighbours(a: &HostTensor, b: &HostTensor) -> bool {
    let (sizes, dtype) = (a.sizes() == b.sizes(), a.dtype() == b.dtype());
    sizes && dtype && a.to_i64s().into_iter().zip(b.to_i64s()).all(|(a, b)| a.abs_diff(b) <= 1)
}

/// The fastest. Where none was timed, the first that nothing was found wrong with.
fn pick(tried: &[TriedCandidate], fastest: Option<usize>) -> Option<String> {
    let picked = fastest.and_then(|index| tried.get(index));
    picked.or_else(|| tried.iter().find(|tried| tried.fault.is_none())).map(|tried| tried.candidate.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_neither_wrong_nor_timed_stays_the_default() {
        let tried = |fault: Option<&str>| TriedCandidate {
            candidate: if fault.is_some() { "wrong" } else { "right" }.to_string(),
            best_us: None,
            fault: fault.map(str::to_string),
        };
        assert_eq!(pick(&[tried(None), tried(Some("bits"))], None).unwrap(), "right");
        assert_eq!(pick(&[tried(Some("bits")), tried(None)], None).unwrap(), "right");
        assert_eq!(pick(&[tried(Some("bits")), tried(None)], Some(1)).unwrap(), "right");
        assert_eq!(pick(&[tried(Some("bits"))], None), None);
        assert!(is_for_want_of_room(&Error::new(ErrorKind::Timeout, "")));
        assert!(!is_for_want_of_room(&Error::invalid_input("other bits")));
    }

    #[test]
    fn codes_beside_the_right_ones_are_right_and_other_integers_are_not() {
        let codes = |dtype, value| vec![HostTensor::from_i64s(dtype, vec![2], &[3, value]).unwrap()];
        let judge =
            |dtype, got| super::judge(&[codes(dtype, got)], Some(&codes(dtype, 7)), None, Precision::F32);
        assert_eq!(judge(DType::I8, 8).or(judge(DType::U8, 6)), None);
        assert!(judge(DType::I8, 9).is_some() && judge(DType::I32, 8).is_some());
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
