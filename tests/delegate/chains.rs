//! Chains of element-wise functions: how many dispatches they take, and that each step gives the bits that it gives alone.

use std::{fmt::Write, sync::Arc};

use vkdelegate::{
    base::{DType, HostTensor, Value},
    delegate::Context,
    passes::{Optimised, Options, optimise},
};

use crate::support::*;

/// A sum of 100 dependent terms; `ends` are the terms that are outputs.
fn sums(ends: impl Fn(usize) -> bool) -> String {
    let mut text = "graph g\ninput %y: float32[64, 64]\ninput %x0: float32[64, 64]\n".to_string();
    for step in 0..100 {
        let next = step + 1;
        writeln!(text, "%x{next}: float32[64, 64] = aten.add.Tensor(self=%x{step}, other=%y)").unwrap();
    }
    (1..=100).filter(|&step| ends(step)).for_each(|step| writeln!(text, "output %x{step}").unwrap());
    text
}

fn rewritten(text: &str, unfused: bool) -> Optimised {
    optimise(&program(text), &Options { unfused, ..Options::default() }).unwrap()
}

/// The dispatches of the method with and without chains, and the results of both.
fn both(context: &Arc<Context>, text: &str, inputs: &[Value]) -> ([usize; 2], [Vec<HostTensor>; 2]) {
    let sessions = [false, true].map(|unfused| {
        let mut session = build(context, &rewritten(text, unfused).method);
        let results = run(&mut session, inputs);
        (session.plan().unwrap().dispatches.len(), results)
    });
    let [(fused, got), (alone, want)] = sessions;
    ([fused, alone], [got, want])
}

#[test]
fn a_hundred_dependent_sums_are_one_dispatch() {
    let text = sums(|step| step == 100);
    let fusions = rewritten(&text, false).fusions;
    assert_eq!((fusions.len(), fusions[0].nodes.len(), &*fusions[0].kind), (1, 100, "elementwise"));
    on_each_access(|context| {
        let inputs = [floats(&[64, 64], 0), floats(&[64, 64], 5)];
        let (dispatches, [fused, alone]) = both(context, &text, &inputs);
        assert_eq!(dispatches, [1, 100]);
        assert_eq!(fused, alone);
    });
}

#[test]
fn sums_that_are_outputs_are_a_dispatch_each() {
    let text = sums(|_| true);
    on_each_access(|context| {
        let inputs = [floats(&[64, 64], 0), floats(&[64, 64], 5)];
        let (dispatches, [fused, alone]) = both(context, &text, &inputs);
        assert_eq!(dispatches, [100, 100]);
        assert_eq!(fused, alone);
    });
}

/// Numbers of all kinds, ends of the range among them.
fn numbers(sizes: &[usize], seed: usize) -> Value {
    const ENDS: [f32; 12] =
        [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 3.0e38, -3.0e38, 1e-40, 88.9, 0.5];
    let count = sizes.iter().product::<usize>();
    let number = |i: usize| match (i * 7 + seed) % 5 {
        0 => f64::from(ENDS[(i + seed) % ENDS.len()]),
        n => ((i * 37 + seed * 11) % 101) as f64 / (8.0 * n as f64) - 6.0,
    };
    let values: Vec<f64> = (0..count).map(number).collect();
    Value::Tensor(HostTensor::from_f64s(DType::F32, sizes.to_vec(), &values).unwrap())
}

/// The bits of each number; every NaN counts as the same.
fn bits(tensors: &[HostTensor]) -> Vec<Option<u32>> {
    let numbers = tensors.iter().flat_map(HostTensor::to_f32s);
    numbers.map(|number| (!number.is_nan()).then_some(number.to_bits())).collect()
}

/// Functions of one tensor and of a tensor and a number, as `name, other arguments`.
const OF_ONE: &[&str] = &[
    "abs.default(self=",
    "acos.default(self=",
    "asinh.default(self=",
    "atan.default(self=",
    "ceil.default(self=",
    "cos.default(self=",
    "cosh.default(self=",
    "erf.default(self=",
    "exp.default(self=",
    "expm1.default(self=",
    "frac.default(self=",
    "gelu.default(self=",
    "hardsigmoid.default(self=",
    "hardswish.default(self=",
    "log1p.default(self=",
    "log.default(self=",
    "log_sigmoid.default(self=",
    "mish.default(self=",
    "neg.default(self=",
    "reciprocal.default(self=",
    "relu6.default(self=",
    "round.default(self=",
    "rsqrt.default(self=",
    "sigmoid.default(self=",
    "sign.default(self=",
    "silu.default(self=",
    "sin.default(self=",
    "softplus.default(self=",
    "sqrt.default(self=",
    "square.default(self=",
    "tan.default(self=",
    "tanh.default(self=",
    "add.Scalar(other=0.7, alpha=3, self=",
    "clamp.default(min=-1.5, max=2.5, self=",
    "div.Scalar(other=3, self=",
    "elu.default(alpha=1.25, self=",
    "fmod.Scalar(other=1.3, self=",
    "leaky_relu.default(negative_slope=0.3, self=",
    "mul.Scalar(other=1.1, self=",
    "nan_to_num.default(nan=2.0, self=",
    "pow.Tensor_Scalar(exponent=3, self=",
    "pow.Tensor_Scalar(exponent=0.5, self=",
    "remainder.Scalar(other=0.9, self=",
    "rsub.Scalar(other=2, self=",
    "softshrink.default(lambd=0.4, self=",
    "threshold.default(threshold=0.2, value=-3.0, self=",
];

const OF_TWO: &[&str] = &[
    "add.Tensor(alpha=0.3, ",
    "atan2.default(",
    "copysign.Tensor(",
    "div.Tensor(",
    "fmax.default(",
    "fmin.default(",
    "fmod.Tensor(",
    "hypot.default(",
    "maximum.default(",
    "minimum.default(",
    "mul.Tensor(",
    "pow.Tensor_Tensor(",
    "remainder.Tensor(",
    "sub.Tensor(",
    "div.Tensor_mode(rounding_mode=\"floor\", ",
];

const COMPARISONS: &[&str] = &[
    "eq.Tensor(",
    "ge.Tensor(",
    "gt.Tensor(",
    "le.Tensor(",
    "logical_and.default(",
    "logical_xor.default(",
    "lt.Tensor(",
    "ne.Tensor(",
];

/// What a truth value is for, with the result of the step before.
const CHOICES: &[&str] = &[
    "where.self(condition=CONDITION, self=LAST, other=%x)",
    "where.self(condition=CONDITION, self=%z, other=LAST)",
    "where.ScalarOther(condition=CONDITION, self=LAST, other=-inf)",
    "where.ScalarSelf(condition=CONDITION, self=0.25, other=LAST)",
    "masked_fill.Scalar(self=LAST, mask=CONDITION, value=1.5)",
    "mul.Tensor(self=LAST, other=CONDITION)",
];

/// A program that is one chain of `steps` functions, others for each `seed`, over tensors of `sizes`, `[sizes[1]]`
/// and `[sizes[0], 1]`.
fn one_chain(sizes: [usize; 2], steps: usize, seed: usize) -> String {
    let ty = format!("float32[{}, {}]", sizes[0], sizes[1]);
    let mut text = format!("graph g\ninput %x: {ty}\ninput %z: float32[{}]\n", sizes[1]);
    writeln!(text, "input %w: float32[{}, 1]", sizes[0]).unwrap();
    let mut state = seed as u64 * 2_654_435_761 + 1;
    let mut next = |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count
    };
    writeln!(text, "%v0: {ty} = aten.add.Tensor(self=%x, other=%z)").unwrap();
    for step in 1..=steps {
        let last = format!("%v{}", step - 1);
        if next(2) == 0 {
            writeln!(text, "%v{step}: {ty} = aten.{}{last})", OF_ONE[next(OF_ONE.len())]).unwrap();
            continue;
        }
        let earlier = format!("%v{}", step.saturating_sub(1 + next(3)));
        if next(4) == 0 {
            let compare = COMPARISONS[next(COMPARISONS.len())];
            let condition = format!("bool[{}, {}]", sizes[0], sizes[1]);
            writeln!(text, "%c{step}: {condition} = aten.{compare}self={last}, other={earlier})").unwrap();
            let choice = CHOICES[next(CHOICES.len())].replace("CONDITION", &format!("%c{step}"));
            writeln!(text, "%v{step}: {ty} = aten.{}", choice.replace("LAST", &last)).unwrap();
            continue;
        }
        let other = ["%x", "%z", "%w", &last, &earlier][next(5)];
        let (left, right) = if next(2) == 0 { (&*last, other) } else { (other, &*last) };
        let call = OF_TWO[next(OF_TWO.len())];
        let other = if call.starts_with("pow") { "exponent" } else { "other" };
        writeln!(text, "%v{step}: {ty} = aten.{call}self={left}, {other}={right})").unwrap();
    }
    text + &format!("output %v{steps}\n")
}

#[test]
fn every_step_gives_the_bits_that_it_gives_alone() {
    on_each_access(|context| {
        for seed in 0..16 {
            let sizes = [[3, 8], [5, 7]][seed % 2];
            let text = one_chain(sizes, 2 + seed % 9 + seed / 12 * 9, seed);
            let inputs =
                [numbers(&sizes, seed), numbers(&sizes[1..], seed + 3), numbers(&[sizes[0], 1], seed + 5)];
            let ([fused, alone], [got, want]) = both(context, &text, &inputs);
            assert!(fused < alone, "{fused} dispatches for {alone}:\n{text}");
            assert_eq!(bits(&got), bits(&want), "{text}");
        }
    });
}

/// Programs of several dtypes that are one chain each, over `%x`, `%y` (float32), `%h` (float16), `%i`, `%j` (int64),
/// `%k` (uint8) and `%b` (bool); TY is for their sizes.
const OF_DTYPES: &[&str] = &[
    "%a: boolTY = aten.ge.Tensor(self=%i, other=%j)
     %b0: float32TY = aten.where.ScalarOther(condition=%a, self=%x, other=-inf)
     %r: float32TY = aten.add.Tensor(self=%b0, other=1.5)",
    "%a: boolTY = aten.eq.Tensor(self=%i, other=%j)
     %r: boolTY = aten.logical_or.default(self=%a, other=%b)",
    "%a: boolTY = aten.gt.Scalar(self=%i, other=16777216)
     %c: float32TY = aten._to_copy.default(self=%a, dtype=float32)
     %r: float32TY = aten.sub.Tensor(self=%x, other=%c)",
    "%a: boolTY = aten.lt.Scalar(self=%x, other=0.1)
     %c: boolTY = aten.isnan.default(self=%y)
     %d: boolTY = aten.bitwise_xor.Tensor(self=%a, other=%c)
     %r: boolTY = aten.logical_not.default(self=%d)",
    "%a: boolTY = aten.ne.Tensor(self=%i, other=%k)
     %r: float32TY = aten.masked_fill.Scalar(self=%x, mask=%a, value=-3.0e38)",
    "%a: float32TY = aten._to_copy.default(self=%h, dtype=float32)
     %c: float32TY = aten.mul.Tensor(self=%a, other=%i)
     %r: float16TY = aten._to_copy.default(self=%c, dtype=float16)",
    "%a: float32TY = aten.mul.Tensor(self=%x, other=1.37)
     %c: bfloat16TY = aten._to_copy.default(self=%a, dtype=bfloat16)
     %r: bfloat16TY = aten.neg.default(self=%c)",
    "%a: float32TY = aten.mul.Tensor(self=%x, other=1.37)
     %c: float16TY = aten._to_copy.default(self=%a, dtype=float16)
     %r: float16TY = aten.mul.Tensor(self=%c, other=%h)",
    "%a: float32TY = aten.mul.Tensor(self=%x, other=100.0)
     %r: int64TY = aten._to_copy.default(self=%a, dtype=int64)",
    "%a: float32TY = aten.mul.Tensor(self=%x, other=100.0)
     %r: uint8TY = aten._to_copy.default(self=%a, dtype=uint8)",
    "%a: boolTY = aten.ge.Tensor(self=%x, other=%h)
     %r: int64TY = aten._to_copy.default(self=%a, dtype=int64)",
    "%a: float32TY = aten.exp.default(self=%k)
     %r: boolTY = aten._to_copy.default(self=%a, dtype=bool)",
    "%a: float32TY = aten.neg.default(self=%x)
     %r: float32TY = aten.clamp_max.Tensor(self=%a, max=%y)",
    "%a: boolTY = aten.gt.Tensor(self=%h, other=%h)
     %r: float16TY = aten.where.self(condition=%a, self=%h, other=%h)",
    "%a: boolTY = aten.where.self(condition=%b, self=%b, other=%b)
     %r: boolTY = aten.le.Scalar(self=%a, other=0.5)",
];

/// Elements of `make` as `dtype`; of int64 such that float32 does not tell apart.
fn of_dtype(dtype: DType, sizes: &[usize], seed: usize, make: fn(&[usize], usize) -> Value) -> Value {
    let Value::Tensor(floats) = make(sizes, seed) else { unreachable!() };
    let ints = (0..sizes.iter().product::<usize>() as i64).map(|i| (1 << 24) + (i * 5 + seed as i64) % 3 - 1);
    Value::Tensor(match dtype {
        DType::I64 => HostTensor::from_i64s(dtype, sizes.to_vec(), &ints.collect::<Vec<_>>()).unwrap(),
        dtype => floats.cast(dtype).unwrap(),
    })
}

#[test]
fn chains_of_several_dtypes_give_the_bits_of_their_ops() {
    on_each_access(|context| {
        for (sizes, text) in OF_DTYPES.iter().enumerate().map(|(n, text)| ([[3, 8], [5, 7]][n % 2], text)) {
            let ty = format!("[{}, {}]", sizes[0], sizes[1]);
            let dtypes = [DType::F32, DType::F32, DType::F16, DType::I64, DType::I64, DType::U8, DType::Bool];
            let reads = |name: &str| text.split(['=', ',', ')']).any(|word| word == name);
            let (mut program, mut inputs, mut tame) = ("graph g\n".to_string(), Vec::new(), Vec::new());
            for (seed, (name, dtype)) in
                ["%x", "%y", "%h", "%i", "%j", "%k", "%b"].into_iter().zip(dtypes).enumerate()
            {
                if reads(name) {
                    writeln!(program, "input {name}: {dtype}{ty}").unwrap();
                    inputs.push(of_dtype(dtype, &sizes, seed, numbers));
                    tame.push(of_dtype(dtype, &sizes, seed, floats));
                }
            }
            let lines = text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
            let program = format!("{program}{lines}\noutput %r\n").replace("TY", &ty);
            let (dispatches, [got, want]) = both(context, &program, &inputs);
            let fused = rewritten(&program, false);
            assert_eq!((dispatches[0], fused.fusions.len()), (1, 1), "{program}");
            assert_eq!((bits(&got), got[0].dtype()), (bits(&want), want[0].dtype()), "{program}");
            assert_matches_host(&mut build(context, &fused.method), &tame);
        }
    });
}
