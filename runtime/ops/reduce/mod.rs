//! Reductions: one number from the elements of some dims.
//!
//! `aten.sum`, `mean`, `prod`, `amax`, `amin`, `max.default`, `min.default`, `any`, `all`, `count_nonzero`, `var`,
//! `std`, `var_mean`, `std_mean`, `logsumexp`, `linalg_vector_norm` and `norm` of order 0, 1, 2, inf and -inf.
//! Any subset of dims, any strides. Floats are reduced in float32 (a variance in two passes), integers exactly: sums and
//! products are int64 unless a `dtype` says otherwise, and one that leaves the 32 bits of the device is reported.

mod eval;
mod lower;

pub use lower::emit;

use super::{Args, Lowering, Meta, Op, Operand, Tensor, rows::RowSplit};
use crate::base::{DType, Error, HostTensor, Result, shape};

/// What becomes of the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their product.
    Prod,
    /// The largest; NaN if one is.
    Amax,
    /// The least; NaN if one is.
    Amin,
    /// Whether one is true.
    Any,
    /// Whether all are true.
    All,
    /// How many truth values are true.
    CountNonzero,
    /// The variance, the divisor being their number less `correction`.
    Var {
        /// What is taken off their number.
        correction: f64,
    },
    /// The square root of the variance.
    Std {
        /// What is taken off their number.
        correction: f64,
    },
    /// `1 / sqrt(variance + eps)`.
    Rstd {
        /// What is added to the variance.
        eps: f64,
    },
    /// `1 / sqrt(mean of squares + eps)`.
    Rrms {
        /// What is added to the mean.
        eps: f64,
    },
    /// How many are not zero, as a float.
    NonZeros,
    /// The norm of order 1.
    SumOfMagnitudes,
    /// The norm of order 2.
    Euclidean,
    /// The norm of order inf.
    LargestMagnitude,
    /// The norm of order -inf.
    LeastMagnitude,
    /// `log(sum(exp(x)))`.
    LogSumExp,
}

impl Function {
    /// What the sum over a row of `cols` elements is divided by.
    fn divisor(self, cols: usize) -> f64 {
        match self {
            Function::Var { correction } | Function::Std { correction } => {
                (cols as f64 - correction).max(0.0)
            }
            _ => cols as f64,
        }
    }

    fn eps(self) -> f64 {
        match self {
            Function::Rstd { eps } | Function::Rrms { eps } => eps,
            _ => 0.0,
        }
    }

    /// Whether it has no value for no elements.
    fn needs_elements(self) -> bool {
        matches!(
            self,
            Function::Amax | Function::Amin | Function::LargestMagnitude | Function::LeastMagnitude
        )
    }
}

/// A call, read.
struct Call {
    /// One function per output.
    functions: Vec<Function>,
    dims: Vec<usize>,
    keepdim: bool,
    /// What the operand is converted to first.
    compute: DType,
    /// Dtype of the outputs.
    result: DType,
}

/// The reductions.
pub struct Reduce;

impl Op for Reduce {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten.all.default",
            "aten.all.dim",
            "aten.all.dims",
            "aten.amax.default",
            "aten.amin.default",
            "aten.any.default",
            "aten.any.dim",
            "aten.any.dims",
            "aten.count_nonzero.default",
            "aten.count_nonzero.dim_IntList",
            "aten.linalg_vector_norm.default",
            "aten.logsumexp.default",
            "aten.max.default",
            "aten.mean.default",
            "aten.mean.dim",
            "aten.min.default",
            "aten.norm.Scalar",
            "aten.norm.ScalarOpt_dim",
            "aten.prod.default",
            "aten.prod.dim_int",
            "aten.std.correction",
            "aten.std.default",
            "aten.std.dim",
            "aten.std_mean.correction",
            "aten.std_mean.default",
            "aten.std_mean.dim",
            "aten.sum.default",
            "aten.sum.dim_IntList",
            "aten.var.correction",
            "aten.var.default",
            "aten.var.dim",
            "aten.var_mean.correction",
            "aten.var_mean.default",
            "aten.var_mean.dim",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = args.tensor("self")?;
        let call = Call::read(args, x)?;
        let split = RowSplit::new(x.sizes.len(), &call.dims);
        let sizes = split.reduced_sizes(&x.sizes, call.keepdim);
        if split.cols(&x.sizes) == 0
            && shape::numel(&sizes)? > 0
            && let Some(function) = call.functions.iter().find(|function| function.needs_elements())
        {
            let message =
                format!("sizes {:?} leave no elements, of which {function:?} has no value", x.sizes);
            return Err(Error::invalid_input(message).at_operand("self"));
        }
        Ok(call.functions.iter().map(|_| Meta::new(call.result, sizes.clone())).collect())
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("self")?;
        let call = Call::read(args, &Meta::new(x.dtype(), x.sizes()))?;
        let x = x.cast(call.compute)?;
        let split = RowSplit::new(x.sizes().len(), &call.dims);
        let (rows, cols) = (split.rows(x.sizes()), split.cols(x.sizes()));
        let reduce = |(&function, out): (&Function, &Meta)| {
            if call.compute.is_float() {
                let values = split.gather(x.sizes(), &x.to_f64s());
                HostTensor::from_f64s(
                    out.dtype,
                    out.sizes.clone(),
                    &eval::floats(&values, rows, cols, function),
                )
            } else {
                let values = split.gather(x.sizes(), &x.to_i64s());
                HostTensor::from_i64s(
                    out.dtype,
                    out.sizes.clone(),
                    &eval::ints(&values, rows, cols, function),
                )
            }
        };
        call.functions.iter().zip(outs).map(reduce).collect()
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let x = cx.live(args.tensor("self")?)?;
        let call = Call::read(args, &x.meta())?;
        lower::lower(cx, &call, &x, outs)
    }
}

impl Call {
    fn read<T>(args: &Args<T>, x: &Meta) -> Result<Call> {
        let functions = functions(args)?;
        let (compute, result) = dtypes(functions[0], x.dtype, args.opt_dtype("dtype")?)?;
        Ok(Call {
            functions,
            dims: dims(args, x.sizes.len())?,
            keepdim: args.bool_or("keepdim", false)?,
            compute,
            result,
        })
    }
}

/// The dims to reduce. Without any named these are all of them, but `any.dims` and `all.dims` of none reduce none.
fn dims<T>(args: &Args<T>, rank: usize) -> Result<Vec<usize>> {
    let reduces_none =
        args.op().as_str().ends_with(".dims") && args.opt_ints("dim")?.is_some_and(|dims| dims.is_empty());
    if reduces_none { Ok(vec![]) } else { args.dims_or_all("dim", rank) }
}

/// What a call computes, an entry per output; never empty.
fn functions<T>(args: &Args<T>) -> Result<Vec<Function>> {
    let unbiased = f64::from(u8::from(args.bool_or("unbiased", true)?));
    let correction = if args.has("correction") { args.float_or("correction", 1.0)? } else { unbiased };
    Ok(match args.op().base() {
        "sum" => vec![Function::Sum],
        "mean" => vec![Function::Mean],
        "prod" => vec![Function::Prod],
        "amax" | "max" => vec![Function::Amax],
        "amin" | "min" => vec![Function::Amin],
        "any" => vec![Function::Any],
        "all" => vec![Function::All],
        "count_nonzero" => vec![Function::CountNonzero],
        "var" => vec![Function::Var { correction }],
        "std" => vec![Function::Std { correction }],
        "var_mean" => vec![Function::Var { correction }, Function::Mean],
        "std_mean" => vec![Function::Std { correction }, Function::Mean],
        "logsumexp" => vec![Function::LogSumExp],
        "linalg_vector_norm" => vec![norm(args, "ord")?],
        "norm" => vec![norm(args, "p")?],
        other => return Err(Error::internal(format!("{other} is no reduction"))),
    })
}

fn norm<T>(args: &Args<T>, name: &str) -> Result<Function> {
    match args.float_or(name, 2.0)? {
        0.0 => Ok(Function::NonZeros),
        1.0 => Ok(Function::SumOfMagnitudes),
        2.0 => Ok(Function::Euclidean),
        f64::INFINITY => Ok(Function::LargestMagnitude),
        f64::NEG_INFINITY => Ok(Function::LeastMagnitude),
        order => {
            let message = format!("a norm of order {order} has no kernel; orders 0, 1, 2, inf and -inf have");
            Err(Error::unsupported(message).at_operand(name))
        }
    }
}

/// The dtype that `function` of a tensor of `dtype` is computed in, and that of its result.
fn dtypes(function: Function, dtype: DType, asked: Option<DType>) -> Result<(DType, DType)> {
    let refused = |message: String| Err(Error::unsupported(message).at_operand("self"));
    if dtype == DType::F64 || asked == Some(DType::F64) {
        return refused("float64 has no kernel; use float32".to_string());
    }
    let result = match function {
        Function::Any | Function::All => {
            return Ok((DType::Bool, if dtype == DType::U8 { DType::U8 } else { DType::Bool }));
        }
        Function::CountNonzero => return Ok((DType::Bool, DType::I64)),
        Function::Sum | Function::Prod => asked.unwrap_or(if dtype.is_float() { dtype } else { DType::I64 }),
        Function::Amax | Function::Amin => dtype,
        Function::LogSumExp if !dtype.is_float() => DType::F32,
        _ => asked.unwrap_or(dtype),
    };
    let takes_ints = matches!(function, Function::Sum | Function::Prod | Function::Amax | Function::Amin);
    if !takes_ints && !result.is_float() {
        return refused(format!("{function:?} in {result} does not exist; give a float dtype"));
    }
    Ok((result, result))
}
