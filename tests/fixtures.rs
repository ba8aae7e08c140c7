//! Every exported program of `tests/fixtures/` on the device, against what PyTorch gave.
//!
//! One test a program and precision, named `f32::CASE::METHOD` and `f16::CASE::METHOD`, and one for each program that
//! has to be refused. Stateless ones run their calls again, as `again::CASE::METHOD`. Quantised programs run on the
//! host too, fused, as `host::CASE::METHOD`. Access is what `VKDELEGATE_ACCESS` says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "../runtime/cli/tensors/mod.rs"]
#[allow(dead_code, unused_imports)]
mod tensors;

use std::{collections::HashMap, path::PathBuf};

use common::{compare, device, reference};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value as Json;
use vkdelegate::{
    Delegate, ErrorKind, Gpu, Outputs, Precision, Program, passes,
    verify::{VerifyOptions, verify},
};

/// Both tolerances of float32 programs that run in half precision.
const F16_TOLERANCE: f64 = 2e-2;

/// Softmax of logits around 300, which half precision holds to 1/8: a probability may be off by an eighth of itself.
const ILL_CONDITIONED_IN_F16: (&str, f64) = ("written_out_norms", 0.125);

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = refusals();
    for (name, case) in json("manifest.json")["cases"].as_object().unwrap() {
        trials.extend(replays(name, case));
    }
    let lists = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !lists {
        let messages = device::validation_messages();
        assert!(messages.is_empty(), "the validation layer said: {messages:#?}");
    }
    conclusion.exit();
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn json(name: &str) -> Json {
    serde_json::from_str(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}

fn has_tag(case: &Json, tag: &str) -> bool {
    case["tags"].as_array().unwrap().iter().any(|item| item == tag)
}

fn replays(name: &str, case: &Json) -> Vec<Trial> {
    let mut trials = Vec::new();
    let halves = has_tag(case, "fp16") || has_tag(case, "bf16");
    for method in case["programs"].as_object().unwrap().keys() {
        let tolerances = (case["rtol"].as_f64().unwrap(), case["atol"].as_f64().unwrap());
        if has_tag(case, "quant") {
            trials.push(replay_on_host(name, case, method, tolerances));
        }
        trials.push(replay("f32", name, case, method, Precision::F32, tolerances));
        if case["stateful"] == false {
            trials.push(run_again(name, case, method));
        }
        if !halves {
            let (ill_conditioned, tolerance) = ILL_CONDITIONED_IN_F16;
            let tolerance = if name == ill_conditioned { tolerance } else { F16_TOLERANCE };
            let tolerances = (tolerance, tolerance);
            trials.push(replay("f16", name, case, method, Precision::F16, tolerances));
        }
    }
    trials
}

fn replay(
    way: &str,
    name: &str,
    case: &Json,
    method: &str,
    precision: Precision,
    (rtol, atol): (f64, f64),
) -> Trial {
    let archive = folder().join(case["archive"].as_str().unwrap());
    let reference = folder().join(case["reference"].as_str().unwrap());
    let options =
        VerifyOptions { method: Some(method.to_string()), precision, rtol: Some(rtol), atol: Some(atol) };
    Trial::test(format!("{way}::{name}::{method}"), move || {
        let program = Program::open(&archive)?;
        let references = tensors::read(&reference).map_err(|error| format!("{error:#}"))?;
        let _turn = device::turn();
        let gpu = Gpu::from_context(device::context());
        let report = verify(&gpu, &program, &references, &options, |_, _| {})?;
        if report.ok() { Ok(()) } else { Err(format!("{:#?}", report.failures).into()) }
    })
}

/// Runs the first recorded call, all others, and the first again, on one delegate: its outputs keep their bits.
fn run_again(name: &str, case: &Json, method: &str) -> Trial {
    let archive = folder().join(case["archive"].as_str().unwrap());
    let recorded = folder().join(case["reference"].as_str().unwrap());
    let calls = case["programs"][method]["invocations"].as_u64().unwrap();
    let method = method.to_string();
    Trial::test(format!("again::{name}::{method}"), move || {
        let program = Program::open(&archive)?;
        let info = program.method(&method)?;
        let recorded = tensors::read(&recorded).map_err(|error| format!("{error:#}"))?;
        let _turn = device::turn();
        let gpu = Gpu::from_context(device::context());
        let mut delegate = Delegate::builder(&gpu).method(&method).build(&program)?;
        let mut run = |call: u64| -> Result<Outputs, Failed> {
            let inputs = (0..info.inputs().len()).map(|index| {
                let recorded = recorded.get(&format!("{method}.inv{call}.in{index}"));
                info.input_from_tensor(index, recorded.cloned())
            });
            Ok(delegate.run(&inputs.collect::<Result<Vec<_>, _>>()?)?)
        };
        let first = run(0)?;
        for call in 1..calls {
            run(call)?;
        }
        if run(0)? == first {
            Ok(())
        } else {
            Err("the first call gives other bits when it comes again".into())
        }
    })
}

/// Runs the fused program with `eval`.
fn replay_on_host(name: &str, case: &Json, method: &str, (rtol, atol): (f64, f64)) -> Trial {
    let archive = folder().join(case["archive"].as_str().unwrap());
    let recorded = folder().join(case["reference"].as_str().unwrap());
    let calls = case["programs"][method]["invocations"].as_u64().unwrap();
    let method = method.to_string();
    Trial::test(format!("host::{name}::{method}"), move || {
        let program = Program::open(&archive)?;
        let info = program.method(&method)?;
        let graph = passes::optimise(info.ir(), &passes::Options::default())?.method.graph;
        let recorded = tensors::read(&recorded).map_err(|error| format!("{error:#}"))?;
        let named =
            |call: u64, what: &str, index: usize| recorded.get(&format!("{method}.inv{call}.{what}{index}"));
        for call in 0..calls {
            let inputs = (0..info.inputs().len())
                .map(|index| info.input_from_tensor(index, named(call, "in", index).cloned()))
                .collect::<Result<Vec<_>, _>>()?;
            let (outputs, _) = reference::run(&graph, &inputs, &HashMap::new());
            assert!(named(call, "out", outputs.len()).is_none() && !outputs.is_empty());
            for (index, got) in outputs.iter().enumerate() {
                let want = named(call, "out", index).ok_or("an output has no reference")?;
                compare::tensors(got, want, rtol, atol)
                    .map_err(|text| format!("call {call}, output {index}: {text}"))?;
            }
        }
        Ok(())
    })
}

fn refusals() -> Vec<Trial> {
    let mut trials = vec![Trial::test("refused::legacy", || {
        let error = Program::open(folder().join("legacy/legacy_2_5.pt2")).err().ok_or("it was opened")?;
        if error.kind() == ErrorKind::Unsupported && error.to_string().contains("export") {
            Ok(())
        } else {
            Err(format!("{error:?}").into())
        }
    })];
    for (name, case) in json("refused/refused.json").as_object().unwrap() {
        let archive = folder().join("refused").join(case["archive"].as_str().unwrap());
        let names: Vec<String> =
            case["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string()).collect();
        trials.push(Trial::test(format!("refused::{name}"), move || refused(&archive, &names)));
    }
    trials
}

fn refused(archive: &std::path::Path, names: &[String]) -> Result<(), Failed> {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    let error = match Program::open(archive) {
        Ok(program) => Delegate::builder(&gpu).build(&program).err().ok_or("it was built")?,
        Err(error) => error,
    };
    let text = error.to_string();
    if error.kind() != ErrorKind::Unsupported {
        return Err(format!("the error is of the wrong kind: {error:?}").into());
    }
    if let Some(missing) = names.iter().find(|name| !text.contains(name.as_str())) {
        return Err(format!("`{missing}` is not named in: {text}").into());
    }

    Ok(())
}
