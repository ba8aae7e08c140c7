//! Finds the codes that the activations of a product are made of at run time. Reads the graph only.
//!
//! What the codes stand for is what the dequantise says, whoever made them: a quantise with the same scale, one with
//! another, or the caller.

use super::{
    sample,
    weight::{defined_by, dtype_of, first_value, is_conversion, keeps_everything, number_of, tensor_type},
};
use crate::{
    base::{DType, SymExpr},
    ir::{Arg, Constness, Effect, Graph, IntArg, Node, ValueId, effect_of},
    ops::QuantizeCall,
    passes::is_unscaled,
};

/// Zero points beyond this are of no 8-bit code.
pub(super) const MOST_ZERO: f64 = 255.0;

/// `(codes - zero) * scale`, floats of sizes `[..., K]`.
#[derive(Clone, Debug)]
pub(super) struct Activation {
    /// int8 or uint8, sizes `[..., K]`.
    pub codes: ValueId,
    pub scale: Factor,
    /// `None` for 0.
    pub zero: Option<Factor>,
    /// The sizes that codes are viewed in before the product; its last is K.
    pub view: Option<Vec<IntArg>>,
    /// What those sizes are.
    pub sizes: Vec<SymExpr>,
    /// Names of the nodes between the codes and the product, in order.
    pub nodes: Vec<String>,
}

/// The scale or the zero point of activations.
#[derive(Clone, Debug)]
pub(super) enum Factor {
    /// One number.
    Number(f64),
    /// A tensor of one element.
    One(ValueId),
    /// One element for each row, of the sizes of the codes with a last dim of 1.
    Rows(ValueId),
    /// One element for each row, of the sizes of the codes without the last dim.
    FlatRows(ValueId),
}

impl Factor {
    /// The dtype of a tensor.
    fn dtype(&self, graph: &Graph) -> Option<DType> {
        match *self {
            Factor::Number(_) => None,
            Factor::One(value) | Factor::Rows(value) | Factor::FlatRows(value) => dtype_of(graph, value),
        }
    }
}

impl Activation {
    /// What the input `value` of a product is made of; `None` when it is not made of codes.
    ///
    /// # Errors
    /// Why it is made of codes and yet the product does not take them.
    pub fn find(graph: &Graph, constness: &Constness, value: ValueId) -> Result<Option<Activation>, String> {
        let sizes = tensor_type(graph, value).map_or(Vec::new(), |ty| ty.sizes.clone());
        let wanted = last_size(graph, value);
        let (mut value, mut view, mut nodes) = (value, None, Vec::new());
        while let Some(node) = defined_by(graph, value) {
            let Some(source) = first_value(node) else { break };
            if !keeps_everything(graph, node, source) {
                let Some(sizes) = view_sizes(node) else { break };
                // Only the last of several views counts: rows follow each other as before.
                view = view.or(Some(sizes));
            }
            nodes.push(node.name.clone());
            value = source;
        }
        let Some(node) = defined_by(graph, value) else { return Ok(None) };
        let found = match effect_of(node) {
            Effect::Dequantize => of_dequantize(graph, node).map(Some)?,
            _ => of_arithmetic(graph, value),
        };
        let Some(mut found) = found else { return stands_between(graph, constness, node) };
        if last_size(graph, found.codes) != wanted || wanted.is_none() {
            return Err(format!("`{}` is viewed in rows of another length", node.name));
        }
        check_codes(graph, found.codes)?;
        (found.view, found.sizes) = (view, sizes);
        nodes.reverse();
        found.nodes.append(&mut nodes);
        Ok(Some(found))
    }
}

/// Nothing, or the reason when what `node` reads first is dequantised at run time.
fn stands_between(graph: &Graph, constness: &Constness, node: &Node) -> Result<Option<Activation>, String> {
    let value = first_value(node).filter(|&value| !constness.is_constant(value));
    let reads = value.and_then(|value| defined_by(graph, value));
    match reads {
        Some(source) if effect_of(source) == Effect::Dequantize && node.outputs.len() == 1 => {
            Err(format!("`{}` ({}) stands between their codes and the product", node.name, node.op))
        }
        _ => Ok(None),
    }
}

fn last_size(graph: &Graph, value: ValueId) -> Option<i64> {
    tensor_type(graph, value)?.sizes.last()?.as_const()
}

/// The sizes that `node` views its operand in, when that is what it does.
fn view_sizes(node: &Node) -> Option<Vec<IntArg>> {
    let name = match node.op.as_str() {
        "aten.view.default" | "aten._unsafe_view.default" => "size",
        "aten.reshape.default" => "shape",
        _ => return None,
    };
    match node.arg(name)? {
        Arg::Ints(sizes) => Some(sizes.clone()),
        _ => None,
    }
}

fn check_codes(graph: &Graph, codes: ValueId) -> Result<(), String> {
    match dtype_of(graph, codes) {
        Some(DType::I8 | DType::U8) => Ok(()),
        Some(dtype) => Err(format!("their codes are {dtype}; int8 and uint8 are multiplied")),
        None => Err("their codes are no tensor".to_string()),
    }
}

/// What an op that dequantises says.
fn of_dequantize(graph: &Graph, node: &Node) -> Result<Activation, String> {
    let codes = first_value(node).ok_or("what dequantises them reads no tensor")?;
    let (args, _) = sample::call(graph, node)?;
    let call = QuantizeCall::of(&args).map_err(|error| error.to_string())?;
    let spread = Spread::of(call.x.sizes.as_slice(), &call.grouped, &call.param_sizes)
        .ok_or_else(|| format!("`{}` does not give each row one scale", node.name))?;
    let factor = |names: [&str; 2]| match names.iter().find_map(|name| node.arg(name)) {
        Some(Arg::Value(value)) => spread.factor(graph, codes, *value).map(Some),
        Some(Arg::Float(number)) => Ok(Some(Factor::Number(*number))),
        Some(Arg::Int(number)) => Ok(Some(Factor::Number(*number as f64))),
        _ => Ok(None),
    };
    let scale = factor(["scale", "scales"])?.ok_or("they have no scale")?;
    if let Some(dtype) = scale.dtype(graph).filter(|dtype| !matches!(dtype, DType::F32 | DType::F64)) {
        return Err(format!("their scales are {dtype}; float32 and float64 are multiplied"));
    }
    let zero = whole(graph, factor(["zero_point", "zero_points"])?)?;
    Ok(Activation { codes, scale, zero, view: None, sizes: Vec::new(), nodes: vec![node.name.clone()] })
}

/// Which elements share a scale.
#[derive(Clone, Copy)]
enum Spread {
    All,
    Rows,
}

impl Spread {
    fn of(sizes: &[usize], grouped: &[usize], params: &[usize]) -> Option<Spread> {
        let (&columns, rows) = params.split_last().unwrap_or((&1, &[]));
        if params.iter().all(|&size| size == 1) {
            Some(Spread::All)
        } else if grouped == sizes && columns == 1 && sizes.starts_with(rows) {
            Some(Spread::Rows)
        } else {
            None
        }
    }

    fn factor(self, graph: &Graph, codes: ValueId, value: ValueId) -> Result<Factor, String> {
        factor_of(graph, codes, value)
            .filter(|factor| matches!(self, Spread::Rows) || matches!(factor, Factor::One(_)))
            .ok_or_else(|| format!("`{}` has other sizes than one for each row", graph.value_name(value)))
    }
}

/// How the elements of `value` lie to the rows of `codes`.
pub(super) fn factor_of(graph: &Graph, codes: ValueId, value: ValueId) -> Option<Factor> {
    let (sizes, own) = (&tensor_type(graph, codes)?.sizes, &tensor_type(graph, value)?.sizes);
    let (_, rows) = sizes.split_last()?;
    if own.iter().all(|size| size.as_const() == Some(1)) {
        return Some(Factor::One(value));
    }
    if own == rows {
        return Some(Factor::FlatRows(value));
    }
    let (last, leading) = own.split_last()?;
    (last.as_const() == Some(1) && leading == rows).then_some(Factor::Rows(value))
}

/// A zero point, which has to be an integer.
fn whole(graph: &Graph, zero: Option<Factor>) -> Result<Option<Factor>, String> {
    match zero {
        Some(Factor::Number(0.0)) => Ok(None),
        Some(Factor::Number(number)) if number.fract() != 0.0 || number.abs() > MOST_ZERO => {
            Err(format!("their zero point is {number}"))
        }
        zero => match zero.as_ref().and_then(|zero| zero.dtype(graph)) {
            Some(dtype) if dtype.is_float() || dtype == DType::Bool => {
                Err(format!("their zero points are {dtype}; integers are subtracted"))
            }
            _ => Ok(zero),
        },
    }
}

/// `(floats - zero) * scale`, with or without the zero point: what decomposing a dequantise leaves.
fn of_arithmetic(graph: &Graph, value: ValueId) -> Option<Activation> {
    let product = defined_by(graph, value).filter(|node| node.op == *"aten.mul.Tensor")?;
    let names = vec![product.name.clone()];
    let (left, right) = (product.arg("self")?, product.arg("other")?);
    let in_order = |difference: &Arg, scale: &Arg| {
        let (codes, zero, mut nodes) = difference_of(graph, difference.as_value()?)?;
        let scale = factor_arg(graph, codes, scale)?;
        nodes.extend(names.clone());
        Some(Activation { codes, scale, zero, view: None, sizes: Vec::new(), nodes })
    };
    // A product with its own type only: nothing is broadcast, nothing promoted.
    let found = in_order(left, right).or_else(|| in_order(right, left))?;
    let same_sizes = tensor_type(graph, found.codes)?.sizes == tensor_type(graph, value)?.sizes;
    (same_sizes && dtype_of(graph, value) == Some(DType::F32)).then_some(found)
}

/// A number, or a tensor with an element for all or one for each row; conversions and views of no effect are passed.
fn factor_arg(graph: &Graph, codes: ValueId, arg: &Arg) -> Option<Factor> {
    match arg {
        Arg::Value(value) => {
            (dtype_of(graph, *value) == Some(DType::F32)).then(|| factor_of(graph, codes, *value))?
        }
        other => number_of(other).map(Factor::Number),
    }
}

/// Codes behind a conversion, their zero point, and names.
fn difference_of(graph: &Graph, value: ValueId) -> Option<(ValueId, Option<Factor>, Vec<String>)> {
    if let Some((codes, nodes)) = converted(graph, value) {
        let is_codes = matches!(dtype_of(graph, codes), Some(DType::I8 | DType::U8));
        return is_codes.then_some((codes, None, nodes));
    }
    let node = defined_by(graph, value).filter(|node| {
        ["aten.sub.Tensor", "aten.sub.Scalar"].contains(&node.op.as_str()) && is_unscaled(node)
    })?;
    let (codes, mut nodes) = converted(graph, node.value_arg("self")?)?;
    let zero = match node.arg("other")? {
        Arg::Value(zero) => {
            let (ints, _) = converted(graph, *zero).unwrap_or((*zero, Vec::new()));
            factor_of(graph, codes, ints)?
        }
        other => Factor::Number(number_of(other)?),
    };
    nodes.push(node.name.clone());
    let is_codes = matches!(dtype_of(graph, codes), Some(DType::I8 | DType::U8));
    let zero = whole(graph, Some(zero)).ok()?;
    is_codes.then_some((codes, zero, nodes))
}

/// The integers that `value` holds as floats, and the name of the conversion.
fn converted(graph: &Graph, value: ValueId) -> Option<(ValueId, Vec<String>)> {
    let mut value = value;
    let mut names = Vec::new();
    loop {
        let node = defined_by(graph, value)?;
        let source = first_value(node)?;
        let converts = is_conversion(node);
        let (from, to) = (dtype_of(graph, source)?, dtype_of(graph, value)?);
        if keeps_everything(graph, node, source) {
            value = source;
        } else if converts && to == DType::F32 && !from.is_float() && from != DType::Bool {
            names.push(node.name.clone());
            return Some((source, names));
        } else {
            return None;
        }
    }
}
