//! An int64 result that leaves the 32 bits of the device is an error that names the node, never a wrong number.

#![allow(clippy::unwrap_used, reason = "a surprise in a test is a failure")]

mod common;

use common::{
    cases::{Case, CaseArg, CaseTensor},
    device, one_op,
};
use vkdelegate::{
    base::{DType, ErrorKind, HostTensor, Scalar},
    delegate::{BuildOptions, Session},
    ops::Meta,
};

const TOP: i64 = i32::MAX as i64;

fn run(op: &str, values: &[i64], dim: CaseArg, out_sizes: &[usize]) -> vkdelegate::base::Result<()> {
    let tensor = HostTensor::from_i64(&[values.len()], values).unwrap();
    let operand = CaseTensor { tensor, constant: false, strides: None };
    let case = Case {
        name: op.to_string(),
        op: op.to_string(),
        args: vec![("self".to_string(), CaseArg::Tensor(operand)), ("dim".to_string(), dim)],
        outputs: vec![],
        rtol: 0.0,
        atol: 0.0,
        refused: None,
    };
    let one_op = one_op::one_op(&case, &[Meta::new(DType::I64, out_sizes)]);
    let mut session = Session::build(&device::context(), one_op.method, BuildOptions::default())?;
    session.run(&one_op.inputs).map(|_| ())
}

fn assert_reported(op: &str, values: &[i64], dim: CaseArg, out_sizes: &[usize]) {
    let error = run(op, values, dim, out_sizes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadData, "{op}: {error}");
    assert_eq!(error.node(), Some("the_node"), "{op}: {error}");
}

#[test]
fn sums_and_products_beyond_32_bits_are_reported() {
    let dims = || CaseArg::Ints(vec![0]);
    assert_reported("aten.sum.dim_IntList", &[TOP, 1], dims(), &[]);
    assert_reported("aten.sum.dim_IntList", &[-TOP, -2], dims(), &[]);
    assert_reported("aten.sum.dim_IntList", &[TOP; 5000], dims(), &[]);
    run("aten.sum.dim_IntList", &[TOP, 1, -1], dims(), &[]).unwrap();
    let dim = || CaseArg::Scalar(Scalar::Int(0));
    assert_reported("aten.prod.dim_int", &[65536, 32768], dim(), &[]);
    assert_reported("aten.prod.dim_int", &[65536, 65536, 65536, 65536], dim(), &[]);
    run("aten.prod.dim_int", &[65536, 65536, 65536, 0], dim(), &[]).unwrap();
}

#[test]
fn running_results_beyond_32_bits_are_reported() {
    let dim = || CaseArg::Scalar(Scalar::Int(0));
    assert_reported("aten.cumsum.default", &[TOP, 1, -1], dim(), &[3]);
    assert_reported("aten.cumprod.default", &[TOP, 2, 0], dim(), &[3]);
    run("aten.cumsum.default", &[TOP, -1, 1], dim(), &[3]).unwrap();
    assert_eq!(device::validation_messages(), Vec::<String>::new());
}
