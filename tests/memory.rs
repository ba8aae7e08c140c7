//! How much memory loading and running take. A process of its own, as it looks at figures of the whole process; its
//! tests take turns.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking, too")]

#[path = "common/program.rs"]
mod program;
#[path = "common/zip.rs"]
mod zip;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use program::{node, payload_meta, tensor, tensor_meta};
use serde_json::json;
use vkdelegate::{
    Delegate, Gpu, GpuOptions, Program,
    base::{HostTensor, Range, Value},
    delegate::{BuildOptions, Context, Session},
    ir::{Method, parse_graph},
};

const MIB: usize = 1 << 20;

fn take_turns() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of memory of this process that no file is behind: anonymous and shared, as drivers may use either.
fn unbacked_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let figure = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    };
    figure("RssAnon:") + figure("RssShmem:")
}

/// Runs `work`, and gives its result with the most unbacked bytes that were seen meanwhile.
fn with_peak<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let (done, peak) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(unbacked_bytes(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let result = work();
        peak.fetch_max(unbacked_bytes(), Ordering::Relaxed);
        done.store(true, Ordering::Relaxed);
        (result, peak.load(Ordering::Relaxed))
    })
}

/// Writes a program of `layers` square linear layers, each with `features * features` weights of its own.
fn write_layers(path: &Path, layers: usize, features: usize) {
    let sizes = [features as i64, features as i64];
    let mut parts = program::parts();
    let graph = &mut parts.program["graph_module"]["graph"];
    let mut names = vec!["x".to_string()];
    let (mut inputs, mut specs, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    graph["tensor_values"] = json!({"x": tensor_meta(7, &[1, sizes[0]])});
    parts.weights = json!({"config": {}});
    parts.payloads.clear();
    for layer in 0..layers {
        let (weight, output) = (format!("p_w{layer}"), format!("linear_{layer}"));
        let args = [("input", tensor(&names[layer])), ("weight", tensor(&weight))];
        nodes.push(node(&output, "torch.ops.aten.linear.default", &args));
        inputs.push(tensor(&weight));
        specs.push(json!({"parameter": {"arg": {"name": weight}, "parameter_name": format!("w{layer}")}}));
        graph["tensor_values"][&weight] = tensor_meta(7, &sizes);
        graph["tensor_values"][&output] = tensor_meta(7, &[1, sizes[0]]);
        parts.weights["config"][format!("w{layer}")] =
            payload_meta(&format!("weight_{layer}"), tensor_meta(7, &sizes));
        let one = (1.0 / features as f32).to_le_bytes();
        parts.payloads.push((format!("weights/weight_{layer}"), one.repeat(features * features)));
        names.push(output);
    }
    inputs.push(tensor("x"));
    specs.push(json!({"user_input": {"arg": tensor("x")}}));
    (graph["inputs"], graph["nodes"]) = (json!(inputs), json!(nodes));
    graph["outputs"] = json!([tensor(&names[layers])]);
    let signature = &mut parts.program["graph_module"]["signature"];
    signature["input_specs"] = json!(specs);
    signature["output_specs"] = json!([{"user_output": {"arg": tensor(&names[layers])}}]);
    std::fs::write(path, parts.pack()).unwrap();
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn load(gpu: &Gpu, path: &Path) -> Delegate {
    Delegate::builder(gpu).build(&Program::open(path).unwrap()).unwrap()
}

fn ones(features: usize) -> Value {
    Value::Tensor(HostTensor::from_f32(&[1, features], &vec![1.0; features]).unwrap())
}

#[test]
fn weights_are_packed_from_the_file_without_copies_of_the_model() {
    let _turn = take_turns();
    let (layers, features) = (8, 2048);
    let weights = layers * features * features * 4;
    let (path, small) = (scratch("layers.pt2"), scratch("small.pt2"));
    write_layers(&path, layers, features);
    write_layers(&small, layers, 64);
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    // What a device and its pipelines take, before any weight.
    let mut warm = load(&gpu, &small);
    warm.run(&[ones(64)]).unwrap();
    let before = unbacked_bytes();
    let (mut delegate, peak) = with_peak(|| load(&gpu, &path));
    let after = unbacked_bytes();
    let used = |bytes: usize| bytes.saturating_sub(before);
    assert!(used(peak) <= weights * 5 / 4 + 64 * MIB, "{} bytes at the peak", used(peak));
    assert!(used(after) <= weights * 11 / 10 + 32 * MIB, "{} bytes after loading", used(after));
    assert_eq!(
        delegate.session().memory_report().constant_bytes,
        weights as u64,
        "the weights are there once"
    );
    let outputs = delegate.run(&[ones(features)]).unwrap();
    assert!(outputs.user[0].as_tensor().unwrap().to_f32s().iter().all(|y| (y - 1.0).abs() < 1e-3));
    std::fs::remove_file(path).unwrap();
    std::fs::remove_file(small).unwrap();
}

/// A program with symbols, a weight, a state and everything that a run touches.
fn changing_program() -> Method {
    let graph = parse_graph(
        "graph changing
input %w: float32[8, 8] = parameter \"w\"
input %count: float32[8] = buffer \"count\"
input %x: float32[s0, 8]
%h: float32[s0, 8] = aten.linear.default(input=%x, weight=%w)
%p: float32[s0, 8] = aten._softmax.default(self=%h, dim=1, half_to_float=false)
%s: float32[8] = aten.sum.dim_IntList(self=%p, dim=[0], keepdim=false)
%n: float32[8] = aten.add.Tensor(self=%count, other=%s)
output %n -> %count
output %p
",
    );
    let ranges = [(Arc::from("s0"), Range { min: 1, max: Some(64) })].into();
    Method { graph: graph.unwrap(), ranges, fixed_inputs: BTreeMap::new(), dialect: String::new() }
}

#[test]
fn thousands_of_runs_leave_memory_and_objects_as_they_were() {
    let _turn = take_turns();
    let context = Context::open(GpuOptions::default(), None).unwrap();
    let mut session = Session::build(&context, changing_program(), BuildOptions::default()).unwrap();
    let rows = |rows: usize| Value::Tensor(HostTensor::from_f32(&[rows, 8], &vec![0.5; rows * 8]).unwrap());
    let inputs = [7, 1, 64, 20, 33].map(|count| [rows(count)]);
    let mut run = |shapes: usize, runs: usize| {
        for index in 0..runs {
            session.run(&inputs[index % shapes]).unwrap();
        }
    };
    for shapes in [1, 5] {
        run(shapes, 200);
        let (objects, resident) = (context.gpu().counters().live_objects(), unbacked_bytes());
        run(shapes, 1800);
        assert_eq!(context.gpu().counters().live_objects(), objects);
        let grown = unbacked_bytes().saturating_sub(resident);
        assert!(grown < MIB, "{grown} bytes more after 1800 runs of {shapes} shapes");
    }
}

#[test]
fn cycles_of_loading_and_trimming_leave_memory_as_it_was() {
    let _turn = take_turns();
    let context = Context::open(GpuOptions::default(), None).unwrap();
    let cycle = || {
        let mut session = Session::build(&context, changing_program(), BuildOptions::default()).unwrap();
        let input = [Value::Tensor(HostTensor::from_f32(&[64, 8], &[0.5; 512]).unwrap())];
        let first = session.run(&input).unwrap();
        session.trim();
        session.reset().unwrap();
        assert_eq!(session.run(&input).unwrap(), first);
    };
    (0..20).for_each(|_| cycle());
    let (objects, resident) = (context.gpu().counters().live_objects(), unbacked_bytes());
    (0..100).for_each(|_| cycle());
    assert_eq!(context.gpu().counters().live_objects(), objects);
    let grown = unbacked_bytes().saturating_sub(resident);
    // The validation layer keeps some 18 kB of its own for each load.
    let allowed = if std::env::var_os("VKDELEGATE_VALIDATION").is_some() { 4 * MIB } else { MIB };
    assert!(grown < allowed, "{grown} bytes more after 100 loads");
}
