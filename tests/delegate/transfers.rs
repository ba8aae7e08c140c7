//! How inputs reach the device and outputs the host: in place where memory is unified, without a command; through staging
//! buffers elsewhere.

use std::sync::Arc;

use vkdelegate::{
    base::{DType, HostTensor, Value},
    delegate::Context,
    gpu::{GpuOptions, Hooks, UnifiedMemory},
    ir::Method,
};

use crate::support::*;

/// No constant, so no staging but that of inputs and outputs; indices, so that there are status words.
const LOOKUP: &str = "graph lookup
input %table: float32[5, 8]
input %ids: int64[2]
%rows: float32[2, 8] = aten.index_select.default(self=%table, dim=0, index=%ids)
%twice: float32[2, 8] = aten.mul.Tensor(self=%rows, other=2.0)
output %twice
output %ids
";

fn lookup_inputs() -> [Value; 2] {
    [floats(&[5, 8], 0), ints(&[3, 1])]
}

fn reached(context: &Context) -> UnifiedMemory {
    context.gpu().caps().unified_memory
}

/// Commands of one recording of `method`, launches and the barriers between them left out.
fn extra_commands(context: &Arc<Context>, method: &Method, inputs: &[Value]) -> u64 {
    let mut session = build(context, method);
    let before = context.gpu().counters().commands;
    run(&mut session, inputs);
    let plan = session.plan().unwrap();
    let own = plan.dispatches.len() + plan.barriers.iter().filter(|&&waits| waits).count();
    context.gpu().counters().commands - before - own as u64
}

#[test]
fn nothing_is_staged_and_no_command_is_added_where_memory_is_unified() {
    let method = program(LOOKUP);
    // A barrier at each end; two copies or a fill, and their barrier; three copies, and theirs.
    let (ends, uploads, readbacks) = (2, 2 + 1 + 1, 2 + 1 + 1);
    on_each_route(|context| {
        let (staged_in, staged_out) =
            (reached(context) < UnifiedMemory::Written, reached(context) < UnifiedMemory::WrittenAndRead);
        let extra = extra_commands(context, &method, &lookup_inputs());
        let commands = |staged: bool, count: u64| if staged { count } else { 0 };
        assert_eq!(extra, ends + commands(staged_in, uploads) + commands(staged_out, readbacks));
        let mut session = build(context, &method);
        run(&mut session, &lookup_inputs());
        let staged = session.memory_report().staging_bytes;
        // Inputs take 160 and 8 bytes, outputs 64 and 8, the status words 16.
        assert_eq!(staged, commands(staged_in, 160 + 16) + commands(staged_out, 64 + 16 + 16));
        assert_eq!(context.gpu().memory_use().host_bytes, staged);
        if !staged_in && !staged_out {
            assert_eq!(context.gpu().memory_use().host_peak_bytes, 0);
        }
    });
}

#[test]
fn memory_that_caches_do_not_follow_is_flushed_and_invalidated_for_each_tensor() {
    let method = program(LOOKUP);
    let hooks = Hooks::default();
    hooks.force_non_coherent(true);
    on_each_access_with(
        || GpuOptions { hooks: hooks.clone(), ..validated() },
        |context| {
            let mut session = build(context, &method);
            run(&mut session, &lookup_inputs());
            let before = context.gpu().counters();
            assert_matches_host(&mut session, &lookup_inputs());
            let after = context.gpu().counters();
            let status_in = u64::from(reached(context) >= UnifiedMemory::Written);
            assert_eq!(after.flushes - before.flushes, 2 + status_in);
            assert_eq!(after.invalidations - before.invalidations, 2 + 1);
        },
    );
}

/// Runs do not see what the one before left in memory that is not theirs any more, nor its status words.
#[test]
fn a_run_after_one_that_failed_starts_afresh() {
    let method = program(LOOKUP);
    on_each_route(|context| {
        let mut session = build(context, &method);
        for _ in 0..2 {
            let error = session.run(&[floats(&[5, 8], 0), ints(&[3, 5])]).unwrap_err();
            assert!(error.to_string().contains("index 5 is out of range"), "{error}");
            let wide = session.run(&[floats(&[5, 8], 0), ints(&[3, 1 << 40])]).unwrap_err();
            assert!(wide.to_string().contains("input 1"), "{wide}");
            for seed in 0..3 {
                assert_matches_host(&mut session, &[floats(&[5, 8], seed), ints(&[seed as i64, 4])]);
            }
        }
    });
}

/// The sum may take the memory of `x`, which nobody reads after it; runs on the same inputs see them as they were given.
#[test]
fn a_repeated_run_sees_its_inputs_again() {
    let text = "graph repeated
input %total: float32[4, 8] = buffer \"total\"
input %x: float32[4, 8]
input %y: float32[4, 8]
%a: float32[4, 8] = aten.mul.Tensor(self=%x, other=%y)
%n: float32[4, 8] = aten.add.Tensor(self=%total, other=%a)
output %n -> %total
output %a
";
    let method = program(text);
    let (x, y) = (ramp(DType::F32, &[4, 8], 1), ramp(DType::F32, &[4, 8], 5));
    let runs = 4;
    let terms = x.to_f32s().into_iter().zip(y.to_f32s()).map(|(x, y)| x * y);
    let inputs = [Value::Tensor(x.clone()), Value::Tensor(y)];
    on_each_route(|context| {
        let mut session = build(context, &method);
        let overwritten = session.plan().unwrap().overwritten_inputs();
        assert_eq!(overwritten, [0], "the product is not written over x, so this test shows nothing");
        session.set_state("total", &HostTensor::from_f32(&[4, 8], &[0.0; 32]).unwrap()).unwrap();
        run(&mut session, &inputs);
        (1..runs).for_each(|_| session.repeat(&inputs).unwrap());
        let want: Vec<f32> = terms.clone().map(|term| term * runs as f32).collect();
        assert_close(&[session.state("total").unwrap()], &[HostTensor::from_f32(&[4, 8], &want).unwrap()]);
    });
}
