//! `tune`: finds the best kernels for a program on a device, and names those that give wrong results.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::{Value as Json, json};
use vkdelegate::{TuneOptions, TuneReport, TunedChoice, tune};

use crate::{Verdict, args::ModelArgs, output};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Inputs whose sizes are tuned for, as for `run`; without it, sizes at the ends of the program's ranges.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Stop after so many seconds; the largest products come first.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    budget: u64,
    /// Measure again what has been measured before.
    #[arg(long)]
    again: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// For tests: break a kernel in work groups of one size.
    #[arg(long, hide = true, num_args = 3, value_names = ["KERNEL", "X", "Y"])]
    break_work_group: Option<Vec<String>>,
}

pub fn run(args: Args) -> Result<Verdict> {
    let delegate = &args.model.delegate;
    let (program, inputs, gpu) = args
        .model
        .open(|program| args.inputs.as_deref().map(|file| delegate.read_inputs(program, file)).transpose())?;
    if let Some([kernel, sizes @ ..]) = args.break_work_group.as_deref() {
        let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<Vec<u32>, _>>()?;
        gpu.context().break_work_group(kernel, &sizes);
    }
    let options = TuneOptions {
        method: delegate.method.clone(),
        precision: delegate.precision.into(),
        inputs,
        budget: Duration::from_secs(args.budget),
        again: args.again,
    };
    let (bar, started) = (output::progress_bar(0), Instant::now());
    // One choice can take a while.
    bar.enable_steady_tick(Duration::from_millis(500));
    let report = tune(&gpu, &program, &options, |done, all, next| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(next.to_string());
    });
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        output::print_json(&describe_json(&report))?;
    } else {
        output::print(&describe(&report, started.elapsed(), delegate.cache_dir.as_deref()))?;
    }
    Ok(if report.faults().next().is_none() { Verdict::Passed } else { Verdict::Failed })
}

fn describe_json(report: &TuneReport) -> Json {
    let choices = report.choices.iter().map(|choice| {
        let tried = choice.tried.iter().map(|tried| {
            json!({
                "candidate": tried.candidate,
                "best_us": tried.best_us.map(output::number),
                "fault": tried.fault,
            })
        });
        json!({
            "choice": choice.choice, "node": choice.node, "launches": choice.launches, "default": choice.default,
            "picked": choice.picked, "checked_on_host": choice.checked_on_host, "tried": tried.collect::<Vec<_>>(),
        })
    });
    json!({
        "device": report.device,
        "choices": choices.collect::<Vec<_>>(),
        "known": report.known,
        "not_reached": report.not_reached,
        "stored": report.stored,
    })
}

fn describe(report: &TuneReport, took: Duration, cache_dir: Option<&Path>) -> String {
    let mut lines: Vec<String> = report.choices.iter().map(line).collect();
    lines.extend(
        report.faults().map(|(choice, candidate, fault)| format!("WRONG {choice}: {candidate}: {fault}")),
    );
    let TuneReport { device, choices, known, not_reached, stored, .. } = report;
    let (measured, seconds) = (choices.len(), took.as_secs_f64());
    let mut summary = format!("{measured} measured in {seconds:.1} s, {known} known");
    if !not_reached.is_empty() {
        summary += &format!(", {} not reached: give more --budget", not_reached.len());
    }
    match cache_dir {
        _ if *stored => summary += "; kept for programs that name the same cache folder",
        _ if choices.is_empty() => {}
        Some(folder) => summary += &format!("; not kept: {} cannot be written", folder.display()),
        None => summary += "; not kept: name a folder with --cache-dir, here and where the program runs",
    }
    lines.push(format!("{device}: {summary}"));
    lines.join("\n")
}

/// What is chosen, its time, and what the default took or of how many it is the best.
fn line(choice: &TunedChoice) -> String {
    let time_of = |name: &str| {
        let tried = choice.tried.iter().find(|tried| tried.candidate == name);
        tried.and_then(|tried| tried.best_us)
    };
    let text_of = |name: &str| time_of(name).map_or("not timed".to_string(), |us| format!("{us:.0} us"));
    let (name, default, tried) = (&choice.choice, &choice.default, choice.tried.len());
    match choice.picked.as_deref() {
        None => format!("{name}: no candidate is right; nothing changes"),
        Some(picked) if picked == default => {
            format!("{name}: {picked} as before, {}, of {tried} tried", text_of(picked))
        }
        Some(picked) => {
            let saved =
                time_of(picked).zip(time_of(default)).map(|(now, before)| 100.0 * (1.0 - now / before));
            let saved = saved.map_or(String::new(), |part| format!(", {part:.0} % less"));
            format!(
                "{name}: {picked} {} for {default} {}{saved}, of {tried} tried",
                text_of(picked),
                text_of(default)
            )
        }
    }
}
