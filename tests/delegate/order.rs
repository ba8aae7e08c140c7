//! Dispatches in order: chains, memory that is used again, and what a barrier is for.

use std::{fmt::Write, time::Duration};

use vkdelegate::{
    base::ErrorKind,
    delegate::{BuildHooks, BuildOptions, Session},
    plan,
    shader::Access,
};

use crate::support::*;

/// `x = x * 1.0001 + 1`, over and over.
pub fn chain(steps: usize) -> String {
    let mut text = "graph chain\ninput %x0: float32[1000]\n".to_string();
    for step in 0..steps {
        let next = step + 1;
        writeln!(text, "%m{step}: float32[1000] = aten.mul.Tensor(self=%x{step}, other=1.0001)").unwrap();
        writeln!(text, "%x{next}: float32[1000] = aten.add.Tensor(self=%m{step}, other=1)").unwrap();
    }
    text + &format!("output %x{steps}\n")
}

/// Two branches of three steps; each frees memory that the other can take.
pub const DIAMOND: &str = "graph diamond
input %x: float32[64, 64]
%a1: float32[64, 64] = aten.mul.Tensor(self=%x, other=0.5)
%a2: float32[64, 64] = aten._softmax.default(self=%a1, dim=1, half_to_float=false)
%b1: float32[64, 64] = aten.add.Tensor(self=%x, other=2.0)
%b2: float32[64, 64] = aten._softmax.default(self=%b1, dim=0, half_to_float=false)
%a3: float32[64, 64] = aten.mul.Tensor(self=%a2, other=%b2)
%b3: float32[64, 64] = aten.add.Tensor(self=%b2, other=%a2)
%y: float32[64, 64] = aten.mm.default(self=%a3, mat2=%b3)
output %y
";

#[test]
fn a_hundred_runs_of_a_chain_are_bit_identical() {
    let method = program(&chain(100));
    on_each_access(|context| {
        let mut session = build(context, &method);
        assert_eq!(session.plan().unwrap().arena_bytes.len(), 1);
        assert!(session.memory_report().arena_bytes <= 4096, "the chain stays where it is");
        let first = assert_matches_host(&mut session, &[floats(&[1000], 0)]);
        for _ in 1..100 {
            assert_eq!(run(&mut session, &[floats(&[1000], 0)]), first);
        }
    });
}

#[test]
fn a_hundred_runs_of_a_diamond_are_bit_identical() {
    let method = program(DIAMOND);
    on_each_access(|context| {
        let mut session = build(context, &method);
        let first = assert_matches_host(&mut session, &[floats(&[64, 64], 0)]);
        for _ in 1..100 {
            assert_eq!(run(&mut session, &[floats(&[64, 64], 0)]), first);
        }
    });
}

/// Strides above 1, dilation and odd sizes, over a part of an input and beside other tensors.
#[test]
fn fifty_replays_of_convolutions_are_bit_identical() {
    let conv = |name: &str, stride: i64, padding: i64, dilation: i64, rows: usize, columns: usize| {
        format!(
            "%{name}: float32[1, 4, {rows}, {columns}] = aten.convolution.default(input=%x, weight=%w, bias=%b, \
             stride=[{stride}, {stride}], padding=[{padding}, {padding}], dilation=[{dilation}, {dilation}], \
             transposed=false, output_padding=[0, 0], groups=1)\n"
        )
    };
    let text = format!(
        "graph convolutions
input %w: float32[4, 16, 3, 3] = parameter \"w\"
input %b: float32[4] = parameter \"b\"
input %x: float32[1, 16, 95, 97]
{}{}{}output %two\noutput %three\noutput %apart\noutput %x\n",
        conv("two", 2, 1, 1, 48, 49),
        conv("three", 3, 1, 1, 32, 33),
        conv("apart", 2, 1, 2, 47, 48),
    );
    let method = program(&text);
    on_each_access(|context| {
        let mut session = build(context, &method);
        let input = [floats(&[1, 16, 95, 97], 0)];
        let first = assert_matches_host(&mut session, &input);
        for _ in 1..50 {
            assert!(run(&mut session, &input) == first);
        }
    });
}

/// Rows of 384, and columns, a few of them: more invocations than a kernel has rows for.
#[test]
fn reductions_of_few_rows_and_of_few_columns_are_right() {
    let text = |rows: usize, columns: usize, dim: usize| {
        let (sizes, out) = (format!("{rows}, {columns}"), [columns, rows][dim]);
        let reduce = |name: &str, op: &str, args: &str| {
            format!("%{name}: float32[{out}] = aten.{op}(self=%x, {args})\n")
        };
        let dims = format!("dim=[{dim}], keepdim=false");
        let mut text = format!("graph reductions\ninput %x: float32[{sizes}]\n");
        text += &reduce("sum", "sum.dim_IntList", &dims);
        text += &reduce("mean", "mean.dim", &dims);
        text += &reduce("amax", "amax.default", &dims);
        text += &reduce("var", "var.correction", &format!("dim=[{dim}], correction=1, keepdim=false"));
        for op in ["_softmax", "_log_softmax"] {
            writeln!(
                text,
                "%{op}: float32[{sizes}] = aten.{op}.default(self=%x, dim={dim}, half_to_float=false)"
            )
            .unwrap();
        }
        for name in ["sum", "mean", "amax", "var", "_softmax", "_log_softmax"] {
            writeln!(text, "output %{name}").unwrap();
        }
        text
    };
    on_each_access(|context| {
        for few in 1..=5 {
            for (sizes, dim) in [([few, 384], 1), ([384, few], 0)] {
                let mut session = build(context, &program(&text(sizes[0], sizes[1], dim)));
                assert_matches_host(&mut session, &[floats(&sizes, few)]);
            }
        }
    });
}

#[test]
fn each_missing_barrier_is_caught() {
    let method = program(DIAMOND);
    let context = open(validated(), Access::Ssbo);
    let whole = build(&context, &method).plan().unwrap().clone();
    plan::verify(&whole).unwrap();
    let barriers: Vec<usize> = (0..whole.dispatches.len()).filter(|&index| whole.barriers[index]).collect();
    assert!(barriers.len() >= 3, "{whole}");
    for &index in &barriers {
        let mut broken = whole.clone();
        broken.barriers[index] = false;
        let error = plan::verify(&broken).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().contains("does not wait"), "{error}");
    }
    // The layer on the device sees the same: silent with all barriers, and not without the last.
    run(&mut build(&context, &method), &[floats(&[64, 64], 0)]);
    let log = context.gpu().validation_log();
    assert_silent(&log);
    let options = BuildOptions {
        hooks: BuildHooks { dropped_barrier: barriers.last().copied(), ..BuildHooks::default() },
        ..BuildOptions::default()
    };
    let mut session = Session::build(&context, method, options).unwrap();
    run(&mut session, &[floats(&[64, 64], 0)]);
    let messages = log.messages();
    assert!(messages.iter().any(|message| message.contains("READ_AFTER_WRITE")), "{messages:?}");
}

#[test]
fn a_run_that_takes_too_long_is_a_timeout_and_harms_nothing() {
    let method = program(&chain(50));
    on_each_access(|context| {
        let options = BuildOptions { timeout: Duration::ZERO, ..BuildOptions::default() };
        let mut hasty = Session::build(context, method.clone(), options).unwrap();
        for _ in 0..3 {
            // The driver may be done before anybody asks.
            if let Err(error) = hasty.run(&[floats(&[1000], 0)]) {
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
        }
        assert_matches_host(&mut build(context, &method), &[floats(&[1000], 0)]);
    });
}
