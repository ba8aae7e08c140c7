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
    run_call(op, vec![("self", operand(DType::I64, values)), ("dim", dim)], DType::I64, out_sizes).map(|_| ())
}

fn operand(dtype: DType, values: &[i64]) -> CaseArg {
    let tensor = HostTensor::from_i64s(dtype, vec![values.len()], values).unwrap();
    CaseArg::Tensor(CaseTensor { tensor, constant: false, strides: None })
}

fn run_call(
    op: &str,
    args: Vec<(&str, CaseArg)>,
    dtype: DType,
    out_sizes: &[usize],
) -> vkdelegate::base::Result<Vec<i64>> {
    let one_op = one_op::one_op(&Case::call(op, args), &[Meta::new(dtype, out_sizes)]);
    let _turn = device::turn();
    let mut session = Session::build(&device::context(), one_op.method, BuildOptions::default())?;
    let (values, _) = session.run(&one_op.inputs)?;
    Ok(values[0].as_tensor().unwrap().to_i64s())
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

/// A call of a function of two on two one-element tensors.
fn binary(op: &str, dtype: DType, a: i64, b: i64) -> vkdelegate::base::Result<i64> {
    let right = if op.contains(".pow.") { "exponent" } else { "other" };
    let mut args = vec![("self", operand(dtype, &[a])), (right, operand(dtype, &[b]))];
    if op == "aten.div.Tensor_mode" {
        args.push(("rounding_mode", CaseArg::Str("floor".to_string())));
    }
    run_call(op, args, dtype, &[1]).map(|values| values[0])
}

fn assert_bad_data<T: std::fmt::Debug>(what: &str, result: vkdelegate::base::Result<T>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadData, "{what}: {error}");
    assert_eq!(error.node(), Some("the_node"), "{what}: {error}");
}

#[test]
fn arithmetic_beyond_32_bits_is_reported_for_int64_and_wraps_for_int32() {
    let bottom = i64::from(i32::MIN);
    for (op, a, b, wrapped) in [
        ("aten.add.Tensor", TOP, 1, bottom),
        ("aten.sub.Tensor", bottom, 1, TOP),
        ("aten.rsub.Tensor", 1, bottom, TOP),
        ("aten.mul.Tensor", 65536, 65536, 0),
        ("aten.mul.Tensor", bottom, -1, bottom),
        ("aten.pow.Tensor_Tensor", 3, 21, 10_460_353_203),
        ("aten.bitwise_left_shift.Tensor", 3, 31, bottom),
    ] {
        assert_bad_data(op, binary(op, DType::I64, a, b));
        let narrow = binary(op, DType::I32, a, b).unwrap();
        assert_eq!(narrow, i64::from(wrapped as i32), "{op} of {a} and {b}");
    }
    assert_eq!(binary("aten.pow.Tensor_Tensor", DType::I64, -2, 31).unwrap(), bottom);
    assert_eq!(binary("aten.mul.Tensor", DType::I64, 65536, -32768).unwrap(), bottom);
    for op in ["aten.neg.default", "aten.abs.default", "aten.square.default"] {
        let call = |dtype| run_call(op, vec![("self", operand(dtype, &[bottom]))], dtype, &[1]);
        assert_bad_data(op, call(DType::I64));
        call(DType::I32).unwrap();
    }
}

#[test]
fn only_the_result_counts_not_what_alpha_gives_on_the_way() {
    let args = |a: i64| {
        vec![
            ("self", operand(DType::I64, &[a])),
            ("other", operand(DType::I64, &[TOP])),
            ("alpha", CaseArg::Scalar(Scalar::Int(2))),
        ]
    };
    assert_eq!(run_call("aten.add.Tensor", args(-TOP), DType::I64, &[1]).unwrap(), [TOP]);
    assert_eq!(run_call("aten.sub.Tensor", args(TOP), DType::I64, &[1]).unwrap(), [-TOP]);
    assert_bad_data("add", run_call("aten.add.Tensor", args(1), DType::I64, &[1]));
}

#[test]
fn divisions_of_integers_by_zero_are_reported() {
    for op in
        ["aten.div.Tensor_mode", "aten.floor_divide.default", "aten.fmod.Tensor", "aten.remainder.Tensor"]
    {
        for dtype in [DType::I64, DType::I32, DType::U8] {
            assert_bad_data(op, binary(op, dtype, 7, 0));
            binary(op, dtype, 7, 2).unwrap();
        }
    }
}
