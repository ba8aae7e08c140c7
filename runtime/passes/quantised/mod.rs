//! Quantised fusion: a `linear` whose weight is dequantised from constant codes becomes one op that holds the codes.
//!
//! | weight of the `linear` | |
//! |---|---|
//! | any `dequantize_*` of a constant | transposed or not |
//! | `view((to_float(view(codes)) - zero) * scale)` | what decomposing `dequantize_affine` leaves |
//! | `to_float(codes)` | with a constant factor on the product: `mm(x, to_float(codes)) * scale` |
//!
//! `_weight_int8pack_mm` and `_int_mm` with constant codes keep their names and get kernels that read packed codes. Codes of 16 neighbouring values
//! take 4 bits each on the device, others 8. Where nothing is fused, the weight is folded to floats, and the report
//! says why. Runs after the linear rewrite, so every product with a constant weight is a `linear`.

mod embedding;
mod pack;
mod weight;

use std::collections::HashMap;

use super::{
    Fusion,
    evaluate::{Evaluator, FoldLimits},
};
use crate::{
    base::{DType, Result},
    ir::{Arg, Constant, Constness, Graph, InputKind, Node, NodeId, Patch, ValueId},
    ops::{Side, SideValues},
};
pub(super) use embedding::run as run_lookups;
use pack::{Groups, Packed, pack};
use weight::{Param, Weight};

/// What the pass did.
pub(super) struct Outcome {
    /// One for each fused product.
    pub fusions: Vec<Fusion>,
    /// By the name of a product: what it became, or why its weight stays float.
    pub remarks: HashMap<String, String>,
}

/// One fused product, before the graph is changed.
struct Plan {
    node: NodeId,
    op: &'static str,
    input: ValueId,
    packed: Packed,
    bias: Option<Vec<f64>>,
    /// A multiplication whose result the product gives.
    absorbed: Option<Absorbed>,
    fusion: Fusion,
}

/// `product * factor`, with a factor for each row of the weight, or one.
struct Absorbed {
    product: ValueId,
    result: ValueId,
    factor: Vec<f64>,
}

/// Runs the pass.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph, limits: &FoldLimits) -> Result<Outcome> {
    let mut outcome = Outcome { fusions: Vec::new(), remarks: HashMap::new() };
    let mut plans = Vec::new();
    let constness = Constness::analyse(graph)?;
    let mut finder = Finder { graph, constness: &constness, evaluator: Evaluator::new(graph, limits) };
    for &id in graph.order() {
        let node = graph.node(id)?;
        match finder.plan(id, node) {
            Ok(Some(plan)) => plans.push(plan),
            Ok(None) => {}
            Err(reason) => {
                outcome.remarks.insert(node.name.clone(), format!("its weight is kept in floats: {reason}"));
            }
        }
    }
    let int_products = finder.int_products()?;
    for product in int_products {
        outcome.fusions.push(product.fusion.clone());
        product.apply(graph)?;
    }
    for plan in plans {
        let name = graph.node(plan.node)?.name.clone();
        outcome.remarks.insert(name, plan.packed.remark());
        outcome.fusions.push(plan.fusion.clone());
        plan.apply(graph)?;
    }
    Ok(outcome)
}

/// An `_int_mm` whose codes stay packed.
struct IntProduct {
    node: NodeId,
    x: ValueId,
    /// `[N, K]`.
    codes: Constant,
    fusion: Fusion,
}

impl IntProduct {
    fn apply(self, graph: &mut Graph) -> Result<()> {
        let name = graph.node(self.node)?.name.clone();
        let codes = graph.add_constant_input(&format!("{name}_codes"), self.codes, InputKind::Derived)?;
        let mut patch = Patch::new(graph);
        let args = vec![("self", Arg::Value(self.x)), ("weight", Arg::Value(codes))];
        patch.becomes("vkdelegate._int_mm.default", args);
        patch.apply(graph, self.node)
    }
}

struct Finder<'a> {
    graph: &'a Graph,
    constness: &'a Constness,
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
            _ => return Ok(None),
        };
        let (Some(weight), Some(input)) = (weight, input) else { return Ok(None) };
        let bias = match node.value_arg("bias") {
            None => None,
            Some(bias) if self.constness.is_constant(bias) => Some(self.numbers(bias)?),
            Some(_) => return Err("the bias is run-time data".to_string()),
        };
        let packed = self.pack(&weight)?;
        let absorbed = if bias.is_none() { self.absorbed(node, &weight, packed.n)? } else { None };
        let op = match (node.op.base(), packed.bits) {
            ("linear", 4) => "vkdelegate.linear_q4.default",
            ("linear", _) => "vkdelegate.linear_q8.default",
            _ => "vkdelegate._weight_int8pack_mm.default",
        };
        let mut nodes = weight.nodes.clone();
        nodes.push(node.name.clone());
        if let Some(user) = absorbed.as_ref().and_then(|absorbed| self.graph.defining_node(absorbed.result)) {
            nodes.extend(self.graph.node(user).ok().map(|user| user.name.clone()));
        }
        let kind = op.split('.').nth(1).unwrap_or(op).to_string();
        let fusion = Fusion { kind, nodes };
        Ok(Some(Plan { node: id, op, input, packed, bias, absorbed, fusion }))
    }

    /// Every `_int_mm` with constant codes that can be evaluated.
    fn int_products(&mut self) -> Result<Vec<IntProduct>> {
        let mut products = Vec::new();
        for &id in self.graph.order() {
            let node = self.graph.node(id)?;
            let (Some(x), Some(mat2)) = (node.value_arg("self"), self.constant_operand(node, "mat2")) else {
                continue;
            };
            if node.op != *"aten._int_mm.default" || !weight::is_codes(self.graph, mat2) {
                continue;
            }
            let Ok(codes) = self.evaluator.evaluate(mat2, true).and_then(|codes| pack::transposed(&codes))
            else {
                continue;
            };
            let fusion = Fusion { kind: "_int_mm".to_string(), nodes: vec![node.name.clone()] };
            products.push(IntProduct { node: id, x, codes, fusion });
        }
        Ok(products)
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
        match param {
            Param::Number(number) => Ok(vec![*number]),
            Param::Value { value, .. } if self.constness.is_constant(*value) => self.numbers(*value),
            Param::Value { value, .. } => {
                Err(format!("`{}` is run-time data", self.graph.value_name(*value)))
            }
        }
    }

    fn numbers(&mut self, value: ValueId) -> Result<Vec<f64>, String> {
        let constant = self.evaluator.evaluate(value, false)?;
        Ok(constant.to_tensor().map_err(|error| error.to_string())?.to_f64s())
    }

    /// A multiplication by constants that alone reads the product `node` of codes without a scale.
    fn absorbed(&mut self, node: &Node, weight: &Weight, n: usize) -> Result<Option<Absorbed>, String> {
        let (true, Some(&product)) = (weight.is_unscaled(), node.outputs.first()) else { return Ok(None) };
        let uses = self.graph.use_counts().get(&product).copied().unwrap_or(0);
        let reads = |user: &&Node| user.args.iter().any(|(_, arg)| arg.as_value() == Some(product));
        let user = self.graph.nodes().map(|(_, user)| user).find(reads);
        let Some(user) = user.filter(|user| uses == 1 && user.op == *"aten.mul.Tensor") else {
            return Ok(None);
        };
        let (left, right) = (user.value_arg("self"), user.value_arg("other"));
        let factor = if left == Some(product) { right } else { left };
        let (Some(factor), Some(&result)) = (factor, user.outputs.first()) else { return Ok(None) };
        let type_of = |value| self.graph.value(value).ok().map(|data| data.ty.clone());
        let same_type = type_of(product) == type_of(result)
            && type_of(product).and_then(|ty| ty.as_tensor().map(|ty| ty.dtype)) == Some(DType::F32);
        if !same_type || !self.constness.is_constant(factor) {
            return Ok(None);
        }
        let sizes = weight::concrete_sizes(self.graph, factor).unwrap_or_default();
        let is_row = sizes
            .split_last()
            .is_none_or(|(&last, outer)| (last == 1 || last == n) && outer.iter().all(|&size| size == 1));
        if !is_row {
            return Ok(None);
        }
        let factor = self.numbers(factor)?;
        Ok(Some(Absorbed { product, result, factor }))
    }
}

impl Plan {
    fn apply(self, graph: &mut Graph) -> Result<()> {
        let name = graph.node(self.node)?.name.clone();
        let Packed { n, groups, offset, codes, mut scales, zeros, .. } = self.packed;
        if let Some(absorbed) = &self.absorbed {
            for (index, scale) in scales.iter_mut().enumerate() {
                let factor = absorbed.factor.get(index / groups).or(absorbed.factor.first());
                *scale *= factor.map_or(1.0, |&factor| factor as f32);
            }
        }
        let side =
            Side { groups, has_zeros: zeros.iter().any(|&zero| zero != 0.0), has_bias: self.bias.is_some() };
        let bias = self.bias.map_or(vec![0.0; n], |bias| bias.into_iter().map(|v| v as f32).collect());
        let table = side.table(&SideValues { scales, zeros, bias }, n)?;
        let table = Constant::from_tensor(format!("{name}_scales"), table);
        let codes = graph.add_constant_input(&format!("{name}_codes"), codes, InputKind::Derived)?;
        let table = graph.add_constant_input(&format!("{name}_scales"), table, InputKind::Derived)?;
        let mut patch = Patch::new(graph);
        let args = vec![
            ("input", Arg::Value(self.input)),
            ("weight", Arg::Value(codes)),
            ("side", Arg::Value(table)),
            ("offset", Arg::Int(i64::from(offset))),
            ("groups", Arg::Int(groups as i64)),
            ("has_zeros", Arg::Bool(side.has_zeros)),
            ("has_bias", Arg::Bool(side.has_bias)),
        ];
        patch.becomes(self.op, args);
        patch.apply(graph, self.node)?;
        if let Some(absorbed) = self.absorbed {
            graph.replace_uses(absorbed.result, absorbed.product)?;
        }
        Ok(())
    }
}
