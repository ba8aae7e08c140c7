//! Arithmetic on host scalars: sizes of tensors and the symbolic ints and floats made from them.
//!
//! These nodes never reach a device. The planner evaluates them with the concrete sizes of a run.

use super::{ArgValue, Args, Meta};
use crate::base::{Error, Result, Scalar, shape};

/// Targets that give a host scalar.
pub const SCALAR_TARGETS: &[&str] = &[
    "_operator.add",
    "_operator.and_",
    "_operator.eq",
    "_operator.floordiv",
    "_operator.ge",
    "_operator.gt",
    "_operator.le",
    "_operator.lt",
    "_operator.mod",
    "_operator.mul",
    "_operator.ne",
    "_operator.neg",
    "_operator.or_",
    "_operator.pos",
    "_operator.pow",
    "_operator.sub",
    "_operator.truediv",
    "aten.sym_numel.default",
    "aten.sym_size.int",
    "math.ceil",
    "math.floor",
    "math.trunc",
    "torch.sym_float",
    "torch.sym_int",
    "torch.sym_ite",
    "torch.sym_max",
    "torch.sym_min",
    "torch.sym_not",
    "torch.sym_sqrt",
    "torch._sym_sqrt",
];

/// Whether `target` gives a host scalar.
pub fn is_scalar_target(target: &str) -> bool {
    SCALAR_TARGETS.contains(&target)
}

/// The scalar that a call gives. Positional arguments of Python operators are found by their order.
///
/// # Errors
/// A division by zero, a result beyond 64 bits, or arguments that do not fit.
pub fn eval_scalar(args: &Args<Meta>) -> Result<Scalar> {
    match args.op().as_str() {
        "aten.sym_size.int" => {
            let tensor = args.tensor("self")?;
            let dim = args.dim_or("dim", 0, tensor.sizes.len())?;
            let size = tensor.sizes.get(dim).copied();
            size.map(|size| Scalar::Int(size as i64))
                .ok_or_else(|| Error::invalid_graph("a 0-d tensor has no sizes"))
        }
        "aten.sym_numel.default" => Ok(Scalar::Int(shape::numel(&args.tensor("self")?.sizes)? as i64)),
        _ => operator(args),
    }
}

fn operator(args: &Args<Meta>) -> Result<Scalar> {
    let operands: Vec<Scalar> = args
        .values()
        .filter_map(|value| if let ArgValue::Scalar(scalar) = value { Some(*scalar) } else { None })
        .collect();
    let name = args.op().base();
    let name = name.strip_prefix("sym_").or_else(|| name.strip_prefix("_sym_")).unwrap_or(name);
    match (name, operands.as_slice()) {
        ("pos", &[a]) => Ok(a),
        ("float", &[a]) => Ok(Scalar::Float(a.as_f64())),
        ("int" | "trunc", &[a]) => to_int(a.as_f64().trunc(), a),
        ("ceil", &[a]) => to_int(a.as_f64().ceil(), a),
        ("floor", &[a]) => to_int(a.as_f64().floor(), a),
        ("sqrt", &[a]) => Ok(Scalar::Float(a.as_f64().sqrt())),
        ("not", &[a]) => Ok(Scalar::Bool(a.as_i64() == 0)),
        ("neg", &[Scalar::Float(a)]) => Ok(Scalar::Float(-a)),
        ("neg", &[a]) => a.as_i64().checked_neg().map(Scalar::Int).ok_or_else(|| overflow(args)),
        ("ite", &[condition, a, b]) => Ok(if condition.as_i64() != 0 { a } else { b }),
        (_, &[a, b]) => binary(args, name, a, b),
        _ => Err(Error::invalid_graph(format!("{} does not take {} numbers", args.op(), operands.len()))),
    }
}

fn to_int(rounded: f64, exact: Scalar) -> Result<Scalar> {
    if let Scalar::Int(value) = exact {
        return Ok(Scalar::Int(value));
    }
    if rounded.is_finite() && rounded.abs() < 9.0e18 {
        Ok(Scalar::Int(rounded as i64))
    } else {
        Err(Error::invalid_input(format!("{rounded} is no 64-bit integer")))
    }
}

fn overflow(args: &Args<Meta>) -> Error {
    Error::invalid_input(format!("{} overflows 64 bits", args.op()))
}

fn binary(args: &Args<Meta>, name: &str, a: Scalar, b: Scalar) -> Result<Scalar> {
    let (x, y) = (a.as_f64(), b.as_f64());
    match name {
        "eq" => return Ok(Scalar::Bool(x == y)),
        "ne" => return Ok(Scalar::Bool(x != y)),
        "ge" => return Ok(Scalar::Bool(x >= y)),
        "gt" => return Ok(Scalar::Bool(x > y)),
        "le" => return Ok(Scalar::Bool(x <= y)),
        "lt" => return Ok(Scalar::Bool(x < y)),
        "and_" => return Ok(Scalar::Bool(a.as_i64() != 0 && b.as_i64() != 0)),
        "or_" => return Ok(Scalar::Bool(a.as_i64() != 0 || b.as_i64() != 0)),
        "truediv" if y == 0.0 => return Err(Error::invalid_input("a division of sizes by zero")),
        "truediv" => return Ok(Scalar::Float(x / y)),
        "max" => return Ok(if x >= y { a } else { b }),
        "min" => return Ok(if x <= y { a } else { b }),
        _ => {}
    }
    if a.is_float() || b.is_float() {
        return float_binary(args, name, x, y).map(Scalar::Float);
    }
    int_binary(args, name, a.as_i64(), b.as_i64()).map(Scalar::Int)
}

fn float_binary(args: &Args<Meta>, name: &str, x: f64, y: f64) -> Result<f64> {
    match name {
        "add" => Ok(x + y),
        "sub" => Ok(x - y),
        "mul" => Ok(x * y),
        "pow" => Ok(x.powf(y)),
        "floordiv" if y != 0.0 => Ok((x / y).floor()),
        "mod" if y != 0.0 => Ok(x - y * (x / y).floor()),
        _ => Err(Error::unsupported(format!("{} of {x} and {y}", args.op()))),
    }
}

fn int_binary(args: &Args<Meta>, name: &str, x: i64, y: i64) -> Result<i64> {
    let result = match name {
        "add" => x.checked_add(y),
        "sub" => x.checked_sub(y),
        "mul" => x.checked_mul(y),
        "pow" => u32::try_from(y).ok().and_then(|y| x.checked_pow(y)),
        // Python rounds a quotient down, and a remainder takes the divisor's sign.
        "floordiv" => {
            x.checked_div_euclid(y).map(|_| x.div_euclid(y) - i64::from(y < 0 && x.rem_euclid(y) != 0))
        }
        "mod" => {
            x.checked_rem(y).map(|rest| if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest })
        }
        _ => return Err(Error::unsupported(format!("{} is not known", args.op()))),
    };
    result.ok_or_else(|| Error::invalid_input(format!("{} of {x} and {y} has no 64-bit result", args.op())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::OpName;

    fn call(op: &str, operands: &[Scalar]) -> Result<Scalar> {
        let items = operands.iter().map(|&operand| (String::new(), ArgValue::Scalar(operand))).collect();
        eval_scalar(&Args::new(OpName::new(op), items))
    }

    #[test]
    fn integers_follow_python() {
        let int = |op, a, b| call(op, &[Scalar::Int(a), Scalar::Int(b)]).unwrap();
        assert_eq!(int("_operator.floordiv", -7, 2), Scalar::Int(-4));
        assert_eq!(int("_operator.floordiv", 7, -2), Scalar::Int(-4));
        assert_eq!(int("_operator.floordiv", -7, -2), Scalar::Int(3));
        assert_eq!(int("_operator.mod", -7, 2), Scalar::Int(1));
        assert_eq!(int("_operator.mod", 7, -2), Scalar::Int(-1));
        assert_eq!(int("_operator.truediv", 7, 2), Scalar::Float(3.5));
        assert!(call("_operator.floordiv", &[Scalar::Int(1), Scalar::Int(0)]).is_err());
        assert!(call("_operator.mul", &[Scalar::Int(i64::MAX), Scalar::Int(2)]).is_err());
    }

    #[test]
    fn conversions_round_as_named() {
        assert_eq!(call("math.ceil", &[Scalar::Float(2.1)]).unwrap(), Scalar::Int(3));
        assert_eq!(call("torch.sym_float", &[Scalar::Int(2)]).unwrap(), Scalar::Float(2.0));
        assert_eq!(call("torch.sym_max", &[Scalar::Int(2), Scalar::Int(5)]).unwrap(), Scalar::Int(5));
        assert!(call("math.floor", &[Scalar::Float(f64::INFINITY)]).is_err());
    }
}
