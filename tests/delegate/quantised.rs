//! Tables and weights of codes on devices: rows of tables of any shape, what is out of range, tied tables, sizes of
//! zero, and devices that lack 8- and 16-bit features. Results are held to the host's run of the program before any pass.

use std::collections::HashMap;

use vkdelegate::{
    DType, HostTensor, Program, Value,
    base::ErrorKind,
    delegate::{BuildOptions, MemoryReport},
    gpu::{CapsOverride, Features, GpuOptions},
    graph::{Arg, GraphBuilder, IntArg, ValueId},
    ir::Method,
    ops::Precision,
    passes,
    shader::Access,
};

use crate::{
    common::{compare, reference},
    support::{
        dynamic_program, floats, on_each_access, on_each_access_limited, program, try_build, validated,
        with_context,
    },
};

/// A table of codes, each with its group's scale and zero point.
#[derive(Clone, Copy, Debug)]
struct Table {
    rows: usize,
    columns: usize,
    group: usize,
    bits: u32,
    unsigned: bool,
    has_zeros: bool,
}

/// Numbers in `low..=high` without a short period.
fn numbers(dtype: DType, sizes: &[usize], (low, high): (i64, i64), scale: f64) -> HostTensor {
    let span = (high - low + 1) as u64;
    let number = |index: u64| {
        let mixed = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        low + ((mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as i64 % span as i64
    };
    let count = sizes.iter().product::<usize>() as u64;
    let values: Vec<f64> = (0..count).map(|index| number(index) as f64 * scale).collect();
    HostTensor::from_f64s(DType::F64, sizes.to_vec(), &values).unwrap().cast(dtype).unwrap()
}

fn ints(values: &[usize]) -> Arg {
    Arg::Ints(values.iter().map(|&value| IntArg::Const(value as i64)).collect())
}

fn indices(values: &[i64]) -> Value {
    Value::Tensor(HostTensor::from_i64(&[values.len()], values).unwrap())
}

impl Table {
    fn new(rows: usize, columns: usize, bits: u32) -> Table {
        let group = columns;
        Table { rows, columns, group, bits, unsigned: false, has_zeros: false }
    }

    /// The dequantised table.
    fn add_to(&self, graph: &mut GraphBuilder) -> ValueId {
        let &Table { rows, columns, group, bits, unsigned, .. } = self;
        let half = 1i64 << (bits - 1);
        let (low, high) = if unsigned { (0, 2 * half - 1) } else { (-half, half - 1) };
        let dtype = if unsigned { DType::U8 } else { DType::I8 };
        let blocks = [rows, columns / group.max(1)];
        let name = |what: &str| format!("{what}_{bits}_{group}_{unsigned}");
        let codes =
            graph.parameter(&name("codes"), numbers(dtype, &[rows, columns], (low, high), 1.0)).unwrap();
        let scale = graph.parameter(&name("scale"), numbers(DType::F32, &blocks, (1, 99), 0.0017)).unwrap();
        let zero = match self.has_zeros {
            true => {
                graph.parameter(&name("zero"), numbers(DType::I32, &blocks, (low, high), 1.0)).unwrap().into()
            }
            false => Arg::None,
        };
        let args = [
            ("input", codes.into()),
            ("block_size", ints(&[1, group])),
            ("scale", scale.into()),
            ("zero_point", zero),
            ("input_dtype", Arg::DType(dtype)),
            ("quant_min", Arg::Int(low)),
            ("quant_max", Arg::Int(high)),
        ];
        graph.call("torchao.dequantize_affine.default", args).unwrap()
    }

    /// `embedding(table, ids)`, with ids of int64.
    fn lookup(&self, ids: &[usize]) -> Method {
        let mut graph = GraphBuilder::new("lookup");
        let ids = graph.input("ids", DType::I64, ids).unwrap();
        let table = self.add_to(&mut graph);
        let args = [("weight", table.into()), ("indices", ids.into())];
        let looked_up = graph.call("aten.embedding.default", args).unwrap();
        graph.output(looked_up);
        method(graph)
    }
}

fn method(graph: GraphBuilder) -> Method {
    let program: Program = graph.build().unwrap();
    program.only_method().unwrap().ir().clone()
}

/// After all passes, with the kinds of the fusions.
fn optimised(method: &Method) -> (Method, Vec<String>) {
    let optimised = passes::optimise(method, &passes::Options::default()).unwrap();
    (optimised.method, optimised.fusions.into_iter().map(|fusion| fusion.kind).collect())
}

/// Runs what the passes make of `method`, and the method itself on the host.
fn check(
    context: &std::sync::Arc<vkdelegate::delegate::Context>,
    before: &Method,
    inputs: &[Value],
    tolerance: f64,
) -> MemoryReport {
    let (want, _) = reference::run(&before.graph, inputs, &HashMap::new());
    let mut session = try_build(context, &optimised(before).0).unwrap_or_else(|error| panic!("{error}"));
    let got = crate::support::run(&mut session, inputs);
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(&want) {
        compare::tensors(got, want, tolerance, tolerance)
            .unwrap_or_else(|text| panic!("{text}\n{}", before.graph));
    }
    session.memory_report()
}

/// Every remainder of rows in a panel and of columns in words and groups. Rows are exact: there is no sum to round.
#[test]
fn rows_come_from_tables_of_any_shape() {
    on_each_access(|context| {
        for bits in [4, 8] {
            for (rows, columns, group) in [
                (1, 1, 1),
                (2, 3, 3),
                (3, 7, 7),
                (4, 8, 4),
                (5, 9, 3),
                (6, 31, 31),
                (7, 33, 11),
                (9, 40, 8),
                (13, 96, 32),
            ] {
                for (unsigned, has_zeros) in [(false, false), (false, true), (true, true)] {
                    let table = Table { group, unsigned, has_zeros, ..Table::new(rows, columns, bits) };
                    let method = table.lookup(&[2, rows]);
                    // Groups of 4 fill words of 8-bit codes only, which a linear of the table would take.
                    let held_bits = if (group, columns) == (4, 8) { 8 } else { bits };
                    assert_eq!(optimised(&method).1, [format!("embedding_q{held_bits}")], "{table:?}");
                    let ids: Vec<i64> = (0..2 * rows as i64).map(|i| i * 5 % rows as i64).collect();
                    let ids = HostTensor::from_i64(&[2, rows], &ids).unwrap();
                    check(context, &method, &[Value::Tensor(ids)], 0.0);
                }
            }
        }
    });
}

/// (F22) Indices of any rank, of int32, and strided; rows named from the end; no rows.
#[test]
fn indices_have_any_rank_and_dtype() {
    let table = Table { group: 5, has_zeros: true, ..Table::new(7, 15, 4) };
    on_each_access(|context| {
        for sizes in [&[][..], &[0], &[5], &[2, 0, 3], &[2, 3, 2, 1, 2]] {
            let count: usize = sizes.iter().product();
            let ids: Vec<i64> = (0..count as i64).map(|i| i * 3 % 7).collect();
            let ids = HostTensor::from_i64(sizes, &ids).unwrap();
            check(context, &table.lookup(sizes), &[Value::Tensor(ids)], 0.0);
        }
        let mut graph = GraphBuilder::new("lookups");
        let ids = graph.input("ids", DType::I32, &[3, 4]).unwrap();
        let from_end = graph.input("from_end", DType::I64, &[3]).unwrap();
        let codes = table.add_to(&mut graph);
        let args = [("self", ids.into()), ("dims", [1, 0].into())];
        let turned = graph.call("aten.permute.default", args).unwrap();
        let args = [("weight", codes.into()), ("indices", turned.into())];
        let looked_up = graph.call("aten.embedding.default", args).unwrap();
        graph.output(looked_up);
        let args = [("self", codes.into()), ("indices", Arg::Values(vec![Some(from_end)]))];
        let looked_up = graph.call("aten.index.Tensor", args).unwrap();
        graph.output(looked_up);
        let method = method(graph);
        assert_eq!(optimised(&method).1, ["embedding_q4", "embedding_q4"]);
        let ids = numbers(DType::I32, &[3, 4], (0, 6), 1.0);
        check(context, &method, &[Value::Tensor(ids), indices(&[-1, 0, -7])], 0.0);
    });
}

/// (F21, F22) An index out of range is reported with node and value, and reads nothing.
#[test]
fn an_index_out_of_range_is_reported() {
    let method = Table::new(5, 12, 8).lookup(&[3]);
    on_each_access(|context| {
        let mut session = try_build(context, &optimised(&method).0).unwrap();
        for index in [5, -1, i64::from(i32::MIN)] {
            let error = session.run(&[indices(&[0, index, 4])]).unwrap_err();
            assert_eq!((error.kind(), error.node()), (ErrorKind::BadData, Some("embedding")), "{error}");
            assert!(error.to_string().contains(&index.to_string()), "{error}");
        }
        session.run(&[indices(&[0, 3, 4])]).unwrap();
    });
}

/// A table that no descriptor reaches, by its codes or by its scales, is read in windows.
#[test]
fn a_table_beyond_a_descriptor_is_read_in_windows() {
    let overrides = CapsOverride { max_storage_buffer_range_bytes: Some(1 << 16), ..CapsOverride::default() };
    on_each_access_limited(overrides, |context| {
        let tables = [
            Table::new(3001, 68, 8),
            Table { has_zeros: true, ..Table::new(3001, 260, 4) },
            Table { group: 2, has_zeros: true, unsigned: true, ..Table::new(3001, 8, 4) },
        ];
        for table in tables {
            let inputs = [indices(&[0, 3000, 1499, 1500, 777, 2048])];
            check(context, &table.lookup(&[6]), &inputs, 0.0);
        }
    });
}

#[test]
fn half_precision_rounds_rows_once() {
    let table = Table { group: 8, has_zeros: true, ..Table::new(9, 24, 8) };
    let method = table.lookup(&[4]);
    let inputs = [indices(&[8, 0, 3, 3])];
    let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
    on_each_access(|context| {
        let options = BuildOptions { precision: Precision::F16, ..BuildOptions::default() };
        let mut session =
            vkdelegate::delegate::Session::build(context, optimised(&method).0, options).unwrap();
        let got = crate::support::run(&mut session, &inputs);
        // One rounding to half.
        compare::tensors(&got[0], &want[0], 1.0 / 2048.0, 1e-7).unwrap();
    });
}

/// (F23) A table that is looked up and is the weight of a product is on the device once, and so are its scales.
#[test]
fn a_tied_table_is_held_once() {
    let (rows, columns) = (52, 64);
    for (bits, group, has_zeros) in [(8, 64, false), (8, 16, true), (4, 32, true)] {
        let table = Table { group, has_zeros, ..Table::new(rows, columns, bits) };
        let mut graph = GraphBuilder::new("tied");
        let ids = graph.input("ids", DType::I64, &[3]).unwrap();
        let weight = table.add_to(&mut graph);
        let args = [("weight", weight.into()), ("indices", ids.into())];
        let looked_up = graph.call("aten.embedding.default", args).unwrap();
        let bias = graph.parameter("bias", numbers(DType::F32, &[rows], (-9, 9), 0.5)).unwrap();
        let args = [("input", looked_up.into()), ("weight", weight.into()), ("bias", bias.into())];
        let product = graph.call("aten.linear.default", args).unwrap();
        graph.output(product);
        let method = method(graph);
        assert_eq!(optimised(&method).1, [format!("linear_q{bits}"), format!("embedding_q{bits}")]);
        on_each_access(|context| {
            let memory = check(context, &method, &[indices(&[51, 0, 7])], 1e-4);
            let per_group = if has_zeros { 8 } else { 4 };
            let bytes = rows * columns * bits as usize / 8 + rows * (columns / group) * per_group + rows * 4;
            assert_eq!(memory.constant_bytes, bytes as u64, "{table:?}");
        });
    }
}

/// A table that is only looked up costs its codes and its scales.
#[test]
fn a_table_stays_packed() {
    on_each_access(|context| {
        for (bits, codes) in [(8, 40 * 64), (4, 40 * 32)] {
            let memory = check(context, &Table::new(40, 64, bits).lookup(&[1]), &[indices(&[39])], 0.0);
            assert_eq!(memory.constant_bytes, codes + 40 * 4);
        }
    });
}

/// Codes that the program gives: 3 rows of x, and a product with each way to hold its weight.
fn every_way_to_hold_codes() -> Method {
    let mut graph = GraphBuilder::new("codes");
    let x = graph.input("x", DType::F32, &[3, 64]).unwrap();
    let ids = graph.input("ids", DType::I64, &[3]).unwrap();
    let half =
        graph.call("aten._to_copy.default", [("self", x.into()), ("dtype", Arg::DType(DType::F16))]).unwrap();
    for (bits, group, unsigned) in [(8, 64, false), (8, 16, true), (4, 32, false), (4, 64, true)] {
        let table = Table { group, unsigned, has_zeros: unsigned, ..Table::new(24, 64, bits) };
        let weight = table.add_to(&mut graph);
        let args = [("input", x.into()), ("weight", weight.into())];
        let product = graph.call("aten.linear.default", args).unwrap();
        let args = [("weight", weight.into()), ("indices", ids.into())];
        let looked_up = graph.call("aten.embedding.default", args).unwrap();
        graph.output(product);
        graph.output(looked_up);
    }
    let weight = graph.parameter("half_weight", numbers(DType::F16, &[24, 64], (-8, 8), 0.125)).unwrap();
    let args = [("input", half.into()), ("weight", weight.into())];
    let product = graph.call("aten.linear.default", args).unwrap();
    let args = [("self", product.into()), ("dtype", Arg::DType(DType::F32))];
    let product = graph.call("aten._to_copy.default", args).unwrap();
    graph.output(product);
    method(graph)
}

/// (F50) Without 8- and 16-bit storage and arithmetic, one by one and all together: int8, 4-bit and half weights work.
#[test]
fn no_narrow_feature_is_needed() {
    let off = Features::default();
    let masks = [
        Features { storage_8bit: true, ..off },
        Features { storage_16bit: true, ..off },
        Features { shader_float16: true, ..off },
        Features { shader_int8: true, ..off },
        Features { integer_dot_product: true, ..off },
        Features { subgroup_arithmetic: true, subgroup_shuffle: true, ..off },
        Features::ALL,
    ];
    let method = every_way_to_hold_codes();
    // Values that half precision holds, so that the half product is exact.
    let inputs = [Value::Tensor(numbers(DType::F32, &[3, 64], (-8, 8), 0.25)), indices(&[23, 0, 11])];
    for features_off in masks {
        let overrides = CapsOverride { features_off, ..CapsOverride::default() };
        with_context(GpuOptions { overrides, ..validated() }, Access::Ssbo, |context| {
            let memory = check(context, &method, &inputs, 1e-4);
            let half_bytes = if features_off.storage_16bit { 4 } else { 2 };
            let codes = 24 * 64 * 2 + 24 * 32 * 2;
            let beside = 24 * 4 + 24 * 4 * 8 + 24 * 2 * 4 + 24 * 8;
            assert_eq!(memory.constant_bytes, codes + beside + 24 * 64 * half_bytes, "{features_off:?}");
        });
    }
}

/// (F05) Without columns a product is its bias, and a row has no elements.
#[test]
fn weights_without_columns_give_the_bias() {
    let mut graph = GraphBuilder::new("empty");
    let x = graph.input("x", DType::F32, &[2, 0]).unwrap();
    let ids = graph.input("ids", DType::I64, &[2]).unwrap();
    let codes = graph.parameter("codes", numbers(DType::I8, &[5, 0], (0, 1), 1.0)).unwrap();
    let scales = graph.parameter("scales", numbers(DType::F32, &[5], (1, 9), 0.5)).unwrap();
    let bias = graph.parameter("bias", numbers(DType::F32, &[5], (1, 9), 0.5)).unwrap();
    for (low, high) in [(-128, 127), (-8, 7)] {
        let args = [
            ("input", codes.into()),
            ("scales", scales.into()),
            ("zero_points", Arg::None),
            ("axis", Arg::Int(0)),
            ("quant_min", Arg::Int(low)),
            ("quant_max", Arg::Int(high)),
            ("dtype", Arg::DType(DType::I8)),
        ];
        let weight = graph.call("quantized_decomposed.dequantize_per_channel.default", args).unwrap();
        for bias in [Arg::None, bias.into()] {
            let args = [("input", x.into()), ("weight", weight.into()), ("bias", bias)];
            let y = graph.call("aten.linear.default", args).unwrap();
            graph.output(y);
        }
        let args = [("weight", weight.into()), ("indices", ids.into())];
        let looked_up = graph.call("aten.embedding.default", args).unwrap();
        graph.output(looked_up);
    }
    let method = method(graph);
    let x = HostTensor::from_f32(&[2, 0], &[]).unwrap();
    on_each_access(|context| {
        check(context, &method, &[Value::Tensor(x.clone()), indices(&[4, 0])], 0.0);
    });
}

/// (F06) Runs without rows give none, and leave the next run as it should be.
#[test]
fn a_run_without_rows_spoils_no_other() {
    for (low, high, kind) in [(-128, 127, "linear_q8"), (-8, 7, "linear_q4")] {
        let text = format!(
            "graph rows
input %w: int8[5, 64] = parameter \"w\"
input %s: float32[5] = parameter \"s\"
input %b: float32[5] = parameter \"b\"
input %x: float32[s0, 64]
%d: float32[5, 64] = quantized_decomposed.dequantize_per_channel.default(input=%w, scales=%s, zero_points=none, axis=0, quant_min={low}, quant_max={high}, dtype=int8)
%y: float32[s0, 5] = aten.linear.default(input=%x, weight=%d, bias=%b)
output %y
"
        );
        let method = dynamic_program(&text, &[("s0", 0, 8)]);
        let (after, kinds) = optimised(&method);
        assert_eq!(kinds, [kind]);
        on_each_access(|context| {
            let mut session = try_build(context, &after).unwrap();
            for rows in [0, 3, 0, 1, 8] {
                let inputs = [floats(&[rows, 64], rows)];
                let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
                let got = crate::support::run(&mut session, &inputs);
                assert_eq!(got[0].sizes(), [rows, 5]);
                compare::tensors(&got[0], &want[0], 1e-4, 1e-4).unwrap();
            }
        });
    }
}

/// (F09) Groups that do not divide the columns are refused by node, size and group, through all passes.
#[test]
fn a_group_that_does_not_divide_is_refused() {
    for (columns, group) in [(288, 256), (4304, 64)] {
        let groups = usize::div_ceil(columns, group);
        let text = format!(
            "graph groups
input %w: int8[3, {columns}] = parameter \"w\"
input %s: float32[3, {groups}] = parameter \"s\"
input %x: float32[2, {columns}]
input %ids: int64[2]
%d: float32[3, {columns}] = quantized_decomposed.dequantize_per_channel_group.default(w_int8=%w, scales=%s, zero_points=none, quant_min=-8, quant_max=7, dtype=int8, group_size={group}, output_dtype=float32)
%y: float32[2, 3] = aten.linear.default(input=%x, weight=%d)
%e: float32[2, {columns}] = aten.embedding.default(weight=%d, indices=%ids)
output %y
output %e
"
        );
        on_each_access(|context| {
            let error = try_build(context, &optimised(&program(&text)).0).err().unwrap();
            assert_eq!((error.kind(), error.node()), (ErrorKind::Unsupported, Some("d")), "{error}");
            let text = error.to_string();
            assert!(text.contains(&columns.to_string()) && text.contains(&group.to_string()), "{text}");
        });
    }
}

/// (F12) Codes of rows whose scale is chosen at run time: halves to even, saturation, and zeros for a row of zeros.
#[test]
fn codes_of_run_time_scales_are_the_same_everywhere() {
    let text = "graph codes
input %x: float32[4, 8]
%s: float64[4, 1], %z: int64[4, 1] = quantized_decomposed.choose_qparams_per_token_asymmetric.default(input=%x, dtype=int8)
%q: int8[4, 8] = quantized_decomposed.quantize_per_token.default(input=%x, scales=%s, zero_points=%z, quant_min=-128, quant_max=127, dtype=int8)
%f: int8[4, 8] = quantized_decomposed.quantize_per_tensor.default(input=%x, scale=1.0, zero_point=10, quant_min=-128, quant_max=127, dtype=int8)
output %q
output %f
";
    let halves = [0.5, 1.5, 2.5, -0.5, -1.5, 127.0, -128.0, 0.0];
    // Scales of 1, a quarter and 1024 with a zero point of 0; zeros, which the least scale makes the zero point 127.
    let rows = [halves, halves.map(|v| v / 4.0), [0.0; 8], halves.map(|v| v * 1024.0)].concat();
    let codes = [0, 2, 2, 0, -2, 127, -128, 0];
    let fixed: Vec<i64> =
        rows.iter().map(|&v| (f64::from(v).round_ties_even() as i64 + 10).clamp(-128, 127)).collect();
    let want = [codes, codes, [127; 8], codes].concat();
    let x = Value::Tensor(HostTensor::from_f32(&[4, 8], &rows).unwrap());
    let method = program(text);
    let (on_host, _) = reference::run(&method.graph, std::slice::from_ref(&x), &HashMap::new());
    on_each_access(|context| {
        let mut session = try_build(context, &method).unwrap();
        let on_device = crate::support::run(&mut session, std::slice::from_ref(&x));
        for got in [&on_host, &on_device] {
            assert_eq!(got[0].to_i64s(), want);
            assert_eq!(got[1].to_i64s(), fixed);
        }
    });
}
