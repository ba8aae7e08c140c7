//! `verify`: recorded calls replayed, against what PyTorch gave.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value as Json, json};
use vkdelegate::verify::{Failure, VerifyOptions, VerifyReport, verify};

use crate::{Verdict, args::ModelArgs, output, tensors};

/// Failures that the plain output shows; the rest is counted.
const SHOWN: usize = 20;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The recorded calls: METHOD.inv{i}.in{j}, .out{j}, .mut{j} and .buf.NAME in a .safetensors (or .npz) file.
    references: PathBuf,
    /// Relative tolerance [default: 1e-4, 1e-2 with f16].
    #[arg(long)]
    rtol: Option<f64>,
    /// Absolute tolerance [default: 1e-4, 1e-2 with f16].
    #[arg(long)]
    atol: Option<f64>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Verdict> {
    let delegate = &args.model.delegate;
    let (program, references, gpu) = args.model.open(|_| tensors::read(&args.references))?;
    let options = VerifyOptions {
        method: delegate.method.clone(),
        precision: delegate.precision.into(),
        rtol: args.rtol,
        atol: args.atol,
    };
    let bar = output::progress_bar(0);
    bar.set_style(indicatif::ProgressStyle::default_spinner());
    let report = verify(&gpu, &program, &references, &options, |method, inv| {
        bar.set_message(format!("{method}, call {inv}"));
        bar.tick();
    })?;
    bar.finish_and_clear();
    if args.json {
        output::print_json(&describe_json(&report))?;
    } else {
        for failure in report.failures.iter().take(SHOWN) {
            output::print(&describe(failure))?;
        }
        output::print(&summary(&report, &output::device_line(gpu.info())))?;
    }
    Ok(if report.ok() { Verdict::Passed } else { Verdict::Failed })
}

fn describe_json(report: &VerifyReport) -> Json {
    let failures = report.failures.iter().map(|failure| {
        json!({
            "method": failure.method,
            "inv": failure.inv,
            "tensor": failure.tensor,
            "max_abs": failure.max_abs.map(output::number),
            "max_rel": failure.max_rel.map(output::number),
            "index": failure.index,
            "reason": failure.reason,
        })
    });
    json!({"ok": report.ok(), "checked": report.checked, "failures": failures.collect::<Vec<_>>()})
}

fn describe(failure: &Failure) -> String {
    let place = match failure.inv {
        Some(inv) => format!("{}.inv{inv}.{}", failure.method, failure.tensor),
        None => format!("{}{}", failure.method, failure.tensor),
    };
    let place = place.trim_end_matches('.');
    match (failure.max_abs, failure.max_rel) {
        (Some(max_abs), Some(max_rel)) => {
            format!("{place}: {} (off by at most {max_abs:.3e}, relatively {max_rel:.3e})", failure.reason)
        }
        _ => format!("{place}: {}", failure.reason),
    }
}

fn summary(report: &VerifyReport, device: &str) -> String {
    let checked = output::count(report.checked, "tensor");
    if report.ok() {
        format!("ok: {checked} as recorded, on {device}")
    } else {
        let failed = output::count(report.failures.len(), "failure");
        format!("FAILED: {failed}, {checked} compared, on {device}")
    }
}
