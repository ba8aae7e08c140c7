//! `inspect`: what a build makes of a program, without building it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value as Json, json};
use vkdelegate::{DeviceChoice, Gpu, GpuOptions, Inspection, MethodInfo, Precision};

use crate::{
    Verdict,
    args::{PrecisionArg, ProgramArgs},
    output,
};

#[derive(clap::Args)]
pub struct Args {
    /// The program, a .pt2 file.
    model: PathBuf,
    /// Only this method.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Judge by this device (an index, a part of its name, or its UUID); without it, none is opened.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// How float32 is stored on the device.
    #[arg(long, value_enum, default_value = "f32")]
    precision: PrecisionArg,
    #[command(flatten)]
    program: ProgramArgs,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Verdict> {
    let program = args.program.open(&args.model)?;
    let gpu = match &args.device {
        Some(device) => {
            let device = DeviceChoice::parse(device);
            Some(Gpu::open(GpuOptions { device, ..GpuOptions::default() })?)
        }
        None => None,
    };
    let methods: Vec<MethodInfo<'_>> = match &args.method {
        Some(name) => vec![program.method(name)?],
        None => program.methods().collect(),
    };
    let mut documents = serde_json::Map::new();
    for method in methods {
        let inspection = inspect(method, gpu.as_ref(), args.precision.into())?;
        if args.json {
            documents.insert(method.name().to_string(), describe_json(&inspection));
        } else {
            output::print(&describe(method, &inspection))?;
        }
    }
    if args.json {
        output::print_json(&json!({ "methods": documents }))?;
    }
    Ok(Verdict::Passed)
}

fn inspect(method: MethodInfo<'_>, gpu: Option<&Gpu>, precision: Precision) -> Result<Inspection> {
    method.inspect(gpu, precision).with_context(|| format!("method `{}`", method.name()))
}

fn describe_json(inspection: &Inspection) -> Json {
    let decisions = inspection.decisions.iter().map(|decision| {
        json!({
            "node": decision.node, "op": decision.op, "became": decision.became,
            "operand": decision.operand, "constant": decision.constant, "reason": decision.reason,
        })
    });
    let fusions = inspection.fusions.iter().map(|fusion| json!({"kind": fusion.kind, "nodes": fusion.nodes}));
    let unfused =
        inspection.unfused.iter().map(|it| json!({"kind": it.kind, "node": it.node, "reason": it.reason}));
    let unsupported = inspection.unsupported.iter().map(|refusal| {
        json!({"node": refusal.node, "op": refusal.op, "operand": refusal.operand, "reason": refusal.reason})
    });
    json!({
        "ops": inspection.ops,
        "decisions": decisions.collect::<Vec<_>>(),
        "fusions": fusions.collect::<Vec<_>>(),
        "unfused": unfused.collect::<Vec<_>>(),
        "unsupported": unsupported.collect::<Vec<_>>(),
        "memory": inspection.memory.as_ref().map(output::memory_json),
        "warnings": inspection.warnings,
    })
}

fn describe(method: MethodInfo<'_>, inspection: &Inspection) -> String {
    let mut lines = vec![format!("method {}", method.name()), "  inputs".to_string()];
    lines.extend(method.inputs().iter().enumerate().map(|(index, input)| match &input.fixed {
        Some(value) => format!("    {index} {}: {} (only {value:?})", input.name, input.expects),
        None => format!("    {index} {}: {}", input.name, input.expects),
    }));
    lines.push("  ops".to_string());
    lines.extend(inspection.ops.iter().map(|(op, count)| format!("    {count:4} {op}")));
    let mut section = |title: &str, items: Vec<String>| {
        if !items.is_empty() {
            lines.push(format!("  {title}"));
            lines.extend(items.into_iter().map(|item| format!("    {item}")));
        }
    };
    section("decisions", inspection.decisions.iter().map(|decision| decision.reason.clone()).collect());
    let fusions = inspection.fusions.iter();
    section(
        "fusions",
        fusions.map(|fusion| format!("{}: {}", fusion.kind, fusion.nodes.join(", "))).collect(),
    );
    let unfused = inspection.unfused.iter();
    section(
        "left in pieces",
        unfused.map(|it| format!("{} of {}: {}", it.kind, it.node, it.reason)).collect(),
    );
    section("cannot run", inspection.unsupported.iter().map(ToString::to_string).collect());
    section("memory", inspection.memory.iter().map(output::memory_line).collect());
    section("warnings", inspection.warnings.clone());
    lines.join("\n")
}
