//! Softmax and norms over rows of every length around the limits of their kernels: one dispatch each, as a CPU and as a
//! phone run it, with the values of `eval`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{HashMap, HashSet};

use common::{
    compare, device,
    one_op::{static_method, tensor_type},
    reference,
};
use vkdelegate::{
    base::{DType, HostTensor, Value},
    delegate::{BuildOptions, Context, Session},
    gpu::DeviceClass,
    ir::{Arg, Graph, InputKind, Method, OpName, OutputKind, OutputSource},
    ops::Precision,
    plan::{self, InputMeta, PlanOptions},
};

/// Numbers between -3 and 3 without symmetry or a short period.
fn numbers(sizes: &[usize]) -> HostTensor {
    let number = |index: usize| ((index * 7919 + index / 13) % 1201) as f64 / 200.0 - 3.0;
    let values: Vec<f64> = (0..sizes.iter().product()).map(number).collect();
    HostTensor::from_f64s(DType::F32, sizes.to_vec(), &values).unwrap()
}

/// A program of one call over the last dim of `[rows, len]`.
fn method(op: &str, [rows, len]: [usize; 2]) -> (Method, Vec<Value>) {
    let mut graph = Graph::new("rows");
    let x = graph.add_input("x", tensor_type(DType::F32, &[rows, len]), InputKind::User).unwrap();
    let mut inputs: Vec<Value> = vec![numbers(&[rows, len]).into()];
    let mut args = vec![("self", Arg::Value(x)), ("dim", Arg::Int(-1)), ("half_to_float", Arg::Bool(false))];
    if !op.contains("softmax") {
        let weight = graph.add_input("w", tensor_type(DType::F32, &[len]), InputKind::User).unwrap();
        inputs.push(numbers(&[len]).into());
        args = vec![
            ("input", Arg::Value(x)),
            ("normalized_shape", [len as i64].into()),
            ("weight", Arg::Value(weight)),
        ];
    }
    let args = args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect();
    let outs = vec![("y".to_string(), tensor_type(DType::F32, &[rows, len]))];
    let node = graph.add_node("rows", OpName::new(op), args, outs).unwrap();
    let y = graph.node(node).unwrap().outputs[0];
    graph.add_output(OutputSource::Value(y), OutputKind::User);
    (static_method(graph), inputs)
}

fn dispatches(context: &Context, method: &Method, inputs: &[Value]) -> usize {
    let options = PlanOptions {
        profile: context.profile().clone(),
        precision: Precision::F32,
        pinned_f32: HashSet::new(),
    };
    let metas: Vec<InputMeta> = inputs.iter().map(InputMeta::of).collect();
    plan::build(method, &metas, &options).unwrap().dispatches.len()
}

#[test]
fn rows_of_every_length_take_one_dispatch() {
    let _turn = device::turn();
    for class in [DeviceClass::Cpu, DeviceClass::Adreno7xx] {
        let context = device::of_class(class);
        for op in ["aten._softmax.default", "aten.layer_norm.default", "aten.rms_norm.default"] {
            for len in [1, 3, 63, 64, 65, 1000, 4096, 8191, 8192, 8193, 20_000] {
                // Few rows share a work group each; many do not.
                for rows in [3, 70] {
                    let (method, inputs) = method(op, [rows, len]);
                    assert_eq!(dispatches(&context, &method, &inputs), 1, "{op} {len}");
                    let options = BuildOptions::default();
                    let (got, _) =
                        Session::build(&context, method.clone(), options).unwrap().run(&inputs).unwrap();
                    let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
                    let Value::Tensor(got) = &got[0] else { panic!("no tensor") };
                    if let Err(text) = compare::tensors(got, &want[0], 1e-5, 1e-5) {
                        panic!("{op} {rows} x {len} as {class:?}: {text}");
                    }
                }
            }
        }
        assert_eq!(context.gpu().validation_messages(), Vec::<String>::new());
    }
}
