//! From a call to the function that it means, with its numbers.

use crate::{
    base::{DType, Error, Result, Scalar},
    ops::{
        Args,
        operands::{self, Typed},
    },
    shader::kernels::{predicate, unary, unary_int},
};

/// What one call does with each element.
pub(super) enum Call {
    /// Nothing.
    Identity,
    /// A question, answered by a truth value.
    Test(predicate::Op),
    /// An integer to an integer of the same dtype.
    Ints(IntFunction),
    /// A float to a float; integers are converted first.
    Floats(FloatFunction),
}

/// A function of floats, and its numbers as `unary.comp` takes them.
pub(super) struct FloatFunction {
    pub op: unary::Op,
    pub a: f64,
    pub b: f64,
    pub c: f64,
}

/// A function of integers, and the bounds of a clamp.
pub(super) struct IntFunction {
    pub op: unary_int::Op,
    pub low: i64,
    pub high: i64,
}

/// The tensor that a call takes.
pub(super) fn tensor<T: Typed>(args: &Args<T>) -> Result<&T> {
    operands::tensor(args, if args.has("input") { "input" } else { "self" })
}

impl Call {
    /// What `args` asks for.
    ///
    /// # Errors
    /// A dtype that the function does not take, dropout in training, a mode that is not known.
    pub fn of<T: Typed>(args: &Args<T>) -> Result<Call> {
        let dtype = tensor(args)?.dtype();
        let base = args.op().base();
        if is_identity(args, dtype)? {
            return Ok(Call::Identity);
        }
        if let Some(op) = test(base, dtype) {
            return Ok(Call::Test(op));
        }
        if dtype.is_int()
            && let Some(function) = int_function(args)?
        {
            return Ok(Call::Ints(function));
        }
        let takes_ints = PROMOTING.contains(&base);
        match float_function(args, dtype)? {
            Some(function) if dtype.is_float() || takes_ints => Ok(Call::Floats(function)),
            _ => Err(Error::unsupported(format!("{base} does not take {dtype}")).at_operand("self")),
        }
    }
}

/// Functions that give float32 for integers.
const PROMOTING: &[&str] = &[
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "clamp",
    "clamp_max",
    "clamp_min",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
];

fn is_identity<T>(args: &Args<T>, dtype: DType) -> Result<bool> {
    match args.op().base() {
        "dropout" | "alpha_dropout" | "feature_dropout" | "feature_alpha_dropout" => {
            if args.bool_or("train", false)? && args.float_or("p", 0.5)? != 0.0 {
                return Err(Error::unsupported(
                    "dropout in training is random; export the model in eval mode",
                )
                .at_operand("train"));
            }
            Ok(true)
        }
        "floor" | "ceil" | "trunc" | "nan_to_num" => Ok(dtype.is_int()),
        "round" => Ok(dtype.is_int() && args.int_or("decimals", 0)? >= 0),
        _ => Ok(false),
    }
}

fn test(base: &str, dtype: DType) -> Option<predicate::Op> {
    match base {
        "isnan" => Some(predicate::Op::IsNan),
        "isinf" => Some(predicate::Op::IsInf),
        "isfinite" => Some(predicate::Op::IsFinite),
        "logical_not" => Some(predicate::Op::IsZero),
        "bitwise_not" if dtype == DType::Bool => Some(predicate::Op::IsZero),
        _ => None,
    }
}

/// The function of integers; `None` when there is none.
fn int_function<T>(args: &Args<T>) -> Result<Option<IntFunction>> {
    use unary_int::Op;
    let plain = |op| Ok(Some(IntFunction { op, low: 0, high: 0 }));
    let clamp = |low, high| Ok(Some(IntFunction { op: Op::Clamp, low, high }));
    match args.op().base() {
        "neg" => plain(Op::Neg),
        "abs" => plain(Op::Abs),
        "sign" => plain(Op::Sign),
        "bitwise_not" => plain(Op::BitwiseNot),
        "square" => plain(Op::Square),
        "relu" => clamp(0, i64::MAX),
        "relu6" => clamp(0, 6),
        "clamp" | "clamp_min" | "clamp_max" => {
            let (low, high) = bounds(args)?;
            if [low, high].into_iter().flatten().any(Scalar::is_float) {
                return Ok(None);
            }
            clamp(low.map_or(i64::MIN, Scalar::as_i64), high.map_or(i64::MAX, Scalar::as_i64))
        }
        _ => Ok(None),
    }
}

fn bounds<T>(args: &Args<T>) -> Result<(Option<Scalar>, Option<Scalar>)> {
    let bound = |name| if args.has(name) { args.scalar(name).map(Some) } else { Ok(None) };
    match (bound("min")?, bound("max")?) {
        (None, None) => Err(Error::invalid_graph("a clamp needs a bound").at_operand("min")),
        bounds => Ok(bounds),
    }
}

/// The function of floats; `None` when there is none.
pub(super) fn float_function<T>(args: &Args<T>, dtype: DType) -> Result<Option<FloatFunction>> {
    use unary::Op;
    // Kernels take float32 numbers, and PyTorch computes with those too.
    let round = |v: f64| f64::from(v as f32);
    let with = |op, a, b, c| Ok(Some(FloatFunction { op, a: round(a), b: round(b), c: round(c) }));
    let number = |name, default| args.float_or(name, default);
    match args.op().base() {
        "clamp" | "clamp_min" | "clamp_max" => {
            let (low, high) = bounds(args)?;
            let low = low.map_or(f64::NEG_INFINITY, Scalar::as_f64);
            with(Op::Clamp, low, high.map_or(f64::INFINITY, Scalar::as_f64), 0.0)
        }
        "hardtanh" => with(Op::Clamp, number("min_val", -1.0)?, number("max_val", 1.0)?, 0.0),
        "leaky_relu" => with(Op::LeakyRelu, number("negative_slope", 0.01)?, 0.0, 0.0),
        "elu" => with(Op::Elu, number("alpha", 1.0)?, number("scale", 1.0)?, number("input_scale", 1.0)?),
        "selu" => with(Op::Elu, 1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0),
        "celu" => {
            let alpha = number("alpha", 1.0)?;
            with(Op::Elu, alpha, 1.0, 1.0 / alpha)
        }
        "softplus" => with(Op::Softplus, number("beta", 1.0)?, number("threshold", 20.0)?, 0.0),
        "hardshrink" => with(Op::Hardshrink, number("lambd", 0.5)?, 0.0, 0.0),
        "softshrink" => with(Op::Softshrink, number("lambd", 0.5)?, 0.0, 0.0),
        "threshold" => with(Op::Threshold, number("threshold", 0.0)?, number("value", 0.0)?, 0.0),
        "nan_to_num" => {
            let largest = largest(dtype);
            with(Op::NanToNum, number("nan", 0.0)?, number("posinf", largest)?, number("neginf", -largest)?)
        }
        "round" if args.has("decimals") => {
            let decimals = args.int_or("decimals", 0)?.clamp(-40, 40) as i32;
            with(Op::RoundTo, 10f64.powi(decimals), 0.0, 0.0)
        }
        "gelu" => match args.opt_str("approximate")? {
            None | Some("none") => with(Op::GeluErf, 0.0, 0.0, 0.0),
            Some("tanh") => with(Op::GeluTanh, 0.0, 0.0, 0.0),
            Some(other) => Err(Error::unsupported(format!("gelu by {other:?}")).at_operand("approximate")),
        },
        base => plain(base).map_or(Ok(None), |op| with(op, 0.0, 0.0, 0.0)),
    }
}

/// The largest number of a float dtype, which `nan_to_num` makes of infinity.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        _ => f64::from(f32::MAX),
    }
}

fn plain(base: &str) -> Option<unary::Op> {
    use unary::Op;
    Some(match base {
        "abs" => Op::Abs,
        "acos" => Op::Acos,
        "acosh" => Op::Acosh,
        "asin" => Op::Asin,
        "asinh" => Op::Asinh,
        "atan" => Op::Atan,
        "atanh" => Op::Atanh,
        "ceil" => Op::Ceil,
        "cos" => Op::Cos,
        "cosh" => Op::Cosh,
        "erf" => Op::Erf,
        "exp" => Op::Exp,
        "exp2" => Op::Exp2,
        "expm1" => Op::Expm1,
        "floor" => Op::Floor,
        "frac" => Op::Frac,
        "hardsigmoid" => Op::Hardsigmoid,
        "hardswish" => Op::Hardswish,
        "log" => Op::Log,
        "log10" => Op::Log10,
        "log1p" => Op::Log1p,
        "log2" => Op::Log2,
        "log_sigmoid" => Op::LogSigmoid,
        "mish" => Op::Mish,
        "neg" => Op::Neg,
        "reciprocal" => Op::Reciprocal,
        "relu" => Op::Relu,
        "relu6" => Op::Relu6,
        "round" => Op::Round,
        "rsqrt" => Op::Rsqrt,
        "sigmoid" => Op::Sigmoid,
        "sign" => Op::Sign,
        "silu" => Op::Silu,
        "sin" => Op::Sin,
        "sinh" => Op::Sinh,
        "sqrt" => Op::Sqrt,
        "square" => Op::Square,
        "tan" => Op::Tan,
        "tanh" => Op::Tanh,
        "trunc" => Op::Trunc,
        _ => return None,
    })
}

pub(super) const TARGETS: &[&str] = &[
    "aten.abs.default",
    "aten.acos.default",
    "aten.acosh.default",
    "aten.alpha_dropout.default",
    "aten.asin.default",
    "aten.asinh.default",
    "aten.atan.default",
    "aten.atanh.default",
    "aten.bitwise_not.default",
    "aten.ceil.default",
    "aten.celu.default",
    "aten.clamp.default",
    "aten.clamp_max.default",
    "aten.clamp_min.default",
    "aten.cos.default",
    "aten.cosh.default",
    "aten.dropout.default",
    "aten.elu.default",
    "aten.erf.default",
    "aten.exp.default",
    "aten.exp2.default",
    "aten.expm1.default",
    "aten.feature_alpha_dropout.default",
    "aten.feature_dropout.default",
    "aten.floor.default",
    "aten.frac.default",
    "aten.gelu.default",
    "aten.hardshrink.default",
    "aten.hardsigmoid.default",
    "aten.hardswish.default",
    "aten.hardtanh.default",
    "aten.isfinite.default",
    "aten.isinf.default",
    "aten.isnan.default",
    "aten.leaky_relu.default",
    "aten.log.default",
    "aten.log10.default",
    "aten.log1p.default",
    "aten.log2.default",
    "aten.log_sigmoid.default",
    "aten.logical_not.default",
    "aten.mish.default",
    "aten.nan_to_num.default",
    "aten.neg.default",
    "aten.reciprocal.default",
    "aten.relu.default",
    "aten.relu6.default",
    "aten.round.decimals",
    "aten.round.default",
    "aten.rsqrt.default",
    "aten.selu.default",
    "aten.sigmoid.default",
    "aten.sign.default",
    "aten.silu.default",
    "aten.sin.default",
    "aten.sinh.default",
    "aten.softplus.default",
    "aten.softshrink.default",
    "aten.sqrt.default",
    "aten.square.default",
    "aten.tan.default",
    "aten.tanh.default",
    "aten.threshold.default",
    "aten.trunc.default",
];
