//! Finds the codes, scale and zero point that a weight is made of. Reads the graph only, never a payload.

use super::sample;
use crate::{
    base::DType,
    ir::{Arg, Effect, Graph, Node, TensorType, ValueId, effect_of},
    ops::QuantizeCall,
    passes::is_unscaled,
};

/// A scale or zero point.
#[derive(Clone, Debug)]
pub(super) enum Param {
    /// One number.
    Number(f64),
    /// A tensor whose elements, in sizes `sizes`, broadcast to [`Weight::grouped`].
    Value { value: ValueId, sizes: Vec<usize> },
}

/// `(codes - zero) * scale` as a weight `[N, K]`.
#[derive(Debug)]
pub(super) struct Weight {
    /// Codes, a matrix.
    pub codes: ValueId,
    /// Whether the codes are `[K, N]`.
    pub is_transposed: bool,
    /// Sizes of the codes with what shares a scale apart: a split of rows, then of columns.
    pub grouped: Vec<usize>,
    pub scale: Param,
    pub zero: Param,
    /// Least and largest code, where the program says so.
    pub range: Option<(i64, i64)>,
    /// Names of the nodes that make the weight of the codes, in order.
    pub nodes: Vec<String>,
}

impl Weight {
    /// What the constant `value`, the second operand of a `linear`, is made of; `None` when it is not made of codes.
    ///
    /// # Errors
    /// Why it is made of codes and yet is none of the forms that are known.
    pub fn of_linear(graph: &Graph, value: ValueId) -> Result<Option<Weight>, String> {
        let mut nodes = Vec::new();
        let (mut value, mut is_transposed) = (value, false);
        while let Some(node) = defined_by(graph, value) {
            let Some(source) = first_value(node) else { break };
            if transposes(node) {
                is_transposed = !is_transposed;
            } else if !keeps_everything(graph, node, source) {
                break;
            }
            nodes.push(node.name.clone());
            value = source;
        }
        let Some(node) = defined_by(graph, value) else { return Ok(None) };
        let found = if effect_of(node) == Effect::Dequantize {
            of_dequantize(graph, node).map(Some)
        } else {
            Ok(of_cast(graph, value).or_else(|| of_arithmetic(graph, value)))
        };
        match found? {
            Some(mut weight) => {
                weight.is_transposed = is_transposed;
                nodes.reverse();
                weight.nodes.append(&mut nodes);
                Ok(Some(weight))
            }
            None if reads_dequantised(graph, value) => {
                Err(format!("`{}` ({}) stands between the codes and the product", node.name, node.op))
            }
            None => Ok(None),
        }
    }

    /// The weight of a `_weight_int8pack_mm`.
    pub fn of_int8pack(graph: &Graph, node: &Node, codes: ValueId) -> Option<Weight> {
        let grouped = concrete_sizes(graph, codes)?;
        let scale = Param::Value { value: node.value_arg("scales")?, sizes: vec![*grouped.first()?, 1] };
        let range = Some((-128, 127));
        Some(Weight {
            codes,
            is_transposed: false,
            grouped,
            scale,
            zero: Param::Number(0.0),
            range,
            nodes: vec![],
        })
    }

    /// The table of a `quantized_decomposed.embedding_*`, of `[rows, columns]` codes, with scales for each row or group of a row.
    ///
    /// # Errors
    /// Why the call is none.
    pub fn of_rows(
        graph: &Graph,
        node: &Node,
        codes: ValueId,
        [rows, columns]: [usize; 2],
    ) -> Result<Weight, String> {
        let scale = node.value_arg("weight_scales").ok_or("it has no scales")?;
        let scale_sizes = concrete_sizes(graph, scale).ok_or("the sizes of its scales are not fixed")?;
        let groups = scale_sizes.get(1).copied().unwrap_or(1);
        if groups == 0 || !columns.is_multiple_of(groups) || scale_sizes.first() != Some(&rows) {
            return Err(format!("scales of sizes {scale_sizes:?} do not fit codes of [{rows}, {columns}]"));
        }
        let param = |value| Param::Value { value, sizes: vec![rows, groups, 1] };
        Ok(Weight {
            codes,
            is_transposed: false,
            grouped: vec![rows, groups, columns / groups],
            scale: param(scale),
            zero: node.value_arg("weight_zero_points").map_or(Param::Number(0.0), param),
            range: Some((-128, 127)),
            nodes: vec![],
        })
    }

    /// A matrix of codes that are the weight, as they are.
    pub fn of_codes(graph: &Graph, codes: ValueId) -> Option<Weight> {
        let (scale, zero) = (Param::Number(1.0), Param::Number(0.0));
        let grouped = concrete_sizes(graph, codes)?;
        // Without groups these are 8-bit codes: not worth reading them to find out.
        let range = Some((-128, 127));
        Some(Weight { codes, is_transposed: false, grouped, scale, zero, range, nodes: vec![] })
    }

    /// Whether the codes are the weight, as they are.
    pub fn is_unscaled(&self) -> bool {
        matches!((&self.scale, &self.zero), (Param::Number(scale), Param::Number(zero)) if *scale == 1.0 && *zero == 0.0)
    }
}

pub(super) fn defined_by(graph: &Graph, value: ValueId) -> Option<&Node> {
    graph.node(graph.defining_node(value)?).ok()
}

/// Whether `node` gives its operand in another dtype, or place.
pub(super) fn is_conversion(node: &Node) -> bool {
    ["_to_copy", "to", "convert_element_type"].contains(&node.op.base())
}

pub(super) fn first_value(node: &Node) -> Option<ValueId> {
    node.args.first().and_then(|(_, arg)| arg.as_value())
}

pub(super) fn tensor_type(graph: &Graph, value: ValueId) -> Option<&TensorType> {
    graph.value(value).ok()?.ty.as_tensor()
}

/// The sizes of a tensor, where they are fixed.
pub(super) fn concrete_sizes(graph: &Graph, value: ValueId) -> Option<Vec<usize>> {
    let sizes = &tensor_type(graph, value)?.sizes;
    sizes.iter().map(|size| usize::try_from(size.as_const()?).ok()).collect()
}

/// The rank of a tensor.
pub(super) fn rank_of(graph: &Graph, value: ValueId) -> Option<usize> {
    Some(tensor_type(graph, value)?.sizes.len())
}

/// The dtype of a tensor.
pub(super) fn dtype_of(graph: &Graph, value: ValueId) -> Option<DType> {
    Some(tensor_type(graph, value)?.dtype)
}

/// The number that `arg` is.
pub(super) fn number_of(arg: &Arg) -> Option<f64> {
    match arg {
        Arg::Float(number) => Some(*number),
        Arg::Int(number) => Some(*number as f64),
        _ => None,
    }
}

/// Whether `value` is a matrix of int8 with elements.
pub(super) fn is_codes(graph: &Graph, value: ValueId) -> bool {
    let sizes = concrete_sizes(graph, value).unwrap_or_default();
    dtype_of(graph, value) == Some(DType::I8) && sizes.len() == 2 && !sizes.contains(&0)
}

/// Whether `value` is a matrix of int8 or uint8.
pub(super) fn is_table(graph: &Graph, value: ValueId) -> bool {
    matches!(dtype_of(graph, value), Some(DType::I8 | DType::U8)) && rank_of(graph, value) == Some(2)
}

fn ints(node: &Node, name: &str) -> Option<Vec<i64>> {
    match node.arg(name)? {
        Arg::Ints(items) => items
            .iter()
            .map(|item| match item {
                crate::ir::IntArg::Const(value) => Some(*value),
                crate::ir::IntArg::Value(_) => None,
            })
            .collect(),
        _ => None,
    }
}

/// Whether `node` swaps the dims of a matrix.
fn transposes(node: &Node) -> bool {
    match node.op.as_str() {
        "aten.t.default" | "aten.numpy_T.default" => true,
        "aten.permute.default" => matches!(ints(node, "dims").as_deref(), Some([1 | -1, 0 | -2])),
        "aten.transpose.int" => {
            let dims = (node.arg("dim0"), node.arg("dim1"));
            matches!(
                dims,
                (Some(Arg::Int(0 | -2)), Some(Arg::Int(1 | -1)))
                    | (Some(Arg::Int(1 | -1)), Some(Arg::Int(0 | -2)))
            )
        }
        _ => false,
    }
}

/// Whether `node` gives the very elements of its operand, of the same type.
pub(super) fn keeps_everything(graph: &Graph, node: &Node, source: ValueId) -> bool {
    const KEEPING: &[&str] = &[
        "_to_copy",
        "_unsafe_view",
        "alias",
        "clone",
        "contiguous",
        "convert_element_type",
        "detach",
        "to",
        "view",
    ];
    let output = node.outputs.first().and_then(|&output| tensor_type(graph, output));
    KEEPING.contains(&node.op.base()) && output.is_some() && output == tensor_type(graph, source)
}

/// What an op that dequantises says.
fn of_dequantize(graph: &Graph, node: &Node) -> Result<Weight, String> {
    if concrete_sizes(graph, first_value(node).ok_or("it dequantises no tensor")?).is_none() {
        return Err("its sizes are not fixed".to_string());
    }
    let (args, _) = sample::call(graph, node)?;
    let call = QuantizeCall::of(&args).map_err(|error| error.to_string())?;
    let gives = node.outputs.first().and_then(|&output| dtype_of(graph, output));
    if let Some(product) = call.product_dtype().filter(|&product| Some(product) != gives) {
        return Err(format!("scales of {product} round it to {product}"));
    }
    let (grouped, param_sizes) = (call.grouped.clone(), call.param_sizes.clone());
    let param = |names: [&str; 2], default: Option<f64>| {
        let arg = names.iter().find_map(|name| node.arg(name)).filter(|arg| **arg != Arg::None);
        match (arg, default) {
            (Some(Arg::Value(value)), _) => Ok(Param::Value { value: *value, sizes: param_sizes.clone() }),
            (Some(Arg::Float(number)), _) => Ok(Param::Number(*number)),
            (Some(Arg::Int(number)), _) => Ok(Param::Number(*number as f64)),
            (None, Some(default)) => Ok(Param::Number(default)),
            _ => Err(format!("`{}` has no {}", node.name, names[0])),
        }
    };
    let range = match (node.arg("quant_min"), node.arg("quant_max")) {
        (Some(Arg::Int(low)), Some(Arg::Int(high))) => Some((*low, *high)),
        _ => None,
    };
    Ok(Weight {
        codes: first_value(node).ok_or("it dequantises no tensor")?,
        is_transposed: false,
        grouped,
        scale: param(["scales", "scale"], None)?,
        zero: param(["zero_points", "zero_point"], Some(0.0))?,
        range,
        nodes: vec![node.name.clone()],
    })
}

/// Codes behind a conversion to floats, and what is between: the matrix, its split sizes, and names.
fn codes_as_floats(graph: &Graph, value: ValueId) -> Option<(ValueId, Vec<usize>, Vec<String>)> {
    let cast = defined_by(graph, value)
        .filter(|node| is_conversion(node) && dtype_of(graph, value).is_some_and(DType::is_float))?;
    let source = first_value(cast)?;
    if !matches!(dtype_of(graph, source), Some(DType::I8 | DType::U8)) {
        return None;
    }
    let grouped = concrete_sizes(graph, source)?;
    let view = defined_by(graph, source)
        .filter(|node| ["view", "reshape", "_unsafe_view"].contains(&node.op.base()) && grouped.len() != 2);
    match view {
        None if grouped.len() == 2 => Some((source, grouped, vec![cast.name.clone()])),
        None => None,
        Some(view) => {
            let matrix = first_value(view)?;
            let is_matrix = concrete_sizes(graph, matrix)?.len() == 2;
            is_matrix.then(|| (matrix, grouped, vec![view.name.clone(), cast.name.clone()]))
        }
    }
}

/// Codes that are the weight as they are.
fn of_cast(graph: &Graph, value: ValueId) -> Option<Weight> {
    let (codes, grouped, nodes) = codes_as_floats(graph, value)?;
    if grouped.len() != 2 {
        return None;
    }
    Some(Weight { nodes, ..Weight::of_codes(graph, codes)? })
}

/// `view((floats - zero) * scale)`, with or without the view and the zero point.
fn of_arithmetic(graph: &Graph, value: ValueId) -> Option<Weight> {
    let mut product = defined_by(graph, value)?;
    let mut after = Vec::new();
    if ["view", "reshape", "_unsafe_view"].contains(&product.op.base()) {
        after.push(product.name.clone());
        product = defined_by(graph, first_value(product)?)?;
    }
    if product.op != *"aten.mul.Tensor" {
        return None;
    }
    let (left, right) = (product.value_arg("self")?, product.value_arg("other")?);
    let (difference, scale) =
        if difference_of(graph, left).is_some() { (left, right) } else { (right, left) };
    let (floats, zero, subtraction) = difference_of(graph, difference)?;
    let (codes, grouped, mut nodes) = codes_as_floats(graph, floats)?;
    let param = |value| Some(Param::Value { value, sizes: concrete_sizes(graph, value)? });
    nodes.extend(subtraction);
    nodes.push(product.name.clone());
    nodes.append(&mut after);
    Some(Weight {
        codes,
        is_transposed: false,
        grouped,
        scale: param(scale)?,
        zero: zero.map_or(Some(Param::Number(0.0)), param)?,
        range: None,
        nodes,
    })
}

/// `floats - zero`, or just floats: those, the zero point, and the name of the subtraction.
fn difference_of(graph: &Graph, value: ValueId) -> Option<(ValueId, Option<ValueId>, Option<String>)> {
    if codes_as_floats(graph, value).is_some() {
        return Some((value, None, None));
    }
    let node = defined_by(graph, value).filter(|node| node.op == *"aten.sub.Tensor" && is_unscaled(node))?;
    let (floats, zero) = (node.value_arg("self")?, node.value_arg("other")?);
    codes_as_floats(graph, floats)?;
    Some((floats, Some(zero), Some(node.name.clone())))
}

/// Whether something that dequantises is among what computes `value`.
fn reads_dequantised(graph: &Graph, value: ValueId) -> bool {
    let mut seen = std::collections::HashSet::new();
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        let Some(node) = defined_by(graph, value).filter(|_| seen.insert(value)) else { continue };
        if effect_of(node) == Effect::Dequantize {
            return true;
        }
        node.for_each_operand(|operand| pending.push(operand));
    }
    false
}
