//! Attention, whose kernels are chosen as those of products are, and which always has products and a softmax to fall back
//! on.

use std::time::Duration;

use vkdelegate::{
    DType, Delegate, Gpu, GpuOptions, HostTensor, Precision, Program, TuneOptions, Tuning, Value,
    graph::GraphBuilder,
    ops::lanes_share,
    shader::{Access, Choices, Need},
    tune,
};

use crate::{
    common::{
        choices::{self, dispatches},
        compare, device,
    },
    subject::Subject,
};

/// Attention of `queries` and `keys` of 2 x 3 heads.
fn attention(queries: usize, keys: usize, width: usize, is_causal: bool) -> Program {
    let mut graph = GraphBuilder::new("attention");
    let mut input = |name, rows| graph.input(name, DType::F32, &[2, 3, rows, width]).unwrap();
    let [query, key, value] = [input("q", queries), input("k", keys), input("v", keys)];
    let arguments = [
        ("query", query.into()),
        ("key", key.into()),
        ("value", value.into()),
        ("is_causal", is_causal.into()),
    ];
    let y = graph.call("aten.scaled_dot_product_attention.default", arguments).unwrap();
    graph.output(y);
    graph.build().unwrap()
}

fn subject(queries: usize, keys: usize, width: usize, precision: Precision) -> Subject {
    let name = format!("{queries}x{keys}x{width} {precision:?}");
    Subject::new(name, attention(queries, keys, width, false), precision)
}

/// Causal attention to values of which some that few queries see are not finite.
fn causal(queries: usize, width: usize) -> Subject {
    let program = attention(queries, queries, width, true);
    let mut subject = Subject::new(format!("causal {queries}x{width}"), program, Precision::F32);
    let Value::Tensor(value) = &subject.inputs[2] else { panic!("no tensor") };
    let mut numbers = value.to_f32s();
    let row = numbers.chunks_exact_mut(width).nth(queries - 5).unwrap();
    row.fill(f32::INFINITY);
    subject.inputs[2] = Value::Tensor(HostTensor::from_f32(value.sizes(), &numbers).unwrap());
    subject
}

fn subjects() -> Vec<Subject> {
    vec![
        subject(1, 300, 32, Precision::F32),
        subject(5, 33, 64, Precision::F32),
        subject(37, 70, 32, Precision::F16),
        subject(150, 41, 36, Precision::F32),
        subject(19, 41, 128, Precision::F32),
        causal(150, 32),
        causal(45, 64),
    ]
}

fn has_attention() -> bool {
    let profile = device::context().profile().clone();
    profile.access == Access::Bda || profile.features.contains(Need::StorageBuffers5)
}

/// F02.
#[test]
fn attention_is_the_same_in_every_work_group_shape() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    let profile = device::context().profile().clone();
    let mut seen = Vec::new();
    for subject in subjects() {
        let default = subject.build(&gpu, Choices::default());
        let run = |choices| {
            let mut delegate = subject.build(&gpu, choices);
            let outputs = subject.run(&mut delegate);
            // NaN is not itself.
            let bits = outputs.tensor(0).unwrap().bytes().to_vec();
            (choices::taken(delegate.session()), bits)
        };
        seen.extend(choices::assert_same_in_every_shape(default.session(), &profile, run));
    }
    if has_attention() {
        choices::assert_has_ways(
            &seen,
            &profile,
            "attention",
            &["tile", "row128", "row64", "row32", "products"],
        );
    }
    if lanes_share(&profile) {
        choices::assert_has_ways(&seen, &profile, "attention", &["lanes1", "lanes2"]);
    }
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F02.
#[test]
fn a_hundred_replays_of_each_way_give_the_same_bits() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    let profile = device::context().profile().clone();
    for subject in [subject(7, 90, 32, Precision::F32), subject(130, 70, 64, Precision::F32)] {
        let default = subject.build(&gpu, Choices::default());
        for (choice, ways) in choices::offers(default.session(), &profile) {
            for names in ways {
                let mut choices = Choices::default();
                choices.set(&choice, &names[0]);
                let mut delegate = subject.build(&gpu, choices);
                let first = subject.run(&mut delegate);
                for replay in 1..100 {
                    assert!(subject.run(&mut delegate) == first, "{choice}: {}: {replay}", names[0]);
                }
            }
        }
    }
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// What is struck out is never launched: other kernels are, and at last the products and the softmax of the definition.
#[test]
fn attention_without_a_kernel_is_written_out() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    let profile = device::context().profile().clone();
    for subject in subjects().into_iter().take(5) {
        let mut default = subject.build(&gpu, Choices::default());
        let want = subject.run(&mut default);
        let mut choices = Choices::default();
        let ways: Vec<_> = choices::offers(default.session(), &profile).into_iter().collect();
        let ways = ways
            .into_iter()
            .filter(|(choice, _)| choice.starts_with("attention "))
            .flat_map(|(_, ways)| ways);
        for names in ways {
            names.iter().for_each(|name| choices.strike_out("attention", name));
            let mut delegate = subject.build(&gpu, choices.clone());
            let taken = choices::taken(delegate.session());
            let is_out = taken
                .iter()
                .all(|(choice, taken)| !choice.starts_with("attention ") || !names.contains(taken));
            assert!(is_out, "{}: {taken:?}", subject.name);
            let (got, want) = (subject.run(&mut delegate), want.tensor(0).unwrap());
            let tolerance = if subject.precision == Precision::F32 { 1e-5 } else { 2e-3 };
            compare::tensors(got.tensor(0).unwrap(), want, tolerance, tolerance).unwrap();
        }
        let delegate = subject.build(&gpu, choices);
        let kernels: Vec<_> = dispatches(delegate.session())
            .iter()
            .map(|dispatch| dispatch.kernel.info().unwrap().name)
            .collect();
        assert!(kernels.len() == 3 && kernels[1] == "attention_softmax", "{}: {kernels:?}", subject.name);
    }
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F53 and F54.
#[test]
fn attention_takes_no_lanes_where_they_are_wrong() {
    let _turn = device::turn();
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    gpu.context().break_kernel("matmul_lanes");
    let delegate = subject(37, 40, 32, Precision::F32).build(&gpu, Choices::default());
    let taken = choices::taken(delegate.session());
    assert!(taken.values().all(|candidate| !candidate.starts_with("lanes")), "{taken:?}");
    assert_eq!(taken.len(), usize::from(has_attention()));
}

#[test]
fn attention_is_tuned() {
    if !has_attention() {
        return;
    }
    let _turn = device::turn();
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    let patient = TuneOptions { budget: Duration::from_secs(3600), ..TuneOptions::default() };
    for (subject, choice) in [
        (subject(37, 40, 32, Precision::F32), "attention 6x37x40x32 f32"),
        (subject(1, 70, 64, Precision::F32), "attention 6x1x70x64 f32"),
        (causal(20, 32), "attention 6x20x20x32 f32"),
    ] {
        let report = tune(&gpu, &subject.program, &patient, |_, _, _| ()).unwrap();
        assert_eq!(report.faults().collect::<Vec<_>>(), [], "{choice}");
        let [tuned] = &report.choices[..] else { panic!("{report:?}") };
        assert!(tuned.choice == choice && tuned.checked_on_host && tuned.tried[0].candidate == tuned.default);
        assert!(tuned.tried.iter().all(|tried| tried.best_us.is_some()), "{tuned:?}");
        let delegate = Delegate::builder(&gpu).tuning(Tuning::Cached).build(&subject.program).unwrap();
        assert_eq!(delegate.report().choices[0].candidate, tuned.picked.clone().unwrap());
    }
    // A kernel that is wrong however it is launched leaves the others.
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    gpu.context().break_kernel("attention_tile");
    let subject = subject(9, 40, 32, Precision::F32);
    let report = tune(&gpu, &subject.program, &patient, |_, _, _| ()).unwrap();
    assert!(
        report.faults().count() > 0
            && report.faults().all(|(_, candidate, _)| candidate.starts_with("tile "))
    );
    let mut delegate = Delegate::builder(&gpu).build(&subject.program).unwrap();
    let taken = choices::taken(delegate.session());
    assert!(taken.values().all(|candidate| !candidate.starts_with("tile ")), "{taken:?}");
    let want = subject.run(&mut subject.build(&Gpu::from_context(device::context()), Choices::default()));
    let got = subject.run(&mut delegate);
    compare::tensors(got.tensor(0).unwrap(), want.tensor(0).unwrap(), 1e-5, 1e-5).unwrap();
}
