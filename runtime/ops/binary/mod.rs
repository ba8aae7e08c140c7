//! Arithmetic of two operands, element by element with broadcasting: `add`, `sub`, `rsub` (with alpha), `mul`, `div`
//! (true, floor, trunc), `floor_divide`, `maximum`, `minimum`, `fmax`, `fmin`, `fmod`, `remainder`, `pow`, `atan2`,
//! `hypot`, `copysign`, and the bitwise functions and shifts of integers.
//!
//! All dtypes but float64, any rank; either operand may be a number. Floats are computed in float32. Integers wrap
//! as in PyTorch, except int64, which is 32 bits wide on a device: a result beyond that stops the run with an error,
//! and so does a division of integers by zero.

mod bounds;
mod eval;
mod gates;

use super::{
    Args, InPlace, Lowering, Meta, Op, Operand, Tensor, elementwise,
    operands::{self, Input, Sides, Typed},
};
use crate::{
    base::{DType, Error, HostTensor, Result, Scalar},
    shader::kernels::{binary, binary_int},
};

pub use bounds::TensorClamp;
pub(super) use bounds::one_bound;
pub use gates::Gates;

/// The family of two-operand arithmetic.
pub struct Binary;

/// What is computed of the two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    /// `a + alpha b`
    Add,
    Mul,
    Div,
    DivTrunc,
    DivFloor,
    Maximum,
    Minimum,
    Fmax,
    Fmin,
    Fmod,
    Remainder,
    Pow,
    /// `a^b` for a number b of 0.5 or -0.5, which PyTorch computes as a square root: NaN of -inf.
    Root,
    Atan2,
    Hypot,
    Copysign,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    ShiftLeft,
    ShiftRight,
    /// `a sigmoid(b)`
    Glu,
    /// `a > 0 ? a : a b`
    Prelu,
}

/// One call: its function, operands and alpha.
struct Call<'a, T> {
    function: Function,
    left: Input<'a, T>,
    right: Input<'a, T>,
    alpha: Scalar,
}

impl<'a, T: Typed> Call<'a, T> {
    fn of(args: &'a Args<T>) -> Result<Call<'a, T>> {
        let base = args.op().base();
        let right_name = if base == "pow" { "exponent" } else { "other" };
        let (left, right) = (Input::of(args, "self")?, Input::of(args, right_name)?);
        let alpha = args.scalar_or("alpha", Scalar::Int(1))?;
        let function = function(base, args.opt_str("rounding_mode")?)
            .ok_or_else(|| Error::unsupported(format!("{} in this rounding mode", args.op())))?;
        Ok(match base {
            "sub" => Call { function, left, right, alpha: negated(alpha)? },
            "rsub" => Call { function, left: right, right: left, alpha: negated(alpha)? },
            "pow" if right.number().is_some_and(|exponent| exponent.as_f64().abs() == 0.5) => {
                Call { function: Function::Root, left, right, alpha }
            }
            _ => Call { function, left, right, alpha },
        })
    }

    /// The dtype of the result, in which the function is computed.
    fn dtype(&self) -> DType {
        let dtype = operands::result_type(&[self.left, self.right]);
        let float_only =
            matches!(self.function, Function::Div | Function::Atan2 | Function::Hypot | Function::Copysign);
        if float_only && !dtype.is_float() { DType::F32 } else { dtype }
    }
}

fn function(base: &str, rounding_mode: Option<&str>) -> Option<Function> {
    Some(match (base, rounding_mode) {
        ("add" | "sub" | "rsub", _) => Function::Add,
        ("mul", _) => Function::Mul,
        ("div", None) => Function::Div,
        ("div", Some("floor")) | ("floor_divide", _) => Function::DivFloor,
        ("div", Some("trunc")) => Function::DivTrunc,
        ("maximum" | "max", _) => Function::Maximum,
        ("minimum" | "min", _) => Function::Minimum,
        ("fmax", _) => Function::Fmax,
        ("fmin", _) => Function::Fmin,
        ("fmod", _) => Function::Fmod,
        ("remainder", _) => Function::Remainder,
        ("pow", _) => Function::Pow,
        ("atan2", _) => Function::Atan2,
        ("hypot", _) => Function::Hypot,
        ("copysign", _) => Function::Copysign,
        ("bitwise_and" | "__and__", _) => Function::BitwiseAnd,
        ("bitwise_or" | "__or__", _) => Function::BitwiseOr,
        ("bitwise_xor" | "__xor__", _) => Function::BitwiseXor,
        ("bitwise_left_shift" | "__lshift__", _) => Function::ShiftLeft,
        ("bitwise_right_shift" | "__rshift__", _) => Function::ShiftRight,
        _ => return None,
    })
}

fn negated(alpha: Scalar) -> Result<Scalar> {
    match alpha {
        Scalar::Float(alpha) => Ok(Scalar::Float(-alpha)),
        alpha => alpha
            .as_i64()
            .checked_neg()
            .map(Scalar::Int)
            .ok_or_else(|| Error::unsupported("does not fit 32 bits").at_operand("alpha")),
    }
}

impl Op for Binary {
    fn targets(&self) -> &'static [&'static str] {
        TARGETS
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        let dtype = call.dtype();
        check_dtypes(args.op().base(), &call, dtype)?;
        for (name, number) in [("self", call.left), ("other", call.right)] {
            if let Some(number) = number.number() {
                operands::check_number(number, dtype).map_err(|error| error.at_operand(name))?;
            }
        }
        let sizes =
            operands::broadcast_sizes(&[call.left, call.right]).map_err(|error| error.at_operand("other"))?;
        Ok(vec![Meta::new(dtype, sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let Call { function, left, right, alpha } = Call::of(args)?;
        let Meta { dtype, sizes } = &outs[0];
        let result = if dtype.is_float() {
            apply_floats(function, (left, right), alpha, *dtype, sizes)?
        } else {
            apply_ints(function, (left, right), alpha, *dtype, sizes)?
        };
        Ok(vec![result])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let Call { function, left, right, alpha } = Call::of(args)?;
        let sides = Sides::new(cx, left, right, outs[0].dtype)?;
        let out = cx.output(&outs[0])?;
        lower_any(cx, function, &sides, alpha, &out)?;
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Elementwise
    }
}

/// A call whose result is float, as the kernel for floats takes it.
pub(super) struct FloatCall<'a, T> {
    pub op: binary::Op,
    pub left: Input<'a, T>,
    pub right: Input<'a, T>,
    pub alpha: f32,
    /// The dtype of the result.
    pub dtype: DType,
}

/// What a call whose result is float asks of the kernel; `None` for any other call.
///
/// # Errors
/// An operand that is neither a tensor nor a number, a rounding mode that is not known.
pub(super) fn float_call<T: Typed>(args: &Args<T>) -> Result<Option<FloatCall<'_, T>>> {
    let call = Call::of(args)?;
    let dtype = call.dtype();
    if !dtype.is_float() {
        return Ok(None);
    }
    let Call { function, left, right, alpha } = call;
    let alpha = alpha.as_f64() as f32;
    Ok(float_op(function).map(|op| FloatCall { op, left, right, alpha, dtype }))
}

/// A bitwise call of truth values.
pub(super) struct LogicalCall<'a, T> {
    /// The name of the logical function that it is.
    pub name: &'static str,
    pub left: Input<'a, T>,
    pub right: Input<'a, T>,
}

/// What a bitwise call of truth values is; `None` for any other call.
///
/// # Errors
/// As [`float_call`].
pub(super) fn logical_call<T: Typed>(args: &Args<T>) -> Result<Option<LogicalCall<'_, T>>> {
    let call = Call::of(args)?;
    let name = match call.function {
        Function::BitwiseAnd => "logical_and",
        Function::BitwiseOr => "logical_or",
        Function::BitwiseXor => "logical_xor",
        _ => return Ok(None),
    };
    let is_bool = call.dtype() == DType::Bool;
    Ok(is_bool.then_some(LogicalCall { name, left: call.left, right: call.right }))
}

/// A function of two floats, on the host.
pub(super) fn eval_float(op: binary::Op, a: f64, b: f64, alpha: f64) -> f64 {
    let function = FLOAT_FUNCTIONS.iter().find(|(_, known)| *known == op);
    function.map_or(f64::NAN, |(function, _)| eval::of_floats(*function, a, b, alpha))
}

/// What the kernel for floats calls its functions.
const FLOAT_FUNCTIONS: &[(Function, binary::Op)] = &[
    (Function::Add, binary::Op::Add),
    (Function::Mul, binary::Op::Mul),
    (Function::Div, binary::Op::Div),
    (Function::DivTrunc, binary::Op::DivTrunc),
    (Function::DivFloor, binary::Op::DivFloor),
    (Function::Maximum, binary::Op::Maximum),
    (Function::Minimum, binary::Op::Minimum),
    (Function::Fmax, binary::Op::Fmax),
    (Function::Fmin, binary::Op::Fmin),
    (Function::Fmod, binary::Op::Fmod),
    (Function::Remainder, binary::Op::Remainder),
    (Function::Pow, binary::Op::Pow),
    (Function::Root, binary::Op::Root),
    (Function::Atan2, binary::Op::Atan2),
    (Function::Hypot, binary::Op::Hypot),
    (Function::Copysign, binary::Op::Copysign),
    (Function::Glu, binary::Op::Glu),
    (Function::Prelu, binary::Op::Prelu),
];

fn float_op(function: Function) -> Option<binary::Op> {
    FLOAT_FUNCTIONS.iter().find(|(known, _)| *known == function).map(|(_, op)| *op)
}

/// Refuses the dtypes that PyTorch refuses.
fn check_dtypes(base: &str, call: &Call<'_, Meta>, dtype: DType) -> Result<()> {
    let is_bool = |input: Input<'_, Meta>| match input {
        Input::Tensor(tensor) => tensor.dtype == DType::Bool,
        Input::Number(number) => matches!(number, Scalar::Bool(_)),
    };
    let refused = |why: &str| Err(Error::unsupported(format!("{base} of {dtype}: {why}")).at_operand("self"));
    if call.left.number().is_some() && call.right.number().is_some() {
        return refused("one operand at least must be a tensor");
    }
    match call.function {
        Function::Add if base != "add" && (is_bool(call.left) || is_bool(call.right)) => {
            refused("truth values cannot be subtracted; use logical_xor or logical_not")
        }
        Function::Add if !dtype.is_float() && call.alpha.is_float() => {
            refused("a float alpha needs float tensors")
        }
        Function::Add if !dtype.is_float() => {
            operands::check_number(call.alpha, DType::I64).map_err(|error| error.at_operand("alpha"))
        }
        Function::DivTrunc | Function::DivFloor | Function::Fmod | Function::Remainder | Function::Pow
            if dtype == DType::Bool =>
        {
            refused("truth values have no division and no power")
        }
        Function::Pow if !dtype.is_float() && call.right.number().is_some_and(|n| n.as_i64() < 0) => {
            refused("integers have no negative powers")
        }
        Function::BitwiseAnd | Function::BitwiseOr | Function::BitwiseXor if dtype.is_float() => {
            refused("needs integers or truth values")
        }
        Function::ShiftLeft | Function::ShiftRight if !dtype.is_int() => refused("needs integers"),
        _ => Ok(()),
    }
}

/// Two operands on the host.
type HostSides<'a> = (Input<'a, HostTensor>, Input<'a, HostTensor>);

fn apply_floats(
    function: Function,
    (left, right): HostSides<'_>,
    alpha: Scalar,
    dtype: DType,
    sizes: &[usize],
) -> Result<HostTensor> {
    let pairs = left.f64s(dtype, sizes)?.into_iter().zip(right.f64s(dtype, sizes)?);
    let values: Vec<f64> = pairs.map(|(a, b)| eval::of_floats(function, a, b, alpha.as_f64())).collect();
    HostTensor::from_f64s(dtype, sizes.to_vec(), &values)
}

fn apply_ints(
    function: Function,
    (left, right): HostSides<'_>,
    alpha: Scalar,
    dtype: DType,
    sizes: &[usize],
) -> Result<HostTensor> {
    let pairs = left.i64s(dtype, sizes)?.into_iter().zip(right.i64s(dtype, sizes)?);
    let values: Vec<i64> =
        pairs.map(|(a, b)| eval::of_ints(function, a, b, alpha.as_i64())).collect::<Result<_>>()?;
    HostTensor::from_i64s(dtype, sizes.to_vec(), &values)
}

fn lower_any(
    cx: &mut Lowering<'_>,
    function: Function,
    sides: &Sides,
    alpha: Scalar,
    out: &Tensor,
) -> Result<()> {
    if out.dtype.is_float() {
        lower_floats(cx, function, sides, alpha, out)
    } else {
        lower_ints(cx, function, sides, alpha, out)
    }
}

fn lower_floats(
    cx: &mut Lowering<'_>,
    function: Function,
    sides: &Sides,
    alpha: Scalar,
    out: &Tensor,
) -> Result<()> {
    use binary::{Axes, Operands, Params, Spec};
    let op =
        float_op(function).ok_or_else(|| Error::internal("a bitwise function of floats was not refused"))?;
    let axes = Axes { dtype: float_axis!(binary, out.element)? };
    let round_mode = cx.round_mode(out.dtype, out.element);
    let spec = Spec { round_mode, op, number_side: sides.number_side, ..Spec::default() };
    let label = cx.label();
    elementwise::launch_quads(cx, out, [&sides.left, &sides.right], |grid, binding| {
        let operands = Operands { a: binding.inputs[0], b: binding.inputs[1], y: binding.out };
        let params = Params {
            n_elems: grid.n_elems,
            quads: grid.quads,
            sizes: grid.sizes,
            number: sides.number.as_f64() as f32,
            alpha: alpha.as_f64() as f32,
            a_strides: grid.strides[0],
            b_strides: grid.strides[1],
        };
        binary::dispatch(axes, spec, operands, params, binding.groups, label.clone())
    })
}

fn lower_ints(
    cx: &mut Lowering<'_>,
    function: Function,
    sides: &Sides,
    alpha: Scalar,
    out: &Tensor,
) -> Result<()> {
    use binary_int::{Axes, Op, Operands, Params, Spec};
    let op = match function {
        Function::Add => Op::Add,
        Function::Mul => Op::Mul,
        Function::DivTrunc => Op::DivTrunc,
        Function::DivFloor => Op::DivFloor,
        Function::Maximum | Function::Fmax => Op::Maximum,
        Function::Minimum | Function::Fmin => Op::Minimum,
        Function::Fmod => Op::Fmod,
        Function::Remainder => Op::Remainder,
        Function::Pow => Op::Pow,
        Function::BitwiseAnd => Op::BitwiseAnd,
        Function::BitwiseOr => Op::BitwiseOr,
        Function::BitwiseXor => Op::BitwiseXor,
        Function::ShiftLeft => Op::ShiftLeft,
        Function::ShiftRight => Op::ShiftRight,
        _ => {
            return Err(Error::internal("a float function of integers has a float result"));
        }
    };
    let spec = Spec {
        round_mode: cx.round_mode(out.dtype, out.element),
        op,
        number_side: sides.number_side,
        checked: u32::from(out.dtype == DType::I64),
        ..Spec::default()
    };
    let (status, node, label) = (cx.status(), cx.node_id(), cx.label());
    elementwise::launch_quads(cx, out, [&sides.left, &sides.right], |grid, binding| {
        let operands = Operands { a: binding.inputs[0], b: binding.inputs[1], y: binding.out, status };
        let params = Params {
            n_elems: grid.n_elems,
            quads: grid.quads,
            sizes: grid.sizes,
            number: operands::kernel_int(sides.number, out.dtype),
            alpha: operands::kernel_int(alpha, DType::I32),
            node,
            a_strides: grid.strides[0],
            b_strides: grid.strides[1],
        };
        binary_int::dispatch(Axes {}, spec, operands, params, binding.groups, label.clone())
    })
}

const TARGETS: &[&str] = &[
    "aten.__and__.Scalar",
    "aten.__and__.Tensor",
    "aten.__lshift__.Scalar",
    "aten.__lshift__.Tensor",
    "aten.__or__.Scalar",
    "aten.__or__.Tensor",
    "aten.__rshift__.Scalar",
    "aten.__rshift__.Tensor",
    "aten.__xor__.Scalar",
    "aten.__xor__.Tensor",
    "aten.add.Scalar",
    "aten.add.Tensor",
    "aten.atan2.default",
    "aten.bitwise_and.Scalar",
    "aten.bitwise_and.Scalar_Tensor",
    "aten.bitwise_and.Tensor",
    "aten.bitwise_left_shift.Scalar_Tensor",
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.bitwise_or.Scalar",
    "aten.bitwise_or.Scalar_Tensor",
    "aten.bitwise_or.Tensor",
    "aten.bitwise_right_shift.Scalar_Tensor",
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.bitwise_xor.Scalar",
    "aten.bitwise_xor.Scalar_Tensor",
    "aten.bitwise_xor.Tensor",
    "aten.copysign.Scalar",
    "aten.copysign.Tensor",
    "aten.div.Scalar",
    "aten.div.Scalar_mode",
    "aten.div.Tensor",
    "aten.div.Tensor_mode",
    "aten.floor_divide.Scalar",
    "aten.floor_divide.default",
    "aten.fmax.default",
    "aten.fmin.default",
    "aten.fmod.Scalar",
    "aten.fmod.Tensor",
    "aten.hypot.default",
    "aten.max.other",
    "aten.maximum.default",
    "aten.min.other",
    "aten.minimum.default",
    "aten.mul.Scalar",
    "aten.mul.Tensor",
    "aten.pow.Scalar",
    "aten.pow.Tensor_Scalar",
    "aten.pow.Tensor_Tensor",
    "aten.remainder.Scalar",
    "aten.remainder.Scalar_Tensor",
    "aten.remainder.Tensor",
    "aten.rsub.Scalar",
    "aten.rsub.Tensor",
    "aten.sub.Scalar",
    "aten.sub.Tensor",
];
