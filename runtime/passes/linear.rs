//! The linear rewrite: a matrix product with a constant on the right becomes `linear`, whose weight is prepacked.
//!
//! | program | becomes, where the second operand is constant |
//! |---|---|
//! | `mm(x, W)`, `matmul(x, W)` with W a matrix | `linear(x, W^T)` |
//! | `bmm(x, B)` with B a matrix W that `expand` repeats | `linear(x, W^T)` |
//! | `addmm(bias, x, W, beta, alpha)` | `linear(x, W^T, beta bias)`, or `beta bias + alpha linear(x, W^T)` |
//! | `linear`, other `bmm`, `baddbmm` | themselves |
//!
//! Whether W is constant, [`Constness`] says and nothing else. W is transposed by a `permute` that folding turns into
//! strides over the program's own bytes; so it does not matter by which chain of views W came about, nor whether it is
//! stored transposed. A `linear` whose weight is not constant becomes `mm` or `addmm`: see [`super::live_weight`].

use std::collections::HashMap;

use super::{Decision, fold::Kept, live_weight};
use crate::{
    base::{DType, Result, SymExpr},
    ir::{Arg, Constness, Graph, IntArg, Node, NodeId, Patch, TensorType, Type, ValueId},
};

/// What became of one product, while it may still change.
pub(super) struct Product {
    decision: Decision,
    /// The chain of the second operand.
    chain: String,
    /// Name of the node that multiplies: the program's, or one that the rewrite added.
    multiplies: String,
}

impl Product {
    fn set(&mut self, became: &str, remark: &str) {
        let Decision { node, op, operand, .. } = &self.decision;
        let verb = if became == op { "kept" } else { "became" };
        let separator = if remark.is_empty() { "" } else { "; " };
        self.decision.reason =
            format!("{node}: {verb} {became}: {operand} = {}{separator}{remark}", self.chain);
        self.decision.became = became.to_string();
    }
}

/// Rewrites every product of `graph` that may be rewritten, and says what became of each and why.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn run(graph: &mut Graph) -> Result<Vec<Product>> {
    let constness = Constness::analyse(graph)?;
    let mut products = Vec::new();
    for id in graph.order().to_vec() {
        let node = graph.node(id)?;
        let Some(operand) = second_operand(node) else { continue };
        let Some(value) = node.value_arg(operand) else { continue };
        // What is repeated may be constant where only a run knows how often.
        let repeated = repeated_matrix(graph, node, value).filter(|&matrix| constness.is_constant(matrix));
        let value = repeated.unwrap_or(value);
        let constant = constness.is_constant(value);
        let mut product = Product {
            decision: Decision {
                node: node.name.clone(),
                op: node.op.base().to_string(),
                became: String::new(),
                operand: operand.to_string(),
                constant,
                reason: String::new(),
            },
            chain: constness.chain(graph, value),
            multiplies: node.name.clone(),
        };
        match rewrite(graph, node, value, constant) {
            Rule::Becomes { patch, op, multiplies } => {
                patch.apply(graph, id)?;
                product.multiplies = multiplies.map_or(product.multiplies, |value| graph.value_name(value));
                product.set(op, "");
            }
            Rule::Stays(remark) => {
                let op = product.decision.op.clone();
                product.set(&op, remark);
            }
        }
        products.push(product);
    }
    Ok(products)
}

/// After folding: takes every weight that did not become a constant away from `linear`, and completes the reasons;
/// `remarks` are what the quantised fusion says of products, by name.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(super) fn settle(
    graph: &mut Graph,
    products: Vec<Product>,
    kept: &Kept,
    remarks: &HashMap<String, String>,
) -> Result<Vec<Decision>> {
    let by_name: HashMap<String, NodeId> = graph.nodes().map(|(id, node)| (node.name.clone(), id)).collect();
    let mut decisions = Vec::with_capacity(products.len());
    for mut product in products {
        match by_name.get(&product.multiplies) {
            Some(&id) => settle_one(graph, id, &mut product, kept)?,
            None => product.set("constant", "folded, as the other operands are constant too"),
        }
        if let Some(remark) = remarks.get(&product.multiplies) {
            product.decision.reason.push_str(&format!("; {remark}"));
        }
        decisions.push(product.decision);
    }
    Ok(decisions)
}

fn settle_one(graph: &mut Graph, id: NodeId, product: &mut Product, kept: &Kept) -> Result<()> {
    let node = graph.node(id)?;
    let Some(weight) = node.value_arg("weight").filter(|_| node.op == *"aten.linear.default") else {
        return Ok(());
    };
    if graph.input_of(weight).is_some_and(|input| input.kind.constant().is_some()) {
        return Ok(());
    }
    let reason = kept.get(&weight).cloned().unwrap_or_default();
    if let Some((patch, op)) = live_weight::rewrite(graph, graph.node(id)?) {
        patch.apply(graph, id)?;
        product.set(op, &reason);
    }
    Ok(())
}

/// The argument that holds the second operand, for the products that are decided here.
fn second_operand(node: &Node) -> Option<&'static str> {
    match node.op.without_overload() {
        "aten.mm" | "aten.addmm" | "aten.bmm" => Some("mat2"),
        "aten.linear" => Some("weight"),
        "aten.matmul" => Some("other"),
        "aten.baddbmm" => Some("batch2"),
        _ => None,
    }
}

enum Rule {
    /// Apply the patch; the node then is, or ends in, an `op`. `multiplies` is the product's value where it is not
    /// the node's own.
    Becomes {
        patch: Patch,
        op: &'static str,
        multiplies: Option<ValueId>,
    },
    Stays(&'static str),
}

impl Rule {
    fn becomes(patch: Patch, op: &'static str) -> Rule {
        Rule::Becomes { patch, op, multiplies: None }
    }
}

fn rewrite(graph: &Graph, node: &Node, second: ValueId, constant: bool) -> Rule {
    match (node.op.as_str(), constant) {
        ("aten.linear.default", true) => Rule::Stays(""),
        ("aten.linear.default", false) => match live_weight::rewrite(graph, node) {
            Some((patch, op)) => Rule::becomes(patch, op),
            None => Rule::Stays("the weight is no matrix"),
        },
        (_, false) => Rule::Stays(""),
        ("aten.mm.default" | "aten.matmul.default", true) => rewrite_product(graph, node, second),
        ("aten.addmm.default", true) => rewrite_addmm(graph, node, second),
        ("aten.bmm.default", true) if node.value_arg("mat2") != Some(second) => {
            rewrite_product(graph, node, second)
        }
        ("aten.bmm.default" | "aten.baddbmm.default", true) => {
            Rule::Stays("prepacked as it is: linear has no batches of weights")
        }
        _ => Rule::Stays("this overload is not rewritten"),
    }
}

/// The matrix that `batch`, the second operand of the `bmm` `node`, of sizes `[B, K, N]`, repeats: a linear layer over a
/// tensor that is not contiguous is exported so. Every step back keeps elements in order, or repeats whole matrices; so
/// where only one is left, it is all of them.
fn repeated_matrix(graph: &Graph, node: &Node, batch: ValueId) -> Option<ValueId> {
    let [_, matrix @ ..] = sizes(graph, batch).filter(|_| node.op == *"aten.bmm.default")? else {
        return None;
    };
    let mut value = batch;
    while sizes(graph, value)? != matrix {
        let node = graph.node(graph.defining_node(value)?).ok()?;
        let source = node.value_arg("self")?;
        let holds_matrices = |value| sizes(graph, value).is_some_and(|sizes| sizes.ends_with(matrix));
        match node.op.as_str() {
            "aten.view.default" | "aten._unsafe_view.default" | "aten.reshape.default" => {}
            "aten.unsqueeze.default" | "aten.clone.default" => {}
            "aten.expand.default" if holds_matrices(value) && holds_matrices(source) => {}
            _ => return None,
        }
        value = source;
    }
    Some(value)
}

fn sizes(graph: &Graph, value: ValueId) -> Option<&[SymExpr]> {
    graph.value(value).ok()?.ty.as_tensor().map(|ty| ty.sizes.as_slice())
}

/// A constant on the right that can be the weight of a `linear`.
struct Weight {
    value: ValueId,
    dtype: DType,
    k: i64,
    n: i64,
}

impl Weight {
    fn new(graph: &Graph, value: ValueId) -> Result<Weight, &'static str> {
        let ty = graph.value(value).ok().and_then(|data| data.ty.as_tensor()).ok_or("it is no tensor")?;
        if !matches!(ty.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err("linear takes float32, float16 and bfloat16 only");
        }
        match ty.sizes.iter().map(SymExpr::as_const).collect::<Option<Vec<_>>>().as_deref() {
            Some(&[k, n]) => Ok(Weight { value, dtype: ty.dtype, k, n }),
            Some(_) => Err("linear takes a matrix on the right only"),
            None => Err("its sizes are not fixed"),
        }
    }

    /// Adds the transposed weight, `[N, K]`, which folding makes a view of the program's bytes.
    fn transposed(&self, patch: &mut Patch, node: &Node) -> ValueId {
        let ty = tensor(self.dtype, vec![SymExpr::Const(self.n), SymExpr::Const(self.k)]);
        let args = vec![
            ("self", Arg::Value(self.value)),
            ("dims", Arg::Ints(vec![IntArg::Const(1), IntArg::Const(0)])),
        ];
        patch.node(&format!("{}_weight", node.name), "aten.permute.default", args, ty)
    }
}

pub(super) fn tensor(dtype: DType, sizes: Vec<SymExpr>) -> Type {
    Type::Tensor(TensorType { dtype, sizes })
}

fn rewrite_product(graph: &Graph, node: &Node, second: ValueId) -> Rule {
    let weight = match Weight::new(graph, second) {
        Ok(weight) => weight,
        Err(remark) => return Rule::Stays(remark),
    };
    let Some(x) = node.value_arg("self") else { return Rule::Stays("it has no first operand") };
    let mut patch = Patch::new(graph);
    let transposed = weight.transposed(&mut patch, node);
    patch.becomes("aten.linear.default", vec![("input", Arg::Value(x)), ("weight", Arg::Value(transposed))]);
    Rule::becomes(patch, "linear")
}

/// How the bias of an `addmm` lies over the result `[M, N]`.
enum Bias {
    /// Nothing is added: `beta` is 0, and then not even NaN spreads.
    None,
    /// `[N]`, behind any number of dims of size 1.
    Row,
    /// One number.
    One,
    /// Anything else.
    Matrix,
}

fn rewrite_addmm(graph: &Graph, node: &Node, second: ValueId) -> Rule {
    let weight = match Weight::new(graph, second) {
        Ok(weight) => weight,
        Err(remark) => return Rule::Stays(remark),
    };
    let (Some(x), Some(bias)) = (node.value_arg("mat1"), node.value_arg("self")) else {
        return Rule::Stays("an operand is missing");
    };
    let (Some(alpha), Some(beta)) = (factor(node, "alpha"), factor(node, "beta")) else {
        return Rule::Stays("alpha or beta is known at run time only");
    };
    let Ok(Type::Tensor(bias_type)) = graph.value(bias).map(|data| &data.ty) else {
        return Rule::Stays("the bias is no tensor");
    };
    if alpha == 0.0 {
        return Rule::Stays("alpha is 0, so the product does not count");
    }
    let form = if beta == 0.0 { Bias::None } else { bias_form(&bias_type.sizes, weight.n) };
    let bias = AddedBias { value: bias, ty: bias_type.clone(), beta, n: weight.n };
    let mut patch = Patch::new(graph);
    let transposed = weight.transposed(&mut patch, node);
    let linear = vec![("input", Arg::Value(x)), ("weight", Arg::Value(transposed))];
    match form {
        Bias::None if alpha == 1.0 => {
            patch.becomes("aten.linear.default", linear);
            Rule::becomes(patch, "linear")
        }
        Bias::Row | Bias::One if alpha == 1.0 => {
            let row = bias.as_row(&mut patch, node, &form);
            patch.becomes("aten.linear.default", [linear, vec![("bias", Arg::Value(row))]].concat());
            Rule::becomes(patch, "linear")
        }
        // Between the nodes, half precision would round, and could overflow, where addmm does not.
        _ if weight.dtype != DType::F32 => {
            Rule::Stays("alpha or the bias's shape would need a rounding that addmm does not have")
        }
        form => {
            let Ok(ty) =
                node.outputs.first().map_or(Ok(Type::None), |&out| graph.value(out).map(|v| v.ty.clone()))
            else {
                return Rule::Stays("it has no output");
            };
            let product =
                patch.node(&format!("{}_product", node.name), "aten.linear.default", linear, ty.clone());
            bias.add(&mut patch, node, (product, alpha), &form, ty);
            Rule::Becomes { patch, op: "linear", multiplies: Some(product) }
        }
    }
}

/// The bias of an `addmm`.
struct AddedBias {
    value: ValueId,
    ty: TensorType,
    beta: f64,
    n: i64,
}

impl AddedBias {
    /// `beta * bias` as `[N]`.
    fn as_row(&self, patch: &mut Patch, node: &Node, form: &Bias) -> ValueId {
        let name = format!("{}_bias", node.name);
        let (mut row, mut sizes) = (self.value, self.ty.sizes.clone());
        let mut reshape = |patch: &mut Patch, row: ValueId, op: &str, size: i64| {
            sizes = vec![SymExpr::Const(size)];
            let args = vec![("self", Arg::Value(row)), ("size", Arg::Ints(vec![IntArg::Const(size)]))];
            patch.node(&name, op, args, tensor(self.ty.dtype, sizes.clone()))
        };
        if self.ty.sizes.len() != 1 {
            let size = if matches!(form, Bias::One) { 1 } else { self.n };
            row = reshape(patch, row, "aten.view.default", size);
        }
        if matches!(form, Bias::One) && self.n != 1 {
            row = reshape(patch, row, "aten.expand.default", self.n);
        }
        if self.beta != 1.0 {
            let args = vec![("self", Arg::Value(row)), ("other", Arg::Float(self.beta))];
            row = patch.node(&name, "aten.mul.Scalar", args, tensor(self.ty.dtype, sizes));
        }
        row
    }

    /// Makes the node `alpha * product + beta * bias`.
    fn add(&self, patch: &mut Patch, node: &Node, (product, alpha): (ValueId, f64), form: &Bias, ty: Type) {
        let scale = vec![("self", Arg::Value(product)), ("other", Arg::Float(alpha))];
        if matches!(form, Bias::None) {
            return patch.becomes("aten.mul.Scalar", scale);
        }
        let scaled = if alpha == 1.0 {
            product
        } else {
            patch.node(&format!("{}_scaled", node.name), "aten.mul.Scalar", scale, ty)
        };
        let mut args = vec![("self", Arg::Value(scaled)), ("other", Arg::Value(self.value))];
        if self.beta != 1.0 {
            args.push(("alpha", Arg::Float(self.beta)));
        }
        patch.becomes("aten.add.Tensor", args);
    }
}

/// `alpha` or `beta`, 1 when left out; `None` when only a run knows it.
fn factor(node: &Node, name: &str) -> Option<f64> {
    match node.arg(name) {
        None | Some(Arg::None) => Some(1.0),
        Some(Arg::Int(value)) => Some(*value as f64),
        Some(Arg::Float(value)) => Some(*value),
        Some(Arg::Bool(value)) => Some(f64::from(u8::from(*value))),
        Some(_) => None,
    }
}

fn bias_form(sizes: &[SymExpr], n: i64) -> Bias {
    let is = |size: &SymExpr, want: i64| size.as_const() == Some(want);
    match sizes.split_last() {
        _ if sizes.iter().all(|size| is(size, 1)) => Bias::One,
        Some((last, leading)) if is(last, n) && leading.iter().all(|size| is(size, 1)) => Bias::Row,
        _ => Bias::Matrix,
    }
}
