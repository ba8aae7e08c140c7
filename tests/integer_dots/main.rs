//! Products of quantised activations with quantised weights in integers, on the device: with packed dot products and
//! with plain arithmetic, which must give the same bits; of activations that are packed once for several products.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod programs;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use common::{
    choices, device,
    one_op::{static_method, tensor_type},
    reference,
};
use programs::{Case, call, constant, numbers};
use vkdelegate::{
    base::{DType, HostTensor, Value},
    delegate::{BuildOptions, Context, Session},
    gpu::{CapsOverride, Features, GpuOptions},
    ir::{Arg, Constant, Graph, InputKind, Method, OutputKind, OutputSource},
    ops::{IntMm, Precision, SideValues, code_sums},
    plan::{self, InputMeta, PlanOptions},
    shader::{Access, Choices},
};

/// A context in which packed dot products count as fast, or do not.
fn context(is_fast: bool) -> Arc<Context> {
    static CONTEXTS: [OnceLock<Arc<Context>>; 2] = [OnceLock::new(), OnceLock::new()];
    let overrides = CapsOverride { unsigned_dot_accelerated: Some(is_fast), ..CapsOverride::default() };
    Arc::clone(CONTEXTS[usize::from(is_fast)].get_or_init(|| opened(overrides)))
}

fn opened(overrides: CapsOverride) -> Arc<Context> {
    let options = GpuOptions { validation: true, sync_validation: true, overrides, ..GpuOptions::default() };
    Context::open(options, None).unwrap()
}

impl Case {
    /// Both ways give the same, run after run, and what the host gives.
    fn check(&self) {
        let (method, inputs) = self.method();
        let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
        let [packed, plain] = [true, false].map(|is_fast| {
            let runs = outputs(&context(is_fast), &method, &inputs, 2);
            assert_eq!(runs[0][0].bytes(), runs[1][0].bytes(), "{self:?}: a replay differs");
            runs[0][0].clone()
        });
        assert_eq!(packed.bytes(), plain.bytes(), "{self:?}: packed and plain differ");
        self.assert_near(&packed, &want[0]);
    }
}

/// The outputs of `count` runs.
fn outputs(context: &Arc<Context>, method: &Method, inputs: &[Value], count: usize) -> Vec<Vec<HostTensor>> {
    let mut session = Session::build(context, method.clone(), BuildOptions::default()).unwrap();
    let runs = (0..count)
        .map(|_| {
            let (values, _) = session.run(inputs).unwrap();
            let tensors = values.into_iter().map(|value| match value {
                Value::Tensor(tensor) => tensor,
                other => panic!("{other:?} is no tensor"),
            });
            tensors.collect()
        })
        .collect();
    let messages = context.gpu().validation_messages();
    assert!(messages.is_empty(), "{messages:#?}");
    runs
}

/// The kernels that a device of the context's profile runs for `method`, as `name axes`.
fn kernels_of(context: &Context, method: &Method, inputs: &[Value]) -> Vec<String> {
    let options = PlanOptions {
        profile: context.profile().clone(),
        precision: Precision::F32,
        pinned_f32: HashSet::new(),
    };
    let metas: Vec<InputMeta> = inputs
        .iter()
        .map(|input| match input {
            Value::Tensor(tensor) => InputMeta::Tensor(tensor.dtype(), tensor.sizes().to_vec()),
            other => panic!("{other:?} is no tensor"),
        })
        .collect();
    let plan = plan::build(method, &metas, &options).unwrap();
    plan::verify(&plan).unwrap();
    let name = |kernel: vkdelegate::shader::KernelRef| {
        let axes = kernel.variant(Access::Ssbo).unwrap().axes;
        format!("{} {axes}", kernel.info().unwrap().name)
    };
    plan.dispatches.iter().map(|dispatch| name(dispatch.kernel)).collect()
}

/// F02. The same bits in every work-group shape, of sums in integers as of their scaled results.
#[test]
fn results_are_the_same_in_every_work_group_shape() {
    let _turn = device::turn();
    let mut seen = Vec::new();
    for (m, k, n) in [(1, 70, 300), (37, 33, 131)] {
        for (method, inputs) in [Case::new(m, k, n, 8).with_all().method(), int_mm(m, k, n)] {
            let context = context(false);
            let build = |choices| {
                let options = BuildOptions { choices: Some(Arc::new(choices)), ..BuildOptions::default() };
                Session::build(&context, method.clone(), options).unwrap()
            };
            let run = |choices| {
                let mut session = build(choices);
                let got = session.run(&inputs).unwrap().0;
                (choices::taken(&session), got)
            };
            seen.extend(choices::assert_same_in_every_shape(
                &build(Choices::default()),
                context.profile(),
                run,
            ));
        }
    }
    let profile = context(false).profile().clone();
    choices::assert_has_ways(&seen, &profile, "linear_dot", &["row", "rows1", "rows4", "rows8"]);
    choices::assert_has_ways(&seen, &profile, "int_mm_codes", &["rows1", "rows4", "rows16"]);
}

/// `_int_mm` of codes without their sums, which takes plain products.
fn int_mm(m: usize, k: usize, n: usize) -> (Method, Vec<Value>) {
    let mut graph = Graph::new("int_mm");
    let x = graph.add_input("x", tensor_type(DType::I8, &[m, k]), InputKind::User).unwrap();
    let weight = constant(&mut graph, "codes", numbers(&[n, k], 1, DType::I8, -128, 127, 1.0));
    let args = vec![("self", Arg::Value(x)), ("weight", Arg::Value(weight))];
    let y = call(&mut graph, "mm", "vkdelegate._int_mm.default", args, &[(DType::I32, &[m, n])])[0];
    graph.add_output(OutputSource::Value(y), OutputKind::User);
    let x = Value::Tensor(numbers(&[m, k], 2, DType::I8, -128, 127, 1.0));
    (static_method(graph), vec![x])
}

#[test]
fn rows_of_any_length() {
    let _turn = device::turn();
    for bits in [4, 8] {
        for k in [1, 3, 5, 33, 64, 257, 1024] {
            for n in [1, 3, 5] {
                Case::new(1, k, n, bits).check();
            }
            Case::new(1, k, 259, bits).with_all().check();
        }
    }
}

#[test]
fn tiles_of_any_size() {
    let _turn = device::turn();
    for bits in [4, 8] {
        for (m, k, n) in
            [(2, 5, 1), (3, 33, 5), (4, 257, 3), (7, 16, 133), (9, 31, 8), (33, 40, 7), (257, 3, 3)]
        {
            Case::new(m, k, n, bits).check();
            Case::new(m, k, n, bits).with_all().check();
        }
    }
    Case { dtype: DType::U8, ..Case::new(5, 33, 9, 8).with_all() }.check();
    Case { dtype: DType::U8, ..Case::new(1, 33, 9, 4).with_all() }.check();
}

/// Up to 8 groups share 16 invocations in several ways, more take turns.
#[test]
fn groups_of_any_number() {
    let _turn = device::turn();
    for (bits, group) in [(4, 8), (4, 24), (4, 32), (8, 4), (8, 12), (8, 32)] {
        for groups in [2, 3, 4, 5, 8, 9, 17, 33] {
            for m in [1, 5] {
                Case { groups, ..Case::new(m, group * groups, 9, bits).with_all() }.check();
            }
        }
    }
}

/// The result's codes are those of `quantize_per_tensor` for the float result of the same device, bit for bit.
#[test]
fn results_are_quantised_as_apart() {
    let _turn = device::turn();
    for (m, groups) in [(1, 1), (6, 1), (1, 3), (9, 3)] {
        let floats = Case { groups, ..Case::new(m, 96, 37, 8).with_all() };
        let codes = Case { quantises: true, ..floats };
        codes.check();
        let (mut method, inputs) = floats.method();
        let OutputSource::Value(y) = method.graph.outputs()[0].source else {
            panic!("the result is a number")
        };
        let args = vec![
            ("input", Arg::Value(y)),
            ("scale", Arg::Float(f64::from(0.37f32))),
            ("zero_point", Arg::Int(-7)),
            ("quant_min", Arg::Int(-120)),
            ("quant_max", Arg::Int(127)),
            ("dtype", Arg::DType(DType::I8)),
        ];
        let op = "quantized_decomposed.quantize_per_tensor.default";
        let q = call(&mut method.graph, "quantize", op, args, &[(DType::I8, &[m, 37])])[0];
        method.graph.add_output(OutputSource::Value(q), OutputKind::User);
        let apart = outputs(&context(true), &method, &inputs, 1).remove(0);
        let fused = outputs(&context(true), &codes.method().0, &inputs, 1).remove(0);
        assert_eq!(apart[1].bytes(), fused[0].bytes(), "{codes:?}");
    }
}

/// Products that share their packed activations have scales and zero points of their own.
#[test]
fn one_packing_serves_several_products() {
    let _turn = device::turn();
    for m in [1, 5] {
        let case = Case::new(m, 70, 20, 8).with_all();
        let narrow = Case { per_row: false, ..Case::new(m, 70, 11, 4).with_all() };
        let mut graph = Graph::new("dots");
        let packed = case.packed(&mut graph);
        let mut inputs = vec![case.x()];
        for (seed, case) in [(11, case), (31, narrow), (51, case)] {
            let factors = case.factor_inputs(&mut graph, seed);
            let y = case.product(&mut graph, &packed, factors, seed);
            graph.add_output(OutputSource::Value(y), OutputKind::User);
            inputs.extend(case.factors(seed));
        }
        let method = static_method(graph);
        let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
        let got = outputs(&context(true), &method, &inputs, 1).remove(0);
        for (index, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(got.bytes(), want.bytes(), "{m} rows, product {index}");
        }
        let kernels = kernels_of(&context(true), &method, &inputs);
        assert_eq!(kernels.iter().filter(|name| name.starts_with("pack_codes")).count(), 1, "{kernels:?}");
    }
}

/// Products of the same activations with the same scale share what is made of it; a scale that is another number in the
/// same memory is another scale.
#[test]
fn scales_are_shared_until_their_memory_changes() {
    let _turn = device::turn();
    for m in [1, 5] {
        let case = Case::new(m, 70, 20, 8).with_all();
        let mut graph = Graph::new("dots");
        let packed = case.packed(&mut graph);
        let [scale, zero] = case.factor_inputs(&mut graph, 11);
        let mut products = vec![case.product(&mut graph, &packed, [scale, zero], 11)];
        products.push(case.product(&mut graph, &packed, [scale, zero], 31));
        let args = vec![("self", Arg::Value(scale)), ("other", Arg::Float(3.0))];
        let larger = call(&mut graph, "larger", "aten.mul.Tensor", args, &[(DType::F32, &[m, 1])])[0];
        products.push(case.product(&mut graph, &packed, [larger, zero], 51));
        for y in products {
            graph.add_output(OutputSource::Value(y), OutputKind::User);
        }
        let method = static_method(graph);
        let inputs = [vec![case.x()], case.factors(11).to_vec()].concat();
        let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
        let got = outputs(&context(true), &method, &inputs, 1).remove(0);
        for (index, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(got.bytes(), want.bytes(), "{m} rows, product {index}");
        }
        let kernels = kernels_of(&context(true), &method, &inputs);
        assert_eq!(kernels.iter().filter(|name| name.starts_with("row_factors")).count(), 2, "{kernels:?}");
    }
}

/// Packed dot products are taken where they are fast, and never where the device has none.
#[test]
fn the_device_chooses_the_arithmetic() {
    let _turn = device::turn();
    let chosen = |context: &Context, case: Case| {
        let (method, inputs) = case.method();
        kernels_of(context, &method, &inputs).pop().unwrap()
    };
    let (row, tile) = (Case::new(1, 64, 8, 8), Case::new(5, 64, 8, 4));
    assert_eq!(chosen(&context(true), row), "linear_dot_row dtype=f32 dot=packed bits=8 access=ssbo");
    assert_eq!(chosen(&context(false), row), "linear_dot_row dtype=f32 dot=plain bits=8 access=ssbo");
    assert!(chosen(&context(true), tile).contains("dot=packed bits=4 tile_m=4"));
    let features_off = Features { integer_dot_product: true, ..Features::default() };
    let without = opened(CapsOverride {
        features_off,
        unsigned_dot_accelerated: Some(true),
        ..CapsOverride::default()
    });
    assert!(chosen(&without, tile).contains("dot=plain"));
    let (method, inputs) = tile.method();
    let got = outputs(&without, &method, &inputs, 1).remove(0);
    assert_eq!(got[0].bytes(), outputs(&context(true), &method, &inputs, 1)[0][0].bytes());
}

/// Launches that a device does not take at once are made of parts.
#[test]
fn few_work_groups_are_enough() {
    let _turn = device::turn();
    let limited = opened(CapsOverride {
        max_group_count: Some([7; 3]),
        unsigned_dot_accelerated: Some(true),
        ..CapsOverride::default()
    });
    for (m, n) in [(70, 1201), (1, 157), (60, 7)] {
        let (method, inputs) = Case::new(m, 12, n, 8).with_all().method();
        let got = outputs(&limited, &method, &inputs, 1).remove(0);
        let want = outputs(&context(true), &method, &inputs, 1).remove(0);
        assert_eq!(got[0].bytes(), want[0].bytes(), "{m} x {n}");
    }
}

/// The weight takes its bytes, and beside them a scale and a sum for each row.
#[test]
fn weights_stay_packed() {
    let _turn = device::turn();
    let bytes = |case: Case| {
        let session = Session::build(&context(true), case.method().0, BuildOptions::default()).unwrap();
        session.memory_report().constant_bytes
    };
    assert_eq!(bytes(Case::new(3, 256, 96, 8)), 96 * 256 + 96 * 8);
    assert_eq!(bytes(Case::new(3, 256, 96, 4)), 96 * 128 + 96 * 8);
}

/// Only a constant is packed.
#[test]
fn codes_that_are_computed_are_refused() {
    let _turn = device::turn();
    let (mut method, _) = Case::new(2, 8, 3, 8).method();
    let live = method.graph.add_input("live", tensor_type(DType::I8, &[3, 8]), InputKind::User).unwrap();
    let codes = method.graph.value_named("codes11").unwrap();
    method.graph.replace_uses(codes, live).unwrap();
    let error = Session::build(&context(true), method, BuildOptions::default()).err().unwrap();
    assert_eq!(error.node(), Some("product11"));
    assert!(error.to_string().contains("weight"), "{error}");
}

/// In half precision the float result is stored in half, and its codes are those of the half.
#[test]
fn half_precision_rounds_the_result() {
    let _turn = device::turn();
    for m in [1, 5] {
        let case = Case::new(m, 64, 24, 8).with_all();
        let (method, mut inputs) = case.method();
        // Scales that the caller gives are stored in half, too.
        if let Value::Tensor(scale) = &mut inputs[1] {
            *scale = scale.cast(DType::F16).unwrap().cast(DType::F32).unwrap();
        }
        let run = |precision| {
            let options = BuildOptions { precision, ..BuildOptions::default() };
            let mut session = Session::build(&context(true), method.clone(), options).unwrap();
            let Some(Value::Tensor(y)) = session.run(&inputs).unwrap().0.into_iter().next() else {
                panic!("no output")
            };
            y
        };
        let want = run(Precision::F32).cast(DType::F16).unwrap().cast(DType::F32).unwrap();
        assert_eq!(run(Precision::F16).to_f32s(), want.to_f32s());
    }
}

/// `_int_mm` takes packed dot products too, and wraps at 32 bits as it does without.
#[test]
fn int_mm_is_exact_either_way() {
    let _turn = device::turn();
    for dtype in [DType::I8, DType::U8] {
        for (m, k, n) in [(1, 33, 5), (1, 64, 300), (3, 5, 4), (17, 257, 9), (1, 140_000, 2), (2, 140_000, 2)]
        {
            let mut graph = Graph::new("int_mm");
            let x = graph.add_input("x", tensor_type(dtype, &[m, k]), InputKind::User).unwrap();
            let (low, high) = if k > 100_000 { (-128, -128) } else { (-128, 127) };
            let codes = Constant::from_tensor("codes", numbers(&[n, k], 1, DType::I8, low, high, 1.0));
            let values = SideValues { scales: vec![1.0; n], zeros: vec![0.0; n], bias: vec![0.0; n] };
            let table = IntMm::side().table(&values, &code_sums(&codes, 0, 1).unwrap(), n).unwrap();
            let weight = graph.add_constant_input("codes", codes, InputKind::Parameter).unwrap();
            let side = constant(&mut graph, "side", table);
            let args =
                vec![("self", Arg::Value(x)), ("weight", Arg::Value(weight)), ("side", Arg::Value(side))];
            let y = call(&mut graph, "mm", "vkdelegate._int_mm.default", args, &[(DType::I32, &[m, n])])[0];
            graph.add_output(OutputSource::Value(y), OutputKind::User);
            let method = static_method(graph);
            let (least, most) = dtype.int_range().unwrap();
            let least = if k > 100_000 { most } else { least };
            let inputs = [Value::Tensor(numbers(&[m, k], 2, dtype, least, most, 1.0))];
            let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
            for is_fast in [true, false] {
                let got = outputs(&context(is_fast), &method, &inputs, 1).remove(0);
                assert_eq!(got[0].bytes(), want[0].bytes(), "{dtype} {m}x{k}x{n}, fast: {is_fast}");
            }
            let kernels = kernels_of(&context(true), &method, &inputs);
            assert!(kernels.last().unwrap().contains("dot=packed"), "{kernels:?}");
        }
    }
}
