//! Plans without a device: their text for a few programs, sizes that would wrap, and how close an arena comes to what is alive.
//!
//! `UPDATE=1 cargo test --test delegate plans` writes the texts anew; read the difference before you commit it.

use std::{collections::HashSet, path::Path, time::Duration};

use vkdelegate::{
    Program,
    base::{DType, ErrorKind, Result},
    ir::Method,
    ops::{Precision, StorageKind},
    passes,
    plan::{self, InputMeta, Plan, PlanOptions},
    shader::{DeviceClass, DeviceProfile, Need, Needs, Operand, OperandAccess},
};

use crate::{order, state, support::*};

fn options(profile: DeviceProfile) -> PlanOptions {
    PlanOptions { profile, precision: Precision::F32, pinned_f32: HashSet::new() }
}

/// Plans for the least device, at the smallest sizes of the program.
fn plan_of(method: &Method) -> Result<Plan> {
    let env = plan::sample_envs(method, plan::SAMPLE_CAP).remove(0);
    let inputs = plan::sample_inputs(method, &env)?;
    let plan = plan::build(method, &inputs, &options(DeviceProfile::minimum()))?;
    plan::verify(&plan)?;
    Ok(plan)
}

fn assert_golden(name: &str, method: &Method) {
    let text = plan_of(method).unwrap().to_string();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/delegate/plans/{name}.txt"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{} differs (UPDATE=1 writes it anew)", path.display());
}

#[test]
fn plans_read_as_they_should() {
    assert_golden("chain", &program(&order::chain(3)));
    assert_golden("diamond", &program(order::DIAMOND));
    for (name, text, _) in state::writers() {
        assert_golden(&format!("state_{name}"), &program(&format!("graph {name}\n{text}")));
    }
    assert_golden("state_cache", &program(state::CACHE));
}

/// Operands that an Adreno reads as texels are named so, and one that begins or ends within a texel is a fault.
#[test]
fn texels_are_whole() {
    let method = program(
        "graph g
input %a: float32[16, 8]
input %b: float32[8, 132]
%x: float32[16, 8] = aten.neg.default(self=%a)
%y: float32[16, 132] = aten.mm.default(self=%x, mat2=%b)
output %y
",
    );
    let profile = DeviceProfile {
        class: DeviceClass::Adreno8xx,
        features: Needs::of(&[Need::Storage16Bit]),
        ..DeviceProfile::minimum()
    };
    let options = PlanOptions { precision: Precision::F16, ..options(profile) };
    let inputs = [[16, 8], [8, 132]].map(|sizes| InputMeta::Tensor(DType::F32, sizes.to_vec()));
    let plan = plan::build(&method, &inputs, &options).unwrap();
    plan::verify(&plan).unwrap();
    let is_texels = |operand: &Operand| operand.access == OperandAccess::ReadTexels;
    let product =
        plan.dispatches.iter().position(|dispatch| dispatch.operands.iter().any(is_texels)).unwrap();
    assert_eq!(plan.to_string().matches("<texels:").count(), 2, "{plan}");
    for (offset_bytes, len_bytes) in [(2, 8), (0, 12), (0, 0)] {
        let mut broken = plan.clone();
        let region = &mut broken.dispatches[product].operands[0].region;
        (region.offset_bytes, region.len_bytes) = (offset_bytes, len_bytes);
        let error = plan::verify(&broken).unwrap_err();
        assert!(error.message().contains("parts of texels"), "{error}");
    }
}

/// A device that takes anything, so that only the arithmetic can refuse.
fn boundless() -> DeviceProfile {
    DeviceProfile {
        max_storage_buffer_range_bytes: u64::MAX,
        max_buffer_bytes: u64::MAX,
        ..DeviceProfile::minimum()
    }
}

/// Plans an element-wise chain, a broadcast, a slice at the far end and a join over `[n]`.
fn plan_long(n: u64) -> Result<Plan> {
    let method = program(&format!(
        "graph long
input %x: float32[{n}]
%y: float32[{n}] = aten.mul.Tensor(self=%x, other=2.0)
%e: float32[3, {n}] = aten.expand.default(self=%y, size=[3, {n}])
%s: float32[1] = aten.slice.Tensor(self=%y, dim=0, start={}, end={n})
%z: float32[1] = aten.add.Tensor(self=%s, other=1)
output %z
",
        n - 1
    ));
    plan::build(&method, &[InputMeta::Tensor(DType::F32, vec![n as usize])], &options(boundless()))
}

#[test]
fn no_size_wraps() {
    for n in [(1u64 << 29) + 1, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, 1 << 31, (1 << 32) - 1] {
        let plan = plan_long(n).unwrap_or_else(|error| panic!("{n}: {error}"));
        plan::verify(&plan).unwrap();
        let read = plan.dispatches.last().unwrap().operands[0].region;
        assert_eq!((read.offset_bytes, read.len_bytes), (4 * (n - 1), 4), "the slice at the far end");
        let covered: u64 = plan
            .dispatches
            .iter()
            .filter(|dispatch| dispatch.label == "y")
            .map(|dispatch| dispatch.operands.last().unwrap().region.len_bytes)
            .sum();
        assert_eq!(covered, 4 * n, "{n} elements are written");
        assert!(plan.arena_bytes.iter().sum::<u64>() >= 4 * n);
    }
    for n in [1u64 << 32, (1 << 32) + 1, 1 << 40, 1 << 61, (1 << 62) - 1, 1 << 62] {
        let error = plan_long(n).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&n.to_string()), "{n}: {text}");
    }
}

/// With a row on the left, the columns are spread over work groups: more than 65535 need a second axis.
#[test]
fn products_of_any_width_keep_to_the_group_limit() {
    for (m, n) in [(1, 270_336), (1, 2_703_360), (70_000 * 4, 8), (3, 2_703_361)] {
        let method = program(&format!(
            "graph wide
input %a: float32[{m}, 8]
input %b: float32[8, {n}]
%y: float32[{m}, {n}] = aten.mm.default(self=%a, mat2=%b)
output %y
"
        ));
        let plan = plan_of(&method).unwrap_or_else(|error| panic!("{m} x {n}: {error}"));
        let groups = plan.dispatches.iter().flat_map(|dispatch| dispatch.groups);
        assert!(groups.into_iter().all(|groups| (1..=65535).contains(&groups)), "{plan}");
    }
}

#[test]
fn sizes_whose_product_wraps_are_refused() {
    let text = |sizes: &str, from: &str| {
        format!(
            "graph huge\ninput %x: float32[{from}]\n%e: float32[{sizes}] = aten.expand.default(self=%x, size=[{sizes}])\n%y: float32[{sizes}] = aten.mul.Tensor(self=%e, other=2.0)\noutput %y\n"
        )
    };
    for sizes in
        ["4294967296, 4294967296", "4611686018427387904, 4", "3037000500, 3037000500", "65536, 65536"]
    {
        let error = plan_of(&program(&text(sizes, "1, 1"))).unwrap_err();
        assert!(error.to_string().contains("elements"), "{sizes}: {error}");
    }
}

#[test]
fn a_buffer_that_no_device_buffer_holds_is_refused_with_its_bytes() {
    let method = program(
        "graph large\ninput %x: float32[300000000]\n%y: float32[300000000] = aten.mul.Tensor(self=%x, other=2.0)\noutput %y\n",
    );
    let error = plan_of(&method).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("1200000000 bytes"), "{error}");
}

/// Every method of the fixtures that this build can plan, after all passes.
fn fixture_methods() -> Vec<(String, Method)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let archives = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut methods = Vec::new();
    for path in archives.filter(|path| path.extension().is_some_and(|extension| extension == "pt2")) {
        for method in Program::open(&path).unwrap().methods() {
            let name = format!("{} {}", path.display(), method.name());
            if let Ok(optimised) = passes::optimise(method.ir(), &passes::Options::default()) {
                methods.push((name, optimised.method));
            }
        }
    }
    methods
}

/// The most bytes that are alive at once, from what dispatches touch alone: inputs are there before the first, outputs until
/// the last is over, and each storage takes whole units of the alignment.
fn least_arena_bytes(plan: &Plan, alignment_bytes: u64) -> u64 {
    let steps = plan.dispatches.len() + 2;
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; plan.storages.len()];
    let inputs = plan.inputs.iter().map(|input| (0, input.tensor.storage));
    let outputs = plan.read_back().map(|tensor| (steps - 1, tensor.storage));
    let touched = plan.dispatches.iter().enumerate().flat_map(|(index, dispatch)| {
        dispatch.operands.iter().map(move |operand| (index + 1, operand.region.storage))
    });
    for (step, storage) in inputs.chain(outputs).chain(touched) {
        let life = &mut lives[storage.0 as usize];
        let (first, last) = life.unwrap_or((step, step));
        *life = Some((first.min(step), last.max(step)));
    }
    let mut alive_bytes = vec![0; steps];
    for (storage, life) in plan.storages.iter().zip(lives) {
        let Some((first, last)) = life.filter(|_| storage.kind == StorageKind::Arena) else { continue };
        let len_bytes = storage.len_bytes.max(1).next_multiple_of(alignment_bytes);
        alive_bytes[first..=last].iter_mut().for_each(|bytes| *bytes += len_bytes);
    }
    alive_bytes.into_iter().max().unwrap_or(0)
}

/// Each fixture, and a graph like MiniLM as it is and after all passes.
#[test]
fn arenas_are_within_a_tenth_of_what_is_alive() {
    let mut methods = fixture_methods();
    let encoder = encoder();
    let optimised = passes::optimise(&encoder, &passes::Options::default()).unwrap().method;
    methods.extend([("encoder".to_string(), encoder), ("optimised encoder".to_string(), optimised)]);
    let (mut planned, mut misses) = (0, Vec::new());
    for alignment_bytes in [16, 64, 256] {
        let profile =
            DeviceProfile { storage_offset_alignment_bytes: alignment_bytes, ..DeviceProfile::minimum() };
        for (name, method) in &methods {
            let (corners, probes) =
                (plan::sample_envs(method, plan::SAMPLE_CAP), plan::probe_envs(method, plan::SAMPLE_CAP));
            for env in corners.iter().chain(&probes) {
                let inputs = plan::sample_inputs(method, env);
                let planned_now =
                    inputs.and_then(|inputs| plan::build(method, &inputs, &options(profile.clone())));
                let Ok(plan) = planned_now else { continue };
                plan::verify(&plan).unwrap_or_else(|error| panic!("{name}: {error}"));
                let arena_bytes: u64 = plan.arena_bytes.iter().sum();
                let least = least_arena_bytes(&plan, alignment_bytes);
                assert!(plan.live_bytes <= least && least <= arena_bytes, "{name} {env:?}");
                if arena_bytes * 10 > least * 11 {
                    misses.push(format!("{name} {env:?}: {arena_bytes} for {least}, in {alignment_bytes}s"));
                }
                planned += 1;
            }
        }
    }
    assert!(planned > 200, "{planned}");
    assert!(misses.is_empty(), "{} of {planned}:\n{}", misses.len(), misses.join("\n"));
}

/// An encoder of six layers, about as many nodes as a MiniLM.
fn encoder() -> Method {
    let mut text = "graph encoder\ninput %x: float32[128, 384]\n".to_string();
    let layer_inputs = [
        ("q", 384, 384),
        ("k", 384, 384),
        ("v", 384, 384),
        ("o", 384, 384),
        ("up", 1536, 384),
        ("down", 384, 1536),
    ];
    for (layer, (name, n, k)) in (0..6).flat_map(|layer| layer_inputs.map(|of| (layer, of))) {
        text += &format!("input %{name}{layer}: float32[{n}, {k}] = parameter \"{name}{layer}\"\n");
    }
    let mut x = "x".to_string();
    for l in 0..6 {
        for name in ["q", "k", "v"] {
            text += &format!(
                "%{name}l{l}: float32[128, 384] = aten.linear.default(input=%{x}, weight=%{name}{l})
%{name}v{l}: float32[128, 12, 32] = aten.view.default(self=%{name}l{l}, size=[128, 12, 32])
%{name}t{l}: float32[12, 128, 32] = aten.permute.default(self=%{name}v{l}, dims=[1, 0, 2])
%{name}s{l}: float32[12, 128, 32] = aten.mul.Tensor(self=%{name}t{l}, other=0.42)
"
            );
        }
        text += &format!(
            "%kt{l}t: float32[12, 32, 128] = aten.permute.default(self=%ks{l}, dims=[0, 2, 1])
%s{l}: float32[12, 128, 128] = aten.bmm.default(self=%qs{l}, mat2=%kt{l}t)
%p{l}: float32[12, 128, 128] = aten._softmax.default(self=%s{l}, dim=-1, half_to_float=false)
%a{l}: float32[12, 128, 32] = aten.bmm.default(self=%p{l}, mat2=%vs{l})
%at{l}: float32[128, 12, 32] = aten.permute.default(self=%a{l}, dims=[1, 0, 2])
%av{l}: float32[128, 384] = aten.view.default(self=%at{l}, size=[128, 384])
%ao{l}: float32[128, 384] = aten.linear.default(input=%av{l}, weight=%o{l})
%r{l}: float32[128, 384] = aten.add.Tensor(self=%ao{l}, other=%{x})
%u{l}: float32[128, 1536] = aten.linear.default(input=%r{l}, weight=%up{l})
"
        );
        let mut h = format!("u{l}");
        for step in 0..30 {
            text += &format!("%g{l}_{step}: float32[128, 1536] = aten.mul.Tensor(self=%{h}, other=0.5)\n");
            h = format!("g{l}_{step}");
        }
        text += &format!(
            "%d{l}: float32[128, 384] = aten.linear.default(input=%{h}, weight=%down{l})
%y{l}: float32[128, 384] = aten.add.Tensor(self=%d{l}, other=%r{l})
"
        );
        x = format!("y{l}");
    }
    program(&format!("{text}output %{x}\n"))
}

/// The bound is 10 ms in a release build, on the CPU: other work on the machine does not count.
#[test]
fn a_graph_like_minilm_is_planned_in_milliseconds() {
    const PLANS: u32 = 10;
    let bound = Duration::from_millis(if cfg!(debug_assertions) { 200 } else { 10 });
    let method = encoder();
    assert!(method.graph.nodes().count() > 300);
    let inputs = [InputMeta::Tensor(DType::F32, vec![128, 384])];
    let options = options(DeviceProfile::minimum());
    let start = thread_cpu_time();
    for _ in 0..PLANS {
        plan::build(&method, &inputs, &options).unwrap();
    }
    let each = (thread_cpu_time() - start) / PLANS;
    assert!(each > Duration::ZERO && each <= bound, "{each:?}");
}

/// CPU time of this thread. The system adds to it at each of its ticks, at least every 10 ms.
fn thread_cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}
