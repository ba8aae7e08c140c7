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
use serde_json::{Value as Json, json};
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

/// A program that is being written: parameters of constant value, and nodes that follow each other.
struct Writer {
    parts: program::Parts,
    inputs: Vec<Json>,
    specs: Vec<Json>,
    nodes: Vec<Json>,
    weight_bytes: usize,
}

impl Writer {
    fn new() -> Writer {
        let mut parts = program::parts();
        parts.program["graph_module"]["graph"]["tensor_values"] = json!({});
        parts.weights = json!({"config": {}});
        parts.payloads.clear();
        Writer { parts, inputs: Vec::new(), specs: Vec::new(), nodes: Vec::new(), weight_bytes: 0 }
    }

    fn declare(&mut self, name: &str, dtype: i64, sizes: &[i64]) {
        self.parts.program["graph_module"]["graph"]["tensor_values"][name] = tensor_meta(dtype, sizes);
    }

    /// A parameter all of whose elements are `value`.
    fn parameter(&mut self, name: &str, sizes: &[i64], value: f32) -> Json {
        let bytes = value.to_le_bytes().repeat(sizes.iter().product::<i64>() as usize);
        self.held(name, 7, sizes, bytes)
    }

    /// A parameter of torch's dtype number `dtype` with those bytes.
    fn held(&mut self, name: &str, dtype: i64, sizes: &[i64], bytes: Vec<u8>) -> Json {
        let payload = format!("weight_{}", self.parts.payloads.len());
        self.weight_bytes += bytes.len();
        self.parts.weights["config"][name] = payload_meta(&payload, tensor_meta(dtype, sizes));
        self.parts.payloads.push((format!("weights/{payload}"), bytes));
        self.declare(name, dtype, sizes);
        self.inputs.push(tensor(name));
        self.specs.push(json!({"parameter": {"arg": {"name": name}, "parameter_name": name}}));
        tensor(name)
    }

    fn call(&mut self, name: &str, target: &str, args: &[(&str, Json)], sizes: &[i64]) -> Json {
        self.nodes.push(node(name, target, args));
        self.declare(name, 7, sizes);
        tensor(name)
    }

    /// Writes the file, and gives the bytes of all parameters.
    fn write(mut self, path: &Path, input: (&str, i64, &[i64]), output: Json) -> usize {
        self.declare(input.0, input.1, input.2);
        self.inputs.push(tensor(input.0));
        self.specs.push(json!({"user_input": {"arg": tensor(input.0)}}));
        let module = &mut self.parts.program["graph_module"];
        (module["graph"]["inputs"], module["graph"]["nodes"]) = (json!(self.inputs), json!(self.nodes));
        module["graph"]["outputs"] = json!([output]);
        module["signature"]["input_specs"] = json!(self.specs);
        module["signature"]["output_specs"] = json!([{"user_output": {"arg": output}}]);
        std::fs::write(path, self.parts.pack()).unwrap();
        self.weight_bytes
    }
}

/// Writes a program of `layers` square linear layers, each with `features * features` weights of its own.
fn write_layers(path: &Path, layers: usize, features: usize) -> usize {
    let size = features as i64;
    let (mut writer, mut x) = (Writer::new(), tensor("x"));
    for layer in 0..layers {
        let weight = writer.parameter(&format!("w{layer}"), &[size, size], 1.0 / features as f32);
        let args = [("input", x), ("weight", weight)];
        x = writer.call(&format!("linear_{layer}"), "torch.ops.aten.linear.default", &args, &[1, size]);
    }
    writer.write(path, ("x", 7, &[1, size]), x)
}

/// As [`write_layers`], with weights in int8 and a scale for each row.
fn write_coded_layers(path: &Path, layers: usize, features: usize) -> usize {
    let size = features as i64;
    let (mut writer, mut x) = (Writer::new(), tensor("x"));
    for layer in 0..layers {
        let name = |what: &str| format!("{what}_{layer}");
        let codes = writer.held(&name("codes"), 2, &[size, size], vec![1; features * features]);
        let args = [
            ("input", codes),
            ("scales", writer.parameter(&name("scales"), &[size], 1.0 / features as f32)),
            ("zero_points", json!({"as_none": true})),
            ("axis", json!({"as_int": 0})),
            ("quant_min", json!({"as_int": -128})),
            ("quant_max", json!({"as_int": 127})),
            ("dtype", json!({"as_scalar_type": 2})),
        ];
        let dequantize = "torch.ops.quantized_decomposed.dequantize_per_channel.default";
        let weight = writer.call(&name("dequantize"), dequantize, &args, &[size, size]);
        let args = [("input", x), ("weight", weight)];
        x = writer.call(&name("linear"), "torch.ops.aten.linear.default", &args, &[1, size]);
    }
    writer.write(path, ("x", 7, &[1, size]), x)
}

/// Writes the parts of a sentence encoder that hold its weights: a table of 30,522 words, and blocks of two linear layers.
fn write_encoder(path: &Path, words: i64, blocks: usize) -> usize {
    let (mut writer, rows, hidden, wide) = (Writer::new(), 16, 384, 1536);
    let table = writer.parameter("table", &[words, hidden], 0.5);
    let args = [("weight", table), ("indices", tensor("ids"))];
    let mut x = writer.call("embedding", "torch.ops.aten.embedding.default", &args, &[rows, hidden]);
    let ints = |values: &[i64]| json!({"as_ints": values});
    for block in 0..blocks {
        let name = |what: &str| format!("{what}_{block}");
        let weight = writer.parameter(&name("up"), &[wide, hidden], 0.01);
        let args = [("input", x.clone()), ("weight", weight)];
        let h = writer.call(&name("linear_up"), "torch.ops.aten.linear.default", &args, &[rows, wide]);
        let h = writer.call(&name("gelu"), "torch.ops.aten.gelu.default", &[("self", h)], &[rows, wide]);
        let weight = writer.parameter(&name("down"), &[hidden, wide], 0.01);
        let args = [("input", h), ("weight", weight)];
        let h = writer.call(&name("linear_down"), "torch.ops.aten.linear.default", &args, &[rows, hidden]);
        let args = [("self", h), ("other", x)];
        let h = writer.call(&name("add"), "torch.ops.aten.add.Tensor", &args, &[rows, hidden]);
        let args = [("input", h), ("normalized_shape", ints(&[hidden]))];
        x = writer.call(&name("norm"), "torch.ops.aten.layer_norm.default", &args, &[rows, hidden]);
    }
    writer.write(path, ("ids", 5, &[rows]), x)
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
    let (layers, features) = (16, 2048);
    let (path, small) = (scratch("layers.pt2"), scratch("small.pt2"));
    let weights = write_layers(&path, layers, features);
    assert_eq!(weights, 256 * MIB);
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

/// Codes go from the file to the device as they are: the host never holds them all, neither as codes nor as floats.
#[test]
fn codes_are_packed_from_the_file_without_copies() {
    let _turn = take_turns();
    let (layers, features) = (12, 2048);
    let (path, small) = (scratch("codes.pt2"), scratch("small_codes.pt2"));
    let weights = write_coded_layers(&path, layers, features);
    write_coded_layers(&small, layers, 64);
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    let mut warm = load(&gpu, &small);
    warm.run(&[ones(64)]).unwrap();
    let before = unbacked_bytes();
    let (mut delegate, peak) = with_peak(|| load(&gpu, &path));
    let memory = delegate.session().memory_report();
    assert_eq!(memory.constant_bytes as usize, weights, "the codes, and a scale for each row");
    let device = memory.constant_bytes + memory.state_bytes + memory.arena_bytes + memory.staging_bytes;
    let host = peak.saturating_sub(before + device as usize);
    assert!(host <= weights * 3 / 10 + 8 * MIB, "{host} bytes on the host at the peak");
    let outputs = delegate.run(&[ones(features)]).unwrap();
    assert!(outputs.tensor(0).unwrap().to_f32s().iter().all(|y| (y - 1.0).abs() < 1e-3));
    std::fs::remove_file(path).unwrap();
    std::fs::remove_file(small).unwrap();
}

/// Everything that a process takes to load a first model counts here: the device and its kernels, too.
#[test]
fn a_first_model_loads_within_a_fifth_of_its_weights_and_150_megabytes() {
    let _turn = take_turns();
    let path = scratch("encoder.pt2");
    let weights = write_encoder(&path, 30_522, 6);
    let before = unbacked_bytes();
    let (mut delegate, peak) = with_peak(|| load(&Gpu::open(GpuOptions::default()).unwrap(), &path));
    let used = peak.saturating_sub(before);
    assert!(
        used <= weights * 6 / 5 + 150_000_000,
        "{used} bytes at the peak, for {weights} bytes of weights"
    );
    let ids = HostTensor::from_i64(&[16], &[30_521; 16]).unwrap();
    let outputs = delegate.run(&[Value::Tensor(ids)]).unwrap();
    assert!(
        outputs.tensor(0).unwrap().to_f32s().iter().all(|&y| y == 0.0),
        "rows are constant, so norms are 0"
    );
    std::fs::remove_file(path).unwrap();
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
