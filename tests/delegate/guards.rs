//! Kernels write where their outputs lie and nowhere else: what lies beside them in the arena keeps its bytes.

use std::{collections::HashMap, sync::Arc};

use vkdelegate::{
    delegate::{Context, Session},
    ops::{self, Meta},
    passes,
    plan::{Place, Plan},
};

use crate::{
    common::{
        cases::{self, Case},
        one_op,
    },
    support::*,
};

const GUARD: u32 = 0x5aa5_c33c;

/// How many bytes of the arena belong to no tensor, and where among them a run has changed some.
fn written_gaps(plan: &Plan, arena: &[Vec<u8>]) -> (usize, Vec<(usize, usize)>) {
    let mut owned: Vec<Vec<bool>> = arena.iter().map(|bytes| vec![false; bytes.len()]).collect();
    for (storage, place) in plan.storages.iter().zip(&plan.places) {
        if let Place::Arena { buffer, offset_bytes } = place {
            let start = *offset_bytes as usize;
            owned[*buffer as usize][start..start + storage.len_bytes as usize].fill(true);
        }
    }
    let guard = GUARD.to_le_bytes();
    let (mut gaps, mut written) = (0, Vec::new());
    for (buffer, (bytes, owned)) in arena.iter().zip(&owned).enumerate() {
        for at in (0..bytes.len()).filter(|&at| !owned[at]) {
            gaps += 1;
            if bytes[at] != guard[at % 4] {
                written.push((buffer, at));
            }
        }
    }
    (gaps, written)
}

/// Runs a case with guards around its tensors; gives how many bytes lay beside them.
fn check_case(context: &Arc<Context>, case: &Case) -> Result<usize, String> {
    let op = ops::find(&case.op).ok_or("is not supported")?;
    let metas = cases::host_args(case).try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())));
    let outs = metas.and_then(|metas| op.infer(&metas)).map_err(|error| error.to_string())?;
    let mut one_op = one_op::one_op(case, &outs);
    if case.needs_passes() {
        let optimised = passes::optimise(&one_op.method, &passes::Options::default());
        one_op.method = optimised.map_err(|error| error.to_string())?.method;
    }
    let mut session: Session = try_build(context, &one_op.method).map_err(|error| error.to_string())?;
    run(&mut session, &one_op.inputs);
    session.fill_arena(GUARD).map_err(|error| error.to_string())?;
    let got = run(&mut session, &one_op.inputs);
    cases::check(&got, case)?;
    let (arena, plan) = (session.arena().map_err(|error| error.to_string())?, session.plan().unwrap());
    if plan.dispatches.iter().any(|dispatch| dispatch.groups.contains(&0)) {
        return Err("dispatches no work groups".to_string());
    }
    let (gaps, written) = written_gaps(plan, &arena);
    if written.is_empty() { Ok(gaps) } else { Err(format!("writes at {written:?}")) }
}

/// A case of every op, and all of the products, whose sizes fit no tile.
#[test]
fn no_op_writes_beside_its_outputs() {
    let is_small =
        |case: &Case| !case.outputs.iter().any(|out| matches!(out, cases::CaseOutput::Sampled { .. }));
    on_each_access(|context| {
        let mut taken: HashMap<String, usize> = HashMap::new();
        let (mut wrong, mut guarded) = (Vec::new(), 0);
        for (family, cases) in cases::all() {
            for case in cases.iter().filter(|case| case.refused.is_none()) {
                let taken = taken.entry(case.op.clone()).or_default();
                *taken += usize::from(is_small(case));
                if family != "matmul_shapes" && (*taken > 1 || !is_small(case)) {
                    continue;
                }
                match check_case(context, case) {
                    Ok(gaps) => guarded += usize::from(gaps > 0),
                    Err(text) => wrong.push(format!("{family}::{}: {text}", case.name)),
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(guarded > 250, "only {guarded} cases left bytes to guard");
    });
}
