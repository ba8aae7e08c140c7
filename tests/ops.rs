//! Every op case of `tests/ops/`: the host `eval` and the GPU, both against PyTorch's values.
//!
//! One test a case and way, named `eval::FAMILY::CASE` and `gpu::FAMILY::CASE`; `cargo test --test ops gpu::softmax` runs
//! one family on the device.

mod common;

use common::{
    cases::{self, Case},
    device, one_op,
};
use libtest_mimic::{Arguments, Failed, Trial};
use vkdelegate::{
    base::{DType, HostTensor, Value},
    delegate::{BuildOptions, Session},
    ops::{self, Meta},
    passes,
};

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (family, cases) in cases::all() {
        for case in cases {
            let name = format!("eval::{family}::{}", case.name);
            let gpu_case = case.clone();
            trials.push(Trial::test(name, move || eval(&case)));
            let name = format!("gpu::{family}::{}", gpu_case.name);
            trials.push(Trial::test(name, move || gpu(&gpu_case)));
        }
    }
    let lists = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !lists {
        let messages = device::validation_messages();
        assert!(messages.is_empty(), "the validation layer said: {messages:#?}");
    }
    conclusion.exit();
}

fn eval(case: &Case) -> Result<(), Failed> {
    let op = ops::find(&case.op).ok_or_else(|| format!("{} is not supported", case.op))?;
    let args = cases::host_args(case);
    let metas = args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?;
    let inferred = op.infer(&metas);
    if let Some(reason) = &case.refused {
        return match inferred {
            Ok(outs) if op.eval(&args, &outs).is_ok() => Err(format!("not refused, though {reason}").into()),
            _ => Ok(()),
        };
    }
    let outs = inferred?;
    let got = op.eval(&args, &outs)?;
    for (got, out) in got.iter().zip(&outs) {
        if got.dtype() != out.dtype || got.sizes() != out.sizes {
            return Err(format!(
                "eval gave {}{:?}, infer {}{:?}",
                got.dtype(),
                got.sizes(),
                out.dtype,
                out.sizes
            )
            .into());
        }
    }
    cases::check(&got, case).map_err(Failed::from)
}

/// Refused cases need some type for their output; the build must refuse before it matters.
fn any_meta() -> Vec<Meta> {
    vec![Meta::new(DType::F32, [1])]
}

fn gpu(case: &Case) -> Result<(), Failed> {
    let _turn = device::turn();
    let op = ops::find(&case.op).ok_or_else(|| format!("{} is not supported", case.op))?;
    let metas = cases::host_args(case).try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?;
    let outs = match (&case.refused, op.infer(&metas)) {
        (Some(_), outs) => outs.unwrap_or_else(|_| any_meta()),
        (None, outs) => outs?,
    };
    let mut one_op = one_op::one_op(case, &outs);
    if case.needs_passes() {
        one_op.method = passes::optimise(&one_op.method, &passes::Options::default())?.method;
    }
    let session = Session::build(&device::context(), one_op.method, BuildOptions::default());
    if let Some(reason) = &case.refused {
        return match session {
            Err(error) if error.node() == Some("the_node") => Ok(()),
            Err(error) => Err(format!("refused without the node's name: {error}").into()),
            Ok(mut session) => match session.run(&one_op.inputs) {
                Err(error) if error.node() == Some("the_node") => Ok(()),
                _ => Err(format!("not refused, though {reason}").into()),
            },
        };
    }
    let (values, _) = session?.run(&one_op.inputs)?;
    let got: Vec<HostTensor> = values
        .into_iter()
        .map(|value| if let Value::Tensor(tensor) = value { Ok(tensor) } else { Err("no tensor") })
        .collect::<Result<_, _>>()?;
    cases::check(&got, case).map_err(Failed::from)
}
