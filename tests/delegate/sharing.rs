//! Several sessions on one device: shared constants, threads, orders of dropping, and nothing that grows with time.

use std::{sync::Arc, thread};

use vkdelegate::{base::HostTensor, delegate::Session, ir::Method};

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
    on_each_access(|context| {
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

#[test]
fn sixteen_loads_give_the_same_bits() {
    let method = classifier("loaded", 64);
    on_each_access(|context| {
        let load = || run(&mut build(context, &method), &[floats(&[5, 64], 3)]);
        let first = load();
        for _ in 1..16 {
            assert_eq!(load(), first);
        }
    });
}

fn assert_send<T: Send + 'static>() {}

#[test]
fn threads_with_their_own_sessions_do_not_mix() {
    assert_send::<Session>();
    let methods = [classifier("one", 64), classifier("two", 33)];
    let input = |model: usize, seed: usize| [floats(&[5, [64, 33][model]], seed)];
    on_each_access(|context| {
        let want: Vec<Vec<Vec<HostTensor>>> = (0..2)
            .map(|model| {
                let mut session = build(context, &methods[model]);
                (0..50).map(|run_index| run(&mut session, &input(model, run_index % 7))).collect()
            })
            .collect();
        thread::scope(|scope| {
            for worker in 0..8 {
                let (model, context, methods, want) = (worker % 2, Arc::clone(context), &methods, &want);
                scope.spawn(move || {
                    let mut session = build(&context, &methods[model]);
                    for (run_index, want) in want[model].iter().enumerate() {
                        assert_eq!(&run(&mut session, &input(model, run_index % 7)), want, "run {run_index}");
                    }
                });
            }
            let context = Arc::clone(context);
            scope.spawn(move || {
                let third = classifier("three", 48);
                for _ in 0..10 {
                    let mut session = build(&context, &third);
                    assert_matches_host(&mut session, &[floats(&[5, 48], 0)]);
                }
            });
        });
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
