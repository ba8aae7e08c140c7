//! Golden cases of the passes: one file of `tests/passes/` per rule and per guard.
//!
//! A file holds a graph, and below `--- after` what all passes make of it. The test compares that text, and then runs
//! both graphs on the host, over several runs with state: they must give the same values, the first with views and
//! in-place ops as PyTorch has them. A graph that has ops which cannot run says `# not run` in a comment, one whose
//! in-place ops must stay `# refused`. `UPDATE=1 cargo test --test passes` writes the lower part.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{collections::BTreeMap, path::Path, path::PathBuf, sync::Arc};

use common::equivalence::{self, Failure, Host};
use libtest_mimic::{Arguments, Failed, Trial};
use vkdelegate::{
    base::{DType, HostTensor, SymEnv, Value, shape},
    ir::{self, Effect, InputKind, Method, Type},
    passes::{self, Optimised},
};

const AFTER: &str = "--- after\n";

fn main() {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let trials = files.into_iter().map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Trial::test(name, move || check(&path))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn check(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let before = text.split(AFTER).next().unwrap_or_default();
    let method = method(before)?;
    let optimised = passes::optimise(&method, &passes::Options::default())?;
    let wanted = format!("{before}{AFTER}{}", report(&optimised));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &wanted)?;
    } else if wanted != text {
        return Err(format!("is now (UPDATE=1 writes it):\n{wanted}").into());
    }
    if before.contains("# refused") {
        return match optimised.method.graph.nodes().any(|(_, node)| ir::effect_of(node) == Effect::Write) {
            true => Ok(()),
            false => Err("it says `# refused`, but no in-place op is left".into()),
        };
    }
    check_values(&method, &optimised.method, before.contains("# not run"))
}

fn method(text: &str) -> Result<Method, Failed> {
    let graph = ir::parse_graph(text)?;
    ir::verify(&graph)?;
    Ok(Method { graph, ranges: BTreeMap::new(), fixed_inputs: BTreeMap::new(), dialect: String::new() })
}

fn report(optimised: &Optimised) -> String {
    let graph = &optimised.method.graph;
    let mut text = graph.to_string();
    for input in graph.inputs() {
        if let InputKind::Derived(id) = input.kind {
            let (name, constant) = (graph.value_name(input.value), graph.constant(id).unwrap());
            text += &format!(
                "derived {name}: strides {:?}, offset {}\n",
                constant.strides(),
                constant.offset_elems()
            );
        }
    }
    for decision in &optimised.decisions {
        text += &format!("decision {} (constant: {})\n", decision.reason, decision.constant);
    }
    for left in &optimised.unfused {
        text += &format!("unfused {} of {}: {}\n", left.kind, left.node, left.reason);
    }
    for warning in &optimised.warnings {
        text += &format!("warning {warning}\n");
    }
    text
}

/// Both methods give the same values; `not_run` says that the first cannot run at all.
fn check_values(before: &Method, after: &Method, not_run: bool) -> Result<(), Failed> {
    match equivalence::check(before, &mut Host::new(after), |run| inputs(before, run)) {
        Err(Failure::CannotRun) if not_run => Ok(()),
        Err(Failure::CannotRun) => Err("an op of the graph cannot run on the host".into()),
        Ok(()) if not_run => Err("it says `# not run`, but it runs".into()),
        Err(Failure::Differs(text)) => Err(text.into()),
        Ok(()) => Ok(()),
    }
}

/// Inputs for run number `run`; every symbol is 3.
fn inputs(method: &Method, run: usize) -> Vec<Value> {
    let env: SymEnv = ["s0", "s1"].into_iter().map(|name| (Arc::from(name), 3)).collect();
    let graph = &method.graph;
    graph
        .user_inputs()
        .map(|value| match &graph.value(value).unwrap().ty {
            Type::Tensor(tensor) => {
                let sizes: Vec<usize> =
                    tensor.sizes.iter().map(|size| size.eval(&env).unwrap() as usize).collect();
                input_tensor(tensor.dtype, sizes, run).into()
            }
            Type::Int(_) => Value::Int(3),
            Type::Float => Value::Float(0.5),
            Type::Bool => Value::Bool(true),
            Type::None => Value::None,
        })
        .collect()
}

fn input_tensor(dtype: DType, sizes: Vec<usize>, run: usize) -> HostTensor {
    let count = shape::numel(&sizes).unwrap();
    let values: Vec<f64> = (0..count).map(|i| ((5 * i + 3 * run) % 11) as f64 - 5.0).collect();
    let scale = if dtype.is_float() { 4.0 } else { 1.0 };
    let values: Vec<f64> = values.iter().map(|value| value / scale).collect();
    HostTensor::from_f64s(dtype, sizes, &values).unwrap()
}
