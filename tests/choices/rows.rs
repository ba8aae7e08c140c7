//! One row by a large weight.

use vkdelegate::{
    DType, Delegate, Gpu, GpuOptions, HostTensor, Precision, TuneOptions, Value, graph::GraphBuilder,
    linear_program, ops::lanes_share, shader::Choices, tune,
};

use crate::{
    common::{
        choices::{self, dispatches},
        compare, device,
    },
    subject::Subject,
};

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
        .iter()
        .any(|dispatch| dispatch.kernel.info().unwrap().name == "matmul_parts");
    assert_eq!(has_parts, lanes_share(&profile) && profile.subgroup_size == 8);
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F53 and F54. Other kernels take a row where the one for parts was struck out, or is wrong when it is first built or tuned.
#[test]
fn a_row_is_not_summed_in_parts_where_that_is_wrong() {
    let _turn = device::turn();
    let subject = Subject::new("row", linear_program(1, 1024, 1024, 1, DType::F32).unwrap(), Precision::F32);
    let has_parts =
        |delegate: &Delegate| choices::taken(delegate.session()).values().any(|taken| taken == "parts 8x1");
    let gpu = Gpu::from_context(device::context());
    let mut default = subject.build(&gpu, Choices::default());
    let profile = device::context().profile().clone();
    assert_eq!(has_parts(&default), lanes_share(&profile) && profile.subgroup_size == 8);
    let want = subject.run(&mut default);
    let assert_others = |gpu: &Gpu, choices: Choices| {
        let mut delegate = subject.build(gpu, choices);
        assert!(!has_parts(&delegate));
        let got = subject.run(&mut delegate);
        compare::tensors(got.tensor(0).unwrap(), want.tensor(0).unwrap(), 1e-5, 1e-5).unwrap();
    };
    let mut found = Choices::default();
    found.strike_out("matmul", "parts 8x1");
    assert_others(&gpu, found.clone());
    for kernel in ["matmul_parts", "matmul_sums"].into_iter().filter(|_| has_parts(&default)) {
        let broken = Gpu::open(GpuOptions::default()).unwrap();
        broken.context().break_kernel(kernel);
        let report = tune(&broken, &subject.program, &TuneOptions::default(), |_, _, _| ()).unwrap();
        let faults: Vec<_> = report.faults().map(|(choice, candidate, _)| (choice, candidate)).collect();
        assert_eq!(faults, [("matmul 1x1024x1024 f32", "parts 8x1")]);
        assert_eq!(*broken.context().choices(), found);
        assert_others(&broken, Choices::default());
    }
    assert_eq!(device::validation_messages(), [""; 0]);
}
