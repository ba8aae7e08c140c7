//! Concrete values of types, and of nodes that give host scalars.

use crate::{
    base::{Error, Result, Scalar, SymEnv},
    ir::{TensorType, Type},
};

/// The concrete sizes of a tensor type.
///
/// # Errors
/// A size that depends on data, or that is negative.
pub fn concrete_sizes(tensor: &TensorType, env: &SymEnv) -> Result<Vec<usize>> {
    tensor
        .sizes
        .iter()
        .map(|expr| {
            let size = expr.eval(env).map_err(|error| {
                Error::unsupported(format!(
                    "has the size `{expr}`, which depends on data, or is not known: {}",
                    error.message()
                ))
            })?;
            usize::try_from(size)
                .map_err(|_| Error::unsupported(format!("has the size `{expr}`, which is {size} here")))
        })
        .collect()
}

/// The value of a scalar type that the symbols determine; a stand-in of the right kind for floats and truth values
/// that only the caller knows.
///
/// # Errors
/// An integer without an expression.
pub fn scalar_of_type(ty: &Type, env: &SymEnv) -> Result<Scalar> {
    match ty {
        Type::Int(Some(expr)) => Ok(Scalar::Int(expr.eval(env)?)),
        Type::Int(None) => Err(Error::unsupported("an integer that depends on data")),
        Type::Float => Ok(Scalar::Float(1.0)),
        _ => Ok(Scalar::Bool(true)),
    }
}
