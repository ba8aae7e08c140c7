//! Several sessions on one device: shared constants, threads, orders of dropping, and nothing that grows with time.

use std::{process::Command, sync::Arc, thread};

use vkdelegate::{
    base::{HostTensor, Value},
    delegate::{BuildHooks, BuildOptions, Context, Session},
    gpu::UnifiedMemory,
    ir::Method,
};

use crate::support::*;

fn classifier(name: &str, features: usize) -> Method {
    program(&format!(
        "graph {name}
input %w: float32[300, {features}] = parameter \"w\"
input %count: float32[300] = buffer \"count\"
input %x: float32[5, {features}]
%h: float32[5, 300] = aten.linear.default(input=%x, weight=%w)
%p: float32[5, 300] = aten._softmax.default(self=%h, dim=1, half_to_float=false)
%s: float32[300] = aten.sum.dim_IntList(self=%p, dim=[0], keepdim=false)
%n: float32[300] = aten.add.Tensor(self=%count, other=%s)
output %n -> %count
output %p
output %n
"
    ))
}

#[test]
fn sessions_of_one_program_share_constants_and_not_states() {
    let method = classifier("shared", 64);
    on_each_access(|context| {
        let mut one = build(context, &method);
        let before = context.gpu().memory_use().device_bytes;
        let two = build(context, &method);
        assert_eq!(context.gpu().memory_use().device_bytes, before + two.memory_report().state_bytes);
        assert_eq!(two.memory_report().constant_bytes, one.memory_report().constant_bytes);
        let initial = two.state("count").unwrap();
        run(&mut one, &[floats(&[5, 64], 0)]);
        assert_ne!(one.state("count").unwrap(), initial);
        assert_eq!(two.state("count").unwrap(), initial);
        drop((one, two));
        let mut again = build(context, &method);
        assert_matches_host(&mut again, &[floats(&[5, 64], 0)]);
    });
}

#[test]
fn the_report_says_what_the_device_holds() {
    let method = classifier("reported", 64);
    on_each_route(|context| {
        let mut session = build(context, &method);
        run(&mut session, &[floats(&[5, 64], 0)]);
        let (report, held) = (session.memory_report(), context.gpu().memory_use());
        let reported = report.constant_bytes + report.state_bytes + report.arena_bytes;
        // Beside these there are the status words only.
        assert!((reported..reported + 64).contains(&held.device_bytes), "{report:?} {held:?}");
        assert_eq!(report.staging_bytes, held.host_bytes);
        assert_eq!(report.arena_bytes, session.plan().unwrap().arena_bytes.iter().sum::<u64>());
    });
}

#[test]
fn a_tied_weight_is_held_once() {
    let text = |second: &str| {
        format!(
            "graph tied
input %w: float32[64, 64] = parameter \"w\"
{second}input %x: float32[5, 64]
%a: float32[5, 64] = aten.linear.default(input=%x, weight=%w)
%b: float32[5, 64] = aten.linear.default(input=%a, weight={})
output %b
",
            if second.is_empty() { "%w" } else { "%v" }
        )
    };
    let tied = program(&text(""));
    let apart = program(&text("input %v: float32[64, 64] = parameter \"v\"\n"));
    on_each_access(|context| {
        assert_eq!(build(context, &tied).memory_report().constant_bytes, 64 * 64 * 4);
        assert_eq!(build(context, &apart).memory_report().constant_bytes, 2 * 64 * 64 * 4);
    });
}

/// Linear layers of odd sizes, the second with `rows * 1001` weights, and a table.
fn packed_model(rows: usize) -> Method {
    program(&format!(
        "graph packed
input %a: float32[33, 17] = parameter \"a\"
input %b: float32[{rows}, 1001] = parameter \"b\"
input %c: float32[5, 7] = parameter \"c\"
input %d: float32[7, 33] = parameter \"d\"
input %table: float32[10, 1001] = parameter \"table\"
input %x: float32[5, 17]
input %ids: int64[5]
%ha: float32[5, 33] = aten.linear.default(input=%x, weight=%a)
%e: float32[5, 1001] = aten.embedding.default(weight=%table, indices=%ids)
%hb: float32[5, {rows}] = aten.linear.default(input=%e, weight=%b)
%hd: float32[5, 7] = aten.linear.default(input=%ha, weight=%d)
%hc: float32[5, 5] = aten.linear.default(input=%hd, weight=%c)
output %hb
output %hc
"
    ))
}

fn packed_model_inputs() -> [Value; 2] {
    [floats(&[5, 17], 3), ints(&[9, 0, 4, 4, 1])]
}

/// Asserts that the device holds what packing at once gives, and gives the bytes.
fn packed_bytes(session: &Session) -> Vec<(String, Vec<u8>)> {
    let packed = session.packed_constants().unwrap();
    let prepacks = &session.plan().unwrap().prepacks;
    assert_eq!(packed.len(), prepacks.len());
    for ((name, bytes), prepack) in packed.iter().zip(prepacks) {
        let mut whole = vec![0; prepack.len_bytes().unwrap()];
        prepack.write(0, &mut whole).unwrap();
        assert!(*bytes == whole, "{name}");
    }
    packed
}

#[test]
fn sixteen_loads_give_the_same_bits() {
    let method = packed_model(31);
    on_each_access(|context| {
        let load = || {
            let mut session = build(context, &method);
            (packed_bytes(&session), run(&mut session, &packed_model_inputs()))
        };
        let first = load();
        for _ in 1..16 {
            assert!(load() == first);
        }
    });
}

#[test]
fn packing_gives_the_same_bits_however_many_constants_a_submission_copies() {
    // 8.8 MB: more than one submission copies.
    let method = packed_model(2201);
    on_each_route(|context| {
        let load = |constants_per_submission: Option<usize>| {
            let before = context.gpu().counters().submissions;
            let hooks = BuildHooks { trusts_lanes: true, constants_per_submission, ..BuildHooks::default() };
            let options = BuildOptions { hooks, ..BuildOptions::default() };
            let mut session = Session::build(context, method.clone(), options).unwrap();
            let submissions = context.gpu().counters().submissions - before;
            let packed = packed_bytes(&session);
            (submissions, (packed, run(&mut session, &packed_model_inputs())))
        };
        // Five constants, one of which takes two submissions at the least.
        let (one, by_one) = load(Some(1));
        let (two, by_twos) = load(Some(2));
        let (all, at_once) = load(None);
        let in_place = context.gpu().caps().unified_memory == UnifiedMemory::WrittenAndRead;
        assert_eq!((one, two, all), if in_place { (0, 0, 0) } else { (6, 4, 2) });
        assert!(by_one == by_twos && by_twos == at_once);
        assert_matches_host(&mut build(context, &method), &packed_model_inputs());
    });
}

fn assert_send<T: Send + 'static>() {}

#[test]
fn threads_with_their_own_sessions_do_not_mix() {
    assert_send::<Session>();
    on_each_access(|context| run_in_threads(context, false));
}

/// Validation layer 1.3.239 (Debian 12) now and then crashes when one thread destroys command buffers, as a build does,
/// while another uses the device. So this part runs in a process without the layer.
#[test]
fn a_thread_builds_while_others_run() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "sharing::builds_beside_runs_without_the_layer"])
        .env("VKDELEGATE_VALIDATION", "0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by `a_thread_builds_while_others_run`"]
fn builds_beside_runs_without_the_layer() {
    on_each_access(|context| run_in_threads(context, true));
}

/// Eight threads run two programs on sessions of their own; with `builds`, a ninth builds and runs a third.
fn run_in_threads(context: &Arc<Context>, builds: bool) {
    let methods = [classifier("one", 64), classifier("two", 33)];
    let input = |model: usize, seed: usize| [floats(&[5, [64, 33][model]], seed)];
    let want: Vec<Vec<Vec<HostTensor>>> = (0..2)
        .map(|model| {
            let mut session = build(context, &methods[model]);
            (0..50).map(|run_index| run(&mut session, &input(model, run_index % 7))).collect()
        })
        .collect();
    let mut sessions: Vec<Session> = (0..8).map(|worker| build(context, &methods[worker % 2])).collect();
    thread::scope(|scope| {
        for (worker, session) in sessions.iter_mut().enumerate() {
            let (model, want) = (worker % 2, &want);
            scope.spawn(move || {
                for (run_index, want) in want[model].iter().enumerate() {
                    assert_eq!(&run(session, &input(model, run_index % 7)), want, "run {run_index}");
                }
            });
        }
        if builds {
            scope.spawn(|| {
                let third = classifier("three", 48);
                for _ in 0..10 {
                    let mut session = build(context, &third);
                    assert_matches_host(&mut session, &[floats(&[5, 48], 0)]);
                }
            });
        }
    });
}

#[test]
fn sessions_and_devices_drop_in_any_order() {
    let method = classifier("dropped", 16);
    let input = [floats(&[5, 16], 0)];
    on_each_access(|context| {
        let access = context.profile().access;
        // The handle of the device first, then the session, then a clone of the device.
        let opened = open(validated(), access);
        let gpu = opened.gpu().clone();
        let mut session = build(&opened, &method);
        drop(opened);
        let outputs = run(&mut session, &input);
        drop(session);
        assert_eq!(gpu.counters().live_objects(), 0);
        drop(gpu);
        // A session that nobody drops, as in a static: the process ends with it.
        std::mem::forget(build(&open(validated(), access), &method));
        // The last of two sessions closes the device, on another thread.
        let opened = open(validated(), access);
        let log = opened.gpu().validation_log();
        let (one, mut two) = (build(&opened, &method), build(&opened, &method));
        drop((one, opened));
        thread::spawn(move || assert_eq!(run(&mut two, &[floats(&[5, 16], 0)]), outputs)).join().unwrap();
        assert_silent(&log);
    });
}
