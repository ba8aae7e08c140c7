//! A call as the program declares it, with symbols replaced by one number: what fusing removes is checked before, so that a
//! call that is wrong is left to the check that refuses it.

use crate::{
    base::{Error, Result, Scalar, SymEnv, SymExpr},
    ir::{Graph, Node, TensorType, Type, ValueId},
    ops::{self, Args, Meta, Resolved},
};

/// The value that every symbol takes: large enough for differences, and a power of two for quotients.
const SAMPLE_SIZE: i64 = 1024;

/// The arguments of `node`, and what it gives.
///
/// # Errors
/// Why the op does not take them.
pub(super) fn call(graph: &Graph, node: &Node) -> Result<(Args<Meta>, Vec<Meta>), String> {
    let describe = |error: Error| error.to_string();
    let args = ops::resolve(node, |value| sample(graph, value)).map_err(describe)?;
    let op = ops::find(node.op.as_str()).ok_or_else(|| format!("no kernel yet for {}", node.op))?;
    let outs = op.infer(&args).map_err(describe)?;
    Ok((args, outs))
}

fn sample(graph: &Graph, value: ValueId) -> Result<Resolved<Meta>> {
    Ok(match &graph.value(value)?.ty {
        Type::Tensor(TensorType { dtype, sizes }) => {
            let sizes = sizes.iter().map(|size| {
                let wrong =
                    |_| Error::invalid_graph(format!("`{}` has the size {size}", graph.value_name(value)));
                usize::try_from(eval(size)?).map_err(wrong)
            });
            Resolved::Tensor(Meta::new(*dtype, sizes.collect::<Result<Vec<usize>>>()?))
        }
        Type::Int(size) => {
            let number = size.as_ref().map_or(Ok(SAMPLE_SIZE), eval)?;
            Resolved::Scalar(Scalar::Int(number))
        }
        Type::Float => Resolved::Scalar(Scalar::Float(1.0)),
        Type::Bool => Resolved::Scalar(Scalar::Bool(false)),
        Type::None => Resolved::None,
    })
}

fn eval(size: &SymExpr) -> Result<i64> {
    let mut env = SymEnv::new();
    size.for_each_symbol(&mut |symbol| {
        env.insert(symbol.clone(), SAMPLE_SIZE);
    });
    size.eval(&env)
}
