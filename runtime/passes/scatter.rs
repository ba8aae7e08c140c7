//! What functionalising has to know of views: whether they share memory, and how a part is put back into the whole.

use crate::{
    base::{Error, Result},
    ir::{Arg, Graph, IntArg, Node, Type, ValueId},
};

/// Whether an output shares its operand's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewKind {
    /// It is the operand itself.
    Same,
    /// It sees the operand's elements in another shape or order, or some of them.
    View,
    /// It never shares memory.
    Copy,
    /// That depends on strides.
    Unclear,
}

/// How `output` of `node` relates to its operand `parent`.
pub(super) fn view_kind(graph: &Graph, node: &Node, parent: ValueId, output: ValueId) -> ViewKind {
    let same_dtype = dtype(graph, parent) == dtype(graph, output);
    match node.op.base() {
        "alias" | "detach" | "detach_" | "lift" | "lift_fresh" => ViewKind::Same,
        "dropout" | "alpha_dropout" | "feature_dropout" | "feature_alpha_dropout" => ViewKind::Same,
        "to" | "type_as" if !same_dtype => ViewKind::Copy,
        "to" if matches!(node.arg("copy"), Some(Arg::Bool(true))) => ViewKind::Copy,
        "to" | "type_as" if node.arg("memory_format").is_none_or(|arg| *arg == Arg::None) => ViewKind::Same,
        "_unsafe_view" => ViewKind::Copy,
        "select" | "slice" | "narrow" | "diagonal" | "permute" | "t" | "numpy_T" | "mT" | "transpose"
        | "swapaxes" | "swapdims" | "view" | "view_as" | "unflatten" | "squeeze" | "unsqueeze" | "expand"
        | "expand_as" | "unbind" | "split" | "split_with_sizes" | "chunk" => ViewKind::View,
        _ => ViewKind::Unclear,
    }
}

fn dtype(graph: &Graph, value: ValueId) -> Option<crate::base::DType> {
    graph.value(value).ok()?.ty.as_tensor().map(|tensor| tensor.dtype)
}

/// The call that gives `whole` with `part` in place of what output `index` of `view` sees of it. `sizes` are the
/// whole's.
///
/// # Errors
/// A view that cannot be written through.
pub(super) fn inverse(
    graph: &Graph,
    view: &Node,
    index: usize,
    whole: ValueId,
    part: ValueId,
    sizes: Vec<IntArg>,
) -> Result<(&'static str, Vec<(String, Arg)>)> {
    let scattered = |own: Vec<(&str, Arg)>| {
        let mut args = vec![("self".to_string(), Arg::Value(whole)), ("src".to_string(), Arg::Value(part))];
        args.extend(own.into_iter().map(|(name, arg)| (name.to_string(), arg)));
        args
    };
    let copied = |names: &[&'static str]| {
        names.iter().filter_map(|&name| Some((name, view.arg(name)?.clone()))).collect::<Vec<_>>()
    };
    let moved = |own: Vec<(&str, Arg)>| {
        let mut args = vec![("self".to_string(), Arg::Value(part))];
        args.extend(own.into_iter().map(|(name, arg)| (name.to_string(), arg)));
        args
    };
    Ok(match view.op.base() {
        "select" => ("aten.select_scatter.default", scattered(copied(&["dim", "index"]))),
        "slice" => ("aten.slice_scatter.default", scattered(copied(&["dim", "start", "end", "step"]))),
        "diagonal" => ("aten.diagonal_scatter.default", scattered(copied(&["offset", "dim1", "dim2"]))),
        "unbind" => {
            let dim = view.arg("dim").cloned().unwrap_or(Arg::Int(0));
            ("aten.select_scatter.default", scattered(vec![("dim", dim), ("index", Arg::Int(index as i64))]))
        }
        "narrow" => {
            let (Some(Arg::Int(start)), Some(Arg::Int(length))) = (view.arg("start"), view.arg("length"))
            else {
                return Err(not_writable(view));
            };
            let end = start.checked_add(*length).ok_or_else(|| not_writable(view))?;
            let range = vec![("start", Arg::Int(*start)), ("end", Arg::Int(end))];
            ("aten.slice_scatter.default", scattered([copied(&["dim"]), range].concat()))
        }
        "split" | "split_with_sizes" | "chunk" => {
            let (start, end) = piece(graph, view, index).ok_or_else(|| not_writable(view))?;
            let range = vec![("start", Arg::Int(start)), ("end", Arg::Int(end))];
            ("aten.slice_scatter.default", scattered([copied(&["dim"]), range].concat()))
        }
        "permute" => {
            let dims = inverse_permutation(view).ok_or_else(|| not_writable(view))?;
            ("aten.permute.default", moved(vec![("dims", Arg::Ints(dims))]))
        }
        "t" => ("aten.t.default", moved(vec![])),
        "numpy_T" => ("aten.numpy_T.default", moved(vec![])),
        "mT" => ("aten.mT.default", moved(vec![])),
        "transpose" => ("aten.transpose.int", moved(copied(&["dim0", "dim1"]))),
        "view" | "view_as" | "unflatten" | "squeeze" | "unsqueeze" => {
            ("aten.view.default", moved(vec![("size", Arg::Ints(sizes))]))
        }
        _ => return Err(not_writable(view)),
    })
}

fn not_writable(view: &Node) -> Error {
    Error::unsupported(format!("writes through `{}` ({}), which cannot be undone", view.name, view.op))
}

fn inverse_permutation(view: &Node) -> Option<Vec<IntArg>> {
    let Some(Arg::Ints(dims)) = view.arg("dims") else { return None };
    let rank = dims.len() as i64;
    let mut inverse = vec![None; dims.len()];
    for (to, dim) in dims.iter().enumerate() {
        let IntArg::Const(from) = dim else { return None };
        let from = if *from < 0 { from + rank } else { *from };
        *inverse.get_mut(usize::try_from(from).ok()?)? = Some(IntArg::Const(to as i64));
    }
    inverse.into_iter().collect()
}

/// Where piece `index` of a split begins and ends.
fn piece(graph: &Graph, view: &Node, index: usize) -> Option<(i64, i64)> {
    let dim = match view.arg("dim") {
        Some(Arg::Int(dim)) => *dim,
        None => 0,
        Some(_) => return None,
    };
    let len = |value: ValueId| {
        let Type::Tensor(tensor) = &graph.value(value).ok()?.ty else { return None };
        let rank = tensor.sizes.len() as i64;
        tensor.sizes.get(usize::try_from(if dim < 0 { dim + rank } else { dim }).ok()?)?.as_const()
    };
    let mut start = 0i64;
    for &earlier in view.outputs.get(..index)? {
        start = start.checked_add(len(earlier)?)?;
    }
    Some((start, start.checked_add(len(*view.outputs.get(index)?)?)?))
}
