//! Passes: from the graph of a program to the graph that is planned, in one fixed order.
//!
//! Passes know what ops compute (through `infer` and `eval`) and never a device or a file format. The rule that they
//! keep above all: only what the program proves to be constant is prepacked.

mod attention;
mod dead_code;
mod decision;
mod elementwise;
mod epilogue;
mod evaluate;
mod fold;
mod functionalise;
mod linear;
mod live_weight;
mod quantised;
mod rms_norm;
mod scatter;
mod twins;

pub use decision::{Decision, Fusion, Unfused};
pub use evaluate::FoldLimits;
pub use quantised::Int4PackLayout;

use std::collections::{BTreeMap, HashSet};

use crate::{
    base::Result,
    ir::{Arg, Graph, Method, Node, verify},
    ops,
};

/// What passes may be told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What constant folding may make.
    pub fold: FoldLimits,
    /// How weights lie that were packed in 4 bits before the export; such a program is refused when this is `None`.
    pub int4pack_layout: Option<Int4PackLayout>,
    /// Leaves each node of the rewritten program on its own: no attention, no norms, no epilogues and no chains.
    pub unfused: bool,
    /// Names of nodes that must stay on their own.
    pub pinned: HashSet<String>,
}

/// A method after all passes, with what they did.
#[derive(Clone, Debug)]
pub struct Optimised {
    /// The method; its graph is what plans are made from.
    pub method: Method,
    /// What became of each matrix product, in the order of the program.
    pub decisions: Vec<Decision>,
    /// Nodes that became one.
    pub fusions: Vec<Fusion>,
    /// What stays in pieces, and why.
    pub unfused: Vec<Unfused>,
    /// What the user of the program should know.
    pub warnings: Vec<String>,
    ops: BTreeMap<String, usize>,
}

impl Optimised {
    /// How many nodes there are of each op after linear rewrite, constant folding and dead code, before epilogues and chains, by
    /// base name (`add` of `aten.add.Tensor`). Arithmetic on host scalars is not counted.
    pub fn ops(&self) -> &BTreeMap<String, usize> {
        &self.ops
    }
}

/// Runs every pass over a copy of `method`. Payloads are read only where an expression of constants is evaluated.
///
/// # Errors
/// A graph that breaks the rules of the IR. What cannot run is not an error here: the check before planning finds it.
pub fn optimise(method: &Method, options: &Options) -> Result<Optimised> {
    let mut method = method.clone();
    let graph = &mut method.graph;
    let mut warnings = Vec::new();
    if !graph.has_signature() {
        warnings.push(format!(
            "method `{}` has no signature: nothing counts as constant, and no weight is prepacked",
            graph.name()
        ));
    }
    warnings.extend(functionalise::run(graph));
    checked(graph, "functionalise")?;
    dead_code::run(graph);
    checked(graph, "dead code")?;
    let products = linear::run(graph)?;
    checked(graph, "linear rewrite")?;
    twins::run(graph)?;
    dead_code::run(graph);
    checked(graph, "twins")?;
    let quantised = quantised::run(graph, options)?;
    checked(graph, "quantised fusion")?;
    let lookups = quantised::run_lookups(graph, &options.fold)?;
    warnings.extend(lookups.warnings);
    checked(graph, "quantised lookups")?;
    let kept = fold::run(graph, &options.fold)?;
    dead_code::run(graph);
    checked(graph, "constant folding")?;
    let decisions = linear::settle(graph, products, &kept, &quantised.remarks)?;
    dead_code::run(graph);
    checked(graph, "live weights")?;
    let ops = histogram(graph);
    let mut fusions: Vec<Fusion> = quantised.fusions.into_iter().chain(lookups.fusions).collect();
    let mut unfused = Vec::new();
    if !options.unfused {
        let attention = attention::run(graph, &options.pinned)?;
        fusions.extend(attention.0);
        unfused = attention.1;
        dead_code::run(graph);
        checked(graph, "attention")?;
        fusions.extend(rms_norm::run(graph, &options.pinned)?);
        dead_code::run(graph);
        checked(graph, "norms")?;
        fusions.extend(epilogue::run(graph, &options.pinned)?);
        dead_code::run(graph);
        checked(graph, "epilogues")?;
        fusions.extend(elementwise::run(graph, &options.pinned)?);
        dead_code::run(graph);
        checked(graph, "element-wise fusion")?;
    }
    Ok(Optimised { method, decisions, fusions, unfused, warnings, ops })
}

/// Verifies what a pass left, in tests and debug builds.
fn checked(graph: &Graph, pass: &str) -> Result<()> {
    if cfg!(debug_assertions) {
        verify(graph).map_err(|error| error.context(format!("after {pass}")))?;
    }
    Ok(())
}

/// Whether a sum or difference takes its second operand as it is: `alpha` is left out, or the integer or float 1.
fn is_unscaled(node: &Node) -> bool {
    match node.arg("alpha") {
        None | Some(Arg::None | Arg::Int(1)) => true,
        Some(Arg::Float(alpha)) => *alpha == 1.0,
        _ => false,
    }
}

fn histogram(graph: &Graph) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (_, node) in graph.nodes() {
        if !ops::is_scalar_target(node.op.as_str()) {
            *counts.entry(base_name(node).to_string()).or_insert(0) += 1;
        }
    }
    counts
}

/// The base name of the op; a product with a prepacked weight and a lookup keep theirs, however the codes are held.
fn base_name(node: &Node) -> &str {
    match node.op.base() {
        "linear_a8w4" | "linear_a8w8" | "linear_q4" | "linear_q8" => "linear",
        "embedding_q4" | "embedding_q8" => "embedding",
        base => base,
    }
}
