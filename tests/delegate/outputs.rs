//! Outputs of every sort: inputs, constants, views, the same tensor twice, numbers, `None`, nothing at all.

use vkdelegate::{
    base::{DType, HostTensor, Value},
    delegate::{BuildOptions, Session},
    ops::Precision,
};

use crate::support::*;

#[test]
fn outputs_are_whatever_the_program_says() {
    let text = "graph outputs
input %x: float32[2, 3]
input %unused: float32[50]
input %ids: int64[2]
input %flags: bool[3]
input %empty: float32[0, 3]
input %half: float16[3]
input %n: int
input %w: float32[2, 2] = parameter \"w\"
%y: float32[2, 3] = aten.mul.Tensor(self=%x, other=2.0)
%t: float32[3, 2] = aten.permute.default(self=%x, dims=[1, 0])
%s: float32[3] = aten.select.int(self=%y, dim=0, index=1)
%wt: float32[2, 2] = aten.permute.default(self=%w, dims=[1, 0])
%e: float32[0, 3] = aten.mul.Tensor(self=%empty, other=2.0)
%z: float32[3] = aten.sum.dim_IntList(self=%empty, dim=[0], keepdim=false)
output %x
output %y
output %y
output %t
output %s
output %w
output %wt
output %ids
output %flags
output %empty
output %e
output %z
output %half
output %n
output 7
output 2.5
output none
";
    let method = program(text);
    on_each_route(|context| {
        let mut session = build(context, &method);
        let x = HostTensor::from_f32(&[2, 3], &[1., 2., 3., 4., 5., 6.]).unwrap();
        let half = HostTensor::from_f64s(DType::F16, vec![3], &[0.5, -2.0, f64::INFINITY]).unwrap();
        let empty = HostTensor::from_f32(&[0, 3], &[]).unwrap();
        let flags = HostTensor::from_i64s(DType::Bool, vec![3], &[1, 0, 1]).unwrap();
        let inputs = [
            Value::Tensor(x.clone()),
            floats(&[50], 0),
            ints(&[-3, 9]),
            Value::Tensor(flags.clone()),
            Value::Tensor(empty.clone()),
            Value::Tensor(half.clone()),
            Value::Int(41),
        ];
        let f32 = |sizes: &[usize], data: &[f32]| Value::Tensor(HostTensor::from_f32(sizes, data).unwrap());
        let w = [-0.75, 0.125, -0.625, 0.25];
        for _ in 0..3 {
            let (outputs, mutated) = session.run(&inputs).unwrap();
            let want = [
                Value::Tensor(x.clone()),
                f32(&[2, 3], &[2., 4., 6., 8., 10., 12.]),
                f32(&[2, 3], &[2., 4., 6., 8., 10., 12.]),
                f32(&[3, 2], &[1., 4., 2., 5., 3., 6.]),
                f32(&[3], &[8., 10., 12.]),
                f32(&[2, 2], &w),
                f32(&[2, 2], &[w[0], w[2], w[1], w[3]]),
                ints(&[-3, 9]),
                Value::Tensor(flags.clone()),
                Value::Tensor(empty.clone()),
                Value::Tensor(empty.clone()),
                f32(&[3], &[0.0; 3]),
                Value::Tensor(half.clone()),
                Value::Int(41),
                Value::Int(7),
                Value::Float(2.5),
                Value::None,
            ];
            assert_eq!(outputs, want);
            assert!(mutated.is_empty());
        }
    });
}

#[test]
fn a_program_may_do_nothing() {
    on_each_route(|context| {
        let mut nothing = build(context, &program("graph nothing\n"));
        assert_eq!(nothing.run(&[]).unwrap(), (vec![], vec![]));
        let mut swallows = build(context, &program("graph swallows\ninput %x: float32[4]\n"));
        assert_eq!(swallows.run(&[floats(&[4], 0)]).unwrap(), (vec![], vec![]));
    });
}

/// Half precision holds whole numbers up to 2,048; more rows than that are counted, and added up, all the same.
#[test]
fn counts_keep_32_bits_in_half_precision() {
    let text = "graph counts
input %x: float32[5000]
%n: float32[2] = aten.histc.default(self=%x, bins=2, min=0, max=1)
%ends: int32[2] = aten.cumsum.default(self=%n, dim=0, dtype=int32)
output %n
output %ends
";
    let ones = 2051;
    let values: Vec<f32> = (0..5000).map(|i| if i < ones { 1.0 } else { 0.0 }).collect();
    let inputs = [Value::Tensor(HostTensor::from_f32(&[5000], &values).unwrap())];
    on_each_access(|context| {
        let options = BuildOptions { precision: Precision::F16, ..BuildOptions::default() };
        let mut session = Session::build(context, program(text), options).unwrap();
        let [counts, ends] = &run(&mut session, &inputs)[..] else { panic!("two outputs") };
        assert_eq!(counts.to_f32s(), [2949.0, 2051.0]);
        assert_eq!(ends.to_i64s(), [2949, 5000]);
    });
}
