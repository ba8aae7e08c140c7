//! Programs with symbolic sizes: each length as a fresh static program gives it, recorded once, in memory that grows on demand.

use vkdelegate::ir::Method;

use crate::support::*;

/// Mixes rows of a `[n, 8]` input, so that a stale row would show.
fn mixer(n: &str) -> String {
    format!(
        "graph mixer
input %w: float32[8, 8] = parameter \"w\"
input %x: float32[{n}, 8]
%h: float32[{n}, 8] = aten.linear.default(input=%x, weight=%w)
%t: float32[8, {n}] = aten.permute.default(self=%h, dims=[1, 0])
%s: float32[{n}, {n}] = aten.mm.default(self=%h, mat2=%t)
%p: float32[{n}, {n}] = aten._softmax.default(self=%s, dim=-1, half_to_float=false)
%o: float32[{n}, 8] = aten.mm.default(self=%p, mat2=%h)
%m: float32[8] = aten.sum.dim_IntList(self=%o, dim=[0], keepdim=false)
output %o
output %m
"
    )
}

fn dynamic_mixer() -> Method {
    dynamic_program(&mixer("s0"), &[("s0", 1, 128)])
}

#[test]
fn every_length_equals_a_fresh_static_run() {
    let method = dynamic_mixer();
    on_each_access(|context| {
        let mut session = build(context, &method);
        for length in [8usize, 3, 8, 5, 1, 128, 8, 77] {
            let input = [floats(&[length, 8], length)];
            let got = run(&mut session, &input);
            assert_eq!(got[0].sizes(), [length, 8]);
            let mut fresh = build(context, &program(&mixer(&length.to_string())));
            assert_eq!(assert_matches_host(&mut fresh, &input), got, "length {length}");
        }
    });
}

#[test]
fn lookups_of_each_length_sum_no_stale_rows() {
    let text = "graph lookup
input %table: float32[50, 16] = parameter \"table\"
input %w: float32[4, 16] = parameter \"w\"
input %ids: int64[s0]
%e: float32[s0, 16] = aten.embedding.default(weight=%table, indices=%ids)
%s: float32[16] = aten.sum.dim_IntList(self=%e, dim=[0], keepdim=false)
%r: float32[1, 16] = aten.view.default(self=%s, size=[1, 16])
%y: float32[1, 4] = aten.linear.default(input=%r, weight=%w)
output %e
output %y
";
    let method = dynamic_program(text, &[("s0", 1, 128)]);
    on_each_access(|context| {
        let mut session = build(context, &method);
        for length in [128, 5, 77] {
            let ids: Vec<i64> = (0..length).map(|i| (i * 7) % 50).collect();
            assert_matches_host(&mut session, &[ints(&ids)]);
        }
    });
}

#[test]
fn a_shape_is_recorded_once_and_needs_no_pipeline_when_it_returns() {
    let method = dynamic_mixer();
    on_each_access(|context| {
        let counters = || context.gpu().counters();
        let mut session = build(context, &method);
        run(&mut session, &[floats(&[128, 8], 0)]);
        let largest = counters();
        for _ in 0..10 {
            run(&mut session, &[floats(&[128, 8], 1)]);
        }
        assert_eq!(counters().recordings, largest.recordings);
        assert_eq!(counters().submissions, largest.submissions + 10);
        run(&mut session, &[floats(&[5, 8], 0)]);
        assert_eq!(counters().recordings, largest.recordings + 1);
        for length in [128, 5, 128] {
            run(&mut session, &[floats(&[length, 8], 0)]);
        }
        assert_eq!(counters().recordings, largest.recordings + 1);
        assert_eq!(counters().pipelines_created, largest.pipelines_created);
        assert_eq!(counters().allocations, largest.allocations);
    });
}

#[test]
fn the_build_makes_exactly_the_pipelines_that_runs_need() {
    let method = dynamic_mixer();
    on_each_access(|context| {
        let mut session = build(context, &method);
        let built = context.gpu().counters().pipelines_created;
        for length in [1, 2, 3, 8, 33, 64, 127, 128] {
            run(&mut session, &[floats(&[length, 8], 0)]);
        }
        assert_eq!(context.gpu().counters().pipelines_created, built, "a run made a pipeline");
        let text = "graph one\ninput %x: float32[4]\n%y: float32[4] = aten._softmax.default(self=%x, dim=0, half_to_float=false)\noutput %y\n";
        let one = build(context, &program(text));
        let mut kernels: Vec<_> =
            one.plan().unwrap().dispatches.iter().map(|d| (d.kernel, d.spec.clone())).collect();
        kernels.dedup();
        assert_eq!(kernels.len(), 1);
        assert!(context.gpu().counters().pipelines_created <= built + 1);
    });
}

#[test]
fn planning_shapes_without_running_them_leaves_no_trace() {
    let method = dynamic_mixer();
    on_each_access(|context| {
        let mut session = build(context, &method);
        // Refused runs plan nothing and record nothing.
        session.run(&[floats(&[129, 8], 0)]).unwrap_err();
        session.run(&[floats(&[0, 8], 0)]).unwrap_err();
        assert_matches_host(&mut session, &[floats(&[4, 8], 0)]);
        session.run(&[floats(&[4, 9], 0)]).unwrap_err();
        assert_matches_host(&mut session, &[floats(&[6, 8], 0)]);
        drop(session);
        // Built and never run.
        drop(build(context, &method));
    });
}

#[test]
fn memory_grows_to_the_size_in_use_and_trim_gives_it_back() {
    let method = dynamic_program(&mixer("s0"), &[("s0", 1, 4096)]);
    on_each_access(|context| {
        let arena = |length: usize| {
            let mut fresh = build(context, &program(&mixer(&length.to_string())));
            run(&mut fresh, &[floats(&[length, 8], 0)]);
            fresh.memory_report().arena_bytes
        };
        let mut session = build(context, &method);
        assert_eq!(session.memory_report().arena_bytes, 0, "the build takes no memory for runs");
        run(&mut session, &[floats(&[16, 8], 0)]);
        assert_eq!(session.memory_report().arena_bytes, arena(16));
        run(&mut session, &[floats(&[256, 8], 0)]);
        let grown = session.memory_report();
        assert_eq!(grown.arena_bytes, arena(256));
        run(&mut session, &[floats(&[16, 8], 0)]);
        assert_eq!(session.memory_report(), grown);
        session.trim();
        let trimmed = session.memory_report();
        assert_eq!((trimmed.arena_bytes, trimmed.staging_bytes), (0, 0));
        assert_matches_host(&mut session, &[floats(&[16, 8], 3)]);
        assert_eq!(session.memory_report().arena_bytes, arena(16));
    });
}

#[test]
fn inputs_a_b_a_give_a_again() {
    let method = program(&mixer("12"));
    on_each_access(|context| {
        let mut session = build(context, &method);
        let (a, b) = ([floats(&[12, 8], 1)], [floats(&[12, 8], 2)]);
        let first = assert_matches_host(&mut session, &a);
        assert_matches_host(&mut session, &b);
        assert_eq!(run(&mut session, &a), first);
    });
}

#[test]
fn more_shapes_than_are_kept_come_and_go() {
    let method = dynamic_mixer();
    on_each_access(|context| {
        let mut session = build(context, &method);
        for length in (1..=12).chain((1..=12).rev()).chain([5, 7, 5]) {
            assert_matches_host(&mut session, &[floats(&[length, 8], length)]);
        }
    });
}

/// F67. Memory is for the sizes that run, not for the bound of their ranges.
#[test]
fn memory_is_for_the_sizes_that_run() {
    let text = |n: &str| {
        format!(
            "graph tall
input %w: float32[128, 64] = parameter \"w\"
input %v: float32[64, 128] = parameter \"v\"
input %x: float32[{n}, 64]
%h: float32[{n}, 128] = aten.linear.default(input=%x, weight=%w)
%r: float32[{n}, 128] = aten.relu.default(self=%h)
%y: float32[{n}, 64] = aten.linear.default(input=%r, weight=%v)
output %y
"
        )
    };
    let dynamic = dynamic_program(&text("s0"), &[("s0", 1, 4096)]);
    on_each_access(|context| {
        let mut fixed = build(context, &program(&text("64")));
        run(&mut fixed, &[floats(&[64, 64], 0)]);
        let needed = fixed.memory_report();
        let mut session = build(context, &dynamic);
        assert_eq!(session.memory_report().arena_bytes, 0, "runs alone need an arena");
        let mut bytes_after = |length: usize| {
            run(&mut session, &[floats(&[length, 64], 0)]);
            let memory = session.memory_report();
            (memory.arena_bytes, memory.staging_bytes)
        };
        let (arena, staging) = bytes_after(64);
        assert!(arena <= 4 * needed.arena_bytes && staging <= 4 * needed.staging_bytes, "{arena} {staging}");
        let most = bytes_after(4096);
        assert!(most.0 >= 4096 * 128 * 4, "{most:?}");
        assert_eq!(bytes_after(64), most);
        session.trim();
        assert_eq!(session.memory_report().arena_bytes, 0);
    });
}
