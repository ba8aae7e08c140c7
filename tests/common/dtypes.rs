//! One case of each op with its tensors in every dtype: what the test of dtypes runs, and what the README's table tells.

use std::collections::{BTreeMap, HashSet};

use vkdelegate::{
    base::{DType, HostTensor},
    ops::{self, Meta, Precision},
    passes,
    plan::{self, PlanOptions},
    shader::DeviceProfile,
};

use super::{
    cases::{self, Case, CaseArg},
    one_op::{OneOp, one_op},
};

/// For each target the case with the fewest elements, but with some, and with values that most dtypes can hold.
pub fn smallest_cases() -> BTreeMap<String, Case> {
    let mut smallest: BTreeMap<String, (usize, Case)> = BTreeMap::new();
    for (_, cases) in cases::all() {
        for mut case in cases.into_iter().filter(|case| case.refused.is_none()) {
            if !tensors(&mut case)
                .all(|(_, tensor)| tensor.to_f64s().iter().all(|value| value.abs() <= 1000.0))
            {
                continue;
            }
            let elems = input_elems(&case);
            let better = smallest.get(&case.op).is_none_or(|(known, _)| elems < *known);
            if elems > 1 && better {
                smallest.insert(case.op.clone(), (elems, case));
            }
        }
    }
    smallest.into_iter().map(|(target, (_, case))| (target, case)).collect()
}

fn input_elems(case: &Case) -> usize {
    let count = |arg: &CaseArg| match arg {
        CaseArg::Tensor(tensor) => tensor.tensor.len_elems(),
        CaseArg::Tensors(tensors) => tensors.iter().flatten().map(|tensor| tensor.tensor.len_elems()).sum(),
        _ => 0,
    };
    case.args.iter().map(|(_, arg)| count(arg)).sum()
}

/// The case with its tensors of floats, or else of integers that are no positions, as `dtype`; of a dequantisation, the codes.
pub fn with_dtype(case: &Case, dtype: DType) -> Case {
    let mut case = case.clone();
    let has_codes = case.op.contains(".dequantize_");
    let has_floats = tensors(&mut case).any(|(_, tensor)| tensor.dtype().is_float());
    for (name, tensor) in tensors(&mut case) {
        let changes = match (has_codes, has_floats) {
            (true, _) => name == "input",
            (false, true) => tensor.dtype().is_float(),
            (false, false) => !matches!(name, "index" | "indices" | "mask"),
        };
        if changes {
            *tensor = tensor.cast(dtype).unwrap();
        }
    }
    for (name, arg) in case.args.iter_mut().filter(|_| has_codes) {
        // The call says of which dtype its codes are.
        if matches!(arg, CaseArg::DType(_)) && matches!(name.as_str(), "dtype" | "input_dtype") {
            *arg = CaseArg::DType(dtype);
        }
    }
    case.outputs = Vec::new();
    case
}

fn tensors(case: &mut Case) -> impl Iterator<Item = (&str, &mut HostTensor)> {
    case.args.iter_mut().flat_map(|(name, arg)| {
        let found: Vec<&mut HostTensor> = match arg {
            CaseArg::Tensor(tensor) => vec![&mut tensor.tensor],
            CaseArg::Tensors(tensors) => {
                tensors.iter_mut().flatten().map(|tensor| &mut tensor.tensor).collect()
            }
            _ => Vec::new(),
        };
        found.into_iter().map(|tensor| (name.as_str(), tensor))
    })
}

/// The one-node program of a case, as the passes leave it; `outs` are the metas of its outputs.
pub fn program_of(case: &Case, outs: &[Meta]) -> OneOp {
    let mut program = one_op(case, outs);
    if case.needs_passes() {
        program.method = passes::optimise(&program.method, &passes::Options::default()).unwrap().method;
    }
    program
}

/// Whether a device of the least kind takes the case, as a plan tells without one.
pub fn takes(case: &Case) -> bool {
    let Some(op) = ops::find(&case.op) else { return false };
    let metas = cases::host_args(case).try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())));
    let Ok(outs) = metas.and_then(|metas| op.infer(&metas)) else { return false };
    let method = program_of(case, &outs).method;
    let envs = plan::sample_envs(&method, 1);
    let options = PlanOptions {
        profile: DeviceProfile::minimum(),
        precision: Precision::F32,
        pinned_f32: HashSet::new(),
    };
    plan::check_all(&method, &envs).is_ok_and(|refusals| refusals.is_empty())
        && plan::sample_inputs(&method, &envs[0]).and_then(|key| plan::build(&method, &key, &options)).is_ok()
}
