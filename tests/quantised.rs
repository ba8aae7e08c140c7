//! Products with quantised weights on the device: shapes that break kernels, every way to scale, and what they take of
//! memory. Each program is held to its own meaning on the host before any pass.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::HashMap;

use common::{compare, device, one_op::static_method, reference};
use vkdelegate::{
    base::{DType, HostTensor, SymExpr, Value},
    delegate::{BuildOptions, MemoryReport, Session},
    ir::{
        Arg, Constant, Graph, InputKind, Method, OpName, OutputKind, OutputSource, TensorType, Type, ValueId,
    },
    ops::Precision,
    passes,
};

/// One program `y = x W^T + bias`, W being dequantised from codes.
#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    k: usize,
    n: usize,
    /// Columns that share a scale; K for one scale a row.
    group: usize,
    bits: u32,
    has_zeros: bool,
    has_bias: bool,
    /// Zero to 2^bits - 1 in uint8 rather than signed codes in int8.
    unsigned: bool,
    /// Whether x is quantised and dequantised, row by row, at run time.
    quantises_x: bool,
    /// Whether something of the result's sizes is added.
    adds: bool,
    /// Base name of the function that comes last.
    function: Option<&'static str>,
}

impl Case {
    fn new(m: usize, k: usize, n: usize, bits: u32) -> Case {
        let group = k;
        let (has_zeros, has_bias, unsigned, quantises_x, adds) = (false, false, false, false, false);
        Case { m, k, n, group, bits, has_zeros, has_bias, unsigned, quantises_x, adds, function: None }
    }
}

/// Numbers without symmetry or a short period.
fn number(index: usize, seed: u64) -> u64 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed << 32);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

fn numbers(sizes: &[usize], seed: u64, dtype: DType, low: i64, high: i64, step: f64) -> HostTensor {
    let count: usize = sizes.iter().product();
    let span = (high - low + 1) as u64;
    let values: Vec<f64> =
        (0..count).map(|index| (low + (number(index, seed) % span) as i64) as f64 * step).collect();
    HostTensor::from_f64s(DType::F64, sizes.to_vec(), &values).unwrap().cast(dtype).unwrap()
}

fn tensor_type(dtype: DType, sizes: &[usize]) -> Type {
    Type::Tensor(TensorType { dtype, sizes: sizes.iter().map(|&size| SymExpr::Const(size as i64)).collect() })
}

fn constant(graph: &mut Graph, name: &str, tensor: HostTensor) -> ValueId {
    graph.add_constant_input(name, Constant::from_tensor(name, tensor), InputKind::Parameter).unwrap()
}

fn call(graph: &mut Graph, name: &str, op: &str, args: Vec<(&str, Arg)>, outs: &[Type]) -> Vec<ValueId> {
    let args = args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect();
    let outs = outs.iter().enumerate().map(|(index, ty)| (format!("{name}{index}"), ty.clone())).collect();
    let node = graph.add_node(name, OpName::new(op), args, outs).unwrap();
    graph.node(node).unwrap().outputs.clone()
}

fn value(value: ValueId) -> Arg {
    Arg::Value(value)
}

impl Case {
    fn method(&self) -> Method {
        let &Case { m, k, n, group, bits, .. } = self;
        let mut graph = Graph::new("quantised");
        let (low, high) =
            if self.unsigned { (0, (1 << bits) - 1) } else { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) };
        let dtype = if self.unsigned { DType::U8 } else { DType::I8 };
        let blocks = [n, k / group.max(1)];
        let codes = constant(&mut graph, "codes", numbers(&[n, k], 1, dtype, low, high, 1.0));
        let scale = constant(&mut graph, "scale", numbers(&blocks, 2, DType::F32, 1, 40, 0.0011));
        let zero = match self.has_zeros {
            true => value(constant(&mut graph, "zero", numbers(&blocks, 3, DType::I32, low, high, 1.0))),
            false => Arg::None,
        };
        let mut x = graph.add_input("x", tensor_type(DType::F32, &[m, k]), InputKind::User).unwrap();
        if self.quantises_x {
            x = self.quantised_per_token(&mut graph, x);
        }
        let args = vec![
            ("input", value(codes)),
            ("block_size", Arg::Ints(vec![ir_int(1), ir_int(group)])),
            ("scale", value(scale)),
            ("zero_point", zero),
            ("input_dtype", Arg::DType(dtype)),
            ("quant_min", Arg::Int(low)),
            ("quant_max", Arg::Int(high)),
        ];
        let weight_type = tensor_type(DType::F32, &[n, k]);
        let weight = call(&mut graph, "weight", "torchao.dequantize_affine.default", args, &[weight_type])[0];
        let mut args = vec![("input", value(x)), ("weight", value(weight))];
        if self.has_bias {
            args.push((
                "bias",
                value(constant(&mut graph, "bias", numbers(&[n], 4, DType::F32, -9, 9, 0.5))),
            ));
        }
        let result = [tensor_type(DType::F32, &[m, n])];
        let mut y = call(&mut graph, "linear", "aten.linear.default", args, &result)[0];
        if self.adds {
            let r = graph.add_input("r", result[0].clone(), InputKind::User).unwrap();
            let r = call(&mut graph, "neg", "aten.neg.default", vec![("self", value(r))], &result)[0];
            let args = vec![("self", value(r)), ("other", value(y))];
            y = call(&mut graph, "add", "aten.add.Tensor", args, &result)[0];
        }
        if let Some(function) = self.function {
            let op = format!("aten.{function}.default");
            y = call(&mut graph, "function", &op, vec![("self", value(y))], &result)[0];
        }
        graph.add_output(OutputSource::Value(y), OutputKind::User);
        static_method(graph)
    }

    fn quantised_per_token(&self, graph: &mut Graph, x: ValueId) -> ValueId {
        let &Case { m, k, .. } = self;
        let params = [tensor_type(DType::F64, &[m, 1]), tensor_type(DType::I64, &[m, 1])];
        let range =
            [("quant_min", Arg::Int(-128)), ("quant_max", Arg::Int(127)), ("dtype", Arg::DType(DType::I8))];
        let choose = "quantized_decomposed.choose_qparams_per_token_asymmetric.default";
        let args = vec![("input", value(x)), ("dtype", Arg::DType(DType::I8))];
        let chosen = call(graph, "choose", choose, args, &params);
        let with_params = |input: ValueId| {
            let params = [("input", input), ("scales", chosen[0]), ("zero_points", chosen[1])];
            let mut args: Vec<(&str, Arg)> =
                params.iter().map(|&(name, param)| (name, value(param))).collect();
            args.extend(range.clone());
            args
        };
        let codes_type = tensor_type(DType::I8, &[m, k]);
        let quantize = "quantized_decomposed.quantize_per_token.default";
        let codes = call(graph, "quantize", quantize, with_params(x), &[codes_type])[0];
        let mut args = with_params(codes);
        args.push(("output_dtype", Arg::DType(DType::F32)));
        let dequantize = "quantized_decomposed.dequantize_per_token.default";
        call(graph, "dequantize", dequantize, args, &[tensor_type(DType::F32, &[m, k])])[0]
    }

    fn x(&self) -> HostTensor {
        numbers(&[self.m, self.k], 5, DType::F32, -64, 64, 1.0 / 32.0)
    }

    fn inputs(&self, x: HostTensor) -> Vec<Value> {
        let r = self.adds.then(|| numbers(&[self.m, self.n], 7, DType::F32, -64, 64, 1.0 / 16.0));
        [x].into_iter().chain(r).map(Value::Tensor).collect()
    }

    /// Kinds of the fusions that are expected.
    fn kinds(&self) -> Vec<String> {
        let linear = format!("linear_{}{}", if self.quantises_x { "a8w" } else { "q" }, self.bits);
        let sum = if self.adds { "_add" } else { "" };
        let function = self.function.map(|function| format!("_{function}")).unwrap_or_default();
        let all = format!("{linear}{sum}{function}");
        if all == linear { vec![linear] } else { vec![linear, all] }
    }

    /// The result, and what the delegate's constants take.
    fn run(&self, precision: Precision, x: HostTensor) -> (HostTensor, MemoryReport) {
        let optimised = passes::optimise(&self.method(), &passes::Options::default()).unwrap();
        let kinds: Vec<&str> = optimised.fusions.iter().map(|fusion| fusion.kind.as_str()).collect();
        assert_eq!(kinds, self.kinds(), "{self:?}: {:?}", optimised.decisions);
        assert_eq!(optimised.ops().get("linear"), Some(&1));
        let _turn = device::turn();
        let options = BuildOptions { precision, ..BuildOptions::default() };
        let mut session = Session::build(&device::context(), optimised.method, options).unwrap();
        let (outputs, _) = session.run(&self.inputs(x)).unwrap();
        let Some(Value::Tensor(y)) = outputs.into_iter().next() else { panic!("{self:?}: no output") };
        let messages = device::validation_messages();
        assert!(messages.is_empty(), "{self:?}: {messages:#?}");
        (y, session.memory_report())
    }

    fn check(&self) {
        self.check_with(Precision::F32, 1e-4, self.x());
    }

    /// Holds every row to the reference, relative to the row's largest value.
    fn check_with(&self, precision: Precision, tolerance: f64, x: HostTensor) {
        let graph = self.method().graph;
        let (want, _) = reference::run(&graph, &self.inputs(x.clone()), &HashMap::new());
        let (got, _) = self.run(precision, x);
        let (got, want) = (got.to_f64s(), want[0].to_f64s());
        assert_eq!(got.len(), want.len());
        for (row, (got, want)) in got.chunks(self.n.max(1)).zip(want.chunks(self.n.max(1))).enumerate() {
            let largest = want.iter().fold(0.0f64, |largest, v| largest.max(v.abs()));
            for (column, (got, want)) in got.iter().zip(want).enumerate() {
                let error = (got - want).abs();
                let fits = error <= tolerance * largest;
                assert!(fits, "{self:?}: ({row}, {column}) is {got}, the reference {want}");
            }
        }
    }
}

fn ir_int(value: usize) -> vkdelegate::ir::IntArg {
    vkdelegate::ir::IntArg::Const(value as i64)
}

/// (F03) One row, over every remainder of the split and of the blocks.
#[test]
fn one_row_of_any_length() {
    for bits in [4, 8] {
        for k in [1, 2, 3, 16, 63, 64, 255, 256, 257, 511, 512, 513, 1024, 1025, 1536] {
            for n in [1, 3, 5] {
                Case::new(1, k, n, bits).check();
            }
        }
        Case::new(1, 6144, 3, bits).check();
        Case { has_zeros: true, has_bias: true, ..Case::new(1, 257, 512, bits) }.check();
        for n in [255, 256, 301] {
            Case::new(1, 40, n, bits).check();
            Case { group: 32, has_bias: true, ..Case::new(1, 96, n, bits) }.check();
            Case { group: 8, has_zeros: true, ..Case::new(1, 40, n, bits) }.check();
        }
    }
}

/// (F04) Tiles with rests in every direction.
#[test]
fn tiles_of_any_size() {
    for bits in [4, 8] {
        for m in [2, 3, 5, 17] {
            for k in [1, 3, 31, 33, 384] {
                for n in [1, 2, 7] {
                    Case { has_zeros: k % 2 == 1, has_bias: n != 2, ..Case::new(m, k, n, bits) }.check();
                }
            }
        }
        for n in [1151, 1152, 1153] {
            Case::new(9, 40, n, bits).check();
        }
        Case { has_zeros: true, ..Case::new(257, 33, 3, bits) }.check();
    }
}

/// (F07, F08) Groups in odd numbers, with zero points that all differ, for signed and unsigned codes.
#[test]
fn groups_have_scales_and_zero_points_of_their_own() {
    for (bits, groups) in [(4, [8, 16, 32]), (8, [4, 12, 32])] {
        for group in groups {
            for count in [1, 2, 3, 5] {
                for (m, unsigned) in [(1, false), (1, true), (6, false), (6, true)] {
                    let k = group * count;
                    let has_zeros = count != 2 || unsigned;
                    Case { group, has_zeros, unsigned, has_bias: m == 6, ..Case::new(m, k, 5, bits) }.check();
                }
            }
        }
    }
}

/// (F01) Rows that are quantised at run time have zero points of their own, however many rows there are.
#[test]
fn quantised_rows_do_not_depend_on_other_rows() {
    let case = |m| Case { group: 32, quantises_x: true, has_zeros: true, ..Case::new(m, 64, 8, 4) };
    let x = |m: usize| numbers(&[m, 64], 6, DType::F32, 50, 350, 0.01);
    let (all, _) = case(1025).run(Precision::F32, x(1025));
    let all = all.to_f32s();
    for m in [1, 16, 31, 32, 33, 64, 129, 1025] {
        case(m).check_with(Precision::F32, 1e-2, x(m));
    }
    let rows = x(1025).to_f32s();
    for row in [0, 1, 500, 1024] {
        let alone = HostTensor::from_f32(&[1, 64], &rows[row * 64..][..64]).unwrap();
        let (got, _) = case(1).run(Precision::F32, alone);
        let want = HostTensor::from_f32(&[1, 8], &all[row * 8..][..8]).unwrap();
        compare::tensors(&got, &want, 1e-4, 1e-4).unwrap_or_else(|text| panic!("row {row}: {text}"));
    }
}

/// (F06) No rows give no rows.
#[test]
fn no_rows_give_no_rows() {
    for bits in [4, 8] {
        let (y, _) = Case::new(0, 64, 8, bits).run(Precision::F32, Case::new(0, 64, 8, bits).x());
        assert_eq!(y.sizes(), [0, 8]);
    }
}

#[test]
fn half_precision_stays_near() {
    for bits in [4, 8] {
        for m in [1, 5] {
            let case = Case { has_zeros: true, has_bias: true, ..Case::new(m, 256, 24, bits) };
            case.check_with(Precision::F16, 1e-2, case.x());
            Case { group: 32, ..case }.check_with(Precision::F16, 1e-2, case.x());
        }
    }
}

/// What follows a product is part of it, for one row and tiles, for one group and several.
#[test]
fn sums_and_functions_follow() {
    let mut followers =
        [(true, None), (true, Some("relu")), (false, Some("gelu")), (true, Some("silu"))].into_iter().cycle();
    let cases = [(1, 4), (1, 8), (5, 4), (5, 8), (40, 8)].map(|(m, bits)| Case::new(m, 64, 23, bits));
    for case in cases.into_iter().flat_map(|case| [case, Case { quantises_x: true, ..case }]) {
        for group in [16, 64] {
            let Some((adds, function)) = followers.next() else { return };
            let case = Case { group, has_bias: true, has_zeros: true, adds, function, ..case };
            // Rows that are quantised are held to a step of their codes.
            case.check_with(Precision::F32, if case.quantises_x { 1e-2 } else { 1e-4 }, case.x());
            if case.m == 5 {
                case.check_with(Precision::F16, 2e-2, case.x());
            }
        }
        // So that each kind of case meets each follower.
        followers.next();
    }
}

/// Codes take their bits on the device, and beside them there are only scales and zero points.
#[test]
fn weights_stay_packed() {
    let bytes = |case: Case| case.run(Precision::F32, case.x()).1.constant_bytes;
    let (n, k) = (96, 256);
    let (row, scale) = (Case::new(1, k, n, 8), 4 * n as u64);
    let codes = (n * k) as u64;
    assert_eq!(bytes(row), codes + scale);
    assert_eq!(bytes(Case { has_zeros: true, has_bias: true, ..row }), codes + 3 * scale);
    let groups = (k / 32) as u64;
    assert_eq!(bytes(Case { bits: 4, ..row }), codes / 2 + scale);
    assert_eq!(bytes(Case { bits: 4, group: 32, ..row }), codes / 2 + groups * scale);
    assert_eq!(bytes(Case { bits: 4, group: 32, unsigned: true, ..row }), codes / 2 + 2 * groups * scale);
}

/// A packing that the file does not describe is refused with advice.
#[test]
fn int4pack_is_refused_with_advice() {
    let mut graph = Graph::new("int4pack");
    let x = graph.add_input("x", tensor_type(DType::F32, &[2, 64]), InputKind::User).unwrap();
    let codes = constant(&mut graph, "codes", numbers(&[8, 32], 1, DType::U8, 0, 255, 1.0));
    let scales = constant(&mut graph, "scales", numbers(&[2, 8, 2], 2, DType::F32, 1, 9, 0.5));
    let args = vec![
        ("self", value(x)),
        ("mat2", value(codes)),
        ("qGroupSize", Arg::Int(32)),
        ("qScaleAndZeros", value(scales)),
    ];
    let op = "aten._weight_int4pack_mm_for_cpu.default";
    let y = call(&mut graph, "mm", op, args, &[tensor_type(DType::F32, &[2, 8])])[0];
    graph.add_output(OutputSource::Value(y), OutputKind::User);
    let method = passes::optimise(&static_method(graph), &passes::Options::default()).unwrap().method;
    let _turn = device::turn();
    let error =
        Session::build(&device::context(), method, BuildOptions::default()).err().unwrap().to_string();
    assert!(error.contains("mm") && error.contains("dequantize_affine"), "{error}");
}
