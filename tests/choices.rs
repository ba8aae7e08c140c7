//! Kernels with several ways to launch: results that no replay and no work-group shape changes, and devices that take only
//! small ones. The tuner, which finds the fastest of them and strikes out what is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use common::{
    choices::{self, dispatches},
    compare, device,
};
use vkdelegate::{
    DType, Delegate, Gpu, GpuOptions, HostTensor, Outputs, Precision, Program, TuneOptions, Tuning, Value,
    convolution_program,
    delegate::Context,
    gpu::{self, CapsOverride},
    graph::GraphBuilder,
    linear_program,
    ops::lanes_share,
    quantised_linear_program,
    shader::{Access, Choices, DeviceClass, Need},
    tune,
};

/// A program whose kernels have choices, with inputs.
struct Subject {
    name: String,
    program: Program,
    precision: Precision,
    inputs: Vec<Value>,
}

impl Subject {
    fn new(name: impl Into<String>, program: Program, precision: Precision) -> Subject {
        let inputs = program.methods().next().unwrap().sample_inputs().unwrap();
        Subject { name: name.into(), program, precision, inputs }
    }

    fn build(&self, gpu: &Gpu, choices: Choices) -> Delegate {
        let builder = Delegate::builder(gpu).precision(self.precision).choices(choices);
        builder.build(&self.program).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn run(&self, delegate: &mut Delegate) -> Outputs {
        delegate.run(&self.inputs).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// A product of live matrices.
fn live(m: usize, k: usize, n: usize) -> Program {
    let mut graph = GraphBuilder::new("live");
    let a = graph.input("a", DType::F32, &[3, m, k]).unwrap();
    let b = graph.input("b", DType::F32, &[3, k, n]).unwrap();
    let y = graph.call("aten.bmm.default", [("self", a.into()), ("mat2", b.into())]).unwrap();
    graph.output(y);
    graph.build().unwrap()
}

/// A sum of two products, of which the second adds to what the first left; the first operand is a result.
fn sums(m: usize, k: usize, n: usize) -> Program {
    let mut graph = GraphBuilder::new("sums");
    let x = graph.input("x", DType::F32, &[m, k]).unwrap();
    let b = graph.input("b", DType::F32, &[k, n]).unwrap();
    let a = graph.call("aten.neg.default", [("self", x.into())]).unwrap();
    let first = graph.call("aten.mm.default", [("self", a.into()), ("mat2", b.into())]).unwrap();
    let second = graph.call("aten.mm.default", [("self", x.into()), ("mat2", b.into())]).unwrap();
    let y = graph.call("aten.add.Tensor", [("self", first.into()), ("other", second.into())]).unwrap();
    graph.output(y);
    graph.build().unwrap()
}

/// Programs that reach every way of the families for floats, at shapes that fill no tile.
fn subjects() -> Vec<Subject> {
    let mut subjects = Vec::new();
    let mut add = |what: &str, program: Program, precision: Precision| {
        subjects.push(Subject::new(format!("{what} {precision:?}"), program, precision));
    };
    for (m, k, n) in [(1, 100, 31), (1, 100, 75), (37, 40, 300)] {
        add("linear", linear_program(m, k, n, 1, DType::F32).unwrap(), Precision::F32);
        add("int8", quantised_linear_program(m, k, n, 1, 8).unwrap(), Precision::F32);
    }
    add("bmm", live(9, 34, 32), Precision::F16);
    // Many positions, few of them, one channel in each group, and the transpose.
    for (input, weight, stride) in [
        ([2, 3, 9, 11], [18, 3, 3, 3], 1),
        ([1, 5, 3, 2], [21, 5, 3, 3], 2),
        ([1, 7, 9, 11], [7, 1, 3, 3], 1),
    ] {
        let (program, _) = convolution_program(&input, &weight, stride, false, DType::F32).unwrap();
        add("conv", program, Precision::F32);
    }
    let (program, _) = convolution_program(&[1, 6, 23], &[6, 19, 4], 2, true, DType::F32).unwrap();
    add("conv transposed", program, Precision::F16);
    subjects
}

/// F02. Those for integers: `integer_dots.rs`.
#[test]
fn results_are_the_same_in_every_work_group_shape() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    let profile = device::context().profile().clone();
    let mut seen = Vec::new();
    for subject in subjects() {
        let default = subject.build(&gpu, Choices::default());
        let run = |choices| {
            let mut delegate = subject.build(&gpu, choices);
            (choices::taken(delegate.session()), subject.run(&mut delegate))
        };
        seen.extend(choices::assert_same_in_every_shape(default.session(), &profile, run));
    }
    choices::assert_has_ways(&seen, &profile, "linear_codes", &["row", "rows1", "rows4", "rows16"]);
    choices::assert_has_ways(&seen, &profile, "matmul", &["row", "rows4", "rows16"]);
    let conv = ["positions4", "positions8", "channels4", "positions1", "channels1"];
    choices::assert_has_ways(&seen, &profile, "conv", &conv);
    // Kernels whose lanes share loads have no variants with descriptors, and are for CPUs.
    let is_cpu = profile.access == Access::Bda && profile.class == DeviceClass::Cpu;
    if is_cpu && [Need::Subgroup, Need::ShaderInt64].iter().all(|&need| profile.features.contains(need)) {
        choices::assert_has_ways(&seen, &profile, "matmul", &["lanes1", "lanes4", "lanes8", "lanes16"]);
        choices::assert_has_ways(&seen, &profile, "conv", &["lanes8", "lanes16"]);
    }
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// Tiles of all heights, with shared loads or without, add up products in the same order.
#[test]
fn tiles_of_floats_give_the_same_bits_whatever_their_height() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    for precision in [Precision::F32, Precision::F16] {
        let program = linear_program(13, 68, 52, 1, DType::F32).unwrap();
        let subject = Subject::new(format!("linear {precision:?}"), program, precision);
        let mut default = subject.build(&gpu, Choices::default());
        let want = subject.run(&mut default);
        let profile = device::context().profile().clone();
        let mut ways = 0;
        for (choice, candidates) in choices::offers(default.session(), &profile) {
            for names in candidates {
                let mut choices = Choices::default();
                choices.set(&choice, &names[0]);
                let got = subject.run(&mut subject.build(&gpu, choices));
                assert!(got == want, "{}: {}", subject.name, names[0]);
                ways += 1;
            }
        }
        // Phones have two heights, and CPUs more.
        assert!(ways >= if profile.class == DeviceClass::Cpu { 3 } else { 2 }, "{}: {ways}", subject.name);
    }
}

/// A device of Adreno's class, whose views take `max_texels` texels, under both kinds of validation.
fn adreno(max_texels: Option<u64>) -> Arc<Context> {
    let overrides = CapsOverride {
        class: Some(gpu::DeviceClass::Adreno7xx),
        max_texel_buffer_elems: max_texels,
        ..CapsOverride::default()
    };
    let options = GpuOptions { overrides, validation: true, sync_validation: true, ..GpuOptions::default() };
    Context::open(options, Some(Access::Ssbo)).unwrap()
}

/// Texels give what storage buffers give, for tiles that are not full, batches, columns past the end, sums on top of what
/// is there, and operands that dispatches before wrote; and views go with their recordings.
#[test]
fn texels_give_the_bits_of_storage_buffers() {
    let _turn = device::turn();
    let context = adreno(None);
    let gpu = Gpu::from_context(Arc::clone(&context));
    let linear = |m, k, n| linear_program(m, k, n, 1, DType::F32).unwrap();
    let has_halves = context.profile().features.contains(Need::Storage16Bit);
    const WIDE: usize = 2;
    let programs =
        [linear(13, 68, 50), linear(8, 4, 1), linear(37, 40, 300), live(11, 36, 32), sums(19, 24, 12)];
    for (number, program) in programs.into_iter().enumerate() {
        // Without 16-bit storage, halves are 32-bit floats too.
        for precision in [Precision::F32, Precision::F16].into_iter().take(1 + usize::from(has_halves)) {
            let subject = Subject {
                name: format!("{number} {precision:?}"),
                ..Subject::new("", program.clone(), precision)
            };
            let default = subject.build(&gpu, Choices::default());
            let names: Vec<String> = choices::taken(default.session()).into_keys().collect();
            let run = |way: &str| {
                let mut choices = Choices::default();
                names.iter().for_each(|name| choices.set(name, format!("{way} 32x1")));
                let mut delegate = subject.build(&gpu, choices);
                let taken = choices::taken(delegate.session());
                assert!(!taken.is_empty() && taken.values().all(|taken| taken.starts_with(way)), "{taken:?}");
                let got = subject.run(&mut delegate);
                assert_eq!(context.gpu().counters().buffer_views > 0, way == "texels8", "{way}");
                got
            };
            assert!(run("texels8") == run("rows4"), "{}", subject.name);
            // Halves are texels by default where a group has one tile; 32-bit floats come as fast by storage buffers.
            let is_default =
                choices::taken(default.session()).values().all(|taken| taken.starts_with("texels8 "));
            let is_wide = number == WIDE;
            assert_eq!(is_default, precision == Precision::F16 && is_wide, "{}", subject.name);
            assert_eq!(context.gpu().counters().buffer_views, 0);
        }
    }
    assert_eq!(context.gpu().validation_messages(), [""; 0]);
}

/// Views are of 65536 texels on some devices, and storage buffers of more.
#[test]
fn what_no_view_holds_is_read_by_storage_buffers() {
    let _turn = device::turn();
    let context = adreno(Some(544));
    let gpu = Gpu::from_context(Arc::clone(&context));
    for (m, is_small) in [(8, true), (64, false)] {
        let program = linear_program(m, 64, 16, 1, DType::F32).unwrap();
        let subject = Subject::new(format!("{m} rows"), program, Precision::F32);
        let default = subject.build(&gpu, Choices::default());
        let ways = choices::offers(default.session(), context.profile()).into_values().flatten();
        let has_texels = ways.flatten().any(|name| name.starts_with("texels8"));
        assert_eq!(has_texels, is_small, "{m} rows");
    }
}

/// One row by a large weight, whose columns fill no whole work group, with bias and activation.
#[test]
fn a_row_is_summed_in_parts_of_k_where_that_pays() {
    let _turn = device::turn();
    let (k, n) = (1024, 1040);
    let gpu = Gpu::from_context(device::context());
    let value = |index: usize, step: usize| ((index * step) % 61 % 5) as f32 - 2.0;
    let x: Vec<f32> = (0..k).map(|i| value(i, 7)).collect();
    let w: Vec<f32> = (0..n * k).map(|i| value(i, 13)).collect();
    let b: Vec<f32> = (0..n).map(|i| value(i, 3)).collect();
    let mut graph = GraphBuilder::new("linear");
    let input = graph.input("x", DType::F32, &[1, k]).unwrap();
    let weight = graph.parameter("w", HostTensor::from_f32(&[n, k], &w).unwrap()).unwrap();
    let bias = graph.parameter("b", HostTensor::from_f32(&[n], &b).unwrap()).unwrap();
    let arguments = [("input", input.into()), ("weight", weight.into()), ("bias", bias.into())];
    let sum = graph.call("aten.linear.default", arguments).unwrap();
    let y = graph.call("aten.relu.default", [("self", sum.into())]).unwrap();
    graph.output(y);
    let mut delegate = Delegate::builder(&gpu).build(&graph.build().unwrap()).unwrap();
    let outputs = delegate.run(&[Value::Tensor(HostTensor::from_f32(&[1, k], &x).unwrap())]).unwrap();
    let got = outputs.tensor(0).unwrap().to_f32s();
    for (column, row) in w.chunks_exact(k).enumerate() {
        let sum: f32 = row.iter().zip(&x).map(|(w, x)| w * x).sum();
        assert_eq!(got[column], (sum + b[column]).max(0.0), "column {column}");
    }
    let profile = device::context().profile().clone();
    let has_parts = dispatches(delegate.session())
        .into_iter()
        .any(|dispatch| dispatch.kernel.info().unwrap().name == "matmul_parts");
    assert_eq!(has_parts, lanes_share(&profile) && profile.subgroup_size == 8);
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F02.
#[test]
fn a_hundred_replays_give_the_same_bits() {
    let _turn = device::turn();
    let (m, k, n) = (1500, 384, 384);
    let gpu = Gpu::from_context(device::context());
    let value = |index: usize, step: usize| ((index * step) % 61) as f32 / 32.0 - 0.9;
    let (x, w): (Vec<f32>, Vec<f32>) =
        ((0..m * k).map(|i| value(i, 7)).collect(), (0..n * k).map(|i| value(i, 13)).collect());
    let mut graph = GraphBuilder::new("linear");
    let input = graph.input("x", DType::F32, &[1, m, k]).unwrap();
    let weight = graph.parameter("w", HostTensor::from_f32(&[n, k], &w).unwrap()).unwrap();
    let y = graph.call("aten.linear.default", [("input", input.into()), ("weight", weight.into())]).unwrap();
    graph.output(y);
    let mut delegate = Delegate::builder(&gpu).build(&graph.build().unwrap()).unwrap();
    let inputs = [Value::Tensor(HostTensor::from_f32(&[1, m, k], &x).unwrap())];
    let first = delegate.run(&inputs).unwrap();
    for replay in 1..100 {
        assert!(delegate.run(&inputs).unwrap() == first, "replay {replay} differs");
    }
    let got = first.tensor(0).unwrap().to_f32s();
    for row in [0, 1, 17, 749, m - 2, m - 1] {
        let want: Vec<f64> = (0..n)
            .map(|column| (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(w[column * k + i])).sum())
            .collect();
        let largest = want.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        for (column, want) in want.iter().enumerate() {
            let got = f64::from(got[row * n + column]);
            assert!((got - want).abs() <= 1e-4 * largest, "row {row}, column {column}: {got}, not {want}");
        }
    }
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F02. Few rows of many terms, of which invocations of a GPU share the terms: every tile and shape adds them up alike.
#[test]
fn few_rows_whose_terms_are_shared_give_the_same_bits_in_every_way() {
    let _turn = device::turn();
    let cpu = Gpu::from_context(device::context());
    let has_bda = device::context().profile().features.contains(Need::BufferDeviceAddress);
    let linear = |m, k, n| linear_program(m, k, n, 1, DType::F32).unwrap();
    let subjects = [
        Subject::new("linear 2x301x31", linear(2, 301, 31), Precision::F32),
        Subject::new("linear 13x256x70", linear(13, 256, 70), Precision::F16),
        Subject::new("bmm 3x300x20", live(3, 300, 20), Precision::F32),
    ];
    for access in [Access::Ssbo, Access::Bda].into_iter().filter(|&access| has_bda || access == Access::Ssbo)
    {
        let overrides = CapsOverride { class: Some(DeviceClass::Desktop), ..CapsOverride::default() };
        let options = GpuOptions { overrides, ..GpuOptions::default() };
        let gpu = Gpu::from_context(Context::open(options, Some(access)).unwrap());
        for subject in &subjects {
            let want = subject.run(&mut subject.build(&cpu, Choices::default()));
            let mut default = subject.build(&gpu, Choices::default());
            let first = subject.run(&mut default);
            // Half the bits of the result are rounded off in half precision.
            let tolerance = if subject.precision == Precision::F32 { 1e-5 } else { 2e-3 };
            let (got, want) = (first.tensor(0).unwrap(), want.tensor(0).unwrap());
            compare::tensors(got, want, tolerance, 10.0 * tolerance).unwrap();
            let offers = choices::offers(default.session(), gpu.context().profile());
            let (choice, ways) = offers.first_key_value().unwrap();
            assert!(ways.len() == 3 && ways.iter().all(|names| names[0].starts_with("split")), "{ways:?}");
            for name in ways.iter().flatten() {
                let mut choices = Choices::default();
                choices.set(choice, name);
                let got = subject.run(&mut subject.build(&gpu, choices));
                assert!(got == first, "{} {access}: {name}", subject.name);
            }
        }
    }
}

/// F53 and F54. Kernels whose lanes share loads are tried before they are used; where they are wrong, others run.
#[test]
fn lanes_that_give_wrong_values_are_not_used() {
    let _turn = device::turn();
    let subject = Subject::new("linear", linear_program(5, 40, 70, 1, DType::F32).unwrap(), Precision::F32);
    let takes_lanes = |delegate: &Delegate| {
        choices::taken(delegate.session()).values().any(|candidate| candidate.starts_with("lanes"))
    };
    let mut right = subject.build(&Gpu::from_context(device::context()), Choices::default());
    assert_eq!(takes_lanes(&right), lanes_share(device::context().profile()));
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    gpu.context().break_kernel("matmul_lanes");
    let mut other = subject.build(&gpu, Choices::default());
    assert!(!takes_lanes(&other));
    let (got, want) = (subject.run(&mut other), subject.run(&mut right));
    compare::tensors(got.tensor(0).unwrap(), want.tensor(0).unwrap(), 1e-5, 1e-5).unwrap();
}

/// F55. A device of 128 invocations and 16 KiB of shared memory takes what fits, whatever was found to be best elsewhere.
#[test]
fn a_small_device_takes_small_work_groups() {
    let _turn = device::turn();
    let options = GpuOptions { overrides: CapsOverride::spec_minimum(), ..GpuOptions::default() };
    let small = Gpu::from_context(Context::open(options, Some(Access::Ssbo)).unwrap());
    let gpu = Gpu::from_context(device::context());
    for subject in subjects() {
        let mut best = Choices::default();
        let default = subject.build(&gpu, Choices::default());
        for (choice, ways) in choices::offers(default.session(), device::context().profile()) {
            let names = ways.into_iter().flatten();
            let invocations = |name: &String| -> u32 {
                let shape = name.split(' ').nth(1).unwrap();
                shape.split('x').map(|size| size.parse::<u32>().unwrap()).product()
            };
            best.set(choice, names.max_by_key(invocations).unwrap());
        }
        let mut delegate = subject.build(&small, best);
        for dispatch in dispatches(delegate.session()) {
            let template = dispatch.kernel.info().unwrap();
            let invocations: u32 = dispatch.local_size().iter().product();
            assert!(invocations <= 128, "{}: {} runs {invocations}", subject.name, template.name);
        }
        subject.run(&mut delegate);
    }
}

/// F65.
#[test]
fn submissions_of_any_size_give_the_same_bits() {
    let _turn = device::turn();
    let context = device::context();
    let gpu = Gpu::from_context(Arc::clone(&context));
    let subject = Subject::new("mini_bert", fixture("mini_bert"), Precision::F32);
    let run = |ops: Option<u64>| {
        let builder = Delegate::builder(&gpu);
        let builder = ops.map_or(builder.clone(), |ops| builder.submission_ops(ops));
        let mut delegate = builder.build(&subject.program).unwrap();
        let before = context.gpu().counters().submissions;
        let got = subject.run(&mut delegate);
        (got, context.gpu().counters().submissions - before, dispatches(delegate.session()).len() as u64)
    };
    let (want, submissions, _) = run(None);
    assert_eq!(submissions, 1, "a small model goes in one");
    let (got, some, _) = run(Some(1_000_000));
    assert!(some > 1 && got == want, "{some} submissions");
    let (got, each, count) = run(Some(1));
    assert!(each == count && got == want, "{each} submissions of {count} dispatches");
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F65. The planner splits what no budget holds along rows.
#[test]
fn a_product_beyond_the_budget_is_split_along_rows() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    for program in [linear_program(300, 64, 96, 1, DType::F32), quantised_linear_program(300, 64, 96, 1, 8)] {
        let subject = Subject::new("tall", program.unwrap(), Precision::F32);
        let whole = subject.run(&mut subject.build(&gpu, Choices::default()));
        let budget = 2 * 64 * 96 * 70;
        let mut delegate = Delegate::builder(&gpu).submission_ops(budget).build(&subject.program).unwrap();
        let products = dispatches(delegate.session()).iter().filter_map(|dispatch| dispatch.choice);
        let rows: Vec<usize> = products.map(|choice| choice.key.m).collect();
        assert!(rows.len() > 4 && rows.iter().sum::<usize>() == 300, "{rows:?}");
        assert!(dispatches(delegate.session()).iter().all(|dispatch| dispatch.estimated_ops() <= budget));
        assert_eq!(subject.run(&mut delegate), whole);
    }
}

/// A folder that goes with the value.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("vkdelegate-{name}-{}", std::process::id())))
    }

    fn open(&self) -> Gpu {
        let options = GpuOptions { cache_dir: Some(self.0.clone()), ..GpuOptions::default() };
        Gpu::open(options).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tuned(delegate: &Delegate) -> Vec<bool> {
    delegate.report().choices.iter().map(|choice| choice.tuned).collect()
}

#[test]
fn what_is_tuned_is_checked_timed_and_kept_for_the_next_start() {
    let _turn = device::turn();
    let folder = Folder::new("tuning");
    let subject = Subject::new("linears", linear_program(20, 24, 40, 2, DType::F32).unwrap(), Precision::F32);
    let build = |gpu: &Gpu, tuning| Delegate::builder(gpu).tuning(tuning).build(&subject.program).unwrap();
    let gpu = folder.open();
    let want = subject.run(&mut build(&gpu, Tuning::Off));
    assert_eq!(tuned(&build(&gpu, Tuning::Cached)), [false, false]);

    let report = tune(&gpu, &subject.program, &TuneOptions::default(), |_, _, _| ()).unwrap();
    assert_eq!((report.choices.len(), report.known, report.stored), (2, 0, true));
    assert_eq!(report.faults().collect::<Vec<_>>(), []);
    for choice in &report.choices {
        assert!(
            choice.checked_on_host && choice.tried.len() > 3 && choice.tried[0].candidate == choice.default
        );
        assert!(choice.tried.iter().all(|tried| tried.best_us.is_some_and(|us| us > 0.0)), "{choice:?}");
    }
    let again = tune(&gpu, &subject.program, &TuneOptions::default(), |_, _, _| ()).unwrap();
    assert_eq!((again.choices.len(), again.known), (0, 2));

    // A device opened anew finds it in the folder; candidates of the same kernel give the same bits.
    let later = folder.open();
    for tuning in [Tuning::Cached, Tuning::Measure] {
        let mut delegate = build(&later, tuning);
        assert_eq!(tuned(&delegate), [true, true]);
        for choice in delegate.report().choices {
            let found = report.choices.iter().find(|found| found.choice == choice.choice).unwrap();
            assert_eq!(Some(choice.candidate), found.picked);
        }
        let got = subject.run(&mut delegate);
        let close = compare::tensors(got.tensor(0).unwrap(), want.tensor(0).unwrap(), 1e-5, 1e-5);
        close.unwrap();
    }
    assert_eq!(tuned(&build(&later, Tuning::Off)), [false, false]);

    // A damaged file counts as none.
    let files = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let path = files.into_iter().find(|path| path.to_str().unwrap().contains("tuning")).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(tuned(&build(&folder.open(), Tuning::Cached)), [false, false]);
}

#[test]
fn a_wrong_candidate_is_named_and_never_runs_again() {
    let _turn = device::turn();
    let subject = Subject::new("linear", linear_program(20, 24, 40, 1, DType::F32).unwrap(), Precision::F32);
    // The very one that the class of the device would choose; of kernels that test themselves at start, another shape.
    let default = subject.build(&Gpu::from_context(device::context()), Choices::default());
    let first = &dispatches(default.session())[0];
    let kernel = first.kernel.info().unwrap().name;
    let broken = if kernel == "matmul_lanes" { vec![64] } else { first.local_size() };
    let shape = format!(" {}x{}", broken[0], broken.get(1).unwrap_or(&1));
    let offers = choices::offers(default.session(), device::context().profile());
    let names = offers.into_values().flatten().flatten();
    let ways = match kernel {
        "matmul_lanes" => "lanes",
        "matmul_texel" => "texels",
        _ => "rows",
    };
    let expected: BTreeSet<String> =
        names.filter(|name| name.ends_with(&shape) && name.starts_with(ways)).collect();
    let fresh = Gpu::open(GpuOptions::default()).unwrap();
    fresh.context().break_work_group(kernel, &broken);
    let patient = TuneOptions { budget: Duration::from_secs(3600), ..TuneOptions::default() };
    let report = tune(&fresh, &subject.program, &patient, |_, _, _| ()).unwrap();
    let wrong: BTreeSet<&str> = report.faults().map(|(_, candidate, _)| candidate).collect();
    let faults: Vec<_> = report.faults().collect();
    assert_eq!(wrong, expected.iter().map(String::as_str).collect(), "{faults:?}");
    let picked = report.choices[0].picked.clone().unwrap();
    assert!(!wrong.contains(picked.as_str()), "{picked}");

    // Another shape, which nobody has tuned, does not get it either.
    let other = Subject::new("other", linear_program(9, 16, 36, 1, DType::F32).unwrap(), Precision::F32);
    let mut delegate = Delegate::builder(&fresh).build(&other.program).unwrap();
    let taken = delegate.report().choices[0].clone();
    assert!(!taken.tuned && !wrong.contains(taken.candidate.as_str()), "{taken:?}");
    let want = other.run(&mut other.build(&Gpu::open(GpuOptions::default()).unwrap(), Choices::default()));
    compare::tensors(other.run(&mut delegate).tensor(0).unwrap(), want.tensor(0).unwrap(), 1e-5, 1e-5)
        .unwrap();

    // A build that measures tells of it.
    let third = Gpu::open(GpuOptions::default()).unwrap();
    third.context().break_work_group(kernel, &broken);
    let builder = Delegate::builder(&third).tuning(Tuning::Measure).tuning_budget(patient.budget);
    let delegate = builder.build(&subject.program).unwrap();
    let warnings = delegate.report().warnings.join("\n");
    assert!(expected.iter().all(|name| warnings.contains(name.as_str())), "{warnings}");
    assert_eq!(tuned(&delegate), [true]);
}

fn fixture(name: &str) -> Program {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    Program::open(folder.join(name).with_extension("pt2")).unwrap()
}

/// Activations in packed words come with their sums, and go with the scales and sums of a weight.
#[test]
fn products_of_quantised_activations_are_held_to_the_host() {
    let _turn = device::turn();
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    for name in ["act_affine", "act_per_token_groups", "act_static_codes", "act_int_mm_unsigned"] {
        let patient = TuneOptions { budget: Duration::from_secs(3600), ..TuneOptions::default() };
        let report = tune(&gpu, &fixture(name), &patient, |_, _, _| ()).unwrap();
        assert_eq!(report.faults().collect::<Vec<_>>(), [], "{name}");
        let dots = report.choices.iter().filter(|choice| choice.choice.starts_with("linear_dot"));
        assert!(dots.clone().next().is_some() && dots.clone().all(|dot| dot.checked_on_host), "{name}");
    }
}

#[test]
fn a_kernel_that_is_as_wrong_in_every_shape_is_found() {
    let _turn = device::turn();
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    gpu.context().break_kernel("linear_dot");
    let report = tune(&gpu, &fixture("act_affine"), &TuneOptions::default(), |_, _, _| ()).unwrap();
    let dot = report.choices.iter().find(|choice| choice.choice.starts_with("linear_dot")).unwrap();
    assert!(dot.picked.is_none() && dot.tried.iter().all(|tried| tried.fault.is_some()), "{dot:?}");
}

#[test]
fn the_budget_of_a_tuner_holds() {
    let _turn = device::turn();
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    let options = TuneOptions { budget: Duration::ZERO, ..TuneOptions::default() };
    let program = linear_program(20, 24, 40, 2, DType::F32).unwrap();
    let report = tune(&gpu, &program, &options, |_, _, _| ()).unwrap();
    assert_eq!((report.choices.len(), report.not_reached.len(), report.stored), (0, 2, false));
    assert!(gpu.context().choices().is_empty());
}
