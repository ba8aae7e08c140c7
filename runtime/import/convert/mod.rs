//! From the schema's graph and signature to the IR, one method at a time.
//!
//! Values must be defined before they are read, so a name that dangles, a cycle and a name defined
//! twice are all found here, and named. Must never know where a constant's bytes come from.

mod nodes;
mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::layout::EXPORT_AGAIN;
use super::schema::{self, LAYOUT_STRIDED, SymInt, TensorMeta};
use super::symexpr::{Fault, SizeParser};
use super::weights::{MAX_RANK, TableKind};
use super::{damaged, unsupported};
use crate::base::{Error, Range, Result, SymEnv, SymExpr, Value};
use crate::ir::{Constant, Graph, Method, TensorType, Type, ValueId, verify};

/// Most nodes, inputs and outputs of a method, far above what any model has.
const MAX_NODES: usize = 1 << 20;
const MAX_INPUTS: usize = 1 << 16;
const MAX_OUTPUTS: usize = 1 << 12;

/// Gives the stored tensor of a name.
pub(super) type ConstantSource<'a> = dyn FnMut(TableKind, &str) -> Result<Constant> + 'a;

/// Converts the program of method `name`.
pub(super) fn method(
    name: &str,
    program: &schema::ExportedProgram,
    constants: &mut ConstantSource<'_>,
) -> Result<Method> {
    let source = &program.graph_module.graph;
    let signature = &program.graph_module.signature;
    check_counts(source, signature)?;
    let mut converter = Converter {
        source,
        graph: Graph::new(name),
        sizes: SizeParser::default(),
        fixed_inputs: BTreeMap::new(),
    };
    converter.add_inputs(signature, constants)?;
    for (index, node) in source.nodes.iter().enumerate() {
        converter.add_node(index, node)?;
    }
    converter.add_outputs(signature)?;
    let ranges = converter.ranges(&program.range_constraints.0)?;
    let Converter { graph, fixed_inputs, .. } = converter;
    verify(&graph).map_err(as_bad_file)?;
    let dialect = program.verifiers.first().cloned().unwrap_or_default();
    Ok(Method { graph, ranges, fixed_inputs, dialect })
}

fn check_counts(graph: &schema::Graph, signature: &schema::GraphSignature) -> Result<()> {
    for (what, count, limit) in [
        ("nodes", graph.nodes.len(), MAX_NODES),
        ("inputs", graph.inputs.len(), MAX_INPUTS),
        ("outputs", graph.outputs.len(), MAX_OUTPUTS),
    ] {
        if count > limit {
            return Err(damaged("graph", format_args!("{count} {what}, the limit is {limit}")));
        }
    }
    for (what, in_graph, in_signature) in [
        ("inputs", graph.inputs.len(), signature.input_specs.len()),
        ("outputs", graph.outputs.len(), signature.output_specs.len()),
    ] {
        if in_graph != in_signature {
            let reason = format!("the graph has {in_graph} {what}, the signature {in_signature}");
            return Err(damaged("signature", reason));
        }
    }
    Ok(())
}

/// A rule of the IR that a file breaks is a fault of the file.
fn as_bad_file(error: Error) -> Error {
    let mut bad = Error::bad_file(error.message());
    if let Some(node) = error.node() {
        bad = bad.at_node(node);
    }
    if let Some(operand) = error.operand() {
        bad = bad.at_operand(operand);
    }
    bad
}

struct Converter<'a> {
    source: &'a schema::Graph,
    graph: Graph,
    sizes: SizeParser,
    fixed_inputs: BTreeMap<String, Value>,
}

impl Converter<'_> {
    /// The value called `name`, which something before must have defined.
    fn value(&self, name: &str) -> Result<ValueId> {
        let reason = "nothing before this place defines it (a dangling name, or a cycle)";
        self.graph.value_named(name).ok_or_else(|| damaged(format_args!("`{name:.80}`"), reason))
    }

    fn tensor_type(&mut self, name: &str) -> Result<Type> {
        let source = self.source;
        let meta = source.tensor_values.0.get(name);
        let meta =
            meta.ok_or_else(|| damaged(format_args!("`{name:.80}`"), "tensor_values does not describe it"))?;
        self.type_of_meta(meta).map_err(|e| e.context(format_args!("`{name:.80}`")))
    }

    fn type_of_meta(&mut self, meta: &TensorMeta) -> Result<Type> {
        let dtype = schema::dtype(meta.dtype).map_err(|name| {
            unsupported(
                format_args!("its dtype {name} is not supported"),
                "compute in another dtype and export again",
            )
        })?;
        if meta.layout != LAYOUT_STRIDED {
            return Err(unsupported("it is not a dense tensor", EXPORT_AGAIN));
        }
        if meta.sizes.len() > MAX_RANK {
            return Err(damaged("rank", format_args!("{}, the limit is {MAX_RANK}", meta.sizes.len())));
        }
        let sizes = meta.sizes.iter().map(|size| self.size(size)).collect::<Result<Vec<_>>>()?;
        let known = sizes.iter().filter_map(|size| match size {
            SymExpr::Const(value) => Some((*value).max(1)),
            _ => None,
        });
        if known.clone().any(|size| size < 0) || known.clone().try_fold(1i64, i64::checked_mul).is_none() {
            return Err(damaged("sizes", "their product is beyond 64 bits"));
        }
        Ok(Type::Tensor(TensorType { dtype, sizes }))
    }

    fn size(&mut self, size: &SymInt) -> Result<SymExpr> {
        match self.int(size)? {
            Some(SymExpr::Const(value)) if value < 0 => {
                Err(damaged("size", format_args!("{value} is negative")))
            }
            Some(size) => Ok(size),
            None => Err(unsupported("a size is no expression that can be evaluated", EXPORT_AGAIN)),
        }
    }

    /// The expression of a symbolic int; `None` if the IR has none like it.
    fn int(&mut self, value: &SymInt) -> Result<Option<SymExpr>> {
        match value {
            SymInt::AsInt(value) => Ok(Some(SymExpr::Const(*value))),
            SymInt::AsExpr(expr) => match self.sizes.parse(&expr.expr_str) {
                Ok(size) => Ok(Some(size)),
                Err(Fault::Unsupported(_)) => Ok(None),
                Err(Fault::Syntax(reason)) => {
                    Err(damaged(format_args!("size {:.80?}", expr.expr_str), reason))
                }
            },
        }
    }

    fn int_type(&mut self, name: &str) -> Result<Type> {
        let source = self.source;
        match source.sym_int_values.0.get(name) {
            Some(value) => Ok(Type::Int(self.int(value)?)),
            None => Err(damaged(format_args!("`{name:.80}`"), "sym_int_values does not describe it")),
        }
    }

    /// Ranges of single symbols. torch also writes some of expressions such as `2*s0`.
    fn ranges(
        &mut self,
        constraints: &BTreeMap<String, schema::RangeConstraint>,
    ) -> Result<BTreeMap<Arc<str>, Range>> {
        let mut ranges: BTreeMap<Arc<str>, Range> = BTreeMap::new();
        for (text, constraint) in constraints {
            let min = constraint.min_val.unwrap_or(i64::MIN);
            let max = constraint.max_val.unwrap_or(i64::MAX);
            if min > max {
                let reason = format!("{text:.80} lies between {min} and {max}, which nothing does");
                return Err(damaged("range_constraints", reason));
            }
            let Ok(expr) = self.sizes.parse(text) else { continue };
            let Some((symbol, min, max)) = symbol_range(&expr, min, max) else { continue };
            let range = ranges.entry(symbol).or_insert(Range { min: i64::MIN, max: None });
            range.min = range.min.max(min);
            range.max =
                if max == i64::MAX { range.max } else { Some(range.max.map_or(max, |known| known.min(max))) };
        }
        Ok(ranges)
    }
}

/// The range of `s` if `expr`, which lies between `min` and `max`, is `a*s + b` with a positive `a`.
fn symbol_range(expr: &SymExpr, min: i64, max: i64) -> Option<(Arc<str>, i64, i64)> {
    let mut symbols = Vec::new();
    expr.for_each_symbol(&mut |symbol| symbols.push(Arc::clone(symbol)));
    let symbol = symbols.first()?.clone();
    if matches!(expr, SymExpr::Symbol(_)) {
        return Some((symbol, min, max));
    }
    if symbols.len() != 1 || !is_polynomial(expr) {
        return None;
    }
    let at = |value| expr.eval(&SymEnv::from([(Arc::clone(&symbol), value)])).ok();
    let offset = at(0)?;
    let slope = at(1)?.checked_sub(offset).filter(|&slope| slope > 0)?;
    let divide = |bound: i64, round_up: i64| {
        let numerator = i128::from(bound) - i128::from(offset) + i128::from(round_up);
        i64::try_from(numerator.div_euclid(i128::from(slope))).ok()
    };
    let min = if min == i64::MIN { min } else { divide(min, slope - 1)? };
    let max = if max == i64::MAX { max } else { divide(max, 0)? };
    Some((symbol, min, max))
}

/// Whether only sums and products make up `expr`; with one symbol that stands once, it is linear.
fn is_polynomial(expr: &SymExpr) -> bool {
    match expr {
        SymExpr::Const(_) | SymExpr::Symbol(_) => true,
        SymExpr::Add(items) | SymExpr::Mul(items) => items.iter().all(is_polynomial),
        _ => false,
    }
}
