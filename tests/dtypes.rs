//! Every supported op with every dtype: the device gives what the host gives, or the build refuses the node by name.
//!
//! For each target the smallest op case of `tests/ops/` is taken, and its tensors (those of floats, else those of integers
//! that are no positions) are given each dtype in turn. One test a target, named `dtypes::TARGET`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    cases::{self, Case, CaseOutput},
    compare, device,
    dtypes::{program_of, smallest_cases, takes, with_dtype},
};
use libtest_mimic::{Arguments, Failed, Trial};
use vkdelegate::{
    base::{DType, Value},
    delegate::{BuildOptions, Session},
    ops::{self, Meta},
};

fn main() {
    let arguments = Arguments::from_args();
    let trials = smallest_cases()
        .into_iter()
        .map(|(target, case)| Trial::test(format!("dtypes::{target}"), move || every_dtype(&case)))
        .collect();
    let lists = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !lists {
        let messages = device::validation_messages();
        assert!(messages.is_empty(), "the validation layer said: {messages:#?}");
    }
    conclusion.exit();
}

fn every_dtype(case: &Case) -> Result<(), Failed> {
    let unchecked: Vec<bool> =
        case.outputs.iter().map(|output| matches!(output, CaseOutput::Unchecked)).collect();
    let mut wrong = Vec::new();
    for dtype in DType::ALL {
        if let Err(text) = one_dtype(&with_dtype(case, dtype), dtype, &unchecked) {
            wrong.push(format!("{dtype}: {text}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

fn one_dtype(case: &Case, dtype: DType, unchecked: &[bool]) -> Result<(), String> {
    let op = ops::find(&case.op).ok_or("is not supported")?;
    let args = cases::host_args(case);
    let metas = args
        .try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))
        .map_err(|error| error.to_string())?;
    let inferred = op.infer(&metas);
    let outs = inferred.clone().unwrap_or_else(|_| vec![Meta::new(DType::F32, [1])]);
    let one_op = program_of(case, &outs);
    let _turn = device::turn();
    let session = Session::build(&device::context(), one_op.method, BuildOptions::default());
    if session.is_ok() != takes(case) {
        return Err(format!("the README's table says {}, and the device otherwise", takes(case)));
    }
    let mut session = match (&inferred, session) {
        (_, Err(error)) if error.node().is_some() => return Ok(()),
        (_, Err(error)) => return Err(format!("refused without a node: {error}")),
        (Err(reason), Ok(_)) => return Err(format!("built, though {reason}")),
        (Ok(_), Ok(session)) => session,
    };
    let expected = op.eval(&args, &outs);
    let got = match (session.run(&one_op.inputs), &expected) {
        (Ok((values, _)), Ok(_)) => values,
        (Err(error), Err(_)) if error.node().is_some() => return Ok(()),
        (Err(error), _) => return Err(format!("the run failed: {error}")),
        (Ok(_), Err(error)) => return Err(format!("ran, though the host says: {error}")),
    };
    // Half types: one rounding of the output, and one of what lies between where an op has two steps.
    let tolerance = match dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 1e-4,
    };
    let expected = expected.map_err(|error| error.to_string())?;
    for (index, (got, want)) in got.iter().zip(&expected).enumerate() {
        let Value::Tensor(got) = got else { return Err("no tensor".to_string()) };
        if unchecked.get(index) != Some(&true) {
            compare::tensors(got, want, tolerance, tolerance)
                .map_err(|text| format!("output {index}: {text}"))?;
        }
    }
    Ok(())
}
