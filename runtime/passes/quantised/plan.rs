//! A fused product before the graph is changed, and the change.

use std::collections::HashMap;

use super::{
    activation::{Activation, Factor},
    pack::Packed,
    tail::{OutputCodes, Tail},
};
use crate::{
    base::{DType, HostTensor, Result, SymExpr},
    ir::{Arg, Constant, Graph, InputKind, IntArg, NodeId, OpName, Patch, TensorType, Type, ValueId},
    ops::{DotSide, Side, SideValues, code_sums},
    passes::Fusion,
};

/// One fused product.
pub(super) struct Plan {
    /// The node that becomes the fused product.
    pub node: NodeId,
    /// Base name of the op that it becomes.
    pub kind: &'static str,
    pub input: Input,
    pub packed: Packed,
    pub bias: Option<Vec<f64>>,
    pub tail: Tail,
    pub fusion: Fusion,
    /// For the report.
    pub remark: String,
}

/// What a product multiplies its weight by.
pub(super) enum Input {
    Floats(ValueId),
    Codes(Activation),
}

/// What several products read: one packing of the same codes, one view of the same value.
#[derive(Default)]
pub(super) struct Shared {
    packed: HashMap<(ValueId, usize), [ValueId; 2]>,
    views: HashMap<(ValueId, Vec<SymExpr>), ValueId>,
}

impl Plan {
    /// Changes the graph.
    ///
    /// # Errors
    /// A graph that breaks the rules of the IR.
    pub fn apply(self, graph: &mut Graph, shared: &mut Shared) -> Result<()> {
        let name = graph.node(self.node)?.name.clone();
        let mut args = match &self.input {
            Input::Floats(input) => vec![("input", Arg::Value(*input))],
            Input::Codes(activation) => Inserter { graph, before: self.node, name: &name, shared }
                .operands(activation, &self.packed)?,
        };
        let Plan { node, kind, packed, bias, tail, input, .. } = self;
        args.extend(weight_args(graph, &name, packed, bias, &tail, matches!(input, Input::Codes(_)))?);
        if let Some(codes) = &tail.quantise {
            args.extend(output_args(graph, &name, codes)?);
        }
        let mut patch = Patch::new(graph);
        patch.becomes(&format!("vkdelegate.{kind}.default"), args);
        patch.apply(graph, node)?;
        if let Some(codes) = &tail.quantise {
            let product = graph.node(node)?.outputs.clone();
            product.into_iter().chain(tail.views).try_for_each(|value| graph.retype(value, codes.dtype))?;
        }
        tail.replaced.into_iter().try_for_each(|(old, new)| graph.replace_uses(old, new))
    }
}

fn output_args(graph: &mut Graph, name: &str, codes: &OutputCodes) -> Result<Vec<(&'static str, Arg)>> {
    // PyTorch takes the inverse of the scale in 64 bits.
    let scale = number(graph, &format!("{name}_out_scale"), DType::F64, codes.scale)?;
    let zero = number(graph, &format!("{name}_out_zero"), DType::I32, codes.zero as f64)?;
    Ok(vec![
        ("out_scale", Arg::Value(scale)),
        ("out_zero", Arg::Value(zero)),
        ("out_min", Arg::Int(codes.low)),
        ("out_max", Arg::Int(codes.high)),
        ("out_dtype", Arg::DType(codes.dtype)),
    ])
}

/// A constant of one element.
fn number(graph: &mut Graph, name: &str, dtype: DType, number: f64) -> Result<ValueId> {
    let constant = Constant::from_tensor(name, HostTensor::from_f64s(dtype, vec![1], &[number])?);
    graph.add_constant_input(name, constant, InputKind::Derived)
}

/// Makes the codes and the side table constants of the graph; gives the arguments.
fn weight_args(
    graph: &mut Graph,
    name: &str,
    packed: Packed,
    bias: Option<Vec<f64>>,
    tail: &Tail,
    sums_codes: bool,
) -> Result<Vec<(&'static str, Arg)>> {
    let Packed { n, groups, offset, codes, mut scales, zeros, .. } = packed;
    if let Some(factor) = &tail.column_factor {
        for (index, scale) in scales.iter_mut().enumerate() {
            let factor = factor.get(index / groups).or(factor.first());
            *scale *= factor.map_or(1.0, |&factor| factor as f32);
        }
    }
    let bias = bias.or_else(|| tail.bias.clone());
    let has_zeros = zeros.iter().any(|&zero| zero != 0.0);
    let side = Side { groups, has_zeros, has_bias: bias.is_some() };
    let bias = match bias.as_deref() {
        None => vec![0.0; n],
        Some(&[one]) => vec![one as f32; n],
        Some(bias) => bias.iter().map(|&value| value as f32).collect(),
    };
    let values = SideValues { scales, zeros, bias };
    let table = match sums_codes {
        true => DotSide(side).table(&values, &code_sums(&codes, offset, groups)?, n)?,
        false => side.table(&values, n)?,
    };
    let table = Constant::from_tensor(format!("{name}_scales"), table);
    let codes = graph.add_constant_input(&format!("{name}_codes"), codes, InputKind::Derived)?;
    let table = graph.add_constant_input(&format!("{name}_scales"), table, InputKind::Derived)?;
    Ok(vec![
        ("weight", Arg::Value(codes)),
        ("side", Arg::Value(table)),
        ("offset", Arg::Int(i64::from(offset))),
        ("groups", Arg::Int(groups as i64)),
        ("has_zeros", Arg::Bool(side.has_zeros)),
        ("has_bias", Arg::Bool(side.has_bias)),
    ])
}

/// Adds nodes before one node.
struct Inserter<'a> {
    graph: &'a mut Graph,
    before: NodeId,
    /// What names begin with.
    name: &'a str,
    shared: &'a mut Shared,
}

impl Inserter<'_> {
    /// The operands that stand for the activations.
    fn operands(&mut self, activation: &Activation, packed: &Packed) -> Result<Vec<(&'static str, Arg)>> {
        let [words, sums] = self.words(activation, packed)?;
        let scale = self.factor(activation, &activation.scale, "input_scale", DType::F32)?;
        let zero = match &activation.zero {
            None => Arg::None,
            Some(zero) => Arg::Value(self.factor(activation, zero, "input_zero", DType::I32)?),
        };
        let is_signed = self.tensor(activation.codes)?.dtype == DType::I8;
        Ok(vec![
            ("words", Arg::Value(words)),
            ("sums", Arg::Value(sums)),
            ("input_scale", Arg::Value(scale)),
            ("input_zero", zero),
            ("input_offset", Arg::Int(if is_signed { 128 } else { 0 })),
            ("k", Arg::Int(packed.k as i64)),
        ])
    }

    /// The codes in words, and their sums in groups.
    fn words(&mut self, activation: &Activation, packed: &Packed) -> Result<[ValueId; 2]> {
        let codes = match &activation.view {
            Some(view) => self.viewed(activation.codes, view.clone(), activation.sizes.clone())?,
            None => activation.codes,
        };
        if let Some(&made) = self.shared.packed.get(&(codes, packed.groups)) {
            return Ok(made);
        }
        let with_last = |size: usize| {
            let mut sizes = activation.sizes.clone();
            if let Some(last) = sizes.last_mut() {
                *last = SymExpr::Const(size as i64);
            }
            Type::Tensor(TensorType { dtype: DType::I32, sizes })
        };
        let args = vec![("input", Arg::Value(codes)), ("groups", Arg::Int(packed.groups as i64))];
        let types = [with_last(packed.k.div_ceil(4)), with_last(packed.groups)];
        let made = self.add("vkdelegate.pack_codes.default", args, ["words", "sums"], types)?;
        self.shared.packed.insert((codes, packed.groups), made);
        Ok(made)
    }

    /// A scale or zero point as a tensor of one element or of one for each row, its last size being 1.
    fn factor(
        &mut self,
        activation: &Activation,
        factor: &Factor,
        what: &str,
        dtype: DType,
    ) -> Result<ValueId> {
        let mut sizes = activation.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = SymExpr::Const(1);
        }
        match (factor, &activation.view) {
            (&Factor::Number(value), _) => number(self.graph, &format!("{}_{what}", self.name), dtype, value),
            (&Factor::One(value), _) | (&Factor::Rows(value), None) => Ok(value),
            (&Factor::Rows(value) | &Factor::FlatRows(value), Some(view)) => {
                let mut view = view.clone();
                if let Some(last) = view.last_mut() {
                    *last = IntArg::Const(1);
                }
                self.viewed(value, view, sizes)
            }
            (&Factor::FlatRows(value), None) => {
                let args = vec![("self", Arg::Value(value)), ("dim", Arg::Int(-1))];
                self.view_node(value, "aten.unsqueeze.default", args, sizes)
            }
        }
    }

    fn viewed(&mut self, value: ValueId, view: Vec<IntArg>, sizes: Vec<SymExpr>) -> Result<ValueId> {
        let args = vec![("self", Arg::Value(value)), ("size", Arg::Ints(view))];
        self.view_node(value, "aten.view.default", args, sizes)
    }

    /// A view of `value`, made once for the same sizes.
    fn view_node(
        &mut self,
        value: ValueId,
        op: &str,
        args: Vec<(&str, Arg)>,
        sizes: Vec<SymExpr>,
    ) -> Result<ValueId> {
        if let Some(&made) = self.shared.views.get(&(value, sizes.clone())) {
            return Ok(made);
        }
        let ty = Type::Tensor(TensorType { dtype: self.tensor(value)?.dtype, sizes: sizes.clone() });
        let [made] = self.add(op, args, ["view"], [ty])?;
        self.shared.views.insert((value, sizes), made);
        Ok(made)
    }

    fn tensor(&self, value: ValueId) -> Result<&TensorType> {
        let ty = self.graph.value(value)?.ty.as_tensor();
        ty.ok_or_else(|| crate::base::Error::internal(format!("{value} is no tensor")))
    }

    fn add<const N: usize>(
        &mut self,
        op: &str,
        args: Vec<(&str, Arg)>,
        names: [&str; N],
        types: [Type; N],
    ) -> Result<[ValueId; N]> {
        let position = self.graph.position(self.before).unwrap_or(0);
        let names = names.map(|name| self.graph.unique_name(&format!("{}_{name}", self.name)));
        let args = args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect();
        let outputs = names.iter().cloned().zip(types).collect();
        let node_name = names.first().cloned().unwrap_or_default();
        let node = self.graph.insert_node(position, &node_name, OpName::new(op), args, outputs)?;
        let outputs = self.graph.node(node)?.outputs.as_slice().try_into();
        outputs.map_err(|_| crate::base::Error::internal("a node has other outputs than it was given"))
    }
}
