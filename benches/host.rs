//! What a program costs on the host before it runs: reading the file, the passes, the plan. No device is needed.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../tests/common/program.rs"]
mod program;
#[path = "../tests/common/zip.rs"]
mod zip;

use std::{hint::black_box, path::Path, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use program::{node, payload_meta, tensor, tensor_meta};
use serde_json::json;
use vkdelegate::{
    Program,
    ir::Method,
    ops::Precision,
    passes,
    plan::{self, PlanOptions},
    shader::DeviceProfile,
};

/// Blocks of the synthetic program: a linear with weights of its own, a relu and an add each.
const BLOCKS: usize = 700;
const FEATURES: i64 = 16;

/// An archive of `BLOCKS` blocks in a row.
fn synthetic() -> Arc<[u8]> {
    let mut parts = program::parts();
    let (mut values, mut weights) = (serde_json::Map::new(), serde_json::Map::new());
    let (mut inputs, mut specs, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    let (weight_meta, row_meta) = (tensor_meta(7, &[FEATURES, FEATURES]), tensor_meta(7, &[1, FEATURES]));
    let bytes = 0.25f32.to_le_bytes().repeat((FEATURES * FEATURES) as usize);
    parts.payloads.clear();
    let mut x = "x".to_string();
    for block in 0..BLOCKS {
        let [weight, linear, relu, sum] =
            ["w", "linear", "relu", "add"].map(|what| format!("{what}_{block}"));
        let payload = format!("weight_{block}");
        weights.insert(weight.clone(), payload_meta(&payload, weight_meta.clone()));
        parts.payloads.push((format!("weights/{payload}"), bytes.clone()));
        inputs.push(tensor(&weight));
        specs.push(json!({"parameter": {"arg": {"name": weight}, "parameter_name": weight}}));
        values.insert(weight.clone(), weight_meta.clone());
        let args = [("input", tensor(&x)), ("weight", tensor(&weight))];
        nodes.push(node(&linear, "torch.ops.aten.linear.default", &args));
        nodes.push(node(&relu, "torch.ops.aten.relu.default", &[("self", tensor(&linear))]));
        let args = [("self", tensor(&relu)), ("other", tensor(&x))];
        nodes.push(node(&sum, "torch.ops.aten.add.Tensor", &args));
        values.extend([&linear, &relu, &sum].map(|name| (name.clone(), row_meta.clone())));
        x = sum;
    }
    inputs.push(tensor("x"));
    specs.push(json!({"user_input": {"arg": tensor("x")}}));
    values.insert("x".to_string(), row_meta);
    parts.weights = json!({"config": weights});
    let module = &mut parts.program["graph_module"];
    module["graph"]["inputs"] = json!(inputs);
    module["graph"]["nodes"] = json!(nodes);
    module["graph"]["tensor_values"] = json!(values);
    module["graph"]["outputs"] = json!([tensor(&x)]);
    module["signature"]["input_specs"] = json!(specs);
    module["signature"]["output_specs"] = json!([{"user_output": {"arg": tensor(&x)}}]);
    parts.pack().into()
}

/// Every program that is timed, by its name.
fn archives() -> Vec<(&'static str, Arc<[u8]>)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let fixture = |file: &str| std::fs::read(fixtures.join(file)).unwrap().into();
    vec![("mini_bert", fixture("mini_bert.pt2")), ("synthetic", synthetic())]
}

fn reader(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reader");
    for (name, archive) in archives() {
        group.throughput(Throughput::Bytes(archive.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| Program::from_bytes(black_box(Arc::clone(&archive))).unwrap());
        });
    }
}

/// Calls `bench` with the name, the method and the number of nodes of every program.
fn each_method(mut bench: impl FnMut(&str, &Method, u64)) {
    for (name, archive) in archives() {
        let program = Program::from_bytes(archive).unwrap();
        let method = program.only_method().unwrap().ir();
        bench(name, method, method.graph.nodes().count() as u64);
    }
}

fn passes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("passes");
    let options = passes::Options::default();
    each_method(|name, method, nodes| {
        group.throughput(Throughput::Elements(nodes));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| passes::optimise(black_box(method), &options).unwrap());
        });
    });
}

fn planner(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("planner");
    let options = PlanOptions {
        profile: DeviceProfile::minimum(),
        precision: Precision::F32,
        pinned_f32: Default::default(),
    };
    each_method(|name, method, nodes| {
        let method = passes::optimise(method, &passes::Options::default()).unwrap().method;
        let env = &plan::sample_envs(&method, plan::SAMPLE_CAP)[0];
        let inputs = plan::sample_inputs(&method, env).unwrap();
        group.throughput(Throughput::Elements(nodes));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| plan::build(black_box(&method), &inputs, &options).unwrap());
        });
    });
}

criterion_group! {
    name = host;
    // The synthetic program takes tens of milliseconds a step.
    config = Criterion::default().sample_size(20);
    targets = reader, passes, planner
}
criterion_main!(host);
