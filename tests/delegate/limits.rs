//! Devices weaker than the one at hand: few work groups, short descriptors, coarse alignment, the least that Vulkan asks for.

use std::{collections::HashMap, sync::Arc};

use vkdelegate::{
    Delegate, Gpu, Program,
    base::{DType, ErrorKind, HostTensor, Value},
    delegate::Context,
    gpu::{CapsOverride, GpuOptions, UnifiedMemory},
    graph::{GraphBuilder, ValueId},
    ir::Method,
    ops::{self, Meta},
    shader::Access,
};

use crate::{
    common::{
        cases::{self, Case},
        one_op,
    },
    support::*,
};

/// Builds and runs one case; `Ok(false)` when the device is too weak for it and says which limit stops it.
fn check_case(context: &Arc<Context>, case: &Case, offset_elems: usize) -> Result<bool, String> {
    let op = ops::find(&case.op).expect("cases of other ops are left out");
    let metas = cases::host_args(case).try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())));
    let outs = metas.and_then(|metas| op.infer(&metas)).map_err(|error| error.to_string())?;
    let one_op = one_op::one_op_at(case, &outs, offset_elems);
    let mut session = match try_build(context, &one_op.method) {
        Ok(session) => session,
        Err(error) => {
            let names_a_limit = ["this device", "maxStorageBufferRange", "needs"]
                .iter()
                .any(|text| error.message().contains(text));
            let is_refusal = error.kind() == ErrorKind::Unsupported && error.node() == Some("the_node");
            return if is_refusal && names_a_limit { Ok(false) } else { Err(format!("{error:?}")) };
        }
    };
    let (values, _) = session.run(&one_op.inputs).map_err(|error| format!("{error:?}"))?;
    cases::check(&tensors(values), case).map(|()| true)
}

/// Runs up to `per_target` cases of each op target; gives how many ran, and the names of those that the device is too
/// weak for.
fn run_cases(context: &Arc<Context>, per_target: usize, offset_elems: usize) -> (usize, Vec<String>) {
    let (mut ran, mut refused, mut failures) = (0, Vec::new(), Vec::new());
    let mut taken: HashMap<String, usize> = HashMap::new();
    for (family, cases) in cases::all() {
        for case in cases.iter().filter(|case| is_sound(case)) {
            let taken = taken.entry(case.op.clone()).or_default();
            *taken += 1;
            if *taken > per_target {
                continue;
            }
            match check_case(context, case, offset_elems) {
                Ok(true) => ran += 1,
                Ok(false) => refused.push(format!("{family}::{}", case.name)),
                Err(text) => failures.push(format!("{family}::{}: {text}", case.name)),
            }
        }
    }
    assert!(failures.is_empty(), "{} of {ran} cases failed:\n{}", failures.len(), failures.join("\n"));
    (ran, refused)
}

/// Cases of ops that there are, which no device refuses: some reach one only as what the passes make of them, and
/// `as_strided` does not take the views that these tests make.
fn is_sound(case: &Case) -> bool {
    case.refused.is_none()
        && ops::find(&case.op).is_some()
        && !case.needs_passes()
        && case.op != "aten.as_strided.default"
}

fn with_alignment(bytes: u64) -> CapsOverride {
    CapsOverride { min_storage_buffer_offset_alignment_bytes: Some(bytes), ..CapsOverride::default() }
}

/// The binding code refuses an offset that is no multiple of the limit, so a wrong one is a failure here.
#[test]
fn operands_start_anywhere_under_any_alignment() {
    for (alignment_bytes, offset_elems, per_target) in [(16, 3, 1), (64, 3, 3), (256, 1, 1)] {
        let options = GpuOptions { overrides: with_alignment(alignment_bytes), ..validated() };
        with_context(options, Access::Ssbo, |context| {
            assert!(context.profile().storage_offset_alignment_bytes >= alignment_bytes);
            let (ran, refused) = run_cases(context, per_target, offset_elems);
            assert!(ran > 150 && refused.is_empty(), "{ran}, {refused:?}");
        });
    }
}

#[test]
fn operands_start_anywhere_for_each_access() {
    on_each_access(|context| {
        let (ran, refused) = run_cases(context, 1, 1);
        assert!(ran > 150 && refused.is_empty(), "{ran}, {refused:?}");
    });
}

#[test]
fn every_op_works_on_the_least_device_or_names_the_limit() {
    let options = GpuOptions { overrides: CapsOverride::spec_minimum(), ..validated() };
    with_context(options, Access::Ssbo, |context| {
        let (ran, refused) = run_cases(context, 3, 0);
        assert!(ran > 400 && refused.is_empty(), "{ran}, {refused:?}");
    });
}

/// With 7 groups an axis, and 64 invocations a group, 3136 invocations are the most of one dispatch.
#[test]
fn few_work_groups_are_spread_over_axes_and_dispatches() {
    let overrides = CapsOverride { max_group_count: Some([7; 3]), ..CapsOverride::default() };
    on_each_access_limited(overrides, |context| {
        let text = |len: usize, rows: usize| {
            format!(
                "graph wide
input %x: float32[{len}]
input %m: float32[{rows}, 5]
input %w: float32[400, 5] = parameter \"w\"
input %ids: int64[{rows}]
%y: float32[{len}] = aten.mul.Tensor(self=%x, other=2.0)
%z: int32[{len}] = aten._to_copy.default(self=%x, dtype=int32)
%p: float32[{rows}, 5] = aten._softmax.default(self=%m, dim=1, half_to_float=false)
%l: float32[{rows}, 400] = aten.linear.default(input=%p, weight=%w)
%t: float32[5, {rows}] = aten.permute.default(self=%p, dims=[1, 0])
%c: float32[5, {rows}] = aten.clone.default(self=%t)
%v: float32[{rows}, 5] = aten.embedding.default(weight=%m, indices=%ids)
output %y
output %z
output %l
output %c
output %v
"
            )
        };
        for (len, rows) in [(100, 3), (20_001, 50), (64 * 49 * 3, 600)] {
            let mut session = build(context, &program(&text(len, rows)));
            let ids: Vec<i64> = (0..rows as i64).rev().collect();
            let dispatches = &session.plan().unwrap().dispatches;
            assert!(dispatches.iter().all(|dispatch| dispatch.groups.iter().all(|&groups| groups <= 7)));
            assert_matches_host(&mut session, &[floats(&[len], 0), floats(&[rows, 5], 1), ints(&ids)]);
        }
    });
}

#[test]
fn more_than_65535_groups_go_over_two_axes() {
    let rows = 70_000;
    let text = format!(
        "graph tall
input %m: float32[{rows}, 9]
input %ids: int64[66000]
%p: float32[{rows}, 9] = aten._softmax.default(self=%m, dim=1, half_to_float=false)
%v: float32[66000, 9] = aten.embedding.default(weight=%p, indices=%ids)
output %p
output %v
"
    );
    let overrides = CapsOverride { max_group_count: Some([65535; 3]), ..CapsOverride::default() };
    let ids: Vec<i64> = (0..66_000).map(|i| (i * 7919) % 70_000).collect();
    on_each_access_limited(overrides, |context| {
        let mut session = build(context, &program(&text));
        assert_matches_host(&mut session, &[floats(&[rows, 9], 0), ints(&ids)]);
        let mut big = build(
            context,
            &program(
                "graph big\ninput %x: float32[16777217]\n%y: float32[16777217] = aten.add.Tensor(self=%x, other=1)\noutput %y\n",
            ),
        );
        let x = HostTensor::from_f32(&[16_777_217], &vec![1.5; 16_777_217]).unwrap();
        let y = run(&mut big, &[Value::Tensor(x)]).remove(0);
        assert!(y.bytes().chunks_exact(4).all(|bytes| bytes == 2.5f32.to_le_bytes()));
    });
}

/// As many elements as a limit of `limit_bytes` holds, plus `extra`.
fn elementwise(limit_bytes: usize, extra: usize) -> Method {
    let len = limit_bytes / 4 + extra;
    program(&format!(
        "graph long
input %x: float32[{len}]
%y: float32[{len}] = aten.mul.Tensor(self=%x, other=3.0)
%z: float32[{len}] = aten.add.Tensor(self=%y, other=%x)
output %z
"
    ))
}

const MIB: usize = 1 << 20;

#[test]
fn a_short_descriptor_splits_what_can_be_split() {
    let overrides =
        CapsOverride { max_storage_buffer_range_bytes: Some(MIB as u64), ..CapsOverride::default() };
    on_each_access_limited(overrides, |context| {
        for extra in [0, 1, 300_000] {
            let method = elementwise(MIB, extra);
            let mut session = build(context, &method);
            assert_matches_host(&mut session, &[floats(&[MIB / 4 + extra], 0)]);
        }
        // 1.7 MB of weight, 2 MB of table; a broadcast, a transposition and a join of them.
        let text = "graph wide
input %w: float32[700, 600] = parameter \"w\"
input %table: float32[5000, 100] = parameter \"table\"
input %x: float32[3, 600]
input %big: float32[700, 600]
input %row: float32[600]
input %ids: int64[4]
%l: float32[3, 700] = aten.linear.default(input=%x, weight=%w)
%e: float32[4, 100] = aten.embedding.default(weight=%table, indices=%ids)
%s: float32[700, 600] = aten.add.Tensor(self=%big, other=%row)
%t: float32[600, 700] = aten.permute.default(self=%s, dims=[1, 0])
%c: float32[600, 700] = aten.clone.default(self=%t, memory_format=<contiguous_format>)
%m: float32[600, 700] = aten.mul.Tensor(self=%c, other=%t)
output %l
output %e
output %m
";
        let mut session = build(context, &program(text));
        let inputs =
            [floats(&[3, 600], 0), floats(&[700, 600], 1), floats(&[600], 2), ints(&[0, 4999, 2621, 17])];
        assert_matches_host(&mut session, &inputs);
    });
}

/// Views of a large tensor are free and bind nothing; an op that has to bind it whole is refused before it runs.
#[test]
fn what_cannot_be_split_is_refused_with_tensor_bytes_and_limit() {
    let overrides =
        CapsOverride { max_storage_buffer_range_bytes: Some(MIB as u64), ..CapsOverride::default() };
    let text = |op: &str| {
        format!(
            "graph refused
input %x: float32[2, 200000]
%v: float32[400000] = aten.view.default(self=%x, size=[400000])
%small: float32[10] = aten.slice.Tensor(self=%v, dim=0, start=399990, end=400000)
%y: float32[10] = aten.mul.Tensor(self=%small, other=2.0)
output %y
{op}"
        )
    };
    let options = GpuOptions { overrides, ..validated() };
    with_context(options, Access::Ssbo, |context| {
        let mut session = build(context, &program(&text("")));
        assert_matches_host(&mut session, &[floats(&[2, 200_000], 0)]);
        let softmax =
            "%p: float32[400000] = aten._softmax.default(self=%v, dim=0, half_to_float=false)\noutput %p\n";
        let error = try_build(context, &program(&text(softmax))).map(|_| ()).unwrap_err();
        assert_eq!((error.kind(), error.node()), (ErrorKind::Unsupported, Some("p")));
        let text = error.to_string();
        assert!(text.contains("1600000 bytes") && text.contains("1048576"), "{text}");
        assert!(text.contains("`x`"), "{text}");
    });
}

#[test]
fn the_range_of_phones_takes_exactly_128_mib_and_splits_the_rest() {
    let limit = 128 * MIB;
    let overrides =
        CapsOverride { max_storage_buffer_range_bytes: Some(limit as u64), ..CapsOverride::default() };
    let options = GpuOptions { overrides, ..validated() };
    with_context(options, Access::Ssbo, |context| {
        for extra in [0, 1] {
            let method = elementwise(limit, extra);
            let mut session = build(context, &method);
            let len = limit / 4 + extra;
            let x = HostTensor::new(DType::F32, vec![len], 0.5f32.to_le_bytes().repeat(len)).unwrap();
            let z = run(&mut session, &[Value::Tensor(x)]).remove(0);
            assert!(z.bytes().chunks_exact(4).all(|bytes| bytes == 2.0f32.to_le_bytes()), "extra {extra}");
        }
    });
}

/// The table of a large vocabulary, 158 MB: more than one descriptor of a phone reaches.
const VOCABULARY: [usize; 2] = [151_936, 260];

/// Element `(row, column)` of it; integers, so that sums with one term are exact.
fn vocabulary_at(row: usize, column: usize) -> f32 {
    ((row * 31 + column * 7) % 1013) as f32
}

/// Rows of the table; rows as the weight of a product, which then is packed in panels; and columns, with the table as it is
/// stored. The last two see one row and one column each.
fn vocabulary_programs() -> [(Program, Vec<Value>, Vec<f32>); 3] {
    let [rows, columns] = VOCABULARY;
    let elements = (0..rows).flat_map(|row| (0..columns).map(move |column| vocabulary_at(row, column)));
    let bytes = elements.flat_map(f32::to_le_bytes).collect();
    let table = HostTensor::new(DType::F32, VOCABULARY.to_vec(), bytes).unwrap();
    let half = (128 * MIB) / 4 / columns;
    let ids = [0, rows - 1, half - 1, half, half + 1, 1, rows / 2];
    let found: Vec<f32> =
        ids.iter().flat_map(|&row| (0..columns).map(move |c| vocabulary_at(row, c))).collect();
    let ids = ints(&ids.map(|row| row as i64));
    let one_hot = |len: usize, hot: usize| {
        let values: Vec<f32> = (0..len).map(|index| f32::from(u8::from(index == hot))).collect();
        Value::Tensor(HostTensor::from_f32(&[1, len], &values).unwrap())
    };
    let start = |inputs: &[(&str, DType, &[usize])]| {
        let mut graph = GraphBuilder::new("vocabulary");
        let table = graph.parameter("table", table.clone()).unwrap();
        let inputs: Vec<_> =
            inputs.iter().map(|(name, dtype, sizes)| graph.input(name, *dtype, sizes).unwrap()).collect();
        (graph, table, inputs)
    };
    let call = |graph: &mut GraphBuilder, op: &str, args: [(&'static str, ValueId); 2]| {
        let output = graph.call(op, args.map(|(name, value)| (name, value.into()))).unwrap();
        graph.output(output);
    };
    let (mut lookup, table, inputs) = start(&[("ids", DType::I64, &[7])]);
    call(&mut lookup, "aten.embedding.default", [("weight", table), ("indices", inputs[0])]);

    let (mut tied, table, inputs) = start(&[("ids", DType::I64, &[7]), ("x", DType::F32, &[1, columns])]);
    call(&mut tied, "aten.embedding.default", [("weight", table), ("indices", inputs[0])]);
    call(&mut tied, "aten.linear.default", [("input", inputs[1]), ("weight", table)]);
    let scores = (0..rows).map(|row| vocabulary_at(row, 259));

    let (mut columns_of, table, inputs) = start(&[("x", DType::F32, &[1, rows])]);
    call(&mut columns_of, "aten.mm.default", [("self", inputs[0]), ("mat2", table)]);
    let row = (0..columns).map(|column| vocabulary_at(half, column)).collect();

    [
        (lookup.build().unwrap(), vec![ids.clone()], found.clone()),
        (tied.build().unwrap(), vec![ids, one_hot(columns, 259)], found.into_iter().chain(scores).collect()),
        (columns_of.build().unwrap(), vec![one_hot(rows, half)], row),
    ]
}

#[test]
fn tables_and_weights_longer_than_a_phones_descriptor_give_every_row() {
    let limit = Some(128 * MIB as u64);
    let overrides = CapsOverride { max_storage_buffer_range_bytes: limit, ..CapsOverride::default() };
    let programs = vocabulary_programs();
    on_each_access_limited(overrides, |context| {
        for (program, inputs, want) in &programs {
            let mut delegate =
                Delegate::builder(&Gpu::from_context(Arc::clone(context))).build(program).unwrap();
            let outputs = delegate.run(inputs).unwrap();
            let got = outputs.user.iter().flat_map(|value| value.as_tensor().unwrap().to_f32s());
            assert!(got.eq(want.iter().copied()));
            let [rows, columns] = VOCABULARY;
            assert_eq!(delegate.session().memory_report().constant_bytes, (rows * columns * 4) as u64);
        }
    });
}

/// An arena that no one buffer holds, and what no buffer holds at all.
#[test]
fn small_buffers_make_an_arena_of_several() {
    const LIMIT: u64 = 64 << 10;
    let test = |context: &Arc<Context>| {
        let text = |rows: usize, columns: usize| {
            let sizes = format!("{rows}, {columns}");
            format!(
                "graph wide
input %x: float32[{sizes}]
%a: float32[{sizes}] = aten._softmax.default(self=%x, dim=0, half_to_float=false)
%b: float32[{sizes}] = aten._softmax.default(self=%x, dim=1, half_to_float=false)
%c: float32[{sizes}] = aten._softmax.default(self=%a, dim=1, half_to_float=false)
%d: float32[{sizes}] = aten.mul.Tensor(self=%b, other=%c)
%e: float32[{sizes}] = aten.add.Tensor(self=%d, other=%x)
output %e
"
            )
        };
        let mut session = build(context, &program(&text(100, 100)));
        assert_matches_host(&mut session, &[floats(&[100, 100], 0)]);
        assert!(session.plan().unwrap().arena_bytes.len() > 1);
        let error = try_build(context, &program(&text(200, 100))).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("80000 bytes") && error.to_string().contains("65536"), "{error}");
        // Each output fits a buffer, but not the staging buffer of all, where there is one.
        let two = try_build(context, &program(&(text(100, 100) + "output %c\n")));
        if context.gpu().caps().unified_memory == UnifiedMemory::WrittenAndRead {
            assert_matches_host(&mut two.unwrap(), &[floats(&[100, 100], 0)]);
        } else {
            let error = two.map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("outputs take 80"), "{error}");
        }
    };
    for most in [UnifiedMemory::None, UnifiedMemory::WrittenAndRead] {
        let overrides = CapsOverride {
            max_buffer_bytes: Some(LIMIT),
            unified_memory: Some(most),
            ..CapsOverride::default()
        };
        on_each_access_limited(overrides, test);
    }
}
