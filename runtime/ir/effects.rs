//! What a call does besides computing: the effects that analyses and rewrites must respect.
//!
//! Judged from the name of the op alone, so that an op nobody implements yet is still judged safely.

use super::arg::OpName;

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Computes new values from its operands.
    Pure,
    /// Its output may share memory with the operand `self`.
    View,
    /// Writes to its operand `self`, and returns it.
    Write,
    /// Computes integers from floats.
    Quantize,
    /// Computes floats from integers.
    Dequantize,
    /// Checks something and returns nothing.
    Assert,
    /// Gives other values at each call.
    Random,
}

const VIEWS: &[&str] = &[
    "aten.alias",
    "aten.as_strided",
    "aten.chunk",
    "aten.contiguous",
    "aten.detach",
    "aten.diagonal",
    "aten.expand",
    "aten.expand_as",
    "aten.flatten",
    "aten.movedim",
    "aten.narrow",
    "aten.numpy_T",
    "aten.permute",
    "aten.reshape",
    "aten.select",
    "aten.slice",
    "aten.split",
    "aten.split_with_sizes",
    "aten.squeeze",
    "aten.swapaxes",
    "aten.t",
    "aten.to",
    "aten.transpose",
    "aten.unbind",
    "aten.unflatten",
    "aten.unfold",
    "aten.unsqueeze",
    "aten.view",
    "aten.view_as",
    "aten.lift_fresh",
    "aten.type_as",
    "aten._unsafe_view",
    "aten.real",
    "aten.mT",
    "aten.dropout",
    "aten.pin_memory",
    "aten.broadcast_to",
    "aten.tensor_split",
    "aten.hsplit",
    "aten.vsplit",
    "aten.reshape_as",
];

const RANDOM: &[&str] = &[
    "aten.rand",
    "aten.randn",
    "aten.randint",
    "aten.rand_like",
    "aten.randn_like",
    "aten.randperm",
    "aten.bernoulli",
    "aten.multinomial",
    "aten.normal",
    "aten.native_dropout",
    "aten.empty",
    "aten.empty_like",
    "aten.empty_strided",
    "aten.new_empty",
    "aten.new_empty_strided",
    "aten.empty_permuted",
];

const ASSERTS: &[&str] = &[
    "aten._assert_tensor_metadata",
    "aten._assert_async",
    "aten._assert_scalar",
    "aten.sym_constrain_range",
    "aten.sym_constrain_range_for_size",
];

/// The effect of `op`. A name that ends in one underscore writes to `self`, as everywhere in ATen.
pub fn effect_of(op: &OpName) -> Effect {
    let name = op.without_overload();
    let base = op.base();
    if base.ends_with('_') && !base.ends_with("__") {
        Effect::Write
    } else if VIEWS.contains(&name) {
        Effect::View
    } else if ASSERTS.contains(&name) {
        Effect::Assert
    } else if RANDOM.contains(&name) {
        Effect::Random
    } else if base.starts_with("dequantize_") {
        Effect::Dequantize
    } else if base.starts_with("quantize_") {
        Effect::Quantize
    } else {
        Effect::Pure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_effects() {
        let effect = |name| effect_of(&OpName::new(name));
        assert_eq!(effect("aten.add_.Tensor"), Effect::Write);
        assert_eq!(effect("aten.__and__.Tensor"), Effect::Pure);
        assert_eq!(effect("aten.squeeze.dims"), Effect::View);
        assert_eq!(effect("aten.view_copy.default"), Effect::Pure);
        assert_eq!(effect("quantized_decomposed.dequantize_per_channel.default"), Effect::Dequantize);
        assert_eq!(effect("torchao.quantize_affine.default"), Effect::Quantize);
        assert_eq!(effect("aten._assert_tensor_metadata.default"), Effect::Assert);
    }
}
