//! Kernels with several ways to launch: results that no replay and no work-group shape changes, and devices that take only
//! small ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{collections::BTreeSet, path::Path, sync::Arc};

use common::{
    choices::{self, dispatches},
    device,
};
use vkdelegate::{
    DType, Delegate, Gpu, GpuOptions, HostTensor, Outputs, Precision, Program, Value,
    delegate::Context,
    gpu::CapsOverride,
    graph::GraphBuilder,
    linear_program, quantised_linear_program,
    shader::{Access, Choices},
};

/// A program whose kernels have choices, with inputs.
struct Subject {
    name: String,
    program: Program,
    precision: Precision,
    inputs: Vec<Value>,
}

impl Subject {
    fn new(name: impl Into<String>, program: Program, precision: Precision) -> Subject {
        let inputs = program.methods().next().unwrap().sample_inputs().unwrap();
        Subject { name: name.into(), program, precision, inputs }
    }

    fn build(&self, gpu: &Gpu, choices: Choices) -> Delegate {
        let builder = Delegate::builder(gpu).precision(self.precision).choices(choices);
        builder.build(&self.program).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn run(&self, delegate: &mut Delegate) -> Outputs {
        delegate.run(&self.inputs).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// A product of live matrices.
fn live(m: usize, k: usize, n: usize) -> Program {
    let mut graph = GraphBuilder::new("live");
    let a = graph.input("a", DType::F32, &[3, m, k]).unwrap();
    let b = graph.input("b", DType::F32, &[3, k, n]).unwrap();
    let y = graph.call("aten.bmm.default", [("self", a.into()), ("mat2", b.into())]).unwrap();
    graph.output(y);
    graph.build().unwrap()
}

/// Programs that reach every way of the families for floats, at shapes that fill no tile.
fn subjects() -> Vec<Subject> {
    let f32_and_f16 = [Precision::F32, Precision::F16];
    let mut subjects = Vec::new();
    let mut add = |what: &str, program: Program, precision: Precision| {
        subjects.push(Subject::new(format!("{what} {precision:?}"), program, precision));
    };
    for (m, k, n) in [(1, 100, 75), (37, 40, 300)] {
        for precision in f32_and_f16 {
            add("linear", linear_program(m, k, n, 1, DType::F32).unwrap(), precision);
        }
        add("int8", quantised_linear_program(m, k, n, 1, 8).unwrap(), Precision::F32);
    }
    add("bmm", live(18, 33, 31), Precision::F32);
    add("int4", quantised_linear_program(1, 64, 300, 1, 4).unwrap(), Precision::F16);
    subjects
}

/// F02. Those for integers: `integer_dots.rs`.
#[test]
fn results_are_the_same_in_every_work_group_shape() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    let mut seen = BTreeSet::new();
    for subject in subjects() {
        let default = subject.build(&gpu, Choices::default());
        let run = |choices| {
            let mut delegate = subject.build(&gpu, choices);
            (choices::taken(delegate.session()), subject.run(&mut delegate))
        };
        let profile = device::context().profile().clone();
        seen.extend(choices::assert_same_in_every_shape(default.session(), &profile, run));
    }
    let families =
        [("linear_codes", &["row", "rows1", "rows4", "rows16"][..]), ("matmul", &["row", "rows4", "rows16"])];
    for (family, ways) in families {
        assert!(ways.iter().all(|way| seen.contains(&format!("{family} {way}"))), "{family}: {seen:?}");
    }
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F02.
#[test]
fn a_hundred_replays_give_the_same_bits() {
    let _turn = device::turn();
    let (m, k, n) = (1500, 384, 384);
    let gpu = Gpu::from_context(device::context());
    let value = |index: usize, step: usize| ((index * step) % 61) as f32 / 32.0 - 0.9;
    let (x, w): (Vec<f32>, Vec<f32>) =
        ((0..m * k).map(|i| value(i, 7)).collect(), (0..n * k).map(|i| value(i, 13)).collect());
    let mut graph = GraphBuilder::new("linear");
    let input = graph.input("x", DType::F32, &[1, m, k]).unwrap();
    let weight = graph.parameter("w", HostTensor::from_f32(&[n, k], &w).unwrap()).unwrap();
    let y = graph.call("aten.linear.default", [("input", input.into()), ("weight", weight.into())]).unwrap();
    graph.output(y);
    let mut delegate = Delegate::builder(&gpu).build(&graph.build().unwrap()).unwrap();
    let inputs = [Value::Tensor(HostTensor::from_f32(&[1, m, k], &x).unwrap())];
    let first = delegate.run(&inputs).unwrap();
    for replay in 1..100 {
        assert!(delegate.run(&inputs).unwrap() == first, "replay {replay} differs");
    }
    let got = first.tensor(0).unwrap().to_f32s();
    for row in [0, 1, 17, 749, m - 2, m - 1] {
        let want: Vec<f64> = (0..n)
            .map(|column| (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(w[column * k + i])).sum())
            .collect();
        let largest = want.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        for (column, want) in want.iter().enumerate() {
            let got = f64::from(got[row * n + column]);
            assert!((got - want).abs() <= 1e-4 * largest, "row {row}, column {column}: {got}, not {want}");
        }
    }
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F55. A device of 128 invocations and 16 KiB of shared memory takes what fits, whatever was found to be best elsewhere.
#[test]
fn a_small_device_takes_small_work_groups() {
    let _turn = device::turn();
    let options = GpuOptions { overrides: CapsOverride::spec_minimum(), ..GpuOptions::default() };
    let small = Gpu::from_context(Context::open(options, Some(Access::Ssbo)).unwrap());
    let gpu = Gpu::from_context(device::context());
    for subject in subjects() {
        let mut best = Choices::default();
        let default = subject.build(&gpu, Choices::default());
        for (choice, ways) in choices::offers(default.session(), device::context().profile()) {
            let names = ways.into_iter().flatten();
            let invocations = |name: &String| -> u32 {
                let shape = name.split(' ').nth(1).unwrap();
                shape.split('x').map(|size| size.parse::<u32>().unwrap()).product()
            };
            best.set(choice, names.max_by_key(invocations).unwrap());
        }
        let mut delegate = subject.build(&small, best);
        for dispatch in dispatches(delegate.session()) {
            let template = dispatch.kernel.info().unwrap();
            let size_of = |id: &u32| dispatch.spec.iter().find(|(spec, _)| spec == id).unwrap().1;
            let invocations: u32 = template.local_ids.iter().map(size_of).product();
            assert!(invocations <= 128, "{}: {} runs {invocations}", subject.name, template.name);
        }
        subject.run(&mut delegate);
    }
}

/// F65.
#[test]
fn submissions_of_any_size_give_the_same_bits() {
    let _turn = device::turn();
    let context = device::context();
    let gpu = Gpu::from_context(Arc::clone(&context));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mini_bert.pt2");
    let subject = Subject::new("mini_bert", Program::open(path).unwrap(), Precision::F32);
    let run = |ops: Option<u64>| {
        let builder = Delegate::builder(&gpu);
        let builder = ops.map_or(builder.clone(), |ops| builder.submission_ops(ops));
        let mut delegate = builder.build(&subject.program).unwrap();
        let before = context.gpu().counters().submissions;
        let got = subject.run(&mut delegate);
        (got, context.gpu().counters().submissions - before, dispatches(delegate.session()).len() as u64)
    };
    let (want, submissions, _) = run(None);
    assert_eq!(submissions, 1, "a small model goes in one");
    let (got, some, _) = run(Some(1_000_000));
    assert!(some > 1 && got == want, "{some} submissions");
    let (got, each, count) = run(Some(1));
    assert!(each == count && got == want, "{each} submissions of {count} dispatches");
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F65. The planner splits what no budget holds along rows.
#[test]
fn a_product_beyond_the_budget_is_split_along_rows() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    for program in [linear_program(300, 64, 96, 1, DType::F32), quantised_linear_program(300, 64, 96, 1, 8)] {
        let subject = Subject::new("tall", program.unwrap(), Precision::F32);
        let whole = subject.run(&mut subject.build(&gpu, Choices::default()));
        let budget = 2 * 64 * 96 * 70;
        let mut delegate = Delegate::builder(&gpu).submission_ops(budget).build(&subject.program).unwrap();
        let products = dispatches(delegate.session()).iter().filter_map(|dispatch| dispatch.choice);
        let rows: Vec<usize> = products.map(|choice| choice.key.m).collect();
        assert!(rows.len() > 4 && rows.iter().sum::<usize>() == 300, "{rows:?}");
        assert!(dispatches(delegate.session()).iter().all(|dispatch| dispatch.estimated_ops() <= budget));
        assert_eq!(subject.run(&mut delegate), whole);
    }
}
