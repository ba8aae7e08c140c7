//! What a call does besides computing: the effects that analyses and rewrites must respect.
//!
//! Judged from the name of the op and its arguments alone, so that an op nobody implements yet is still judged safely.

use super::{
    arg::Arg,
    graph::{Node, ValueId},
};

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Computes new values from its operands.
    Pure,
    /// Its outputs may share memory with an operand.
    View,
    /// Writes to operands, see [`written_operands`]; its outputs may share memory with them.
    Write,
    /// Computes integers from floats.
    Quantize,
    /// Computes floats from integers.
    Dequantize,
    /// Checks something and returns nothing.
    Assert,
    /// Gives other values at each call.
    Random,
    /// An op of a library that is not known here: it may do anything to its operands.
    Opaque,
}

/// Libraries whose ops say by their names whether they write.
const KNOWN_LIBRARIES: &[&str] = &[
    "aten",
    "prims",
    "quantized_decomposed",
    "torchao",
    "_operator",
    "math",
    "torch",
    "builtins",
    "vkdelegate",
];

const VIEWS: &[&str] = &[
    "aten._conj",
    "aten._neg_view",
    "aten._reshape_alias",
    "aten._unsafe_view",
    "aten.adjoint",
    "aten.alias",
    "aten.alpha_dropout",
    "aten.as_strided",
    "aten.atleast_1d",
    "aten.atleast_2d",
    "aten.atleast_3d",
    "aten.broadcast_tensors",
    "aten.broadcast_to",
    "aten.chunk",
    "aten.conj",
    "aten.contiguous",
    "aten.detach",
    "aten.detach_",
    "aten.diagonal",
    "aten.dropout",
    "aten.dsplit",
    "aten.einsum",
    "aten.expand",
    "aten.expand_as",
    "aten.feature_alpha_dropout",
    "aten.feature_dropout",
    "aten.flatten",
    "aten.hsplit",
    "aten.imag",
    "aten.lift",
    "aten.lift_fresh",
    "aten.mH",
    "aten.mT",
    "aten.matrix_H",
    "aten.meshgrid",
    "aten.moveaxis",
    "aten.movedim",
    "aten.narrow",
    "aten.numpy_T",
    "aten.permute",
    "aten.pin_memory",
    "aten.ravel",
    "aten.real",
    "aten.reshape",
    "aten.reshape_as",
    "aten.resolve_conj",
    "aten.resolve_neg",
    "aten.select",
    "aten.slice",
    "aten.split",
    "aten.split_with_sizes",
    "aten.squeeze",
    "aten.swapaxes",
    "aten.swapdims",
    "aten.t",
    "aten.tensor_split",
    "aten.to",
    "aten.transpose",
    "aten.type_as",
    "aten.unbind",
    "aten.unflatten",
    "aten.unfold",
    "aten.unsafe_chunk",
    "aten.unsafe_split",
    "aten.unsafe_split_with_sizes",
    "aten.unsqueeze",
    "aten.view",
    "aten.view_as",
    "aten.view_as_complex",
    "aten.view_as_real",
    "aten.vsplit",
];

const RANDOM: &[&str] = &[
    "aten._fused_dropout",
    "aten._sample_dirichlet",
    "aten._standard_gamma",
    "aten.bernoulli",
    "aten.binomial",
    "aten.cauchy",
    "aten.empty",
    "aten.empty_like",
    "aten.empty_permuted",
    "aten.empty_strided",
    "aten.exponential",
    "aten.geometric",
    "aten.log_normal",
    "aten.multinomial",
    "aten.native_dropout",
    "aten.new_empty",
    "aten.new_empty_strided",
    "aten.normal",
    "aten.normal_functional",
    "aten.poisson",
    "aten.rand",
    "aten.rand_like",
    "aten.randint",
    "aten.randint_like",
    "aten.randn",
    "aten.randn_like",
    "aten.random",
    "aten.randperm",
    "aten.uniform",
];

/// Random while training only: told by the argument `train` or `training`.
const RANDOM_IN_TRAINING: &[&str] = &[
    "aten.alpha_dropout",
    "aten.dropout",
    "aten.feature_alpha_dropout",
    "aten.feature_dropout",
    "aten.gru",
    "aten.lstm",
    "aten.rnn_relu",
    "aten.rnn_tanh",
    "aten.rrelu",
    "aten.rrelu_with_noise",
];

const ASSERTS: &[&str] = &[
    "aten._assert_async",
    "aten._assert_scalar",
    "aten._assert_tensor_metadata",
    "aten.sym_constrain_range",
    "aten.sym_constrain_range_for_size",
];

/// Normalisations that update their running statistics unless they are told to use them.
const UPDATE_STATISTICS: &[&str] = &[
    "aten._batch_norm_with_update",
    "aten._native_batch_norm_legit",
    "aten.batch_norm",
    "aten.cudnn_batch_norm",
    "aten.instance_norm",
    "aten.miopen_batch_norm",
    "aten.native_batch_norm",
];

/// Python's in-place operators, which end in two underscores like the others.
const IN_PLACE_OPERATORS: &[&str] =
    &["aten.__iand__", "aten.__ilshift__", "aten.__ior__", "aten.__irshift__", "aten.__ixor__"];

/// The effect of `node`. A name that ends in one underscore writes to `self`, as everywhere in ATen.
pub fn effect_of(node: &Node) -> Effect {
    let (name, base) = (node.op.without_overload(), node.op.base());
    if !KNOWN_LIBRARIES.contains(&name.split('.').next().unwrap_or(name)) {
        Effect::Opaque
    } else if writes_self(name, base) || node.arg("out").is_some() || updates_statistics(node, name) {
        Effect::Write
    } else if RANDOM.contains(&name) || is_random_in_training(node, name) {
        Effect::Random
    } else if VIEWS.contains(&name) {
        Effect::View
    } else if ASSERTS.contains(&name) {
        Effect::Assert
    } else if base.starts_with("dequantize_") {
        Effect::Dequantize
    } else if base.starts_with("quantize_") {
        Effect::Quantize
    } else {
        Effect::Pure
    }
}

/// The values that `node` may write to.
pub fn written_operands(node: &Node) -> Vec<ValueId> {
    let of_args = |names: &[&str]| {
        let mut values = Vec::new();
        names
            .iter()
            .filter_map(|name| node.arg(name))
            .for_each(|arg| arg.for_each_value(|value| values.push(value)));
        values
    };
    match effect_of(node) {
        Effect::Opaque => {
            let mut values = Vec::new();
            node.for_each_operand(|value| values.push(value));
            values
        }
        Effect::Write if node.arg("out").is_some() => of_args(&["out"]),
        Effect::Write if UPDATE_STATISTICS.contains(&node.op.without_overload()) => {
            of_args(&["running_mean", "running_var"])
        }
        Effect::Write => match of_args(&["self"]) {
            values if values.is_empty() => shared_operands(node),
            values => values,
        },
        _ => Vec::new(),
    }
}

/// The values whose memory the outputs of `node` may share: `self`, else the first argument that holds values.
pub(super) fn shared_operands(node: &Node) -> Vec<ValueId> {
    let mut values = Vec::new();
    match effect_of(node) {
        Effect::View | Effect::Write => {
            let holds_values = |arg: &&Arg| matches!(arg, Arg::Value(_) | Arg::Values(_));
            let first = node.arg("out").or_else(|| node.arg("self"));
            let first = first.or_else(|| node.args.iter().map(|(_, arg)| arg).find(holds_values));
            if let Some(arg) = first {
                arg.for_each_value(|value| values.push(value));
            }
        }
        Effect::Opaque => node.for_each_operand(|value| values.push(value)),
        _ => {}
    }
    values
}

fn writes_self(name: &str, base: &str) -> bool {
    // `detach_` changes no element.
    IN_PLACE_OPERATORS.contains(&name)
        || (base.ends_with('_') && !base.ends_with("__") && name != "aten.detach_")
}

fn is_false(arg: Option<&Arg>) -> bool {
    matches!(arg, Some(Arg::Bool(false)))
}

fn updates_statistics(node: &Node, name: &str) -> bool {
    UPDATE_STATISTICS.contains(&name) && !is_false(node.arg("training").or(node.arg("use_input_stats")))
}

fn is_random_in_training(node: &Node, name: &str) -> bool {
    let training = node.arg("train").or(node.arg("training"));
    let drops = |p: &Arg| !matches!(p, Arg::Float(0.0) | Arg::Int(0));
    (RANDOM_IN_TRAINING.contains(&name) && training.is_some() && !is_false(training))
        || node.arg("dropout_p").is_some_and(drops)
}

#[cfg(test)]
mod tests {
    use super::super::parse_graph;
    use super::*;

    fn node(call: &str) -> Node {
        let text = format!(
            "graph g\ninput %x: float32[2]\ninput %y: float32[2]\ninput %z: float32[2]\n%out: float32[2] = {call}\n"
        );
        parse_graph(&text).unwrap().nodes().next().unwrap().1.clone()
    }

    #[test]
    fn names_tell_effects() {
        let effect = |name: &str| effect_of(&node(&format!("{name}(self=%x)")));
        assert_eq!(effect("aten.add_.Tensor"), Effect::Write);
        assert_eq!(effect("aten.__and__.Tensor"), Effect::Pure);
        assert_eq!(effect("aten.__iand__.Tensor"), Effect::Write);
        assert_eq!(effect("aten.squeeze.dims"), Effect::View);
        assert_eq!(effect("aten.view_copy.default"), Effect::Pure);
        assert_eq!(effect("quantized_decomposed.dequantize_per_channel.default"), Effect::Dequantize);
        assert_eq!(effect("torchao.quantize_affine.default"), Effect::Quantize);
        assert_eq!(effect("aten._assert_tensor_metadata.default"), Effect::Assert);
        assert_eq!(effect("mylib.update.default"), Effect::Opaque);
        assert_eq!(effect("_operator.mul"), Effect::Pure);
    }

    #[test]
    fn training_tells_effects() {
        let effect = |call: &str| effect_of(&node(call));
        assert_eq!(effect("aten.dropout.default(input=%x, p=0.5, train=true)"), Effect::Random);
        assert_eq!(effect("aten.dropout.default(input=%x, p=0.5, train=false)"), Effect::View);
        assert_eq!(effect("aten.rrelu.default(self=%x)"), Effect::Pure);
        let norm = "aten.batch_norm.default(input=%x, running_mean=%y, running_var=%z, training=";
        assert_eq!(effect(&format!("{norm}false)")), Effect::Pure);
        assert_eq!(effect(&format!("{norm}true)")), Effect::Write);
        let attention = "aten.scaled_dot_product_attention.default(query=%x, key=%x, value=%x, dropout_p=";
        assert_eq!(effect(&format!("{attention}0.0)")), Effect::Pure);
        assert_eq!(effect(&format!("{attention}0.1)")), Effect::Random);
    }

    #[test]
    fn written_operands_are_all_that_a_call_may_change() {
        let written = |call: &str| {
            let node = node(call);
            written_operands(&node).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(written("aten.add_.Tensor(self=%x, other=%y)"), "v0");
        assert_eq!(written("aten._foreach_add_.List(self=[%x, %y], other=[%z, %z])"), "v0 v1");
        assert_eq!(written("aten.add.out(self=%x, other=%y, out=%z)"), "v2");
        assert_eq!(
            written(
                "aten.batch_norm.default(input=%x, weight=none, running_mean=%y, running_var=%z, training=true)"
            ),
            "v1 v2"
        );
        assert_eq!(written("mylib.update.default(a=%x, b=%y)"), "v0 v1");
        assert_eq!(written("aten.add.Tensor(self=%x, other=%y)"), "");
    }
}
