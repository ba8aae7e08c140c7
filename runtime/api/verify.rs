//! Replays recorded calls and compares what comes out with what PyTorch gave.
//!
//! References are tensors by name: `METHOD.inv{i}.in{j}` (inputs), `.out{j}` (outputs), `.mut{j}` (user inputs that the
//! program writes to) and `.buf.NAME` (buffers after the call). Calls of a method run in order on one delegate.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    delegate::{Delegate, Outputs},
    device::Gpu,
    program::{MethodInfo, Program},
};
use crate::{
    base::{DType, ErrorKind, HostTensor, Result, Scalar, Value},
    ops::Precision,
};

/// Tensors by name, as a safetensors file holds them.
pub type NamedTensors = BTreeMap<String, HostTensor>;

/// How to verify.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerifyOptions {
    /// Only the method of this name; all methods when `None`.
    pub method: Option<String>,
    /// How `float32` is stored.
    pub precision: Precision,
    /// Relative tolerance, `rtol` of [`compare_tensors`]; 1e-4, or 1e-2 with half precision, when `None`.
    pub rtol: Option<f64>,
    /// Absolute tolerance, `atol` of [`compare_tensors`]; as `rtol` when `None`.
    pub atol: Option<f64>,
}

/// One thing that was not as recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Name of the method, as the archive has it or as a reference gives it.
    pub method: String,
    /// Number of the call, from 0 on, where the failure is of one call.
    pub inv: Option<usize>,
    /// `out{j}`, `mut{j}` or `buf.NAME`; empty where the failure is of no single tensor.
    pub tensor: String,
    /// Largest absolute difference between finite values; `None` where no values were compared.
    pub max_abs: Option<f64>,
    /// Largest difference between finite values relative to the reference's; `None` where no values were compared.
    pub max_rel: Option<f64>,
    /// Position of the first element that differs, row-major; `None` where no values were compared.
    pub index: Option<usize>,
    /// What is wrong, with the first values that differ.
    pub reason: String,
}

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerifyReport {
    /// Tensors compared, equal or not.
    pub checked: usize,
    /// All that differed, and references and outputs without a counterpart.
    pub failures: Vec<Failure>,
}

impl VerifyReport {
    /// Whether something was compared and nothing differed.
    pub fn ok(&self) -> bool {
        self.failures.is_empty() && self.checked > 0
    }
}

/// Replays the calls in `references` on `gpu`; `progress` is told method and call before each one.
///
/// # Errors
/// What [`DelegateBuilder::build`](crate::DelegateBuilder::build) refuses, and what the device fails at. Outputs that
/// differ, calls whose inputs do not fit and methods that the program lacks are failures of the report.
pub fn verify(
    gpu: &Gpu,
    program: &Program,
    references: &NamedTensors,
    options: &VerifyOptions,
    mut progress: impl FnMut(&str, usize),
) -> Result<VerifyReport> {
    let default = if options.precision == Precision::F16 { 1e-2 } else { 1e-4 };
    let tolerance =
        Tolerance { rtol: options.rtol.unwrap_or(default), atol: options.atol.unwrap_or(default) };
    let mut report = VerifyReport::default();
    let (calls, strangers) = group(program, references, options.method.as_deref());
    report.failures.extend(strangers);
    for (name, calls) in calls {
        let Ok(method) = program.method(&name) else { continue };
        let mut delegate =
            Delegate::builder(gpu).method(&name).precision(options.precision).build(program)?;
        for (inv, tensors) in calls {
            progress(&name, inv);
            let mut call = Call { method, inv, tensors, tolerance, report: &mut report };
            call.replay(&mut delegate)?;
        }
    }
    if report.checked == 0 && report.failures.is_empty() {
        let method = options.method.clone().unwrap_or_default();
        report.failures.push(failure(&method, None, "", "nothing was compared: there are no references"));
    }
    Ok(report)
}

#[derive(Clone, Copy)]
struct Tolerance {
    rtol: f64,
    atol: f64,
}

type Calls<'a> = BTreeMap<String, BTreeMap<usize, BTreeMap<&'a str, &'a HostTensor>>>;

fn failure(method: &str, inv: Option<usize>, tensor: &str, reason: impl Into<String>) -> Failure {
    Failure {
        method: method.to_string(),
        inv,
        tensor: tensor.to_string(),
        max_abs: None,
        max_rel: None,
        index: None,
        reason: reason.into(),
    }
}

/// The references by method and call, and those that belong to none.
fn group<'a>(
    program: &Program,
    references: &'a NamedTensors,
    only: Option<&str>,
) -> (Calls<'a>, Vec<Failure>) {
    let mut calls = Calls::new();
    let mut failures = Vec::new();
    let only = only.map(|name| match program.method(name) {
        Ok(method) => method.name().to_string(),
        Err(error) => {
            failures.push(failure(name, None, "", error.to_string()));
            name.to_string()
        }
    });
    let mut unknown = BTreeSet::new();
    for (key, tensor) in references {
        let Some((method, inv, rest)) = split_name(key) else {
            failures.push(failure(
                "",
                None,
                key,
                "the name is not METHOD.inv{i}.in{j}, .out{j}, .mut{j} or .buf.NAME",
            ));
            continue;
        };
        if only.as_deref().is_some_and(|only| only != method) {
            continue;
        }
        if !program.methods().any(|known| known.name() == method) {
            unknown.insert(method);
            continue;
        }
        calls.entry(method.to_string()).or_default().entry(inv).or_default().insert(rest, tensor);
    }
    failures.extend(unknown.into_iter().map(|name| {
        let reason = program.method(name).err().map_or(String::new(), |error| error.to_string());
        failure(name, None, "", format!("the references name a method that the program lacks: {reason}"))
    }));
    (calls, failures)
}

/// `METHOD.inv3.out0` as (`METHOD`, 3, `out0`). A method's name may hold dots.
fn split_name(key: &str) -> Option<(&str, usize, &str)> {
    key.match_indices(".inv").find_map(|(at, marker)| {
        let (number, rest) = key.get(at + marker.len()..)?.split_once('.')?;
        Some((key.get(..at)?, digits(number)?, rest))
    })
}

fn digits(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// One recorded call.
struct Call<'a, 'r> {
    method: MethodInfo<'a>,
    inv: usize,
    tensors: BTreeMap<&'a str, &'a HostTensor>,
    tolerance: Tolerance,
    report: &'r mut VerifyReport,
}

impl Call<'_, '_> {
    fn replay(&mut self, delegate: &mut Delegate) -> Result<()> {
        let inputs = match self.inputs() {
            Ok(inputs) => inputs,
            Err(error) => {
                self.fail("", error.to_string());
                return Ok(());
            }
        };
        let outputs = match delegate.run(&inputs) {
            Ok(outputs) => outputs,
            Err(error) if is_about_the_call(error.kind()) => {
                self.fail("", format!("the run failed: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.compare_outputs(&inputs, &outputs);
        self.compare_buffers(delegate);
        let unread: Vec<&str> = self.tensors.keys().copied().collect();
        for name in unread {
            self.fail(name, "the run gives nothing for this reference");
        }
        Ok(())
    }

    fn fail(&mut self, tensor: &str, reason: impl Into<String>) {
        self.report.failures.push(failure(self.method.name(), Some(self.inv), tensor, reason));
    }

    fn inputs(&mut self) -> Result<Vec<Value>> {
        let count = self.method.inputs().len();
        (0..count)
            .map(|index| {
                let tensor = self.tensors.remove(format!("in{index}").as_str()).cloned();
                self.method.input_from_tensor(index, tensor)
            })
            .collect()
    }

    fn compare_outputs(&mut self, inputs: &[Value], outputs: &Outputs) {
        for (index, value) in outputs.user.iter().enumerate() {
            self.compare_value(&format!("out{index}"), value, None);
        }
        for (index, value) in &outputs.mutated_inputs {
            self.compare_value(&format!("mut{index}"), value, inputs.get(*index));
        }
    }

    /// Compares `value` with its reference. Recorders leave out a mutated input that kept its value, `before`.
    fn compare_value(&mut self, name: &str, value: &Value, before: Option<&Value>) {
        match (self.tensors.remove(name), as_tensor(value)) {
            (Some(want), Some(got)) => self.compare(name, &got, want),
            (None, None) => {}
            (Some(_), None) => self.fail(name, "the run gives None, the reference a tensor"),
            (None, Some(got)) => match before.and_then(as_tensor) {
                Some(before) => self.compare(name, &got, &before),
                None => self.fail(name, "there is no reference for this output"),
            },
        }
    }

    fn compare_buffers(&mut self, delegate: &Delegate) {
        let names: Vec<&str> = self.tensors.keys().copied().filter(|name| name.starts_with("buf.")).collect();
        for name in names {
            let Some(want) = self.tensors.remove(name) else { continue };
            let buffer = name.trim_start_matches("buf.");
            match self.buffer(delegate, buffer) {
                Ok(Some(got)) => self.compare(name, &got, want),
                Ok(None) => self.fail(name, format!("the program has no buffer `{buffer}`")),
                Err(error) => self.fail(name, error.to_string()),
            }
        }
    }

    /// What the buffer holds now: state where the program writes it, else the program's own constant.
    fn buffer(&self, delegate: &Delegate, name: &str) -> Result<Option<HostTensor>> {
        if delegate.state_names().any(|state| state == name) {
            return delegate.state(name).map(Some);
        }
        let graph = &self.method.ir().graph;
        for id in graph.inputs().iter().filter_map(|input| input.kind.constant()) {
            let constant = graph.constant(id)?;
            if constant.name() == name {
                return constant.to_tensor().map(Some);
            }
        }
        Ok(None)
    }

    fn compare(&mut self, name: &str, got: &HostTensor, want: &HostTensor) {
        self.report.checked += 1;
        if let Some(mismatch) = compare_tensors(got, want, self.tolerance.rtol, self.tolerance.atol) {
            self.report.failures.push(Failure {
                max_abs: mismatch.max_abs,
                max_rel: mismatch.max_rel,
                index: mismatch.index,
                ..failure(self.method.name(), Some(self.inv), name, mismatch.reason)
            });
        }
    }
}

/// Whether an error is a property of the recorded call, and not of the device.
fn is_about_the_call(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidInput | ErrorKind::BadData | ErrorKind::PoisonedState)
}

/// A value as a recorder writes it: scalars as 0-d tensors, `None` not at all.
fn as_tensor(value: &Value) -> Option<HostTensor> {
    match value {
        Value::Tensor(tensor) => Some(tensor.clone()),
        Value::Int(value) => Some(HostTensor::scalar(DType::I64, Scalar::Int(*value))),
        Value::Float(value) => Some(HostTensor::scalar(DType::F64, Scalar::Float(*value))),
        Value::Bool(value) => Some(HostTensor::scalar(DType::Bool, Scalar::Bool(*value))),
        Value::None => None,
    }
}

/// How two tensors differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Largest absolute difference between finite values.
    pub max_abs: Option<f64>,
    /// Largest relative difference between finite values.
    pub max_rel: Option<f64>,
    /// Position of the first element that differs, row-major; `None` when the types differ.
    pub index: Option<usize>,
    /// What is wrong, with values.
    pub reason: String,
}

/// How `got` differs from `want`, or `None` when `|got - want| <= atol + rtol * |want|` everywhere.
///
/// Sizes, ints and bools must be the same. Floats of any width are compared as `float32`; NaN equals NaN, and an
/// infinity only itself.
pub fn compare_tensors(got: &HostTensor, want: &HostTensor, rtol: f64, atol: f64) -> Option<Mismatch> {
    let floats = got.dtype().is_float() && want.dtype().is_float();
    if got.sizes() != want.sizes() || !(floats || got.dtype() == want.dtype()) {
        let reason = format!(
            "it is {}{:?}, the reference {}{:?}",
            got.dtype(),
            got.sizes(),
            want.dtype(),
            want.sizes()
        );
        return Some(Mismatch { max_abs: None, max_rel: None, index: None, reason });
    }
    if floats {
        let values = |tensor: &HostTensor| tensor.to_f32s().into_iter().map(f64::from).collect::<Vec<_>>();
        let (got, want) = (values(got), values(want));
        let first = got.iter().zip(&want).position(|(&got, &want)| !is_close(got, want, rtol, atol))?;
        return Some(mismatch(first, got[first], want[first], got.iter().copied().zip(want.iter().copied())));
    }
    let (got, want) = (got.to_i64s(), want.to_i64s());
    let first = got.iter().zip(&want).position(|(got, want)| got != want)?;
    let pairs = got.iter().zip(&want).map(|(&got, &want)| (got as f64, want as f64));
    Some(mismatch(first, got[first], want[first], pairs))
}

fn is_close(got: f64, want: f64, rtol: f64, atol: f64) -> bool {
    if got.is_finite() && want.is_finite() {
        (got - want).abs() <= atol + rtol * want.abs()
    } else {
        got == want || (got.is_nan() && want.is_nan())
    }
}

fn mismatch<T: std::fmt::Display>(
    index: usize,
    got: T,
    want: T,
    pairs: impl Iterator<Item = (f64, f64)>,
) -> Mismatch {
    let (mut max_abs, mut max_rel) = (0.0f64, 0.0f64);
    for (got, want) in pairs.filter(|(got, want)| got.is_finite() && want.is_finite()) {
        let difference = (got - want).abs();
        max_abs = max_abs.max(difference);
        if want != 0.0 {
            max_rel = max_rel.max(difference / want.abs());
        }
    }
    let reason = format!("element {index} is {got}, the reference {want}");
    Mismatch { max_abs: Some(max_abs), max_rel: Some(max_rel), index: Some(index), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> HostTensor {
        HostTensor::from_f32(&[values.len()], values).unwrap()
    }

    #[test]
    fn names_split_at_the_call() {
        assert_eq!(split_name("model.inv0.out1"), Some(("model", 0, "out1")));
        assert_eq!(split_name("a.b.inv12.buf.x.inv0.y"), Some(("a.b", 12, "buf.x.inv0.y")));
        assert_eq!(split_name("a.invent.inv1.in0"), Some(("a.invent", 1, "in0")));
        assert_eq!(split_name("model.out0"), None);
        assert_eq!(split_name("model.inv+1.out0"), None);
    }

    #[test]
    fn floats_are_compared_within_the_tolerance() {
        let check = |got: &[f32], want: &[f32]| compare_tensors(&f32s(got), &f32s(want), 1e-2, 1e-3);
        assert_eq!(check(&[100.5, 0.0005], &[100.0, 0.0]), None);
        let found = check(&[1.0, 102.0, 3.0], &[1.0, 100.0, 2.0]).unwrap();
        assert_eq!((found.index, found.max_abs, found.max_rel), (Some(1), Some(2.0), Some(0.5)));
        assert_eq!(check(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY]), None);
        for (got, want) in
            [(f32::NAN, 0.0), (0.0, f32::NAN), (f32::INFINITY, f32::NEG_INFINITY), (f32::INFINITY, 1e30)]
        {
            assert_eq!(check(&[got], &[want]).unwrap().index, Some(0), "{got} {want}");
        }
    }

    #[test]
    fn kinds_and_sizes_must_agree() {
        let ints = HostTensor::from_i64(&[2], &[1, 2]).unwrap();
        assert!(compare_tensors(&ints, &f32s(&[1.0, 2.0]), 1.0, 1.0).is_some());
        assert!(compare_tensors(&ints, &ints.cast(DType::I32).unwrap(), 1.0, 1.0).is_some());
        assert!(compare_tensors(&ints, &ints.reshaped(vec![2, 1]).unwrap(), 1.0, 1.0).is_some());
        assert_eq!(compare_tensors(&f32s(&[1.0]).cast(DType::BF16).unwrap(), &f32s(&[1.0]), 0.0, 0.0), None);
        let other = HostTensor::from_i64(&[2], &[1, 3]).unwrap();
        assert_eq!(compare_tensors(&ints, &other, 1.0, 1.0).unwrap().index, Some(1));
    }
}
