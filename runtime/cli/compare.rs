//! `compare`: each node on the device and on the host, to find the first that differs.

use std::path::PathBuf;

use anyhow::Result;
use vkdelegate::compare::{CompareOptions, Difference, compare};

use crate::{Verdict, args::ModelArgs, output};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Inputs, as for `run`; without it, made-up ones within the program's ranges.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Make this kernel compute something else, to see that it is found.
    #[arg(long, hide = true)]
    break_kernel: Option<String>,
}

pub fn run(args: Args) -> Result<Verdict> {
    let delegate = &args.model.delegate;
    let (program, inputs, gpu) =
        args.model.open(|program| delegate.read_or_make_inputs(program, args.inputs.as_deref()))?;
    if let Some(kernel) = &args.break_kernel {
        gpu.context().break_kernel(kernel);
    }
    let options = CompareOptions { method: delegate.method.clone(), precision: delegate.precision.into() };
    let bar = output::progress_bar(0);
    let report = compare(&gpu, &program, &inputs, &options, |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    let device = output::device_line(gpu.info());
    if let Some(nan) = &report.first_nan {
        let (node, op, value) = (&nan.node, &nan.op, &nan.value);
        output::print(&format!("note: the first NaN is in value {value} of node {node} ({op})"))?;
    }
    match report.differences.first() {
        None => {
            let nodes = output::count(report.nodes, "node");
            output::print(&format!("ok: {nodes} as the host computes, on {device}"))?;
            Ok(Verdict::Passed)
        }
        Some(first) => {
            output::print(&describe(first))?;
            let differing = output::count(report.differences.len(), "difference");
            let nodes = output::count(report.nodes, "node");
            output::print(&format!("FAILED: {differing} in {nodes}, on {device}"))?;
            Ok(Verdict::Failed)
        }
    }
}

fn describe(difference: &Difference) -> String {
    let mut lines = vec![match &difference.node {
        Some(node) => {
            format!("first difference: node {node} ({}), value {}", difference.op, difference.value)
        }
        None => format!("every node alone agrees, but the whole method does not: {}", difference.value),
    }];
    lines.push(format!("  {}", difference.mismatch.reason));
    if let (Some(max_abs), Some(max_rel)) = (difference.mismatch.max_abs, difference.mismatch.max_rel) {
        lines.push(format!("  off by at most {max_abs:.3e}, relatively {max_rel:.3e}"));
    }
    lines.extend(difference.operands.iter().map(|operand| format!("  read {operand}")));
    lines.join("\n")
}
