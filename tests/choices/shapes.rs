//! Results that no replay and no work-group shape changes.

use vkdelegate::{
    DType, Delegate, Gpu, GpuOptions, HostTensor, Precision, Value,
    delegate::Context,
    gpu::CapsOverride,
    graph::GraphBuilder,
    linear_program, quantised_linear_program,
    shader::{Access, Choices, DeviceClass, Need},
};

use crate::{
    common::{
        choices::{self, dispatches},
        compare, device,
    },
    subject::{Subject, coded, live, subjects},
};

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
    let codes = |m, k, n, bits| quantised_linear_program(m, k, n, 1, bits).unwrap();
    let subjects = [
        Subject::new("linear 2x301x31", linear(2, 301, 31), Precision::F32),
        Subject::new("linear 13x256x70", linear(13, 256, 70), Precision::F16),
        Subject::new("bmm 3x300x20", live(3, 300, 20), Precision::F32),
        Subject::new("int8 2x301x31", codes(2, 301, 31, 8), Precision::F32),
        Subject::new("int4 3x300x70", codes(3, 300, 70, 4), Precision::F32),
        Subject::new("int4 in groups 13x288x20", codes(13, 288, 20, 4), Precision::F16),
        Subject::new("int4 with zero points 5x288x30", coded(5, 288, 30), Precision::F32),
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
            let count = if subject.name.starts_with("int") { 2 } else { 3 };
            assert!(
                ways.len() == count && ways.iter().all(|names| names[0].starts_with("split")),
                "{ways:?}"
            );
            for name in ways.iter().flatten() {
                let mut choices = Choices::default();
                choices.set(choice, name);
                let got = subject.run(&mut subject.build(&gpu, choices));
                assert!(got == first, "{} {access}: {name}", subject.name);
            }
        }
    }
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
