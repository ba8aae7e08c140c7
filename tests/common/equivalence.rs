//! Whether a method does the same after passes as before, on the host and on a device.

use std::sync::Arc;

use vkdelegate::{
    base::{HostTensor, Result, Value},
    delegate::{BuildOptions, Context, Session},
    ir::Method,
    ops::{Interpreted, States, interpret},
};

use super::{compare, memory};

/// Something that runs a method after passes, and keeps its state from run to run.
pub trait Runner {
    /// Runs once.
    fn run(&mut self, inputs: &[Value]) -> Result<Interpreted>;
    /// What the state `name` holds; `None` when the method never writes it.
    fn state(&mut self, name: &str) -> Result<Option<HostTensor>>;
    /// How far a float may be off, relative to the largest of its tensor: sums are taken in another order.
    fn tolerance(&self) -> f64;
}

/// `eval` of each node.
pub struct Host<'a> {
    method: &'a Method,
    states: States,
}

impl Host<'_> {
    pub fn new(method: &Method) -> Host<'_> {
        Host { method, states: States::new() }
    }
}

impl Runner for Host<'_> {
    fn run(&mut self, inputs: &[Value]) -> Result<Interpreted> {
        interpret(self.method, inputs, &mut self.states)
    }

    fn state(&mut self, name: &str) -> Result<Option<HostTensor>> {
        Ok(self.states.get(name).cloned())
    }

    fn tolerance(&self) -> f64 {
        1e-5
    }
}

/// The delegate.
pub struct Device(Session);

impl Device {
    pub fn build(context: &Arc<Context>, method: &Method) -> Result<Device> {
        Session::build(context, method.clone(), BuildOptions::default()).map(Device)
    }
}

impl Runner for Device {
    fn run(&mut self, inputs: &[Value]) -> Result<Interpreted> {
        let (user, mutated_inputs) = self.0.run(inputs)?;
        Ok(Interpreted { user, mutated_inputs })
    }

    fn state(&mut self, name: &str) -> Result<Option<HostTensor>> {
        let is_state = self.0.state_names().any(|state| state == name);
        is_state.then(|| self.0.state(name)).transpose()
    }

    fn tolerance(&self) -> f64 {
        1e-4
    }
}

/// Why a check failed.
#[derive(Debug)]
pub enum Failure {
    /// The method as the program has it cannot run on the host, so there is nothing to compare with.
    CannotRun,
    /// The first difference.
    Differs(String),
}

/// Runs `before`, with views and in-place ops as PyTorch has them, and `runner` three times with state.
pub fn check(
    before: &Method,
    runner: &mut dyn Runner,
    inputs: impl Fn(usize) -> Vec<Value>,
) -> std::result::Result<(), Failure> {
    let mut states = States::new();
    let initial: States = constants(before);
    for run in 0..3 {
        let inputs = inputs(run);
        let want = memory::run(before, &inputs, &mut states).map_err(|_| Failure::CannotRun)?;
        compare_run(runner, &inputs, &want, &states, &initial)
            .map_err(|text| Failure::Differs(format!("run {run}, {text}")))?;
    }
    Ok(())
}

fn compare_run(
    runner: &mut dyn Runner,
    inputs: &[Value],
    want: &Interpreted,
    states: &States,
    initial: &States,
) -> std::result::Result<(), String> {
    let tolerance = runner.tolerance();
    let got = runner.run(inputs).map_err(|error| format!("what passes made cannot run: {error}"))?;
    if got.user.len() != want.user.len() {
        return Err(format!("{} outputs, want {}", got.user.len(), want.user.len()));
    }
    for (index, (got, want)) in got.user.iter().zip(&want.user).enumerate() {
        same(got, want, tolerance).map_err(|text| format!("output {index}: {text}"))?;
    }
    for (index, want) in &want.mutated_inputs {
        let got = got.mutated_inputs.iter().find(|(input, _)| input == index);
        let got = got.ok_or_else(|| format!("input {index} is written, and no output says so"))?;
        same(&got.1, want, tolerance).map_err(|text| format!("mutated input {index}: {text}"))?;
    }
    for (name, want) in states {
        let got = runner.state(name).map_err(|error| error.to_string())?;
        let got = got.unwrap_or_else(|| initial[name].clone());
        same(&got.into(), &want.clone().into(), tolerance).map_err(|text| format!("state {name}: {text}"))?;
    }
    Ok(())
}

fn constants(method: &Method) -> States {
    let graph = &method.graph;
    let constants = graph.inputs().iter().filter_map(|input| graph.constant(input.kind.constant()?).ok());
    constants.map(|constant| (constant.name().to_string(), constant.to_tensor().unwrap())).collect()
}

fn same(got: &Value, want: &Value, tolerance: f64) -> std::result::Result<(), String> {
    match (got, want) {
        (Value::Tensor(got), Value::Tensor(want)) => {
            let values = want.to_f64s();
            let largest = values.iter().filter(|value| value.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
            compare::tensors(got, want, tolerance, tolerance * largest)
        }
        _ if got == want => Ok(()),
        _ => Err(format!("got {got:?}, want {want:?}")),
    }
}
