//! `_int_mm` with constant codes: alone, or with the conversion, the scales and the bias that follow it.

use super::{
    Finder,
    activation::{Activation, Factor},
    fusion_of, pack,
    plan::{Input, Plan},
    sample,
    tail::{Allowed, Tail},
    weight::{self, Weight},
};
use crate::{
    base::{DType, Result},
    ir::{Arg, Constant, Graph, InputKind, Node, NodeId, Patch, ValueId},
    ops::{IntMm, SideValues, code_sums},
    passes::Fusion,
};

/// An `_int_mm` whose codes stay packed.
pub(super) struct IntProduct {
    node: NodeId,
    x: ValueId,
    /// `[N, K]`.
    codes: Constant,
    pub fusion: Fusion,
}

impl IntProduct {
    pub fn apply(self, graph: &mut Graph) -> Result<()> {
        let name = graph.node(self.node)?.name.clone();
        let n = self.codes.sizes().first().copied().unwrap_or(0);
        let values = SideValues { scales: vec![1.0; n], zeros: vec![0.0; n], bias: vec![0.0; n] };
        let table = IntMm::side().table(&values, &code_sums(&self.codes, 0, 1)?, n)?;
        let table = Constant::from_tensor(format!("{name}_sums"), table);
        let codes = graph.add_constant_input(&format!("{name}_codes"), self.codes, InputKind::Derived)?;
        let side = graph.add_constant_input(&format!("{name}_sums"), table, InputKind::Derived)?;
        let mut patch = Patch::new(graph);
        let args =
            vec![("self", Arg::Value(self.x)), ("weight", Arg::Value(codes)), ("side", Arg::Value(side))];
        patch.becomes("vkdelegate._int_mm.default", args);
        patch.apply(graph, self.node)
    }
}

impl Finder<'_> {
    /// The fused form of an `_int_mm` with constant codes that can be evaluated.
    pub(super) fn int_product(&mut self, id: NodeId, node: &Node) -> Option<IntProduct> {
        let (x, mat2) = self.int_operands(node)?;
        let codes = self.evaluator.evaluate(mat2, true).and_then(|codes| pack::transposed(&codes)).ok()?;
        let fusion = Fusion { kind: "_int_mm".to_string(), nodes: vec![node.name.clone()] };
        Some(IntProduct { node: id, x, codes, fusion })
    }

    fn int_operands(&self, node: &Node) -> Option<(ValueId, ValueId)> {
        let (x, mat2) = (node.value_arg("self")?, self.constant_operand(node, "mat2")?);
        let is_sound = node.op == *"aten._int_mm.default"
            && weight::is_codes(self.graph, mat2)
            && sample::call(self.graph, node).is_ok();
        is_sound.then_some((x, mat2))
    }

    /// An `_int_mm` whose result becomes floats and is scaled, as one product of codes.
    pub(super) fn int_chain(&mut self, node: &Node) -> Option<Plan> {
        let (codes, mat2) = self.int_operands(node)?;
        let weight = Weight { is_transposed: true, ..Weight::of_codes(self.graph, mat2)? };
        let (cast, product) = self.readers.sole(*node.outputs.first()?)?;
        let is_cast =
            weight::is_conversion(cast) && weight::dtype_of(self.graph, product) == Some(DType::F32);
        if !is_cast {
            return None;
        }
        let packed = self.pack(&weight).ok()?;
        let allowed =
            Allowed { column_factor: true, row_factor: true, bias: true, quantise: true, views: true };
        let mut tail = self.tail(product, packed.n, allowed);
        let target = take_target(&mut tail, product)?;
        let id = self.graph.defining_node(target)?;
        let sizes = weight::tensor_type(self.graph, codes)?.sizes.clone();
        let scale = tail.row_factor.clone().unwrap_or(Factor::Number(1.0));
        let activation = Activation { codes, scale, zero: None, view: None, sizes, nodes: Vec::new() };
        packed.check_sums(&activation).ok()?;
        let input = Input::Codes(activation);
        tail.nodes.insert(0, cast.name.clone());
        let kind = "linear_a8w8";
        let fusion = fusion_of(kind, &weight, &input, node, &tail);
        let remark = format!("{}; its activations stay in 8-bit codes", packed.remark());
        Some(Plan { node: id, kind, input, packed, bias: None, tail, fusion, remark })
    }
}

/// The value that the whole product defines: the last that stands in the place of `product` itself, which then takes
/// that place.
fn take_target(tail: &mut Tail, product: ValueId) -> Option<ValueId> {
    let &(target, _) = tail.replaced.iter().rfind(|&&(_, place)| place == product)?;
    tail.replaced.retain(|&(_, place)| place != product);
    Some(target)
}
