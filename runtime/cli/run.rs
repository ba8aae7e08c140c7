//! `run`: a method on inputs from files, one run per file, in order, on one delegate.

use std::path::PathBuf;

use anyhow::{Context, Result};
use vkdelegate::{DType, Delegate, HostDelegate, HostTensor, Outputs, Program, Scalar, Value};

use crate::{
    Verdict,
    args::ModelArgs,
    output,
    tensors::{self, NamedTensors},
};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Inputs of one run: .npz or .safetensors with keys in0, in1, ... or the names of the inputs, or .npy for input 0.
    #[arg(long, value_name = "FILE", required = true)]
    inputs: Vec<PathBuf>,
    /// Write all outputs here (.npz, .safetensors, or .npy for one); without it, a summary is printed.
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Run on the host, slowly and in float32, when no device can be opened.
    #[arg(long)]
    fallback: bool,
}

/// What runs: a device, or the host in its place.
enum Runner {
    Device(Box<Delegate>),
    Host(Box<HostDelegate>),
}

impl Runner {
    fn build(args: &Args, program: &Program) -> Result<Runner> {
        let gpu = match args.model.delegate.open_gpu() {
            Ok(gpu) => gpu,
            Err(error) if args.fallback => {
                eprintln!("warning: running on the host, as no device can be opened: {error:#}");
                let delegate = HostDelegate::build(program, args.model.delegate.method.as_deref())?;
                return Ok(Runner::Host(Box::new(delegate)));
            }
            Err(error) => return Err(error),
        };
        let delegate = args.model.delegate.builder(&gpu).build(program)?;
        let memory = output::memory_line(&delegate.report().memory);
        log::info!("{}: {memory}", output::device_line(gpu.info()));
        Ok(Runner::Device(Box::new(delegate)))
    }

    fn run(&mut self, inputs: &[Value]) -> vkdelegate::Result<Outputs> {
        match self {
            Runner::Device(delegate) => delegate.run(inputs),
            Runner::Host(delegate) => delegate.run(inputs),
        }
    }
}

pub fn run(args: Args) -> Result<Verdict> {
    if let Some(path) = &args.outputs {
        tensors::check_writable(path)?;
    }
    let ModelArgs { model, delegate } = &args.model;
    let program = delegate.program.open(model)?;
    let inputs = args.inputs.iter().map(|file| delegate.read_inputs(&program, file));
    let inputs: Vec<Vec<Value>> = inputs.collect::<Result<_>>()?;
    let mut runner = Runner::build(&args, &program)?;
    let bar = output::progress_bar(inputs.len() as u64);
    let mut results = NamedTensors::new();
    for (index, values) in inputs.iter().enumerate() {
        let outputs = runner.run(values).with_context(|| args.inputs[index].display().to_string())?;
        let prefix = if inputs.len() > 1 { format!("inv{index}.") } else { String::new() };
        collect(&mut results, &prefix, outputs);
        bar.inc(1);
    }
    bar.finish_and_clear();
    match &args.outputs {
        Some(path) => tensors::write(path, &results)?,
        None => {
            for (name, tensor) in &results {
                output::print(&format!("{name}: {tensor:?}"))?;
            }
        }
    }
    Ok(Verdict::Passed)
}

fn collect(results: &mut NamedTensors, prefix: &str, outputs: Outputs) {
    let user = outputs.user.into_iter().enumerate().map(|(index, value)| (format!("out{index}"), value));
    let mutated = outputs.mutated_inputs.into_iter().map(|(index, value)| (format!("mut{index}"), value));
    results.extend(
        user.chain(mutated).filter_map(|(name, value)| Some((format!("{prefix}{name}"), as_tensor(value)?))),
    );
}

/// Scalars as 0-d tensors; `None` not at all.
fn as_tensor(value: Value) -> Option<HostTensor> {
    match value {
        Value::Tensor(tensor) => Some(tensor),
        Value::Int(value) => Some(HostTensor::scalar(DType::I64, Scalar::Int(value))),
        Value::Float(value) => Some(HostTensor::scalar(DType::F64, Scalar::Float(value))),
        Value::Bool(value) => Some(HostTensor::scalar(DType::Bool, Scalar::Bool(value))),
        _ => None,
    }
}
