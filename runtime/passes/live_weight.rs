//! `linear` with a weight that is computed at run time becomes `mm` or `addmm`: no live weight ever reaches the kernel
//! that wants a packed one.
//!
//! `linear(x, W, bias)` is `addmm(bias, x2, W^T)`, where x2 is x as a matrix `[rows, K]`; the result gets x's leading
//! dims back.

use super::linear::tensor;
use crate::{
    base::SymExpr,
    ir::{Arg, Graph, IntArg, Node, Patch, TensorType, Type, ValueId},
};

/// The rewrite of `node`, a `linear`, and the base name of what multiplies then; `None` when the weight is no matrix.
pub(super) fn rewrite(graph: &Graph, node: &Node) -> Option<(Patch, &'static str)> {
    let (x, weight) = (node.value_arg("input")?, node.value_arg("weight")?);
    let (x_type, weight_type) = (tensor_type(graph, x)?, tensor_type(graph, weight)?);
    let [n, k] = weight_type.sizes.as_slice() else { return None };
    let mut builder = Builder { patch: Patch::new(graph), name: node.name.clone(), dtype: x_type.dtype };
    let columns = builder.transposed(graph, weight, [k, n]);
    let leading = x_type.sizes.split_last()?.1;
    let rows = product_of(leading);
    let matrix = match leading.len() {
        1 => x,
        0 => builder.node("rows", "aten.unsqueeze.default", x, ("dim", Arg::Int(0)), [&rows, k]),
        _ => builder.flattened(x, [&rows, k]),
    };
    let bias = node.value_arg("bias");
    let (op, target) =
        if bias.is_some() { ("addmm", "aten.addmm.default") } else { ("mm", "aten.mm.default") };
    let args = match bias {
        Some(bias) => vec![("self", bias), ("mat1", matrix), ("mat2", columns)],
        None => vec![("self", matrix), ("mat2", columns)],
    };
    let args = args.into_iter().map(|(name, value)| (name, Arg::Value(value))).collect();
    if leading.len() == 1 {
        builder.patch.becomes(target, args);
        return Some((builder.patch, op));
    }
    let ty = tensor(builder.dtype, vec![rows, n.clone()]);
    let product = builder.patch.node(&format!("{}_product", builder.name), target, args, ty);
    if leading.is_empty() {
        let args = vec![("self", Arg::Value(product)), ("dim", Arg::Int(0)), ("index", Arg::Int(0))];
        builder.patch.becomes("aten.select.int", args);
    } else {
        let mut sizes: Vec<IntArg> =
            leading.iter().enumerate().map(|(dim, size)| builder.size(x, dim, size)).collect();
        sizes.push(builder.size(weight, 0, n));
        let args = vec![("self", Arg::Value(product)), ("size", Arg::Ints(sizes))];
        builder.patch.becomes("aten.view.default", args);
    }
    Some((builder.patch, op))
}

struct Builder {
    patch: Patch,
    name: String,
    dtype: crate::base::DType,
}

impl Builder {
    fn node(
        &mut self,
        suffix: &str,
        op: &str,
        operand: ValueId,
        arg: (&str, Arg),
        sizes: [&SymExpr; 2],
    ) -> ValueId {
        let ty = tensor(self.dtype, sizes.map(SymExpr::clone).to_vec());
        self.patch.node(&format!("{}_{suffix}", self.name), op, vec![("self", Arg::Value(operand)), arg], ty)
    }

    /// The weight as `[K, N]`; what an earlier transposition was made from, where there is one.
    fn transposed(&mut self, graph: &Graph, weight: ValueId, sizes: [&SymExpr; 2]) -> ValueId {
        let swapped = Arg::Ints(vec![IntArg::Const(1), IntArg::Const(0)]);
        let source = graph.defining_node(weight).and_then(|id| graph.node(id).ok());
        let undone = source
            .filter(|node| node.op == *"aten.permute.default" && node.arg("dims") == Some(&swapped))
            .and_then(|node| node.value_arg("self"));
        undone
            .unwrap_or_else(|| self.node("columns", "aten.permute.default", weight, ("dims", swapped), sizes))
    }

    fn flattened(&mut self, x: ValueId, sizes: [&SymExpr; 2]) -> ValueId {
        let ty = tensor(self.dtype, sizes.map(SymExpr::clone).to_vec());
        let args = vec![("self", Arg::Value(x)), ("start_dim", Arg::Int(0)), ("end_dim", Arg::Int(-2))];
        self.patch.node(&format!("{}_rows", self.name), "aten.flatten.using_ints", args, ty)
    }

    /// Size `dim` of `value`: a number where it is fixed, else a host scalar.
    fn size(&mut self, value: ValueId, dim: usize, size: &SymExpr) -> IntArg {
        if let Some(size) = size.as_const() {
            return IntArg::Const(size);
        }
        let name = format!("{}_size", self.name);
        let args = vec![("self", Arg::Value(value)), ("dim", Arg::Int(dim as i64))];
        IntArg::Value(self.patch.node(&name, "aten.sym_size.int", args, Type::Int(Some(size.clone()))))
    }
}

fn tensor_type(graph: &Graph, value: ValueId) -> Option<&TensorType> {
    graph.value(value).ok()?.ty.as_tensor()
}

fn product_of(sizes: &[SymExpr]) -> SymExpr {
    let product = SymExpr::Mul(sizes.to_vec());
    product.as_const().map_or(product, SymExpr::Const)
}
