//! What follows a product and can be done with it: factors, a bias, and the quantise of its result.

use std::collections::HashMap;

use super::{
    activation::{Factor, MOST_ZERO, factor_of},
    sample,
    weight::{concrete_sizes, dtype_of, first_value, number_of, tensor_type},
};
use crate::{
    base::DType,
    ir::{Arg, Effect, Graph, Node, OutputSource, ValueId, effect_of},
    ops::QuantizeCall,
    passes::is_unscaled,
};

/// Gives the elements of a value, if it is constant and can be evaluated.
pub(super) type Numbers<'a> = dyn FnMut(ValueId) -> Option<Vec<f64>> + 'a;

/// What may be done with a product.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    /// Multiplication by a constant for each column, or one.
    pub column_factor: bool,
    /// Multiplication by a factor for each row, or one, that a run gives.
    pub row_factor: bool,
    /// Addition of a constant for each column, or one.
    pub bias: bool,
    /// Quantisation with constants, with or without a `relu` before it.
    pub quantise: bool,
    /// Views that keep the columns, before any of these.
    pub views: bool,
}

/// What is done with a product; its own nodes go.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    pub column_factor: Option<Vec<f64>>,
    pub row_factor: Option<Factor>,
    pub bias: Option<Vec<f64>>,
    pub quantise: Option<OutputCodes>,
    /// Results of nodes that go, each with the value that takes its place, in order.
    pub replaced: Vec<(ValueId, ValueId)>,
    /// Views between, whose results become codes with the product.
    pub views: Vec<ValueId>,
    /// Names of the nodes that go.
    pub nodes: Vec<String>,
    /// Why a quantise of the result is no part of the product.
    pub stopped: Option<String>,
}

/// The quantise of a result.
#[derive(Clone, Debug)]
pub(super) struct OutputCodes {
    pub scale: f64,
    pub zero: i64,
    pub low: i64,
    pub high: i64,
    pub dtype: DType,
}

/// Who reads what, once for a graph.
pub(super) struct Readers<'a> {
    graph: &'a Graph,
    counts: HashMap<ValueId, usize>,
    reader: HashMap<ValueId, &'a Node>,
}

impl<'a> Readers<'a> {
    pub fn of(graph: &'a Graph) -> Readers<'a> {
        let (mut counts, mut reader) = (HashMap::new(), HashMap::new());
        for (_, node) in graph.nodes() {
            // A check of a value's dtype reads nothing of it.
            if effect_of(node) == Effect::Assert {
                continue;
            }
            node.for_each_operand(|value| {
                *counts.entry(value).or_insert(0) += 1;
                reader.insert(value, node);
            });
        }
        for output in graph.outputs() {
            if let OutputSource::Value(value) = output.source {
                *counts.entry(value).or_insert(0) += 1;
            }
        }
        Readers { graph, counts, reader }
    }

    /// The node that alone reads `value`, and its result.
    pub fn sole(&self, value: ValueId) -> Option<(&'a Node, ValueId)> {
        let node = self.reader.get(&value).filter(|_| self.counts.get(&value) == Some(&1))?;
        match node.outputs.as_slice() {
            &[output] => Some((node, output)),
            _ => None,
        }
    }

    /// Follows the float32 result `product`, which has `n` columns.
    pub fn tail(&self, product: ValueId, n: usize, allowed: Allowed, numbers: &mut Numbers<'_>) -> Tail {
        let mut walk = Walk {
            graph: self.graph,
            n,
            allowed,
            place: product,
            has_relu: false,
            seen: Tail::default(),
            found: Tail::default(),
            stopped: None,
        };
        let mut value = product;
        while let Some((node, output)) = self.sole(value) {
            if walk.seen.quantise.is_some() || !walk.takes(node, value, output, numbers) {
                break;
            }
            value = output;
        }
        let mut found = walk.found;
        found.stopped = walk.stopped.or_else(|| self.stopped(value)).filter(|_| allowed.quantise);
        found
    }

    /// The reason when a quantise is not the only reader of `value`.
    fn stopped(&self, value: ValueId) -> Option<String> {
        let quantises = self.reader.get(&value).is_some_and(|node| effect_of(node) == Effect::Quantize);
        let is_shared = self.counts.get(&value).is_some_and(|&count| count > 1);
        (quantises && is_shared).then(|| format!("more than one reads `{}`", self.graph.value_name(value)))
    }
}

struct Walk<'a> {
    graph: &'a Graph,
    n: usize,
    allowed: Allowed,
    /// What holds the result after the rewrite.
    place: ValueId,
    has_relu: bool,
    /// All that has been met; what ends in a view or a `relu` is not taken.
    seen: Tail,
    found: Tail,
    stopped: Option<String>,
}

impl Walk<'_> {
    /// Whether `node`, which reads `value` and gives `output`, may be part of the tail.
    fn takes(&mut self, node: &Node, value: ValueId, output: ValueId, numbers: &mut Numbers<'_>) -> bool {
        if first_value(node) == Some(value) && self.allowed.quantise {
            if effect_of(node) == Effect::Quantize {
                let codes = output_codes(self.graph, node, numbers);
                self.stopped = codes.as_ref().err().map(|reason| format!("`{}` has {reason}", node.name));
                return codes.is_ok_and(|codes| self.quantises(node, output, codes));
            }
            if node.op == *"aten.relu.default" {
                self.has_relu = true;
                self.goes(node, output);
                return true;
            }
        }
        if self.allowed.views && first_value(node) == Some(value) && self.keeps_columns(node, output) {
            self.seen.views.push(output);
            self.place = output;
            return true;
        }
        let is_free = !self.has_relu && self.seen.bias.is_none() && self.keeps_type(value, output);
        let operand = other_operand(node, value);
        let taken = match (node.op.as_str(), operand) {
            ("aten.mul.Tensor", Some(factor)) if is_free => self.multiplies(factor, numbers),
            ("aten.add.Tensor", Some(bias)) if is_free && self.allowed.bias && is_unscaled(node) => {
                self.seen.bias = self.columns(bias, numbers);
                self.seen.bias.is_some()
            }
            _ => false,
        };
        if taken {
            self.goes(node, output);
            self.found = self.seen.clone();
        }
        taken
    }

    fn goes(&mut self, node: &Node, output: ValueId) {
        self.seen.replaced.push((output, self.place));
        self.seen.nodes.push(node.name.clone());
    }

    fn quantises(&mut self, node: &Node, output: ValueId, mut codes: OutputCodes) -> bool {
        if self.has_relu {
            // What is negative becomes the code of 0, and rounding keeps the order.
            codes.low = codes.low.max(codes.zero.min(codes.high));
        }
        self.seen.quantise = Some(codes);
        self.goes(node, output);
        self.found = self.seen.clone();
        true
    }

    fn multiplies(&mut self, factor: ValueId, numbers: &mut Numbers<'_>) -> bool {
        if self.allowed.column_factor && self.seen.column_factor.is_none() {
            self.seen.column_factor = self.columns(factor, numbers);
            if self.seen.column_factor.is_some() {
                return true;
            }
        }
        if !self.allowed.row_factor || self.seen.row_factor.is_some() || !self.seen.views.is_empty() {
            return false;
        }
        let is_float = dtype_of(self.graph, factor) == Some(DType::F32);
        self.seen.row_factor = factor_of(self.graph, self.place, factor)
            .filter(|factor| is_float && !matches!(factor, Factor::FlatRows(_)));
        self.seen.row_factor.is_some()
    }

    /// The elements of `value`, when they are one for each column, or one.
    fn columns(&self, value: ValueId, numbers: &mut Numbers<'_>) -> Option<Vec<f64>> {
        let sizes = concrete_sizes(self.graph, value)?;
        let is_row = sizes.split_last().is_none_or(|(&last, outer)| {
            (last == 1 || last == self.n) && outer.iter().all(|&size| size == 1)
        });
        if is_row { numbers(value) } else { None }
    }

    fn keeps_type(&self, value: ValueId, output: ValueId) -> bool {
        let types = (tensor_type(self.graph, value), tensor_type(self.graph, output));
        matches!(types, (Some(a), Some(b)) if a == b && a.dtype == DType::F32)
    }

    fn keeps_columns(&self, node: &Node, output: ValueId) -> bool {
        let ty = tensor_type(self.graph, output);
        ["view", "reshape", "_unsafe_view"].contains(&node.op.base())
            && ty.is_some_and(|ty| ty.dtype == DType::F32)
            && ty.and_then(|ty| ty.sizes.last()?.as_const()) == i64::try_from(self.n).ok()
    }
}

/// The tensor that `node` joins with `value`.
fn other_operand(node: &Node, value: ValueId) -> Option<ValueId> {
    let (left, right) = (node.value_arg("self")?, node.value_arg("other")?);
    let other = if left == value { right } else { left };
    (other != value).then_some(other)
}

/// What a quantise with constants says, where one scale serves all elements.
///
/// # Errors
/// What it has instead.
fn output_codes(graph: &Graph, node: &Node, numbers: &mut Numbers<'_>) -> Result<OutputCodes, String> {
    let (args, outs) = sample::call(graph, node).map_err(|error| format!("an error: {error}"))?;
    let dtype = outs.first().map_or(DType::Bool, |out| out.dtype);
    if !matches!(dtype, DType::I8 | DType::U8) {
        return Err(format!("codes in {dtype}"));
    }
    let call = QuantizeCall::of(&args).map_err(|error| error.to_string())?;
    if call.param_sizes.iter().any(|&size| size != 1) || call.rounds_sum || call.is_wide() {
        return Err("another scale than one in 32 bits for all".to_string());
    }
    let mut number = |names: [&str; 2], default: f64| match names.iter().find_map(|name| node.arg(name)) {
        Some(Arg::Value(value)) => numbers(*value).and_then(|numbers| numbers.first().copied()),
        Some(Arg::None) | None => Some(default),
        Some(arg) => number_of(arg),
    };
    let scale = number(["scale", "scales"], f64::NAN).ok_or("a scale that a run gives")?;
    let zero = number(["zero_point", "zero_points"], 0.0).ok_or("a zero point that a run gives")?;
    let (low, high) = call.range(dtype).map_err(|error| error.to_string())?;
    // What is unusual is left to the op itself, which does as PyTorch does.
    if !(scale.is_normal() && scale > 0.0 && zero.fract() == 0.0 && zero.abs() <= MOST_ZERO && low <= high) {
        return Err(format!("the scale {scale} and the zero point {zero}"));
    }
    Ok(OutputCodes { scale, zero: zero as i64, low: low as i64, high: high as i64, dtype })
}
