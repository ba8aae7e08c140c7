//! Lookups in quantised tables: they become one op that reads packed codes, those of a `linear` of the same table where
//! there is one.
//!
//! | lookup | table |
//! |---|---|
//! | `embedding`, `index_select` along dim 0, `index.Tensor` with one index tensor | what a `linear` takes as its weight; a matrix of int8 or uint8 |
//! | `quantized_decomposed.embedding_byte`, `.embedding_4bit`, `.embedding_2bit` | their codes |
//!
//! Groups of any size are taken, as rows are read code by code.

use super::{
    pack::{Groups, Packed, pack},
    weight::{self, Param, Weight},
};
use crate::{
    base::{DType, Error, Result, shape},
    ir::{Arg, Constant, Constness, Graph, InputKind, Node, NodeId, Patch, ValueId},
    ops::{Side, SideValues},
    passes::{
        Fusion,
        evaluate::{Evaluator, FoldLimits},
    },
};

/// What became of the lookups.
#[derive(Default)]
pub(in crate::passes) struct Outcome {
    /// One for each lookup that reads codes.
    pub fusions: Vec<Fusion>,
    /// Why the others do not.
    pub warnings: Vec<String>,
}

/// Rewrites every lookup in a quantised table; runs after the products have their codes.
///
/// # Errors
/// A graph that breaks the rules of the IR.
pub(in crate::passes) fn run(graph: &mut Graph, limits: &FoldLimits) -> Result<Outcome> {
    let (mut outcome, mut lookups) = (Outcome::default(), Vec::new());
    let constness = Constness::analyse(graph)?;
    let mut finder = Finder { graph, constness: &constness, evaluator: Evaluator::new(graph, limits) };
    for &id in graph.order() {
        let node = graph.node(id)?;
        match finder.lookup(id, node) {
            Ok(lookup) => lookups.extend(lookup),
            Err(reason) => {
                let text = format!("{}: its table is looked up in floats: {reason}", node.name);
                outcome.warnings.push(text);
            }
        }
    }
    let mut held = held_by_products(graph);
    for lookup in lookups {
        outcome.fusions.push(lookup.fusion.clone());
        lookup.apply(graph, &mut held)?;
    }
    Ok(outcome)
}

/// One lookup, before the graph is changed.
struct Lookup {
    node: NodeId,
    op: &'static str,
    packed: Packed,
    /// Bits of a code in the program.
    held_bits: u8,
    indices: ValueId,
    wraps: bool,
    dtype: DType,
    /// The dtype that products are rounded to before they become `dtype`.
    rounds_to: Option<DType>,
    fusion: Fusion,
}

/// Codes that the graph holds, and what stands beside them where a lookup can read that.
struct Held {
    codes: ValueId,
    bits: u8,
    offset: u8,
    side: Option<(ValueId, Side)>,
}

/// The codes of the products.
fn held_by_products(graph: &Graph) -> Vec<Held> {
    let mut held = Vec::new();
    for (_, node) in graph.nodes().filter(|(_, node)| node.op.as_str().starts_with("vkdelegate.")) {
        let (bits, has_side) = match node.op.base() {
            "linear_q4" => (4, true),
            "linear_q8" | "_weight_int8pack_mm" => (8, true),
            // Sums of codes stand among their scales.
            "linear_a8w4" => (4, false),
            "linear_a8w8" => (8, false),
            _ => continue,
        };
        let is_set = |name: &str| matches!(node.arg(name), Some(Arg::Bool(true)));
        let int = |name: &str| match node.arg(name) {
            Some(&Arg::Int(value)) => usize::try_from(value).unwrap_or(0),
            _ => 0,
        };
        let (Some(codes), Some(table)) = (node.value_arg("weight"), node.value_arg("side")) else { continue };
        let side =
            Side { groups: int("groups"), has_zeros: is_set("has_zeros"), has_bias: is_set("has_bias") };
        held.push(Held { codes, bits, offset: int("offset") as u8, side: has_side.then_some((table, side)) });
    }
    held
}

impl Held {
    /// Adds `packed` to the graph for the node called `name`, with the codes that the graph has already, if it has.
    fn add(graph: &mut Graph, name: &str, packed: Packed, codes: Option<ValueId>) -> Result<Held> {
        let Packed { n, groups, bits, offset, codes: constant, scales, zeros, .. } = packed;
        let has_zeros = zeros.iter().any(|&zero| zero != 0.0);
        let side = Side { groups, has_zeros, has_bias: false };
        let table = side.table(&SideValues { scales, zeros, bias: vec![0.0; n] }, n)?;
        let table = Constant::from_tensor(format!("{name}_scales"), table);
        let codes = match codes {
            Some(codes) => codes,
            None => graph.add_constant_input(&format!("{name}_codes"), constant, InputKind::Derived)?,
        };
        let table = graph.add_constant_input(&format!("{name}_scales"), table, InputKind::Derived)?;
        Ok(Held { codes, bits, offset, side: Some((table, side)) })
    }

    /// Whether its codes are those of `packed`, as the same bytes of a program or as equal ones: exporting a tied table may
    /// write it twice.
    fn has_codes(&self, graph: &Graph, packed: &Packed) -> Result<bool> {
        let Some(codes) = constant_of(graph, self.codes)? else { return Ok(false) };
        let wanted = &packed.codes;
        let same_form = (self.bits, self.offset) == (packed.bits, packed.offset)
            && (codes.dtype(), codes.sizes(), codes.strides())
                == (wanted.dtype(), wanted.sizes(), wanted.strides());
        Ok(same_form && same_bytes(codes, wanted)?)
    }

    /// Whether what stands beside its codes, which are those of `packed`, gives the scales and zero points of `packed`.
    fn has_factors(&self, graph: &Graph, packed: &Packed) -> Result<bool> {
        let Some((table, side)) = self.side else { return Ok(false) };
        let Some(table) = constant_of(graph, table)? else { return Ok(false) };
        if side.groups != packed.groups {
            return Ok(false);
        }
        let values = side.read(&table.to_tensor()?.to_f32s(), packed.n)?;
        Ok(values.scales == packed.scales && values.zeros == packed.zeros)
    }
}

fn constant_of(graph: &Graph, value: ValueId) -> Result<Option<&Constant>> {
    let id = graph.input_of(value).and_then(|input| input.kind.constant());
    id.map(|id| graph.constant(id)).transpose()
}

/// Whether two constants of bytes, of the same sizes and strides, hold the same.
fn same_bytes(left: &Constant, right: &Constant) -> Result<bool> {
    if left.payload().id() == right.payload().id() && left.offset_elems() == right.offset_elems() {
        return Ok(true);
    }
    let extent = shape::extent_elems(left.sizes(), left.strides())?;
    let bytes = |constant: &Constant| constant.offset_elems()..constant.offset_elems() + extent;
    let (own, other) = (left.payload().bytes()?, right.payload().bytes()?);
    Ok(own.get(bytes(left)).is_some_and(|own| Some(own) == other.get(bytes(right))))
}

struct Finder<'a> {
    graph: &'a Graph,
    constness: &'a Constness,
    evaluator: Evaluator<'a>,
}

impl Finder<'_> {
    /// The fused form of `node`; `None` when it looks up no quantised table.
    fn lookup(&mut self, id: NodeId, node: &Node) -> Result<Option<Lookup>, String> {
        let Some((table, indices, wraps)) = self.table_and_indices(node) else { return Ok(None) };
        if !self.constness.is_constant(table) {
            return Ok(None);
        }
        let Some(dtype) = node.outputs.first().and_then(|&output| weight::dtype_of(self.graph, output))
        else {
            return Ok(None);
        };
        let Some((packed, held_bits, mut nodes)) = self.table(node, table)? else { return Ok(None) };
        nodes.push(node.name.clone());
        let kind = if packed.bits == 4 { "embedding_q4" } else { "embedding_q8" };
        let op = match packed.bits {
            4 => "vkdelegate.embedding_q4.default",
            _ => "vkdelegate.embedding_q8.default",
        };
        let scale = node.value_arg("weight_scales").and_then(|scale| weight::dtype_of(self.graph, scale));
        let rounds_to = scale.filter(|&scale| scale != dtype && scale != DType::F32);
        let fusion = Fusion { kind: kind.to_string(), nodes };
        Ok(Some(Lookup { node: id, op, packed, held_bits, indices, wraps, dtype, rounds_to, fusion }))
    }

    /// Table and indices of a lookup of rows, and whether negative indices count from the end.
    fn table_and_indices(&self, node: &Node) -> Option<(ValueId, ValueId, bool)> {
        let ints = |value: ValueId| {
            let dtype = weight::dtype_of(self.graph, value);
            matches!(dtype, Some(DType::I64 | DType::I32)).then_some(value)
        };
        let (table, indices, wraps) = match node.op.without_overload() {
            "aten.embedding" => (node.value_arg("weight")?, node.value_arg("indices")?, false),
            "aten.index_select" => {
                let index = node.value_arg("index")?;
                let is_vector = weight::rank_of(self.graph, index) == Some(1);
                let is_by_row = matches!(node.arg("dim"), Some(Arg::Int(0 | -2)));
                (node.value_arg("self").filter(|_| is_vector && is_by_row)?, index, false)
            }
            "aten.index" | "aten._unsafe_index" => match node.arg("indices")? {
                Arg::Values(values) => match values.as_slice() {
                    &[Some(index)] | &[Some(index), None] => (node.value_arg("self")?, index, true),
                    _ => return None,
                },
                _ => return None,
            },
            "quantized_decomposed.embedding_byte"
            | "quantized_decomposed.embedding_4bit"
            | "quantized_decomposed.embedding_2bit" => {
                (node.value_arg("weight")?, node.value_arg("indices")?, false)
            }
            _ => return None,
        };
        Some((table, ints(indices)?, wraps))
    }

    /// The codes of `table`, the bits of each in the program, and the names of the nodes that make the table of them.
    fn table(&mut self, node: &Node, table: ValueId) -> Result<Option<(Packed, u8, Vec<String>)>, String> {
        let weight = match node.op.base() {
            "embedding_4bit" => return self.split_table(node, table, 4).map(Some),
            "embedding_2bit" => return self.split_table(node, table, 2).map(Some),
            "embedding_byte" => {
                let sizes = weight::concrete_sizes(self.graph, table)
                    .ok_or("the sizes of its table are not fixed")?;
                let &[rows, columns] = sizes.as_slice() else {
                    return Err("its table is no matrix".to_string());
                };
                Some(Weight::of_rows(self.graph, node, table, [rows, columns])?)
            }
            _ if weight::is_table(self.graph, table) => Weight::of_codes(self.graph, table),
            _ => Weight::of_linear(self.graph, table)?,
        };
        let Some(weight) = weight else { return Ok(None) };
        let codes = self.evaluator.evaluate(weight.codes, true)?;
        let scale = self.numbers(&weight.scale)?;
        let zero = self.numbers(&weight.zero)?;
        Ok(Some((pack(&weight, codes, (scale, zero), Groups::Any)?, 8, weight.nodes)))
    }

    fn numbers(&mut self, param: &Param) -> Result<Vec<f64>, String> {
        param.numbers(self.graph, self.constness, &mut self.evaluator)
    }

    /// A table of `bits` a code, as the bytes of the program hold it.
    fn split_table(
        &mut self,
        node: &Node,
        table: ValueId,
        bits: u8,
    ) -> Result<(Packed, u8, Vec<String>), String> {
        let codes = self.evaluator.evaluate(table, true)?;
        let &[n, bytes] = codes.sizes() else { return Err("its table is no matrix".to_string()) };
        let weight = Weight::of_rows(self.graph, node, table, [n, bytes * 8 / usize::from(bits)])?;
        let scales: Vec<f32> = self.numbers(&weight.scale)?.into_iter().map(|v| v as f32).collect();
        let zeros = match &weight.zero {
            Param::Number(_) => vec![0.0; scales.len()],
            zero => self.numbers(zero)?.into_iter().map(|v| v as f32).collect(),
        };
        let groups = weight.grouped.get(1).copied().unwrap_or(1);
        let k = bytes * 8 / usize::from(bits);
        let packed = Packed { n, k, groups, bits: 4, offset: 0, codes, scales, zeros };
        Ok((packed, bits, Vec::new()))
    }
}

impl Lookup {
    /// Rewrites the lookup, reading one of the `held` tables where it is among them, else a new one of those.
    fn apply(self, graph: &mut Graph, held: &mut Vec<Held>) -> Result<()> {
        let (mut same_codes, mut same_table) = (None, None);
        for (index, held) in held.iter().enumerate() {
            if same_table.is_none() && held.has_codes(graph, &self.packed)? {
                same_codes = same_codes.or(Some(held.codes));
                same_table = held.has_factors(graph, &self.packed)?.then_some(index);
            }
        }
        let index = match same_table {
            Some(index) => index,
            None => {
                let name = graph.node(self.node)?.name.clone();
                held.push(Held::add(graph, &name, self.packed, same_codes)?);
                held.len() - 1
            }
        };
        let Held { codes, side: Some((table, side)), offset, .. } = &held[index] else {
            return Err(Error::internal("a table for a lookup has no scales"));
        };
        let mut args = vec![
            ("weight", Arg::Value(*codes)),
            ("side", Arg::Value(*table)),
            ("indices", Arg::Value(self.indices)),
            ("offset", Arg::Int(i64::from(*offset))),
            ("groups", Arg::Int(side.groups as i64)),
            ("has_zeros", Arg::Bool(side.has_zeros)),
            ("has_bias", Arg::Bool(side.has_bias)),
            ("wraps", Arg::Bool(self.wraps)),
            ("dtype", Arg::DType(self.dtype)),
        ];
        if self.held_bits != 8 {
            args.push(("held_bits", Arg::Int(i64::from(self.held_bits))));
        }
        if let Some(dtype) = self.rounds_to {
            args.push(("rounds_to", Arg::DType(dtype)));
        }
        let mut patch = Patch::new(graph);
        patch.becomes(self.op, args);
        patch.apply(graph, self.node)
    }
}
