//! Injected faults: refused allocations, refused pipelines, lost devices. Each is a typed error, leaks nothing, and leaves the rest working.

use std::sync::Arc;

use vkdelegate::{
    base::{Error, ErrorKind, HostTensor, Result},
    delegate::Context,
    gpu::Counters,
    ir::Method,
};

use crate::support::*;

/// A weight, a state, a lookup that may fail, and intermediate memory.
const TEXT: &str = "graph everything
input %w: float32[16, 8] = parameter \"w\"
input %count: float32[16] = buffer \"count\"
input %x: float32[4, 8]
%h: float32[4, 16] = aten.linear.default(input=%x, weight=%w)
%p: float32[4, 16] = aten._softmax.default(self=%h, dim=1, half_to_float=false)
%s: float32[16] = aten.sum.dim_IntList(self=%p, dim=[0], keepdim=false)
%n: float32[16] = aten.add.Tensor(self=%count, other=%s)
output %n -> %count
output %p
output %n
";

/// Builds and runs twice; the first run allocates its memory.
fn job(context: &Arc<Context>, method: &Method) -> Result<Vec<HostTensor>> {
    let mut session = try_build(context, method)?;
    session.run(&[floats(&[4, 8], 0)])?;
    Ok(tensors(session.run(&[floats(&[4, 8], 1)])?.0))
}

/// Runs the job with its n-th call of some kind failing, for n = 1, 2, ... until it passes; gives the errors.
fn failures(
    context: &Arc<Context>,
    method: &Method,
    arm: impl Fn(u64),
    live: impl Fn(&Counters) -> u64,
) -> Vec<Error> {
    let want = job(context, method).unwrap();
    let mut bystander = build(context, method);
    run(&mut bystander, &[floats(&[4, 8], 0)]);
    let mut errors = Vec::new();
    for n in 1.. {
        assert!(n < 100, "the fault never stops firing");
        let (live_before, memory_before) = (live(&context.gpu().counters()), context.gpu().memory_use());
        arm(n);
        let result = job(context, method);
        arm(0);
        assert_eq!(live(&context.gpu().counters()), live_before, "fault {n} leaked");
        assert_eq!(context.gpu().memory_use().device_bytes, memory_before.device_bytes, "fault {n} leaked");
        assert_eq!(context.gpu().memory_use().host_bytes, memory_before.host_bytes, "fault {n} leaked");
        assert_eq!(job(context, method).unwrap(), want, "after fault {n}");
        match result {
            Ok(outputs) => {
                assert_eq!(outputs, want);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    bystander.reset().unwrap();
    run(&mut bystander, &[floats(&[4, 8], 0)]);
    assert_eq!(run(&mut bystander, &[floats(&[4, 8], 1)]), want, "another session was disturbed");
    errors
}

#[test]
fn each_refused_allocation_is_out_of_memory_and_leaks_nothing() {
    let method = program(TEXT);
    on_each_access_with_hooks(|context, hooks| {
        let errors = failures(context, &method, |n| hooks.fail_allocation(n), Counters::live_objects);
        // A weight may be held by the bystander; the state and what a run needs are not.
        assert!(errors.len() as u64 > buffers_of_a_run(context), "{errors:?}");
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            let text = error.to_string();
            assert!(text.contains("bytes") && (text.contains("device") || text.contains("host")), "{text}");
        }
    });
}

#[test]
fn a_session_survives_a_refused_allocation_of_a_run() {
    let method = dynamic_program(
        "graph grows\ninput %x: float32[s0, 8]\n%y: float32[s0, 8] = aten._softmax.default(self=%x, dim=1, half_to_float=false)\noutput %y\n",
        &[("s0", 1, 1000)],
    );
    on_each_access_with_hooks(|context, hooks| {
        let mut session = build(context, &method);
        assert_matches_host(&mut session, &[floats(&[10, 8], 0)]);
        for n in 1..=buffers_of_a_run(context) {
            hooks.fail_allocation(n);
            let error = session.run(&[floats(&[100 + n as usize * 100, 8], 0)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
            assert_matches_host(&mut session, &[floats(&[10, 8], 1)]);
            assert_matches_host(&mut session, &[floats(&[100 + n as usize * 100, 8], 2)]);
        }
    });
}

#[test]
fn each_refused_pipeline_names_kernel_node_and_device() {
    let method = program(TEXT);
    on_each_access_with_hooks(|context, hooks| {
        let pipelines = {
            let session = build(context, &method);
            session.plan().unwrap().dispatches.clone()
        };
        let device = context.gpu().info().description.name.clone();
        let access = context.profile().access;
        let mut refused = 0;
        for n in 1..=pipelines.len() as u64 {
            // A device without pipelines, so that each build has to make them.
            let fresh = open(vkdelegate::gpu::GpuOptions { hooks: hooks.clone(), ..validated() }, access);
            hooks.fail_pipeline(n);
            if let Err(error) = job(&fresh, &method) {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                let node = error.node().expect("the node is named").to_string();
                let at =
                    pipelines.iter().find(|dispatch| dispatch.label == node).expect("a node of the plan");
                let text = error.to_string();
                assert!(text.contains(at.kernel.info().unwrap().name) && text.contains(&device), "{text}");
            }
            hooks.fail_pipeline(0);
            job(&fresh, &method).unwrap();
            close_silently(fresh);
        }
        assert!(refused >= 4, "{refused} pipelines");
    });
}

#[test]
fn a_lost_device_is_an_error_from_then_on_and_another_can_be_opened() {
    let method = program(TEXT);
    for at_submit in [true, false] {
        on_each_access_with_hooks(|context, hooks| {
            let mut session = build(context, &method);
            let want = run(&mut session, &[floats(&[4, 8], 0)]);
            let mut other = build(context, &method);
            match at_submit {
                true => hooks.lose_at_submit(1),
                false => hooks.lose_at_wait(1),
            }
            let lost = |error: Error| assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
            lost(session.run(&[floats(&[4, 8], 1)]).unwrap_err());
            lost(session.run(&[floats(&[4, 8], 0)]).unwrap_err());
            lost(other.run(&[floats(&[4, 8], 0)]).unwrap_err());
            lost(other.state("count").unwrap_err());
            lost(try_build(context, &method).map(|_| ()).unwrap_err());
            session.trim();
            let again = open(validated(), context.profile().access);
            assert_eq!(run(&mut build(&again, &method), &[floats(&[4, 8], 0)]), want);
            close_silently(again);
        });
    }
}
