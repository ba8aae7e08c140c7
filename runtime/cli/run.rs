//! `run`: a method on inputs from files, one run per file, in order, on one delegate.

use std::path::PathBuf;

use anyhow::{Context, Result};
use vkdelegate::{DType, HostTensor, Outputs, Scalar, Value};

use crate::{
    Verdict,
    args::{DeviceArgs, MethodArgs},
    output,
    tensors::{self, NamedTensors},
};

#[derive(clap::Args)]
pub struct Args {
    /// The program, a .pt2 file.
    model: PathBuf,
    /// Inputs of one run: .npz or .safetensors with keys in0, in1, ... or the names of the inputs, or .npy for input 0.
    #[arg(long, value_name = "FILE", required = true)]
    inputs: Vec<PathBuf>,
    /// Write all outputs here (.npz, .safetensors, or .npy for one); without it, a summary is printed.
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    #[command(flatten)]
    method: MethodArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: Args) -> Result<Verdict> {
    if let Some(path) = &args.outputs {
        tensors::Format::of(path)?;
    }
    let program = args.method.program.open(&args.model)?;
    let method = args.method.method(&program)?;
    let inputs = args.inputs.iter().map(|path| {
        let values = method.inputs_from_tensors(tensors::read(path)?);
        values.with_context(|| path.display().to_string())
    });
    let inputs: Vec<Vec<Value>> = inputs.collect::<Result<_>>()?;
    let gpu = args.device.open()?;
    let mut delegate = args.method.builder(&gpu).build(&program)?;
    log::info!("{}: {}", output::device_line(gpu.info()), output::memory_line(&delegate.report().memory));
    let bar = output::progress_bar(inputs.len() as u64);
    let mut results = NamedTensors::new();
    for (index, values) in inputs.iter().enumerate() {
        let outputs = delegate.run(values).with_context(|| args.inputs[index].display().to_string())?;
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
