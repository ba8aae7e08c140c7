//! Inputs made up for a method, and programs of one op: what benchmarks and comparisons run when nothing is given.

use super::{
    graph::GraphBuilder,
    program::{MethodInfo, Program},
};
use crate::{
    base::{DType, Error, HostTensor, Result, Value, shape},
    ir::Arg,
    plan::{self, InputMeta},
};

/// Sizes that symbols get are half of this, where their ranges allow it.
const SAMPLE_CAP: i64 = 32;

/// Numbers that are the same in every run.
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 16
    }

    /// Floats between -1 and 1; integers and truth values 0 or 1, which any table and mask takes.
    fn tensor(&mut self, dtype: DType, sizes: &[usize]) -> Result<HostTensor> {
        let count = shape::numel(sizes)?;
        if dtype.is_float() {
            let values: Vec<f64> = (0..count).map(|_| f64::from(self.next()) / 32768.0 - 1.0).collect();
            HostTensor::from_f64s(dtype, sizes.to_vec(), &values)
        } else {
            let values: Vec<i64> = (0..count).map(|_| i64::from(self.next() & 1)).collect();
            HostTensor::from_i64s(dtype, sizes.to_vec(), &values)
        }
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

/// A program of one `linear` of an `[m, k]` input with an `[n, k]` weight and a bias, all of `dtype`.
///
/// # Errors
/// When a size is too large, or `dtype` is no float.
pub fn linear_program(m: usize, k: usize, n: usize, dtype: DType) -> Result<Program> {
    if !dtype.is_float() {
        return Err(Error::invalid_input(format!("a linear program is made of floats, not of {dtype}")));
    }
    let mut numbers = Numbers(2);
    let mut graph = GraphBuilder::new("linear");
    let x = graph.input("x", dtype, &[m, k])?;
    let weight = graph.parameter("weight", numbers.tensor(dtype, &[n, k])?)?;
    let bias = graph.parameter("bias", numbers.tensor(dtype, &[n])?)?;
    let args = [("input", x.into()), ("weight", weight.into()), ("bias", bias.into())];
    let y = graph.call("aten.linear.default", args)?;
    graph.output(y);
    graph.build()
}

/// A program of one `linear` of an `[m, k]` input of float32 with an `[n, k]` weight in codes of `bits`, 8 or 4: a scale
/// for each row in 8 bits; in 4 bits one for each 32 columns where those divide K.
///
/// # Errors
/// When a size is too large, or `bits` is neither 8 nor 4.
pub fn quantised_linear_program(m: usize, k: usize, n: usize, bits: u8) -> Result<Program> {
    if bits != 8 && bits != 4 {
        return Err(Error::invalid_input(format!("codes have 8 or 4 bits, not {bits}")));
    }
    let group = if bits == 4 && k.is_multiple_of(32) { 32 } else { k };
    let (low, high) = (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1);
    let mut numbers = Numbers(3);
    let span = 1i64 << bits;
    let codes: Vec<i64> =
        (0..shape::numel(&[n, k])?).map(|_| i64::from(numbers.next()) % span + low).collect();
    let codes = HostTensor::from_i64s(DType::I8, vec![n, k], &codes)?;
    let mut graph = GraphBuilder::new("linear");
    let x = graph.input("x", DType::F32, &[m, k])?;
    let codes = graph.parameter("weight", codes)?;
    let scales = graph.parameter("scales", numbers.tensor(DType::F32, &[n, k / group.max(1)])?)?;
    let args = [
        ("input", codes.into()),
        ("block_size", [1, group as i64].into()),
        ("scale", scales.into()),
        ("zero_point", Arg::None),
        ("input_dtype", DType::I8.into()),
        ("quant_min", low.into()),
        ("quant_max", high.into()),
    ];
    let weight = graph.call("torchao.dequantize_affine.default", args)?;
    let y = graph.call("aten.linear.default", [("input", x.into()), ("weight", weight.into())])?;
    graph.output(y);
    graph.build()
}
