//! Finds every node that cannot run, before anything is allocated.

use super::nodes::{concrete_sizes, scalar_of_type};
use crate::{
    base::{Error, Refusal, Result, SymEnv, shape},
    ir::{Constness, Effect, Graph, Method, Node, Type, ValueId, effect_of},
    ops::{self, Meta, Resolved},
};

/// The dialect of what `torch.export.export` gives, before `run_decompositions()`.
const TRAINING_IR: &str = "TRAINING";

/// Every node of `method` that the delegate cannot take at the sizes of `env`, with the operand and the reason.
/// Each node is judged by the types that the program gives its operands, so one refusal does not cause others.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub fn check(method: &Method, env: &SymEnv) -> Result<Vec<Refusal>> {
    let graph = &method.graph;
    let constness = Constness::analyse(graph)?;
    let mut refusals = Vec::new();
    for (_, node) in graph.nodes() {
        let checked = check_node(method, node, env).and_then(|()| check_weight(graph, &constness, node));
        if let Err(error) = checked {
            refusals.push(Refusal {
                node: node.name.clone(),
                op: node.op.to_string(),
                operand: error.operand().map(str::to_string),
                reason: error.message().to_string(),
            });
        }
    }
    Ok(refusals)
}

/// Every node that cannot run at the sizes of one of `envs`, each named once.
///
/// # Errors
/// As [`check`].
pub fn check_all(method: &Method, envs: &[SymEnv]) -> Result<Vec<Refusal>> {
    let mut refusals: Vec<Refusal> = Vec::new();
    for env in envs {
        for refusal in check(method, env)? {
            if !refusals.iter().any(|known| known.node == refusal.node) {
                refusals.push(refusal);
            }
        }
    }
    Ok(refusals)
}

fn declared(graph: &Graph, value: ValueId, env: &SymEnv) -> Result<Resolved<Meta>> {
    match &graph.value(value)?.ty {
        Type::Tensor(tensor) => Ok(Resolved::Tensor(Meta::new(tensor.dtype, concrete_sizes(tensor, env)?))),
        Type::None => Ok(Resolved::None),
        ty => Ok(Resolved::Scalar(scalar_of_type(ty, env)?)),
    }
}

fn check_node(method: &Method, node: &Node, env: &SymEnv) -> Result<()> {
    let graph = &method.graph;
    match effect_of(node) {
        Effect::Assert => return Ok(()),
        Effect::Write => {
            return Err(Error::unsupported(
                "writes in place; export with run_decompositions() to make the program functional",
            ));
        }
        Effect::Random if ops::find(node.op.as_str()).is_none() => {
            return Err(Error::unsupported("gives random numbers; export the model in eval mode"));
        }
        _ => {}
    }
    if ops::is_scalar_target(node.op.as_str()) {
        return Ok(());
    }
    let op = ops::find(node.op.as_str())
        .ok_or_else(|| Error::unsupported(why_unsupported(node, &method.dialect)))?;
    let args = ops::resolve(node, |value| declared(graph, value, env))?;
    let outs = op.infer(&args)?;
    check_outputs(graph, node, &outs, env)
}

/// Refuses a `linear` whose weight is not a constant of the program. No pass leaves one.
fn check_weight(graph: &Graph, constness: &Constness, node: &Node) -> Result<()> {
    let Some(weight) = node.value_arg("weight").filter(|_| node.op.base() == "linear") else { return Ok(()) };
    if constness.tensor_ref(graph, weight).is_ok() {
        return Ok(());
    }
    let chain = constness.chain(graph, weight);
    let text = format!("weight = {chain}; linear packs a constant of the program, live data is for mm");
    Err(Error::unsupported(text).at_operand("weight"))
}

/// Why no family takes the op of `node` of a program in `dialect`, with advice where there is some.
fn why_unsupported(node: &Node, dialect: &str) -> String {
    let advice = match node.op.base() {
        "_weight_int4pack_mm_for_cpu" => {
            ": how its weight is packed depends on the machine that packed it, and the file does not say; state it \
             (Program::int4pack_layout, --int4pack-layout), or export the model with its weights dequantised in the \
             graph (torchao's dequantize_affine), which keeps 4-bit weights in 4 bits"
        }
        base if base.starts_with("_weight_int4pack_mm") => {
            ": how its weight is packed depends on the machine that packed it, and the file does not say; export the \
             model with its weights dequantised in the graph (torchao's dequantize_affine), which keeps 4-bit weights \
             in 4 bits"
        }
        _ if dialect == TRAINING_IR => {
            ": this is training IR; program.run_decompositions() before saving leaves simpler ops in place of most others"
        }
        _ => "",
    };
    format!("the op is not supported{advice}")
}

/// Checks that what `infer` gives is what the program says.
pub(super) fn check_outputs(graph: &Graph, node: &Node, outs: &[Meta], env: &SymEnv) -> Result<()> {
    for (index, &output) in node.outputs.iter().enumerate() {
        let Type::Tensor(tensor) = &graph.value(output)?.ty else { continue };
        let sizes = concrete_sizes(tensor, env)?;
        let got = outs.get(index).ok_or_else(|| {
            Error::unsupported(format!("gives {} outputs, the program reads more", outs.len()))
        })?;
        // A view may stand for more elements than it has memory, but they must still be countable.
        shape::numel(&sizes)?;
        if got.dtype != tensor.dtype || got.sizes != sizes {
            return Err(Error::unsupported(format!(
                "output {index} is {}{:?} here, the program says {}{sizes:?}",
                got.dtype, got.sizes, tensor.dtype
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse_graph;

    fn reason(op: &str, dialect: &str) -> String {
        let text =
            format!("graph g\ninput %x: float32[2]\n%lacks: float32[2] = {op}(self=%x)\noutput %lacks");
        let graph = parse_graph(&text).unwrap();
        let (ranges, fixed_inputs) = (Default::default(), Default::default());
        let method = Method { graph, ranges, fixed_inputs, dialect: dialect.to_string() };
        let refusals = check(&method, &SymEnv::new()).unwrap();
        assert_eq!((refusals.len(), refusals[0].node.as_str(), refusals[0].op.as_str()), (1, "lacks", op));
        refusals[0].reason.clone()
    }

    #[test]
    fn training_ir_is_told_to_decompose_what_is_unknown() {
        assert_eq!(reason("aten.lgamma.default", "ATEN"), "the op is not supported");
        assert!(reason("aten.lgamma.default", "TRAINING").contains("run_decompositions()"));
    }
}
