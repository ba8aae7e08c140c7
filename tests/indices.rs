//! An index out of range is an error that names node and value, never an access out of bounds.

#![allow(clippy::unwrap_used, reason = "a surprise in a test is a failure")]

mod common;

use common::{
    cases::{Case, CaseArg, CaseTensor},
    device, one_op,
};
use vkdelegate::{
    base::{DType, Error, ErrorKind, HostTensor, Scalar},
    delegate::{BuildOptions, Session},
    ops::Meta,
};

fn live(tensor: HostTensor) -> CaseTensor {
    CaseTensor { tensor, constant: false, strides: None }
}

fn floats(sizes: &[usize]) -> CaseTensor {
    live(HostTensor::from_f32(sizes, &vec![1.0; sizes.iter().product()]).unwrap())
}

fn ids(values: &[i64]) -> CaseTensor {
    live(HostTensor::from_i64(&[values.len()], values).unwrap())
}

fn run(op: &str, args: Vec<(&str, CaseArg)>, out_sizes: &[usize]) -> Result<(), Error> {
    let one_op = one_op::one_op(&Case::call(op, args), &[Meta::new(DType::F32, out_sizes)]);
    let _turn = device::turn();
    let mut session = Session::build(&device::context(), one_op.method, BuildOptions::default())?;
    session.run(&one_op.inputs).map(|_| ())
}

/// Runs `make(index)` for indices in and out of range of a dim of 4.
fn check(op: &str, wraps: bool, out_sizes: &[usize], make: impl Fn(i64) -> Vec<(&'static str, CaseArg)>) {
    for index in [0, 3, 4, -1, -4, -5, i64::from(i32::MAX), i64::from(i32::MIN)] {
        let inside = (0..4).contains(&index) || (wraps && (-4..0).contains(&index));
        let result = run(op, make(index), out_sizes);
        if inside {
            result.unwrap_or_else(|error| panic!("{op} with index {index}: {error}"));
            continue;
        }
        let Err(error) = result else { panic!("{op} took index {index}") };
        assert_eq!(error.kind(), ErrorKind::BadData, "{op}: {error}");
        assert_eq!(error.node(), Some("the_node"), "{op}: {error}");
        assert!(error.to_string().contains(&index.to_string()), "{op} with index {index}: {error}");
    }
}

fn dim(dim: i64) -> (&'static str, CaseArg) {
    ("dim", CaseArg::Scalar(Scalar::Int(dim)))
}

fn tensor(name: &'static str, tensor: CaseTensor) -> (&'static str, CaseArg) {
    (name, CaseArg::Tensor(tensor))
}

fn indices(list: Vec<Option<CaseTensor>>) -> (&'static str, CaseArg) {
    ("indices", CaseArg::Tensors(list))
}

#[test]
fn reads_report_indices_out_of_range() {
    check("aten.embedding.default", false, &[3, 8], |index| {
        vec![tensor("weight", floats(&[4, 8])), tensor("indices", ids(&[1, index, 2]))]
    });
    check("aten.index_select.default", false, &[5, 2], |index| {
        vec![tensor("self", floats(&[5, 4])), dim(1), tensor("index", ids(&[index, 2]))]
    });
    check("aten.gather.default", false, &[2], |index| {
        vec![tensor("self", floats(&[4])), dim(0), tensor("index", ids(&[1, index]))]
    });
    check("aten.index.Tensor", true, &[2, 4], |index| {
        vec![tensor("self", floats(&[4, 4])), indices(vec![Some(ids(&[index, 1]))])]
    });
    check("aten.index.Tensor", true, &[2], |index| {
        let list = vec![Some(ids(&[1, index])), Some(ids(&[0, 1]))];
        vec![tensor("self", floats(&[4, 6])), indices(list)]
    });
    assert_eq!(device::validation_messages(), Vec::<String>::new());
}

#[test]
fn writes_report_indices_out_of_range() {
    check("aten.index_put.default", true, &[4, 3], |index| {
        let values = tensor("values", floats(&[2, 3]));
        vec![tensor("self", floats(&[4, 3])), indices(vec![Some(ids(&[index, 1]))]), values]
    });
    check("aten.index_put.default", true, &[4, 3], |index| {
        let list = vec![Some(ids(&[1, index])), Some(ids(&[2, 0]))];
        let adds = ("accumulate", CaseArg::Scalar(Scalar::Bool(true)));
        vec![tensor("self", floats(&[4, 3])), indices(list), tensor("values", floats(&[2])), adds]
    });
    check("aten.index_copy.default", false, &[3, 4], |index| {
        let source = tensor("source", floats(&[3, 1]));
        vec![tensor("self", floats(&[3, 4])), dim(1), tensor("index", ids(&[index])), source]
    });
    check("aten.scatter.src", false, &[4], |index| {
        let src = tensor("src", floats(&[2]));
        vec![tensor("self", floats(&[4])), dim(0), tensor("index", ids(&[1, index])), src]
    });
    check("aten.scatter_add.default", false, &[4], |index| {
        let src = tensor("src", floats(&[2]));
        vec![tensor("self", floats(&[4])), dim(0), tensor("index", ids(&[1, index])), src]
    });
    assert_eq!(device::validation_messages(), Vec::<String>::new());
}

#[test]
fn a_mask_with_too_few_elements_is_reported() {
    let mask = live(HostTensor::from_i64s(DType::Bool, vec![4], &[1, 0, 1, 1]).unwrap());
    let args = |source: usize| {
        vec![tensor("self", floats(&[4])), tensor("mask", mask.clone()), tensor("source", floats(&[source]))]
    };
    run("aten.masked_scatter.default", args(3), &[4]).unwrap();
    let error = run("aten.masked_scatter.default", args(2), &[4]).unwrap_err();
    assert_eq!((error.kind(), error.node()), (ErrorKind::BadData, Some("the_node")), "{error}");
}

#[test]
fn offsets_that_fall_or_go_past_the_rows_are_reported() {
    let call = |offs: [i64; 3]| {
        let operands = vec![
            tensor("input", floats(&[4, 3])),
            tensor("weight", floats(&[3, 3, 2])),
            tensor("offs", ids(&offs)),
        ];
        run("transformers.grouped_mm_fallback.default", operands, &[4, 2])
    };
    for offs in [[0, 2, 4], [1, 1, 3], [0, 0, 0]] {
        call(offs).unwrap_or_else(|error| panic!("{offs:?}: {error}"));
    }
    for (offs, wrong) in [([1, 5, 5], 5), ([3, 2, 4], 2), ([-1, 2, 4], -1), ([1, 2, 1 << 30], 1 << 30)] {
        let Err(error) = call(offs) else { panic!("took {offs:?}") };
        assert_eq!((error.kind(), error.node()), (ErrorKind::BadData, Some("the_node")), "{error}");
        assert!(error.to_string().contains(&wrong.to_string()), "{offs:?}: {error}");
    }
}
