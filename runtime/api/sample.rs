//! Inputs made up for a method, and programs of one op: what benchmarks and comparisons run when nothing is given.

use super::{
    graph::GraphBuilder,
    program::{MethodInfo, Program},
};
use crate::{
    base::{DType, Error, HostTensor, Result, Value, shape},
    ir::{Arg, IntArg, ValueId},
    plan::{self, InputMeta},
};

/// Sizes that symbols get are half of this, where their ranges allow it.
const SAMPLE_CAP: i64 = 32;

/// Numbers that are the same in every run.
pub(super) struct Numbers(pub u32);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 16
    }

    /// Floats between -1 and 1; integers and truth values 0 or 1, which any table and mask takes.
    pub(super) fn tensor(&mut self, dtype: DType, sizes: &[usize]) -> Result<HostTensor> {
        if dtype.is_float() {
            return self.scaled(dtype, sizes, 1.0);
        }
        let values: Vec<i64> = (0..shape::numel(sizes)?).map(|_| i64::from(self.next() & 1)).collect();
        HostTensor::from_i64s(dtype, sizes.to_vec(), &values)
    }

    /// All codes of int8 or uint8.
    pub(super) fn codes(&mut self, dtype: DType, sizes: &[usize]) -> Result<HostTensor> {
        let least = if dtype == DType::I8 { -128 } else { 0 };
        let values: Vec<i64> =
            (0..shape::numel(sizes)?).map(|_| i64::from(self.next() & 0xff) + least).collect();
        HostTensor::from_i64s(dtype, sizes.to_vec(), &values)
    }

    /// Floats between `-scale` and `scale`.
    fn scaled(&mut self, dtype: DType, sizes: &[usize], scale: f64) -> Result<HostTensor> {
        let values: Vec<f64> =
            (0..shape::numel(sizes)?).map(|_| (f64::from(self.next()) / 32768.0 - 1.0) * scale).collect();
        HostTensor::from_f64s(dtype, sizes.to_vec(), &values)
    }
}

impl MethodInfo<'_> {
    /// Made-up inputs: sizes in the middle of the program's ranges, the same values every time.
    ///
    /// # Errors
    /// When no sizes of the right kind can be found.
    pub fn sample_inputs(self) -> Result<Vec<Value>> {
        let method = self.ir();
        let envs = plan::sample_envs(method, SAMPLE_CAP);
        let env = envs.get(2).or(envs.last()).cloned().unwrap_or_default();
        let mut numbers = Numbers(1);
        let metas = plan::sample_inputs(method, &env)?;
        metas
            .into_iter()
            .map(|meta| {
                Ok(match meta {
                    InputMeta::Tensor(dtype, sizes) => Value::Tensor(numbers.tensor(dtype, &sizes)?),
                    InputMeta::Int(value) => Value::Int(value),
                    InputMeta::Float(bits) => Value::Float(f64::from_bits(bits)),
                    InputMeta::Bool(value) => Value::Bool(value),
                    InputMeta::None => Value::None,
                })
            })
            .collect()
    }
}

/// Sizes K and N of `count` linears that each take the result of the last: from `k` to `n`, and back.
fn widths(k: usize, n: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).map(move |index| if index % 2 == 0 { (k, n) } else { (n, k) })
}

/// What weights between -1 and 1 are scaled by so that results are as large as the `k` inputs of a sum, however many
/// linears follow each other.
fn weight_scale(k: usize) -> f64 {
    (3.0 / k.max(1) as f64).sqrt()
}

/// A program of `count` linears, the first of an `[m, k]` input with an `[n, k]` weight, the next from `n` columns back
/// to `k`, and so on. Each has a weight and a bias of its own, all of `dtype`.
///
/// # Errors
/// When a size is too large, or `dtype` is no float.
pub fn linear_program(m: usize, k: usize, n: usize, count: usize, dtype: DType) -> Result<Program> {
    if !dtype.is_float() {
        return Err(Error::invalid_input(format!("a linear program is made of floats, not of {dtype}")));
    }
    let mut numbers = Numbers(2);
    let mut graph = GraphBuilder::new("linear");
    let mut x = graph.input("x", dtype, &[m, k])?;
    for (index, (k, n)) in widths(k, n, count).enumerate() {
        let weight = numbers.scaled(dtype, &[n, k], weight_scale(k))?;
        let weight = graph.parameter(&format!("weight_{index}"), weight)?;
        let bias = graph.parameter(&format!("bias_{index}"), numbers.tensor(dtype, &[n])?)?;
        let args = [("input", x.into()), ("weight", weight.into()), ("bias", bias.into())];
        x = graph.call("aten.linear.default", args)?;
    }
    graph.output(x);
    graph.build()
}

/// A program of one convolution of an input of sizes `input` with a weight of sizes `weight`, `[out, in / groups, ...]` or,
/// `transposed`, `[in, out, ...]`, and the sizes of its result. It is padded so that an odd kernel at stride 1 keeps the
/// sizes, and so that the transpose multiplies them by the stride where the kernel's size allows it.
///
/// # Errors
/// Sizes that do not go together, or a `dtype` that is no float.
pub fn convolution_program(
    input: &[usize],
    weight: &[usize],
    stride: usize,
    transposed: bool,
    dtype: DType,
) -> Result<(Program, Vec<usize>)> {
    let (&[_, channels, ..], &[first, second, ref kernel @ ..]) = (input, weight) else {
        return Err(Error::invalid_input(format!("{input:?} and {weight:?} are no convolution")));
    };
    if !dtype.is_float() || first == 0 || second == 0 || stride == 0 {
        return Err(Error::invalid_input(format!(
            "a convolution of {dtype} of sizes {input:?} and {weight:?}"
        )));
    }
    let groups = if transposed { 1 } else { channels / second };
    let out_channels = if transposed { second } else { first };
    let overlap = if transposed { stride } else { 1 };
    let ints = |of: &dyn Fn(usize) -> usize| {
        Arg::Ints(kernel.iter().map(|&size| IntArg::Const(of(size) as i64)).collect())
    };
    let terms = if transposed { channels / stride.max(1) } else { second } * kernel.iter().product::<usize>();
    let mut numbers = Numbers(4);
    let mut graph = GraphBuilder::new("convolution");
    let x = graph.input("x", dtype, input)?;
    let weight = graph.parameter("weight", numbers.scaled(dtype, weight, weight_scale(terms))?)?;
    let bias = graph.parameter("bias", numbers.tensor(dtype, &[out_channels])?)?;
    let args = [
        ("input", x.into()),
        ("weight", weight.into()),
        ("bias", bias.into()),
        ("stride", ints(&|_| stride)),
        ("padding", ints(&|size| size.saturating_sub(overlap) / 2)),
        ("dilation", ints(&|_| 1)),
        ("transposed", transposed.into()),
        ("output_padding", ints(&|_| 0)),
        ("groups", (groups as i64).into()),
    ];
    let y = graph.call("aten.convolution.default", args)?;
    let sizes = graph.sizes(y)?;
    graph.output(y);
    Ok((graph.build()?, sizes))
}

/// As [`linear_program`], of float32 and without biases, with weights in codes of `bits`, 8 or 4: a scale for each row
/// in 8 bits; in 4 bits one for each 32 columns where those divide the columns.
///
/// # Errors
/// When a size is too large, or `bits` is neither 8 nor 4.
pub fn quantised_linear_program(m: usize, k: usize, n: usize, count: usize, bits: u8) -> Result<Program> {
    if bits != 8 && bits != 4 {
        return Err(Error::invalid_input(format!("codes have 8 or 4 bits, not {bits}")));
    }
    let mut numbers = Numbers(3);
    let mut graph = GraphBuilder::new("linear");
    let mut x = graph.input("x", DType::F32, &[m, k])?;
    for (index, (k, n)) in widths(k, n, count).enumerate() {
        let weight = quantised_weight(&mut graph, &mut numbers, &index.to_string(), [n, k], bits)?;
        x = graph.call("aten.linear.default", [("input", x.into()), ("weight", weight.into())])?;
    }
    graph.output(x);
    graph.build()
}

/// An `[n, k]` weight that the program makes of codes.
fn quantised_weight(
    graph: &mut GraphBuilder,
    numbers: &mut Numbers,
    name: &str,
    sizes: [usize; 2],
    bits: u8,
) -> Result<ValueId> {
    let [n, k] = sizes;
    let group = if bits == 4 && k.is_multiple_of(32) { 32 } else { k };
    let (low, high) = (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1);
    let codes: Vec<i64> =
        (0..shape::numel(&sizes)?).map(|_| i64::from(numbers.next()) % (1i64 << bits) + low).collect();
    let codes = HostTensor::from_i64s(DType::I8, sizes.to_vec(), &codes)?;
    let codes = graph.parameter(&format!("weight_{name}"), codes)?;
    // Codes and scales each lie on both sides of 0, so that the products have the size of both.
    let scales =
        numbers.scaled(DType::F32, &[n, k / group.max(1)], 3f64.sqrt() * weight_scale(k) / high as f64)?;
    let scales = graph.parameter(&format!("scales_{name}"), scales)?;
    let args = [
        ("input", codes.into()),
        ("block_size", [1, group as i64].into()),
        ("scale", scales.into()),
        ("zero_point", Arg::None),
        ("input_dtype", DType::I8.into()),
        ("quant_min", low.into()),
        ("quant_max", high.into()),
    ];
    graph.call("torchao.dequantize_affine.default", args)
}
