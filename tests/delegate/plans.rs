//! Plans without a device: their text for a few programs, sizes that would wrap, and how close an arena comes to what is alive.
//!
//! `UPDATE=1 cargo test --test delegate plans` writes the texts anew; read the difference before you commit it.

use std::{collections::HashSet, path::Path};

use vkdelegate::{
    base::{DType, ErrorKind, Result},
    ir::Method,
    ops::Precision,
    plan::{self, InputMeta, Plan, PlanOptions},
    shader::DeviceProfile,
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
        assert!(plan.arena_bytes.iter().sum::<u64>() >= 8 * n);
    }
    for n in [1u64 << 32, (1 << 32) + 1, 1 << 40, 1 << 61, (1 << 62) - 1, 1 << 62] {
        let error = plan_long(n).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&n.to_string()), "{n}: {text}");
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
