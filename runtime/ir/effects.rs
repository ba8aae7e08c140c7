//! What a call does besides computing: the effects that analyses and rewrites must respect.
//!
//! Judged from the name of the op and its arguments alone, so that an op nobody implements yet is still judged safely.

use super::{
    arg::Arg,
    effect_tables::{
        ASSERTS, IN_PLACE_OPERATORS, KNOWN_LIBRARIES, OUT_OVERLOADS, QUANTISED, RANDOM, RANDOM_IN_TRAINING,
        UPDATE_STATISTICS, VIEWS, WRITERS,
    },
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
    /// Sounds like a quantise or dequantise and is not in the table of those: what its result depends on is not known.
    Unknown,
    /// An op of a library that is not known here: it may do anything to its operands.
    Opaque,
}

/// The effect of `node`. A name that ends in one underscore writes to `self`, as everywhere in ATen.
pub fn effect_of(node: &Node) -> Effect {
    let (name, base) = (node.op.without_overload(), node.op.base());
    let quantised = QUANTISED.iter().find(|(known, _)| *known == name).map(|(_, effect)| *effect);
    let is_known = quantised.is_some() || KNOWN_LIBRARIES.contains(&name.split('.').next().unwrap_or(name));
    if !is_known || writes_unnamed_operands(node) {
        Effect::Opaque
    } else if writes_self(name, base) || writes_others(node, name) {
        Effect::Write
    } else if RANDOM.contains(&name) || is_random_in_training(node, name) {
        Effect::Random
    } else if VIEWS.contains(&name) {
        Effect::View
    } else if ASSERTS.contains(&name) {
        Effect::Assert
    } else if let Some(effect) = quantised {
        effect
    } else if sounds_quantised(name, base) {
        Effect::Unknown
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
    let name = node.op.without_overload();
    match effect_of(node) {
        Effect::Opaque => {
            let mut values = Vec::new();
            node.for_each_operand(|value| values.push(value));
            values
        }
        Effect::Write if node.arg("out").is_some() => of_args(&["out"]),
        Effect::Write if UPDATE_STATISTICS.contains(&name) => of_args(&["running_mean", "running_var"]),
        Effect::Write => match written_args(name).map_or_else(|| of_args(&["self"]), of_args) {
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

/// The operands that a writer of the table writes to.
fn written_args(name: &str) -> Option<&'static [&'static str]> {
    WRITERS.iter().find(|(writer, _)| *writer == name).map(|(_, operands)| *operands)
}

fn writes_others(node: &Node, name: &str) -> bool {
    node.arg("out").is_some() || written_args(name).is_some() || updates_statistics(node, name)
}

/// Whether an overload writes to operands under other names than `out`.
fn writes_unnamed_operands(node: &Node) -> bool {
    let overload =
        node.op.as_str().strip_prefix(node.op.without_overload()).unwrap_or("").trim_start_matches('.');
    let writes = OUT_OVERLOADS.contains(&overload) || overload == "out" || overload.ends_with("_out");
    writes && (node.arg("out").is_none() || node.op.base().starts_with("_fused_"))
}

fn sounds_quantised(name: &str, base: &str) -> bool {
    let has_own_library = name.starts_with("quantized_decomposed.") || name.starts_with("torchao.");
    has_own_library || base.contains("quantize") || base.contains("qparams")
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
        assert_eq!(effect("prims.convert_element_type.default"), Effect::Pure);
        assert_eq!(effect("prims.copy_to.default"), Effect::Opaque);
        assert_eq!(effect("aten.sort.values"), Effect::Opaque);
        assert_eq!(effect("aten.sort.stable"), Effect::Pure);
        assert_eq!(effect("aten.native_layer_norm.out"), Effect::Opaque);
    }

    #[test]
    fn names_that_sound_quantised_are_in_the_table_or_unknown() {
        let effect = |name: &str| effect_of(&node(&format!("{name}(input=%x)")));
        assert_eq!(effect("torchao.dequantize_affine_5.default"), Effect::Unknown);
        assert_eq!(effect("quantized_decomposed.quantize_per_block.default"), Effect::Unknown);
        assert_eq!(effect("aten.quantize_per_block.default"), Effect::Unknown);
        assert_eq!(effect("aten.choose_qparams_again.default"), Effect::Unknown);
        assert_eq!(effect("aten.quantile.default"), Effect::Pure);
        assert_eq!(effect("aten.fake_quantize_per_channel_affine.default"), Effect::Pure);
        assert_eq!(effect("quantized_decomposed.choose_qparams.tensor"), Effect::Pure);
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
        assert_eq!(
            written("aten.fused_moving_avg_obs_fake_quant.default(self=%x, running_min=%y, scale=%z)"),
            "v1 v2"
        );
        assert_eq!(written("aten.rrelu_with_noise.default(self=%x, noise=%y)"), "v1");
        assert_eq!(written("aten._fused_sgd_.default(self=[%x], grads=[%y], lr=0.1)"), "v0 v1");
        assert_eq!(written("aten.sort.values(self=%x, values=%y, indices=%z)"), "v0 v1 v2");
        assert_eq!(written("aten.add.Tensor(self=%x, other=%y)"), "");
    }
}
