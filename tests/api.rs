//! The public face: methods by name, reports, state, and comparisons with the host.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::PathBuf;

use common::device;
use vkdelegate::{
    DType, Delegate, ErrorKind, Gpu, GpuOptions, HostTensor, Precision, Program, Value,
    compare::{CompareOptions, compare},
    graph::GraphBuilder,
};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn open(name: &str) -> Program {
    Program::open(fixture(name)).unwrap()
}

fn gpu() -> Gpu {
    Gpu::from_context(device::context())
}

/// Any message of the validation layer, of this test or of one beside it, is a failure.
#[track_caller]
fn assert_silent() {
    let messages = device::validation_messages();
    assert!(messages.is_empty(), "the validation layer said: {messages:#?}");
}

fn ones(sizes: &[usize]) -> Value {
    HostTensor::from_f32(sizes, &vec![1.0; sizes.iter().product()]).unwrap().into()
}

#[test]
fn methods_go_by_their_names() {
    let program = open("linear_const.pt2");
    assert_eq!(program.method("forward").unwrap().name(), "model");
    assert_eq!(program.only_method().unwrap().name(), "model");
    assert_eq!(program.method("other").unwrap_err().kind(), ErrorKind::InvalidInput);
    let several = open("multimethod_lora.pt2");
    assert_eq!(several.methods().map(|method| method.name()).collect::<Vec<_>>(), ["base", "lora"]);
    assert!(several.method("forward").is_err(), "the alias is for the only program named `model`");
    let error = Delegate::builder(&gpu()).build(&several).unwrap_err();
    assert!(error.to_string().contains("base, lora"), "{error}");
    assert_silent();
}

#[test]
fn a_program_in_memory_gives_what_the_file_gives() {
    let gpu = gpu();
    let bytes = std::fs::read(fixture("linear_const.pt2")).unwrap();
    let inputs = open("linear_const.pt2").only_method().unwrap().sample_inputs().unwrap();
    let run = |program: &Program| Delegate::builder(&gpu).build(program).unwrap().run(&inputs).unwrap();
    assert_eq!(run(&Program::from_bytes(bytes).unwrap()), run(&open("linear_const.pt2")));
    assert_silent();
}

#[test]
fn the_report_tells_what_was_built() {
    let mut delegate = Delegate::builder(&gpu()).build(&open("kv_cache_decode.pt2")).unwrap();
    let report = delegate.report();
    assert_eq!((report.method.as_str(), report.ops["linear"], report.ops["bmm"]), ("model", 4, 2));
    assert!(report.decisions.iter().any(|decision| decision.became == "bmm" && !decision.constant));
    assert!(report.kernels.iter().map(|kernel| kernel.count).sum::<usize>() > 0);
    assert_eq!(report.memory.arena_bytes, 0, "runs alone need an arena");
    let inputs = open("kv_cache_decode.pt2").only_method().unwrap().sample_inputs().unwrap();
    delegate.run(&inputs).unwrap();
    let memory = delegate.report().memory;
    assert!(0 < memory.live_bytes && memory.live_bytes <= memory.arena_bytes, "{memory:?}");
    delegate.trim();
    assert_eq!(delegate.report().memory.arena_bytes, 0);
    delegate.run(&inputs).unwrap();
    assert_silent();
}

#[test]
fn the_estimate_before_the_build_is_what_is_used() {
    let gpu = gpu();
    for name in ["kv_cache_decode.pt2", "mini_mobilenet.pt2", "linear_const.pt2"] {
        let program = open(name);
        let method = program.only_method().unwrap();
        let estimate = method.inspect(Some(&gpu), Precision::F32).unwrap().memory.unwrap();
        let mut delegate = Delegate::builder(&gpu).build(&program).unwrap();
        delegate.run(&method.sample_inputs().unwrap()).unwrap();
        assert_eq!(delegate.report().memory, estimate, "{name}");
    }
    assert_silent();
}

#[test]
fn pins_must_name_a_node() {
    let program = open("mini_bert.pt2");
    let gpu = gpu();
    let build = |pin: &str| Delegate::builder(&gpu).precision(Precision::F16).pin(pin).build(&program);
    assert!(build("_softmax").is_ok());
    let error = build("no_such_node").unwrap_err();
    assert!(error.to_string().contains("no_such_node"), "{error}");
    assert_silent();
}

#[test]
fn state_is_read_set_and_reset_by_name() {
    let mut delegate = Delegate::builder(&gpu()).build(&open("running_mean.pt2")).unwrap();
    let mut names: Vec<String> = delegate.state_names().map(str::to_string).collect();
    names.sort();
    assert_eq!(names, ["mean", "n"]);
    let initial = delegate.state("mean").unwrap();
    delegate.run(&[ones(&[4, 24])]).unwrap();
    let after = delegate.state("mean").unwrap();
    assert_ne!(after, initial);
    assert_eq!(delegate.state("n").unwrap().to_i64s(), [1]);
    delegate.set_state("mean", &initial).unwrap();
    assert_eq!(delegate.state("mean").unwrap(), initial);
    delegate.reset().unwrap();
    assert_eq!(delegate.state("n").unwrap().to_i64s(), [0]);
    delegate.run(&[ones(&[4, 24])]).unwrap();
    assert_eq!(delegate.state("mean").unwrap(), after);
    let error = delegate.state("nope").unwrap_err();
    assert!(error.to_string().contains("mean"), "{error}");
    assert_silent();
}

#[test]
fn a_delegate_outlives_its_makers_and_moves_between_threads() {
    let gpu = gpu();
    let program = open("linear_const.pt2");
    let inputs = program.only_method().unwrap().sample_inputs().unwrap();
    let mut here = Delegate::builder(&gpu).build(&program).unwrap();
    let want = here.run(&inputs).unwrap();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let mut delegate = Delegate::builder(&gpu).build(&program).unwrap();
            let inputs = inputs.clone();
            std::thread::spawn(move || (0..20).map(|_| delegate.run(&inputs).unwrap()).collect::<Vec<_>>())
        })
        .collect();
    drop(program);
    drop(gpu);
    for thread in threads {
        assert!(thread.join().unwrap().iter().all(|got| *got == want));
    }
    assert_silent();
}

#[test]
fn timed_dispatches_name_their_nodes() {
    let program = open("linear_const.pt2");
    let mut delegate = Delegate::builder(&gpu()).timestamps(true).build(&program).unwrap();
    delegate.run(&program.only_method().unwrap().sample_inputs().unwrap()).unwrap();
    let times = delegate.dispatch_times();
    if delegate.gpu().info().caps.timestamps.is_some() {
        let launches: usize = delegate.report().kernels.iter().map(|kernel| kernel.count).sum();
        assert_eq!(times.len(), launches);
        assert!(times.iter().any(|time| time.node.contains("addmm")), "{times:?}");
    } else {
        assert!(times.is_empty());
    }
    assert_silent();
}

#[test]
fn a_broken_kernel_is_found_by_name() {
    // A device of its own: a broken kernel stays broken.
    let gpu = Gpu::open(GpuOptions { validation: true, ..GpuOptions::default() }).unwrap();
    let program = open("mini_bert.pt2");
    let inputs = program.only_method().unwrap().sample_inputs().unwrap();
    let options = CompareOptions::default();
    let sound = compare(&gpu, &program, &inputs, &options, |_, _| {}).unwrap();
    assert!(sound.differences.is_empty() && sound.nodes > 50, "{:#?}", sound.differences.first());
    let log = gpu.context().gpu().validation_log();
    let gpu = Gpu::open(GpuOptions { validation: true, ..GpuOptions::default() }).unwrap();
    gpu.context().break_kernel("softmax");
    let broken = compare(&gpu, &program, &inputs, &options, |_, _| {}).unwrap();
    let first = &broken.differences[0];
    assert_eq!(first.op, "aten._softmax.default");
    assert!(first.mismatch.reason.contains("the reference"), "{first:?}");
    assert!(
        broken.differences.iter().all(|difference| difference.node.is_none() || difference.op == first.op)
    );
    assert!(log.messages().is_empty(), "{:#?}", log.messages());
    assert!(gpu.context().gpu().validation_messages().is_empty());
}

#[test]
fn the_first_node_that_makes_a_nan_is_named() {
    let mut graph = GraphBuilder::new("diverging");
    let x = graph.input("x", DType::F32, &[3]).unwrap();
    let squared = graph.call("aten.mul.Tensor", [("self", x.into()), ("other", x.into())]).unwrap();
    let logarithm = graph.call("aten.log.default", [("self", x.into())]).unwrap();
    let sum = graph.call("aten.add.Tensor", [("self", logarithm.into()), ("other", squared.into())]).unwrap();
    graph.output(sum);
    let program = graph.build().unwrap();
    let nan_at = |values: &[f32]| {
        let inputs = [Value::Tensor(HostTensor::from_f32(&[3], values).unwrap())];
        let report = compare(&gpu(), &program, &inputs, &CompareOptions::default(), |_, _| {}).unwrap();
        assert!(report.differences.is_empty(), "the host gives the same: {:?}", report.differences);
        report.first_nan
    };
    assert_eq!(nan_at(&[1.0, 2.0, 3.0]), None);
    let first = nan_at(&[1.0, -2.0, 3.0]).unwrap();
    assert_eq!((first.node.as_str(), first.op.as_str()), ("log", "aten.log.default"));
    assert_eq!(
        nan_at(&[f32::NAN, 2.0, 3.0]).unwrap().node,
        "mul",
        "the input's own NaN shows in its first reader"
    );
    assert_silent();
}
