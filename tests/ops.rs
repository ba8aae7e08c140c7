//! Every op case of `tests/ops/`: the host `eval` against PyTorch's values.
//!
//! One test a case and way, named `eval::FAMILY::CASE`; `cargo test --test ops softmax` runs one family.

mod common;

use common::cases::{self, Case, CaseArg};
use libtest_mimic::{Arguments, Failed, Trial};
use vkdelegate::{
    base::HostTensor,
    ir::OpName,
    ops::{self, ArgValue, Args, Meta},
};

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (family, cases) in cases::all() {
        for case in cases {
            let name = format!("eval::{family}::{}", case.name);
            trials.push(Trial::test(name, move || eval(&case)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn host_args(case: &Case) -> Args<HostTensor> {
    let items = case.args.iter().map(|(name, arg)| {
        let value = match arg.clone() {
            CaseArg::None => ArgValue::None,
            CaseArg::Tensor(tensor) => ArgValue::Tensor(tensor.tensor),
            CaseArg::Tensors(tensors) => ArgValue::Tensors(
                tensors.into_iter().map(|tensor| tensor.map(|tensor| tensor.tensor)).collect(),
            ),
            CaseArg::Scalar(scalar) => ArgValue::Scalar(scalar),
            CaseArg::Ints(items) => ArgValue::Ints(items),
            CaseArg::Floats(items) => ArgValue::Floats(items),
            CaseArg::Bools(items) => ArgValue::Bools(items),
            CaseArg::Str(text) => ArgValue::Str(text),
            CaseArg::DType(dtype) => ArgValue::DType(dtype),
        };
        (name.clone(), value)
    });
    Args::new(OpName::new(&case.op), items.collect())
}

fn eval(case: &Case) -> Result<(), Failed> {
    let op = ops::find(&case.op).ok_or_else(|| format!("{} is not supported", case.op))?;
    let args = host_args(case);
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
