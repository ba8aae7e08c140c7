//! Quantised fusion: a `linear` whose weight is dequantised from constant codes becomes one op that holds the codes.
//!
//! | weight of the `linear` | |
//! |---|---|
//! | any `dequantize_*` of a constant | transposed or not |
//! | `view((to_float(view(codes)) - zero) * scale)` | what decomposing `dequantize_affine` leaves |
//! | `to_float(codes)` | with a constant factor on the product: `mm(x, to_float(codes)) * scale` |
//!
//! Where the activations are dequantised at run time too, from int8 or uint8 codes with one scale for all or for each
//! row, both codes are multiplied as integers (`linear_a8w8`, `linear_a8w4`), and a quantise of the result with
//! constants is part of the product. So is a chain `to_float(_int_mm(codes, constant)) * scales + bias`, also where the
//! codes take a detour as unsigned ones (see `offset`).
//!
//! `_weight_int4pack_mm_for_cpu` becomes a `linear` first, where its packed codes are known: see [`Int4PackLayout`].
//!
//! `_weight_int8pack_mm` and `_int_mm` with constant codes keep their names and get kernels that read packed codes.
//! Codes of 16 neighbouring values take 4 bits each on the device, others 8. Where nothing is fused, the weight is
//! folded to floats, and the report says why; where only the weight is, the report says why the activations are not.
//! Runs after the linear rewrite, so every product with a constant weight is a `linear`.

mod activation;
mod embedding;
mod int4pack;
mod int_mm;
mod offset;
mod pack;
mod plan;
mod sample;
mod tail;
mod weight;

use std::collections::HashMap;

use super::{Fusion, Options, evaluate::Evaluator};
use crate::{
    base::{DType, Result},
    ir::{Constness, Graph, Node, NodeId, ValueId},
};
use activation::Activation;
pub(super) use embedding::run as run_lookups;
pub use int4pack::Int4PackLayout;
use pack::{Groups, Packed, pack};
use plan::{Input, Plan, Shared};
use tail::{Allowed, Readers, Tail};
use weight::{Param, Weight};

/// What the pass did.
pub(super) struct Outcome {
    /// One for each fused product.
    pub fusions: Vec<Fusion>,
    /// By the name of a product: what it became, or why its weight stays float.
    pub remarks: HashMap<String, String>,
}

/// Runs the pass.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph, options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome { fusions: Vec::new(), remarks: HashMap::new() };
    let limits = &options.fold;
    let added = int4pack::run(graph, options.int4pack_layout, limits)?;
    offset::run(graph, limits)?;
    let mut plans = Vec::new();
    let mut products = Vec::new();
    let constness = Constness::analyse(graph)?;
    let readers = Readers::of(graph);
    let mut finder =
        Finder { graph, constness: &constness, readers: &readers, evaluator: Evaluator::new(graph, limits) };
    for &id in graph.order() {
        let node = graph.node(id)?;
        match finder.plan(id, node) {
            Ok(Some(plan)) => plans.push(plan),
            Ok(None) => products.extend(finder.int_product(id, node)),
            Err(reason) => {
                outcome.remarks.insert(node.name.clone(), format!("its weight is kept in floats: {reason}"));
            }
        }
    }
    for product in products {
        outcome.fusions.push(product.fusion.clone());
        product.apply(graph)?;
    }
    // A chain becomes its last node: what is shared has to be made before the first of all products.
    plans.sort_by_key(|plan| graph.position(plan.node));
    let mut shared = Shared::default();
    for plan in plans {
        let name = graph.node(plan.node)?.name.clone();
        outcome.remarks.insert(name, plan.remark.clone());
        outcome.fusions.push(plan.fusion.clone());
        plan.apply(graph, &mut shared)?;
    }
    outcome.fusions.iter_mut().for_each(|fusion| fusion.nodes.retain(|node| !added.contains(node)));
    Ok(outcome)
}

struct Finder<'a> {
    graph: &'a Graph,
    constness: &'a Constness,
    readers: &'a Readers<'a>,
    evaluator: Evaluator<'a>,
}

impl Finder<'_> {
    /// The fused form of `node`; `None` when it is no product with a quantised weight.
    fn plan(&mut self, id: NodeId, node: &Node) -> Result<Option<Plan>, String> {
        let (weight, input) = match node.op.as_str() {
            "aten.linear.default" => match self.constant_operand(node, "weight") {
                Some(value) => (Weight::of_linear(self.graph, value)?, node.value_arg("input")),
                None => return Ok(None),
            },
            "aten._weight_int8pack_mm.default" => match self.constant_operand(node, "mat2") {
                Some(codes) => (Weight::of_int8pack(self.graph, node, codes), node.value_arg("self")),
                None => return Err("the codes are run-time data".to_string()),
            },
            "aten._int_mm.default" => return Ok(self.int_chain(node)),
            _ => return Ok(None),
        };
        let (Some(weight), Some(input), &[product]) = (weight, input, node.outputs.as_slice()) else {
            return Ok(None);
        };
        sample::call(self.graph, node)?;
        let bias = match node.value_arg("bias") {
            None => None,
            Some(bias) if self.constness.is_constant(bias) => Some(self.numbers(bias)?),
            Some(_) => return Err("the bias is run-time data".to_string()),
        };
        let packed = self.pack(&weight)?;
        let mut remark = packed.remark();
        let activation = self.activation(node, input, product, &packed).unwrap_or_else(|reason| {
            remark.push_str(&format!("; its activations stay in floats: {reason}"));
            None
        });
        let allowed = Allowed {
            column_factor: bias.is_none() && weight.is_unscaled(),
            row_factor: false,
            bias: bias.is_none(),
            quantise: activation.is_some(),
            views: true,
        };
        let tail = self.tail(product, packed.n, allowed);
        let kind = match (&activation, node.op.base(), packed.bits) {
            (Some(_), _, 4) => "linear_a8w4",
            (Some(_), _, _) => "linear_a8w8",
            (None, "linear", 4) => "linear_q4",
            (None, "linear", _) => "linear_q8",
            (None, ..) => "_weight_int8pack_mm",
        };
        let input = match activation {
            Some(activation) => {
                remark.push_str("; its activations stay in 8-bit codes");
                if let Some(reason) = &tail.stopped {
                    remark.push_str(&format!("; its result stays in floats: {reason}"));
                }
                Input::Codes(activation)
            }
            None => Input::Floats(input),
        };
        let fusion = fusion_of(kind, &weight, &input, node, &tail);
        Ok(Some(Plan { node: id, kind, input, packed, bias, tail, fusion, remark }))
    }

    /// The codes that the input of a `linear` is made of.
    fn activation(
        &self,
        node: &Node,
        input: ValueId,
        product: ValueId,
        packed: &Packed,
    ) -> Result<Option<Activation>, String> {
        if node.op.base() != "linear" || self.constness.is_constant(input) {
            return Ok(None);
        }
        let found = Activation::find(self.graph, self.constness, input)?;
        match weight::dtype_of(self.graph, product) {
            Some(dtype) if found.is_some() && dtype != DType::F32 => {
                Err(format!("the product is {dtype}; products of codes are float32"))
            }
            _ => match found {
                Some(found) => packed.check_sums(&found).map(|()| Some(found)),
                None => Ok(None),
            },
        }
    }

    fn tail(&mut self, product: ValueId, n: usize, allowed: Allowed) -> Tail {
        if weight::dtype_of(self.graph, product) != Some(DType::F32) {
            return Tail::default();
        }
        let readers = self.readers;
        let mut numbers =
            |value| if self.constness.is_constant(value) { self.numbers(value).ok() } else { None };
        readers.tail(product, n, allowed, &mut numbers)
    }

    fn constant_operand(&self, node: &Node, name: &str) -> Option<ValueId> {
        node.value_arg(name).filter(|&value| self.constness.is_constant(value))
    }

    fn pack(&mut self, weight: &Weight) -> Result<Packed, String> {
        let codes = self.evaluator.evaluate(weight.codes, true)?;
        let scale = self.param_numbers(&weight.scale)?;
        let zero = self.param_numbers(&weight.zero)?;
        pack(weight, codes, (scale, zero), Groups::OfWords)
    }

    fn param_numbers(&mut self, param: &Param) -> Result<Vec<f64>, String> {
        param.numbers(self.graph, self.constness, &mut self.evaluator)
    }

    fn numbers(&mut self, value: ValueId) -> Result<Vec<f64>, String> {
        let constant = self.evaluator.evaluate(value, false)?;
        Ok(constant.to_tensor().map_err(|error| error.to_string())?.to_f64s())
    }
}

/// The nodes that become one, in the order of what they do.
fn fusion_of(kind: &str, weight: &Weight, input: &Input, product: &Node, tail: &Tail) -> Fusion {
    let mut nodes = weight.nodes.clone();
    if let Input::Codes(activation) = input {
        nodes.extend(activation.nodes.iter().cloned());
    }
    nodes.push(product.name.clone());
    nodes.extend(tail.nodes.iter().cloned());
    Fusion { kind: kind.to_string(), nodes }
}
