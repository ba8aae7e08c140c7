//! Runs kernels on the device, by descriptors and by device addresses, against host arithmetic in f64: what the
//! shader library promises of rounding, wrapping, NaN and the ends of the range.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a surprise in a test is a failure")]

use std::time::Duration;

use half::{bf16, f16};
use vkdelegate::gpu::{
    BindingKind, Buffer, BufferBinding, DispatchDesc, Gpu, GpuOptions, PipelineDesc, RecorderDesc,
    StagingDesc, StagingDirection,
};
use vkdelegate::shader::kernels::{attention_query, copy, predicate, unary};
use vkdelegate::shader::{Access, Dispatch, Need, OperandAccess, Region, StorageId, spirv};

/// Runs one dispatch whose operands are whole buffers; gives the bytes of all of them back.
fn run(gpu: &Gpu, access: Access, dispatch: &Dispatch, contents: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let template = dispatch.kernel.info().expect("a kernel of the table");
    let layout = template.push(access).expect("both ways of access");
    let mut buffers: Vec<Buffer> = Vec::new();
    for bytes in contents {
        let size_bytes = bytes.len() as u64;
        let desc = StagingDesc { name: "operand", size_bytes, direction: StagingDirection::Readback };
        let buffer = gpu.create_staging(&desc).unwrap();
        buffer.write(0, bytes).unwrap();
        buffers.push(buffer);
    }
    let mut push = Vec::new();
    let mut bindings = Vec::new();
    for buffer in &buffers {
        match access {
            Access::Bda => push.extend(buffer.device_address().expect("an address").to_le_bytes()),
            Access::Ssbo => {
                push.extend(0u32.to_le_bytes());
                let size_bytes = buffer.size_bytes();
                bindings.push(BufferBinding { buffer, offset_bytes: 0, size_bytes, texels: None });
            }
        }
    }
    push.resize(layout.params_at_bytes as usize, 0);
    push.extend(&dispatch.params);
    let pipeline = gpu
        .create_pipeline(&PipelineDesc {
            name: template.name,
            spirv: &spirv(dispatch.kernel, access).unwrap(),
            spec: &dispatch.spec,
            push_bytes: layout.size_bytes,
            bindings: &vec![BindingKind::Storage; bindings.len()],
        })
        .unwrap();
    let mut recorder = gpu.record(&RecorderDesc { name: "test", timestamps: false }).unwrap();
    buffers.iter().for_each(|buffer| recorder.keep(buffer));
    let desc = DispatchDesc {
        label: &dispatch.label,
        pipeline: &pipeline,
        bindings: &bindings,
        push: &push,
        groups: dispatch.groups,
    };
    recorder.dispatch(&desc).unwrap();
    let recording = recorder.end().unwrap();
    gpu.submit(&recording).unwrap().wait(Duration::from_secs(60)).unwrap();
    let read = |buffer: &Buffer| {
        let mut bytes = vec![0; usize::try_from(buffer.size_bytes()).unwrap()];
        buffer.read(0, &mut bytes).unwrap();
        bytes
    };
    buffers.iter().map(read).collect()
}

/// Runs `check` for both ways of access that the device has; descriptors it always has.
fn for_each_access(check: impl Fn(&Gpu, Access)) {
    let gpu = Gpu::open(GpuOptions::default()).expect("the tests need a Vulkan device");
    check(&gpu, Access::Ssbo);
    if gpu.caps().features.buffer_device_address {
        check(&gpu, Access::Bda);
    }
    assert_eq!(gpu.validation_messages(), Vec::<String>::new());
}

fn region(id: u32) -> Region {
    Region { storage: StorageId(id), offset_bytes: 0, len_bytes: 0, element_bytes: 4 }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn unary_dispatch(dtype: unary::Dtype, spec: unary::Spec, count: usize, a: f32, b: f32) -> Dispatch {
    let n_elems = u32::try_from(count).unwrap();
    let params =
        unary::Params { n_elems, quads: 0, sizes: [1, 1, 1, n_elems], a, b, c: 1.0, x_strides: [0, 0, 0, 1] };
    let operands = unary::Operands { x: region(0), y: region(1) };
    unary::dispatch(unary::Axes { dtype }, spec, operands, params, [n_elems.div_ceil(64), 1, 1], "unary")
}

fn unary_f32(gpu: &Gpu, access: Access, spec: unary::Spec, x: &[f32], a: f32, b: f32) -> Vec<f32> {
    let dispatch = unary_dispatch(unary::Dtype::F32, spec, x.len(), a, b);
    floats_of(&run(gpu, access, &dispatch, &[bytes_of(x), vec![0; x.len() * 4]])[1])
}

/// Values over the whole range, the special ones among them.
fn samples() -> Vec<f32> {
    let mut values =
        vec![f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 65504.0, 65519.9, 65520.0];
    for k in -300..=300 {
        values.push(k as f32 * 0.0371);
        values.push(k as f32 * 0.5);
    }
    for k in -30..=38 {
        values.extend([1.37e0f32 * 10f32.powi(k), -2.81e0f32 * 10f32.powi(k)]);
    }
    values
}

/// The error function in f64: its Maclaurin series, summed until it no longer changes.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.5 || x.is_nan() {
        return if x.is_nan() { x } else { x.signum() };
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 {
        n += 1.0;
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn max(x: f64, low: f64) -> f64 {
    if x < low { low } else { x }
}

fn min(x: f64, high: f64) -> f64 {
    if x > high { high } else { x }
}

/// Whether `found` is `expected` to the given relative and absolute tolerance; NaN equals NaN, infinities by sign.
fn close(found: f32, expected: f64, tolerance: f64) -> bool {
    let rounded = expected as f32;
    if !rounded.is_finite() || !found.is_finite() {
        let both_huge = found.abs() > 3.3e38 && expected.abs() > 3.3e38;
        return found.is_nan() && rounded.is_nan() || found == rounded || both_huge;
    }
    (f64::from(found) - expected).abs() <= tolerance + tolerance * expected.abs()
}

#[test]
fn functions_agree_with_f64() {
    use unary::Op;
    let (a, b) = (0.25f32, 1.75f32);
    type Function = Box<dyn Fn(f64) -> f64>;
    let functions: Vec<(Op, Function)> = vec![
        (Op::Identity, Box::new(|x| x)),
        (Op::Neg, Box::new(|x| -x)),
        (Op::Abs, Box::new(f64::abs)),
        (Op::Exp, Box::new(f64::exp)),
        (Op::Log, Box::new(f64::ln)),
        (Op::Log1p, Box::new(f64::ln_1p)),
        (Op::Expm1, Box::new(f64::exp_m1)),
        (Op::Sqrt, Box::new(f64::sqrt)),
        (Op::Rsqrt, Box::new(|x| 1.0 / x.sqrt())),
        (Op::Reciprocal, Box::new(|x| 1.0 / x)),
        (Op::Square, Box::new(|x| x * x)),
        (Op::Tanh, Box::new(f64::tanh)),
        (Op::Sigmoid, Box::new(sigmoid)),
        (Op::Erf, Box::new(erf)),
        (Op::Relu, Box::new(|x| max(x, 0.0))),
        (Op::Relu6, Box::new(|x| min(max(x, 0.0), 6.0))),
        (Op::LogSigmoid, Box::new(|x| min(x, 0.0) - (-x.abs()).exp().ln_1p())),
        (Op::GeluErf, Box::new(|x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt())))),
        (
            Op::GeluTanh,
            Box::new(|x| {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
            }),
        ),
        (Op::Silu, Box::new(|x| x * sigmoid(x))),
        (Op::Hardswish, Box::new(|x| x * min(max(x + 3.0, 0.0), 6.0) / 6.0)),
        (Op::Hardsigmoid, Box::new(|x| min(max(x + 3.0, 0.0), 6.0) / 6.0)),
        (Op::Clamp, Box::new(move |x| min(max(x, f64::from(a)), f64::from(b)))),
        (Op::LeakyRelu, Box::new(move |x| if x > 0.0 || x.is_nan() { x } else { x * f64::from(a) })),
        (Op::Elu, Box::new(move |x| if x > 0.0 { f64::from(b) * x } else { f64::from(a * b) * x.exp_m1() })),
        (
            Op::Softplus,
            Box::new(move |x| {
                let scaled = x * f64::from(a);
                if scaled > f64::from(b) { x } else { scaled.exp().ln_1p() / f64::from(a) }
            }),
        ),
        (Op::PowScalar, Box::new(move |x| x.powf(f64::from(a)))),
        (Op::ScalarPow, Box::new(move |x| f64::from(a).powf(x))),
        (Op::Floor, Box::new(f64::floor)),
        (Op::Ceil, Box::new(f64::ceil)),
        (Op::Round, Box::new(f64::round_ties_even)),
        (Op::Trunc, Box::new(f64::trunc)),
        (
            Op::Sign,
            Box::new(|x| {
                if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else {
                    0.0
                }
            }),
        ),
        (Op::Log2, Box::new(f64::log2)),
        (Op::Affine, Box::new(move |x| x * f64::from(a) + f64::from(b))),
    ];
    let x = samples();
    for_each_access(|gpu, access| {
        for (op, function) in &functions {
            let found = unary_f32(gpu, access, unary::Spec { op: *op, ..Default::default() }, &x, a, b);
            for (x, found) in x.iter().zip(found) {
                let expected = function(f64::from(*x));
                // The product in a power of 2^124 alone loses this much.
                let tolerance = if *op == Op::ScalarPow { 1e-5 } else { 4e-6 };
                assert!(
                    close(found, expected, tolerance),
                    "{op:?}({x:e}) by {access}: {found:e}, not {expected:e}"
                );
            }
        }
    });
}

#[test]
fn sin_and_cos_are_exact_to_1e6_up_to_8192() {
    let x: Vec<f32> = (-4096..=4096).map(|k| k as f32 * 1.9).chain([f32::NAN, f32::INFINITY, -0.0]).collect();
    for_each_access(|gpu, access| {
        for (op, function) in [(unary::Op::Sin, f64::sin as fn(f64) -> f64), (unary::Op::Cos, f64::cos)] {
            let found = unary_f32(gpu, access, unary::Spec { op, ..Default::default() }, &x, 0.0, 0.0);
            for (x, found) in x.iter().zip(found) {
                let expected = function(f64::from(*x));
                assert!(
                    close(found, expected, 1e-6),
                    "{op:?}({x:e}) by {access}: {found:e}, not {expected:e}"
                );
            }
        }
    });
}

#[test]
fn powers_follow_ieee() {
    let bases = [0.0f32, -0.0, 1.0, -1.0, 2.0, -2.0, 0.3, -0.3, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let exponents = [
        0.0f32,
        1.0,
        2.0,
        3.0,
        -1.0,
        -2.0,
        0.5,
        -0.5,
        2.5,
        31.0,
        -30.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for_each_access(|gpu, access| {
        for exponent in exponents {
            let spec = unary::Spec { op: unary::Op::PowScalar, ..Default::default() };
            for (base, found) in bases.iter().zip(unary_f32(gpu, access, spec, &bases, exponent, 0.0)) {
                let expected = f64::from(*base).powf(f64::from(exponent));
                assert!(
                    close(found, expected, 4e-6),
                    "{base}^{exponent} by {access}: {found}, not {expected}"
                );
            }
        }
    });
}

/// Bits around every rounding decision: halves, ties and their neighbours, subnormals, the largest values.
fn rounding_samples() -> Vec<f32> {
    let mut values = samples();
    for bits in [0x3f80_0000u32, 0x3300_0000, 0x3380_0000, 0x3840_0000, 0x387f_e000, 0x477f_e000, 0x7f7f_0000]
    {
        for low in [0u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0x1_8000]
        {
            values.extend([f32::from_bits(bits + low), -f32::from_bits(bits + low)]);
        }
    }
    values
}

#[test]
fn round_modes_match_half_and_bfloat16() {
    let x = rounding_samples();
    let same = |found: f32, expected: f32| {
        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan()
    };
    for_each_access(|gpu, access| {
        let modes = [
            (1, (|x| f16::from_f32(x).to_f32()) as fn(f32) -> f32),
            (2, |x| bf16::from_f32(x).to_f32()),
            (7, |x| f32::from(x != 0.0)),
        ];
        for (round_mode, expected) in modes {
            let spec = unary::Spec { round_mode, ..Default::default() };
            for (x, found) in x.iter().zip(unary_f32(gpu, access, spec, &x, 0.0, 0.0)) {
                assert!(same(found, expected(*x)), "mode {round_mode} of {x:e} by {access}: {found:e}");
            }
        }
    });
}

#[test]
fn stores_of_halves_round_to_nearest_even() {
    let gpu = Gpu::open(GpuOptions::default()).expect("the tests need a Vulkan device");
    if !gpu.caps().features.storage_16bit {
        let kernel = unary::Axes { dtype: unary::Dtype::F16 }.kernel();
        let needs = kernel.variant(Access::Ssbo).unwrap().needs;
        assert!(
            needs.contains(Need::Storage16Bit),
            "a device without 16-bit storage must not get this variant"
        );
        return;
    }
    // 0.25 h + b lies between two halves for most h.
    let x: Vec<f16> = (0..0x7c00).step_by(7).map(f16::from_bits).collect();
    let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let (a, b) = (1.000_488_3_f32, 0.0);
    for_each_access(|gpu, access| {
        let spec = unary::Spec { op: unary::Op::Affine, ..Default::default() };
        let dispatch = unary_dispatch(unary::Dtype::F16, spec, x.len(), a, b);
        let out = &run(gpu, access, &dispatch, &[bytes.clone(), vec![0; bytes.len()]])[1];
        for (x, found) in x.iter().zip(out.chunks_exact(2)) {
            let found = f16::from_le_bytes(found.try_into().unwrap());
            assert_eq!(found, f16::from_f32(x.to_f32() * a + b), "{x} by {access}");
        }
    });
}

#[test]
fn predicates_see_nan() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.5, f32::MIN_POSITIVE];
    let expected = [
        (predicate::Op::IsNonzero, [1, 1, 1, 0, 0, 1, 1]),
        (predicate::Op::IsZero, [0, 0, 0, 1, 1, 0, 0]),
        (predicate::Op::IsNan, [1, 0, 0, 0, 0, 0, 0]),
        (predicate::Op::IsInf, [0, 1, 1, 0, 0, 0, 0]),
        (predicate::Op::IsFinite, [0, 0, 0, 1, 1, 1, 1]),
    ];
    for_each_access(|gpu, access| {
        for (op, expected) in expected {
            let dispatch = predicate::dispatch(
                predicate::Axes { dtype: predicate::Dtype::F32 },
                predicate::Spec { op, ..Default::default() },
                predicate::Operands { x: region(0), y: region(1) },
                predicate::Params { n_elems: 7, sizes: [1, 1, 1, 7], x_strides: [0, 0, 0, 1] },
                [1, 1, 1],
                "predicate",
            );
            let out = &run(gpu, access, &dispatch, &[bytes_of(&x), vec![0; 28]])[1];
            let found: Vec<i32> =
                out.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect();
            assert_eq!(found, expected, "{op:?} by {access}");
        }
    });
}

#[test]
fn copy_runs_backwards() {
    let x: Vec<f32> = (0..12).map(|v| v as f32).collect();
    let params = copy::Params {
        n_elems: 12,
        x_start: 3,
        sizes: [1, 1, 1, 1, 1, 1, 3, 4],
        x_strides: [0, 0, 0, 0, 0, 0, 4, 1u32.wrapping_neg()],
        y_strides: [0, 0, 0, 0, 0, 0, 4, 1],
    };
    let expected: Vec<f32> = (0..12).map(|v| (v / 4 * 4 + 3 - v % 4) as f32).collect();
    for_each_access(|gpu, access| {
        let dispatch = copy::dispatch(
            copy::Axes { dtype: copy::Dtype::F32 },
            copy::Spec::default(),
            copy::Operands { x: region(0), y: region(1) },
            params,
            [1, 1, 1],
            "copy",
        );
        let out = &run(gpu, access, &dispatch, &[bytes_of(&x), vec![0; 48]])[1];
        assert_eq!(floats_of(out), expected, "by {access}");
    });
}

#[test]
fn copy_permutes_and_leaves_the_rest_alone() {
    // x is [2, 3, 5]; y takes its permutation [5, 2, 3] into rows of 4 elements.
    let x: Vec<f32> = (0..30).map(|v| v as f32).collect();
    let params = copy::Params {
        n_elems: 30,
        x_start: 0,
        sizes: [1, 1, 1, 1, 1, 5, 2, 3],
        x_strides: [0, 0, 0, 0, 0, 1, 15, 5],
        y_strides: [0, 0, 0, 0, 0, 8, 4, 1],
    };
    let mut expected = vec![-1.0; 40];
    for (i, j, k) in (0..5).flat_map(|i| (0..2).flat_map(move |j| (0..3).map(move |k| (i, j, k)))) {
        expected[i * 8 + j * 4 + k] = (i + j * 15 + k * 5) as f32;
    }
    for_each_access(|gpu, access| {
        // More groups than needed, over x and y.
        let dispatch = copy::dispatch(
            copy::Axes { dtype: copy::Dtype::F32 },
            copy::Spec { local_x: 8 },
            copy::Operands { x: region(0), y: region(1) },
            params,
            [2, 3, 1],
            "copy",
        );
        assert_eq!(dispatch.operands[1].access, OperandAccess::Write);
        let out = &run(gpu, access, &dispatch, &[bytes_of(&x), bytes_of(&[-1.0; 40])])[1];
        assert_eq!(floats_of(out), expected, "by {access}");
    });
}

#[test]
fn attention_does_not_depend_on_work_groups_lanes_and_tiles() {
    let (queries, keys, width) = (37u32, 41u32, 32u32);
    let numbers = |count: u32, step: u32| -> Vec<f32> {
        (0..count).map(|i| ((i * step) % 61) as f32 / 17.0 - 1.7).collect()
    };
    let rows = [numbers(queries * width, 7), numbers(keys * width, 11), numbers(keys * width, 13)];
    let mut contents: Vec<Vec<u8>> = rows.iter().map(|row| bytes_of(row)).collect();
    contents.extend([bytes_of(&numbers(queries * keys, 5)), vec![0; (queries * width) as usize * 4]]);
    let dispatch = |[local_x, lanes, tile]: [u32; 3], is_causal: u32| {
        let spec = attention_query::Spec {
            local_x,
            lanes,
            tile,
            width: width / 4,
            mask_kind: attention_query::MaskKind::Added,
            is_causal,
            ..Default::default()
        };
        let params = attention_query::Params {
            queries,
            keys,
            batch_1: 1,
            group: 1,
            scale: 0.2,
            fill: 0.0,
            q_strides: [0, 0, width],
            k_strides: [0, 0, width],
            v_strides: [0, 0, width],
            mask_strides: [0, 0, keys, 1],
            y_strides: [0, 0, width],
        };
        let operands = attention_query::Operands {
            q: region(0),
            k: region(1),
            v: region(2),
            mask: region(3),
            y: region(4),
        };
        let axes = attention_query::Axes { dtype: attention_query::Dtype::F32 };
        attention_query::dispatch(
            axes,
            spec,
            operands,
            params,
            [queries.div_ceil(local_x * tile), 1, 1],
            "attention",
        )
    };
    let gpu = Gpu::open(GpuOptions::default()).expect("the tests need a Vulkan device");
    let caps = gpu.caps();
    let has_lanes =
        caps.features.subgroup_arithmetic && caps.features.subgroup_shuffle && caps.subgroup_size >= 8;
    if !caps.features.buffer_device_address || !caps.features.shader_int64 || !has_lanes {
        return;
    }
    let shapes = [[8, 8, 2], [8, 8, 1], [32, 8, 2], [64, 4, 1]];
    for is_causal in [0, 1] {
        let result = |shape| run(&gpu, Access::Bda, &dispatch(shape, is_causal), &contents).pop().unwrap();
        let results = shapes.map(result);
        assert!(floats_of(&results[0]).iter().all(|v| v.is_finite() && *v != 0.0));
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "causal {is_causal}");
    }
}
