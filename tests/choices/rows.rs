//! One row by a large weight.

use vkdelegate::{DType, Delegate, Gpu, HostTensor, Value, graph::GraphBuilder, ops::lanes_share};

use crate::common::{choices::dispatches, device};

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
