//! `linear` of quantised activations with a quantised weight, summed in integers: `y = x W^T + bias` with
//! `x[m, k] = (a[m, k] - xz[m]) * xs[m]` and `W[n, k] = (c[n, k] - wz[n, g]) * ws[n, g]`, g being the group of k.
//!
//! No program holds these ops; the quantised rewrite makes them of a `linear` and what dequantises both its operands.
//!
//! | op | codes of the weight |
//! |---|---|
//! | `vkdelegate.linear_a8w8` | 8 bits each on the device |
//! | `vkdelegate.linear_a8w4` | 4 bits each on the device |
//!
//! | operand or attribute | |
//! |---|---|
//! | `words`, `sums` | int32, sizes `[..., ceil(K / 4)]` and `[..., groups]`: the activations as `pack_codes` gives them |
//! | `input_scale` | xs: float32 or float64, one element, or one for each row in sizes `[..., 1]` |
//! | `input_zero` | xz: integers, as many, or left out for 0 |
//! | `input_offset` | what `pack_codes` has added to a code: 128 to int8, 0 to uint8 |
//! | `k` | K |
//! | `weight` | c: a constant of int8 or uint8, sizes `[N, K]` |
//! | `side` | a constant of int32: what [`DotSide`] says |
//! | `offset`, `groups`, `has_zeros`, `has_bias` | as in `linear_q8` |
//! | `residual`, `activation` and its arguments | what follows a float result: see `epilogue` |
//! | `out_scale`, `out_zero`, `out_min`, `out_max`, `out_dtype` | where given, the result is quantised as `quantize_per_tensor` does: int8 or uint8 of sizes `[..., N]`, else float32 |
//!
//! # Numbers
//!
//! The result is `xs * (sum over g of ws * (D - wz * X - xz * C + G * xz * wz)) + bias`. D, the sum of products of
//! unsigned codes, X and C, the sums of activations and weights of a group, and G, its columns, are integers, and so
//! is the bracket for a wz without a fraction: it is exact, then rounded to float32 once. A fraction of wz is
//! multiplied with X - G * xz in float32. The bracket is computed modulo 2^32 where |bracket| < 2^31 is sure: it is at
//! most 255 * 256 * G with zero points, 255 * 128 * G without, for xz within the range of the codes. For longer groups
//! and other xz it is computed in 64 bits, with D summed in pieces that 32 bits hold.
//!
//! Dequantising first multiplies each activation with its scale, and a sum of those is what PyTorch gives. So a scale of
//! zero gives the bias; one that is NaN or infinite gives NaN, as infinities of both signs do. An infinite scale of the
//! weight is multiplied with the sum; no rewrite makes a call with one.

mod dot;
mod lower;
mod pack;
mod packed;
mod side;

pub(super) use lower::int_product;
pub use pack::PackCodes;
pub use side::{DotSide, code_sums};

use super::{
    ArgValue, Args, InPlace, Lowering, Meta, Op, Operand, Side, Tensor,
    epilogue::{self, Epilogue},
    operands::Typed,
    quantize::Quantize,
};
use crate::{
    base::{DType, Error, HostTensor, Result},
    ir::OpName,
};

/// The family.
pub struct LinearA8;

/// Attributes of one call, checked against its operands' sizes.
struct Call {
    bits: u8,
    /// Subtracted from a code of the weight so that it is signed.
    offset: u8,
    /// Added to a code of the input so that it is unsigned.
    input_offset: i64,
    n: usize,
    k: usize,
    /// Product of the leading dims.
    rows: usize,
    side: DotSide,
    /// Whether rows have scales of their own.
    per_row: bool,
}

impl Call {
    fn of<T: Typed>(args: &Args<T>) -> Result<Call> {
        let (words, weight) = (args.tensor("words")?, args.tensor("weight")?);
        let (&[n, k], DType::I8 | DType::U8) = (weight.sizes(), weight.dtype()) else {
            let text =
                format!("is {}{:?}; codes are a matrix of int8 or uint8", weight.dtype(), weight.sizes());
            return Err(Error::unsupported(text).at_operand("weight"));
        };
        let bits = if args.op().base() == "linear_a8w4" { 4 } else { 8 };
        if usize::try_from(args.int("k")?) != Ok(k) || k == 0 || k > pack::MAX_COLUMNS {
            let text =
                format!("is {}; the weight has {k} columns, at most {}", args.int("k")?, pack::MAX_COLUMNS);
            return Err(Error::unsupported(text).at_operand("k"));
        }
        let outer =
            words.sizes().split_last().filter(|(last, _)| **last == k.div_ceil(4)).map(|(_, outer)| outer);
        let (Some(outer), DType::I32) = (outer, words.dtype()) else {
            let text =
                format!("is {}{:?}; {k} codes take {} words", words.dtype(), words.sizes(), k.div_ceil(4));
            return Err(Error::invalid_graph(text).at_operand("words"));
        };
        let in_range = |name: &str| {
            let value = args.int_or(name, 0)?;
            u8::try_from(value).map_err(|_| Error::invalid_graph(format!("is {value}")).at_operand(name))
        };
        let side = DotSide(Side {
            groups: pack::group_count(args, k, 32 / usize::from(bits))?,
            has_zeros: args.bool_or("has_zeros", false)?,
            has_bias: args.bool_or("has_bias", false)?,
        });
        let per_row = args.tensor("input_scale")?.sizes().iter().product::<usize>() != 1;
        let call = Call {
            bits,
            offset: in_range("offset")?,
            input_offset: i64::from(in_range("input_offset")?),
            n,
            k,
            rows: outer.iter().product(),
            side,
            per_row: per_row
                || args
                    .opt_tensor("input_zero")?
                    .is_some_and(|zero| zero.sizes().iter().product::<usize>() != 1),
        };
        call.check(args, outer)?;
        Ok(call)
    }

    fn check<T: Typed>(&self, args: &Args<T>, outer: &[usize]) -> Result<()> {
        let wrong = |name: &str, tensor: &T, want: &str| {
            let text = format!("is {}{:?}; takes {want}", tensor.dtype(), tensor.sizes());
            Err(Error::invalid_graph(text).at_operand(name))
        };
        let (sums, side) = (args.tensor("sums")?, args.tensor("side")?);
        let groups = self.side.0.groups;
        if sums.dtype() != DType::I32 || sums.sizes() != [outer, &[groups]].concat() {
            return wrong("sums", sums, &format!("int32{:?}", [outer, &[groups]].concat()));
        }
        if side.dtype() != DType::I32 || side.sizes() != self.side.sizes(self.n) {
            return wrong("side", side, &format!("int32{:?}", self.side.sizes(self.n)));
        }
        let fits = |tensor: &T| {
            tensor.sizes().iter().product::<usize>() == 1 || tensor.sizes() == [outer, &[1]].concat()
        };
        let scale = args.tensor("input_scale")?;
        if !fits(scale) || !matches!(scale.dtype(), DType::F32 | DType::F64) {
            return wrong("input_scale", scale, &format!("one float, or one a row of {outer:?}"));
        }
        match args.opt_tensor("input_zero")? {
            Some(zero) if !fits(zero) || zero.dtype().is_float() || zero.dtype() == DType::Bool => {
                wrong("input_zero", zero, &format!("one integer, or one a row of {outer:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Columns of a group.
    fn group(&self) -> usize {
        self.k / self.side.0.groups
    }
}

/// The call of `quantize_per_tensor` that an output quantise is; `None` when the result is float.
fn quantise_call<T: Clone>(args: &Args<T>, y: T) -> Result<Option<Args<T>>> {
    let (Some(scale), Some(dtype)) = (args.opt_tensor("out_scale")?, args.opt_dtype("out_dtype")?) else {
        return Ok(None);
    };
    let mut items = vec![
        ("input".to_string(), ArgValue::Tensor(y)),
        ("scale".to_string(), ArgValue::Tensor(scale.clone())),
    ];
    if let Some(zero) = args.opt_tensor("out_zero")? {
        items.push(("zero_point".to_string(), ArgValue::Tensor(zero.clone())));
    }
    for (name, own) in [("quant_min", "out_min"), ("quant_max", "out_max")] {
        items.push((name.to_string(), ArgValue::Scalar(args.scalar(own)?)));
    }
    items.push(("dtype".to_string(), ArgValue::DType(dtype)));
    Ok(Some(Args::new(OpName::new("quantized_decomposed.quantize_per_tensor.tensor"), items)))
}

impl Op for LinearA8 {
    fn targets(&self) -> &'static [&'static str] {
        &["vkdelegate.linear_a8w4.default", "vkdelegate.linear_a8w8.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        let mut sizes = args.tensor("words")?.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = call.n;
        }
        let y = Meta::new(DType::F32, sizes);
        epilogue::check(args, &y)?;
        match quantise_call(args, y.clone())? {
            None => Ok(vec![y]),
            Some(_) if args.has("activation") || args.has("residual") => {
                Err(Error::unsupported("a result that is quantised has no epilogue"))
            }
            Some(quantise) => Quantize.infer(&quantise),
        }
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let sums = product(&call, args)?;
        let y = HostTensor::from_f32(&outs[0].sizes, &sums)?;
        match quantise_call(args, y)? {
            None => {
                let mut values: Vec<f64> = sums.into_iter().map(f64::from).collect();
                epilogue::finish(args, &mut values)?;
                Ok(vec![HostTensor::from_f64s(DType::F32, outs[0].sizes.clone(), &values)?])
            }
            Some(quantise) => Quantize.eval(&quantise, outs),
        }
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let epilogue = Epilogue::of(args, cx)?;
        lower::linear(&Call::of(args)?, args, &outs[0], epilogue, cx)
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Update("residual")
    }
}

/// What sums are multiplied with for activations of scale `scale`.
fn multiplied(scale: f64) -> f32 {
    let scale = scale as f32;
    if scale.is_infinite() { f32::NAN } else { scale }
}

/// The product on the host, in the kernels' order of operations.
fn product(call: &Call, args: &Args<HostTensor>) -> Result<Vec<f32>> {
    let &Call { n, k, rows, .. } = call;
    let (groups, group) = (call.side.0.groups, call.group());
    let bytes = args.tensor("words")?.to_i64s();
    let x_sums = args.tensor("sums")?.to_i64s();
    let scales = args.tensor("input_scale")?.to_f64s();
    let input_zeros = match args.opt_tensor("input_zero")? {
        Some(zeros) => zeros.to_i64s(),
        None => vec![0],
    };
    let codes: Vec<i64> =
        args.tensor("weight")?.to_i64s().into_iter().map(|code| code - i64::from(call.offset)).collect();
    let (side, sums) = call.side.read(&args.tensor("side")?.to_i64s(), n)?;
    let mut y = Vec::with_capacity(rows * n);
    for row in 0..rows {
        let words = &bytes[row * k.div_ceil(4)..][..k.div_ceil(4)];
        let x: Vec<i64> = (0..k).map(|column| words[column / 4] >> (column % 4 * 8) & 0xff).collect();
        let of_row = |values: &[i64]| values[if values.len() == 1 { 0 } else { row }];
        let x_zero = of_row(&input_zeros) + call.input_offset;
        let x_scale = multiplied(scales[if scales.len() == 1 { 0 } else { row }]);
        for column in 0..n {
            let mut total = 0.0f32;
            for index in 0..groups {
                let terms =
                    x[index * group..][..group].iter().zip(&codes[column * k + index * group..][..group]);
                let dot: i64 = terms.map(|(a, c)| a * c).sum();
                let at = column * groups + index;
                let zero = side.zeros[at].round_ties_even();
                let x_sum = x_sums[row * groups + index] - group as i64 * x_zero;
                let exact = dot - x_zero * i64::from(sums[at]) - zero as i64 * x_sum;
                total += (exact as f32 - (side.zeros[at] - zero) * x_sum as f32) * side.scales[at];
            }
            y.push(total * x_scale + side.bias[column]);
        }
    }
    Ok(y)
}
