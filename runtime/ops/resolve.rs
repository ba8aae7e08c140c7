//! From a node of a graph to the concrete arguments of its call.

use super::{ArgValue, Args};
use crate::{
    base::{Error, Result, Scalar},
    ir::{Arg, IntArg, Node, ValueId},
};

/// The concrete value behind a value of a graph.
#[derive(Clone, Debug)]
pub enum Resolved<T> {
    /// A tensor.
    Tensor(T),
    /// A host scalar.
    Scalar(Scalar),
    /// Python's `None`.
    None,
}

/// The arguments of `node`, with each value that it reads looked up.
///
/// # Errors
/// The first error of `lookup`, with the node and the operand; a list of integers that holds a tensor.
pub fn resolve<T>(node: &Node, mut lookup: impl FnMut(ValueId) -> Result<Resolved<T>>) -> Result<Args<T>> {
    let mut items = Vec::with_capacity(node.args.len());
    for (name, arg) in &node.args {
        let value =
            resolve_arg(arg, &mut lookup).map_err(|error| error.at_operand(name).at_node(&node.name))?;
        items.push((name.clone(), value));
    }
    Ok(Args::new(node.op.clone(), items))
}

fn resolve_arg<T>(arg: &Arg, lookup: &mut impl FnMut(ValueId) -> Result<Resolved<T>>) -> Result<ArgValue<T>> {
    Ok(match arg {
        Arg::None => ArgValue::None,
        Arg::Value(value) => match lookup(*value)? {
            Resolved::Tensor(tensor) => ArgValue::Tensor(tensor),
            Resolved::Scalar(scalar) => ArgValue::Scalar(scalar),
            Resolved::None => ArgValue::None,
        },
        Arg::Values(values) => ArgValue::Tensors(
            values
                .iter()
                .map(|value| match value.map(&mut *lookup).transpose()? {
                    None | Some(Resolved::None) => Ok(None),
                    Some(Resolved::Tensor(tensor)) => Ok(Some(tensor)),
                    Some(Resolved::Scalar(_)) => {
                        Err(Error::invalid_graph("a list of tensors holds a number"))
                    }
                })
                .collect::<Result<_>>()?,
        ),
        Arg::Ints(items) => ArgValue::Ints(
            items
                .iter()
                .map(|item| match item {
                    IntArg::Const(value) => Ok(*value),
                    IntArg::Value(value) => match lookup(*value)? {
                        Resolved::Scalar(scalar) if !scalar.is_float() => Ok(scalar.as_i64()),
                        _ => Err(Error::invalid_graph("a list of integers holds something else")),
                    },
                })
                .collect::<Result<_>>()?,
        ),
        Arg::Int(value) => ArgValue::Scalar(Scalar::Int(*value)),
        Arg::Float(value) => ArgValue::Scalar(Scalar::Float(*value)),
        Arg::Bool(value) => ArgValue::Scalar(Scalar::Bool(*value)),
        Arg::Floats(items) => ArgValue::Floats(items.clone()),
        Arg::Bools(items) => ArgValue::Bools(items.clone()),
        Arg::Str(text) => ArgValue::Str(text.clone()),
        Arg::DType(dtype) => ArgValue::DType(*dtype),
        Arg::Opaque(text) => ArgValue::Opaque(text.clone()),
    })
}
