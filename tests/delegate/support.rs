//! Opens devices, makes programs from text, and holds results to the host's.

use std::{collections::HashMap, sync::Arc};

use vkdelegate::{
    base::{DType, HostTensor, Range, Result, Value},
    delegate::{BuildHooks, BuildOptions, Context, Session},
    gpu::{CapsOverride, Gpu, GpuOptions, Hooks, UnifiedMemory, ValidationLog},
    ir::{Method, parse_graph, verify},
    shader::Access,
};

use crate::common::{compare, one_op::static_method, reference};

/// Options with core and synchronization validation.
pub fn validated() -> GpuOptions {
    GpuOptions { validation: true, sync_validation: true, ..GpuOptions::default() }
}

/// Opens a device for one access.
pub fn open(options: GpuOptions, access: Access) -> Arc<Context> {
    Context::open(options, Some(access)).unwrap_or_else(|error| panic!("no device to test on: {error}"))
}

/// Whether the device under test reaches buffers in this way.
fn offers(access: Access) -> bool {
    let gpu =
        Gpu::open(GpuOptions::default()).unwrap_or_else(|error| panic!("no device to test on: {error}"));
    access == Access::Ssbo || gpu.caps().features.buffer_device_address
}

/// Runs `test` on a fresh device for one access, and asserts that validation was silent and nothing was left.
pub fn with_context(options: GpuOptions, access: Access, test: impl FnOnce(&Arc<Context>)) {
    let context = open(options, access);
    test(&context);
    close_silently(context);
}

/// Closes a device that nothing uses any more: no object is left, and validation has had nothing to say.
pub fn close_silently(context: Arc<Context>) {
    assert_eq!(Arc::strong_count(&context), 1, "something still uses the device");
    let gpu = context.gpu().clone();
    drop(context);
    assert_eq!(gpu.counters().live_objects(), 0, "{:?}", gpu.counters());
    assert_eq!((gpu.memory_use().device_bytes, gpu.memory_use().host_bytes), (0, 0));
    let log = gpu.validation_log();
    drop(gpu);
    assert_silent(&log);
}

pub fn assert_silent(log: &ValidationLog) {
    let messages = log.messages();
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}

/// Runs `test` once for each access that the device offers.
pub fn on_each_access(test: impl Fn(&Arc<Context>)) {
    on_each_access_with(validated, test);
}

/// Runs `test` once for each access that the device offers, on devices opened with `options`.
pub fn on_each_access_with(options: impl Fn() -> GpuOptions, test: impl Fn(&Arc<Context>)) {
    for access in Access::ALL.into_iter().filter(|&access| offers(access)) {
        with_context(options(), access, &test);
    }
}

/// Runs `test` on devices whose faults it can inject, with the host's bytes staged, and in place where that can be.
pub fn on_each_access_with_hooks(test: impl Fn(&Arc<Context>, &Hooks)) {
    for most in [UnifiedMemory::None, UnifiedMemory::WrittenAndRead] {
        let overrides = CapsOverride { unified_memory: Some(most), ..CapsOverride::default() };
        let hooks = Hooks::default();
        on_each_access_with(
            || {
                hooks.fail_allocation(0);
                GpuOptions { hooks: hooks.clone(), overrides: overrides.clone(), ..validated() }
            },
            |context| test(context, &hooks),
        );
    }
}

/// Buffers that a run needs, beside the constants and states: an arena, the status words, and staging for what the host
/// does not reach.
pub fn buffers_of_a_run(context: &Context) -> u64 {
    match context.gpu().caps().unified_memory {
        UnifiedMemory::None => 4,
        UnifiedMemory::Written => 3,
        UnifiedMemory::WrittenAndRead => 2,
    }
}

/// Runs `test` on devices weaker than they are.
pub fn on_each_access_limited(overrides: CapsOverride, test: impl Fn(&Arc<Context>)) {
    on_each_access_with(|| GpuOptions { overrides: overrides.clone(), ..validated() }, test);
}

/// Runs `test` once for each access, and each way in which the host can reach the device's memory there.
pub fn on_each_route(test: impl Fn(&Arc<Context>)) {
    use UnifiedMemory::{None, Written, WrittenAndRead};
    for most in [None, Written, WrittenAndRead] {
        let overrides = CapsOverride { unified_memory: Some(most), ..CapsOverride::default() };
        on_each_access_limited(overrides, &test);
    }
}

/// A program without symbols.
pub fn program(text: &str) -> Method {
    let graph = parse_graph(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&graph).unwrap_or_else(|error| panic!("{error}\n{text}"));
    static_method(graph)
}

/// A program with symbols, each with its smallest and largest value.
pub fn dynamic_program(text: &str, ranges: &[(&str, i64, i64)]) -> Method {
    let ranges = ranges.iter().map(|&(name, min, max)| (Arc::from(name), Range { min, max: Some(max) }));
    Method { ranges: ranges.collect(), ..program(text) }
}

pub fn build(context: &Arc<Context>, method: &Method) -> Session {
    try_build(context, method).unwrap_or_else(|error| panic!("{error}"))
}

/// Builds without the check of a CPU's lanes, which has a pipeline and memory of its own.
pub fn try_build(context: &Arc<Context>, method: &Method) -> Result<Session> {
    let hooks = BuildHooks { trusts_lanes: true, ..BuildHooks::default() };
    Session::build(context, method.clone(), BuildOptions { hooks, ..BuildOptions::default() })
}

/// Runs, and gives the tensors among the user outputs.
pub fn run(session: &mut Session, inputs: &[Value]) -> Vec<HostTensor> {
    tensors(session.run(inputs).unwrap_or_else(|error| panic!("{error}")).0)
}

pub fn tensors(values: Vec<Value>) -> Vec<HostTensor> {
    values
        .into_iter()
        .filter_map(|value| if let Value::Tensor(tensor) = value { Some(tensor) } else { None })
        .collect()
}

/// Asserts that one run gives what the host gives, within 1e-4.
pub fn assert_matches_host(session: &mut Session, inputs: &[Value]) -> Vec<HostTensor> {
    let (want, _) = reference::run(&session.method().graph.clone(), inputs, &HashMap::new());
    let got = run(session, inputs);
    assert_close(&got, &want);
    got
}

pub fn assert_close(got: &[HostTensor], want: &[HostTensor]) {
    assert_eq!(got.len(), want.len());
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        compare::tensors(got, want, 1e-4, 1e-4).unwrap_or_else(|text| panic!("output {index}: {text}"));
    }
}

/// A tensor of small numbers, others for each `seed`; integers are 0 to 6.
pub fn ramp(dtype: DType, sizes: &[usize], seed: usize) -> HostTensor {
    let len = sizes.iter().product::<usize>();
    let values: Vec<f64> = (0..len)
        .map(|i| {
            let step = (11 * (i + seed) + 3 * (i / 17)) % 29;
            if dtype.is_float() { step as f64 / 16.0 - 0.875 } else { (step % 7) as f64 }
        })
        .collect();
    HostTensor::from_f64s(dtype, sizes.to_vec(), &values).unwrap()
}

pub fn floats(sizes: &[usize], seed: usize) -> Value {
    Value::Tensor(ramp(DType::F32, sizes, seed))
}

pub fn ints(values: &[i64]) -> Value {
    Value::Tensor(HostTensor::from_i64(&[values.len()], values).unwrap())
}
