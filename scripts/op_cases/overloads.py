"""One small call of each supported overload that no other family calls: copies of views, scalars first, padding by name."""
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  registers quantized_decomposed

from .case import Const, Family, rand, randint
from .image import bias, weight

aten = torch.ops.aten
INTS = torch.tensor([[1, 2, 3], [4, 5, 6]])
SHIFTS = torch.tensor([[0, 1, 2], [3, 4, 5]])


def overloads():
    f = Family("overloads", exact=True)
    integers(f)
    numbers(f)
    small(f)
    statistics(f)
    views(f)
    indexing(f)
    creation(f)
    convolutions(f)
    subnormal(f)
    return f


def integers(f):
    for name in ("and", "or", "xor"):
        op = getattr(aten, f"__{name}__")
        f.add(f"{name}_scalar", op.Scalar, INTS, 6)
        f.add(f"scalar_{name}", getattr(aten, f"bitwise_{name}").Scalar_Tensor, 6, INTS)
    f.add("xor_tensor", aten.__xor__.Tensor, INTS, SHIFTS)
    for name, long_name in (("lshift", "left_shift"), ("rshift", "right_shift")):
        op = getattr(aten, f"__{name}__")
        f.add(f"{name}_scalar", op.Scalar, INTS, 2)
        f.add(f"{name}_tensor", op.Tensor, INTS, SHIFTS)
        f.add(f"scalar_{name}", getattr(aten, f"bitwise_{long_name}").Scalar_Tensor, 97, SHIFTS)


def numbers(f):
    x, y = rand(2, 3), rand(2, 3, seed=1)
    f.add("copysign", aten.copysign.Tensor, x, y)
    f.add("copysign_scalar", aten.copysign.Scalar, x, -2.0)
    f.add("floor_divide_scalar", aten.floor_divide.Scalar, x, 0.75)
    f.add("remainder_scalar_first", aten.remainder.Scalar_Tensor, 5.0, rand(2, 3, lo=0.5))
    f.add("max_other", aten.max.other, x, y)
    f.add("min_other", aten.min.other, x, y)
    f.add("clamp_max_tensor", aten.clamp_max.Tensor, x, y)
    f.add("clamp_min_tensor", aten.clamp_min.Tensor, x, y)
    f.add("prelu_kernel", aten._prelu_kernel.default, x, Const(torch.tensor([[0.25, 0.5, -0.5]]).expand(2, 3)))
    f.add("convert_element_type", torch.ops.prims.convert_element_type.default, x, torch.int32)
    f.add("to_device", aten.to.device, x, torch.device("cpu"), torch.float16)
    f.add("to_other", aten.to.other, x, INTS)
    f.add("fake_quantize_per_channel", torch.ops.quantized_decomposed.fake_quant_per_channel.default, x,
          torch.tensor([0.25, 0.5]), torch.tensor([3, -2]), 0, -5, 4)
    for name in ("alpha_dropout", "feature_dropout", "feature_alpha_dropout"):
        f.add(name, getattr(aten, name).default, x, 0.5, False)


def small(f):
    """Few values without NaN, infinities or large numbers, so that every dtype can hold them."""
    x, y = rand(2, 3), rand(2, 3, seed=1)
    f.add("fmax_small", aten.fmax.default, x, y)
    f.add("fmin_small", aten.fmin.default, x, y)
    f.add("clamp_max_small", aten.clamp_max.default, x, 1)
    f.add("clamp_min_small", aten.clamp_min.default, x, 1)
    f.add("nan_to_num_small", aten.nan_to_num.default, x, 0.0, 1.0, -1.0)
    f.add("round_decimals_small", aten.round.decimals, x, decimals=1, exact=False)
    f.add("safe_softmax_small", aten._safe_softmax.default, x, 1, exact=False)
    f.add("count_nonzero_small", aten.count_nonzero.default, x.round())
    f.add("argsort_stable_small", aten.argsort.stable, x, stable=True, dim=1)


def statistics(f):
    x = rand(2, 5)
    for name in ("std", "std_mean"):
        f.add(name, getattr(aten, name).default, x, True, exact=False)
        f.add(f"{name}_dim", getattr(aten, name).dim, x, [1], False, exact=False)
    f.add("var_mean", aten.var_mean.default, x, True, exact=False)


def views(f):
    x, m = rand(2, 3, 4), rand(2, 3)
    f.add("alias_copy", aten.alias_copy.default, m)
    f.add("detach_copy", aten.detach_copy.default, m)
    f.add("lift", aten.lift.default, m)
    f.add("lift_fresh", aten.lift_fresh.default, m)
    f.add("lift_fresh_copy", aten.lift_fresh_copy.default, m)
    f.add("reshape_copy", aten._reshape_copy.default, m, [3, 2])
    f.add("reshape_as", aten.reshape_as.default, m, rand(3, 2))
    f.add("view_as", aten.view_as.default, m, rand(6))
    f.add("view_copy", aten.view_copy.default, m, [6])
    f.add("broadcast_to", aten.broadcast_to.default, m, [2, 2, 3])
    f.add("expand_copy", aten.expand_copy.default, rand(2, 1), [2, 3])
    f.add("permute_copy", aten.permute_copy.default, x, [2, 0, 1])
    f.add("transpose_copy", aten.transpose_copy.int, x, 0, 2)
    f.add("t_copy", aten.t_copy.default, m)
    f.add("mT", aten.mT.default, x)
    f.add("swapaxes", aten.swapaxes.default, x, 0, -1)
    f.add("movedim_several", aten.movedim.intlist, x, [0, 1], [1, 2])
    f.add("select_copy", aten.select_copy.int, x, 1, -1)
    f.add("diagonal_copy", aten.diagonal_copy.default, m, 1)
    f.add("diagonal_scatter", aten.diagonal_scatter.default, m, rand(2, seed=1), 0, 0, 1)
    f.add("squeeze_copy", aten.squeeze_copy.dims, rand(2, 1, 3, 1), [1, 3])
    f.add("unsqueeze_copy", aten.unsqueeze_copy.default, m, -1)
    f.add("split_sizes", aten.split.sizes, rand(5, 2), [2, 3])
    f.add("concat", aten.concat.default, [m, rand(1, 3)])
    f.add("pixel_unshuffle", aten.pixel_unshuffle.default, rand(1, 1, 4, 4), 2)
    f.add("reflection_pad3d", aten.reflection_pad3d.default, rand(1, 1, 2, 2, 3), [1, 2, 1, 0, 0, 1])
    f.add("replication_pad3d", aten.replication_pad3d.default, rand(1, 1, 2, 2, 3), [1, 2, 1, 0, 0, 1])
    f.add("upsample_nearest1d", aten.upsample_nearest1d.default, rand(1, 2, 3), [5])


def indexing(f):
    x = rand(4, 3)
    f.add("unsafe_index", aten._unsafe_index.Tensor, x, [torch.tensor([3, 0, -1])])
    f.add("unsafe_index_put", aten._unsafe_index_put.default, x, [torch.tensor([2, 0])], rand(2, 3, seed=1))


def creation(f):
    x = rand(2, 3)
    f.add("empty", aten.empty.memory_format, [2, 3], keep=())
    f.add("empty_like", aten.empty_like.default, x, keep=())
    f.add("new_empty", aten.new_empty.default, x, [3, 2], keep=())
    f.add("new_empty_strided", aten.new_empty_strided.default, x, [3, 2], [1, 3], keep=())
    f.add("empty_strided", aten.empty_strided.default, [2, 3], [1, 2], dtype=torch.int32, keep=())
    f.add("empty_permuted", aten.empty_permuted.default, [2, 3, 4], [2, 0, 1], keep=())
    f.add("eye_m", aten.eye.m, 2, 3)


def convolutions(f):
    """Whole numbers and quarters: sums are exact in any order."""
    f.add("conv1d_same", aten.conv1d.padding, rand(1, 2, 5, step=0.5), weight(3, 2, 3), bias(3), [1], "same")
    x = rand(1, 2, 3, 3, 4, step=0.5)
    f.add("conv3d", aten.conv3d.default, x, weight(3, 2, 2, 2, 2), bias(3), [1, 2, 1], [1, 0, 1])
    f.add("conv3d_valid", aten.conv3d.padding, x, weight(3, 2, 2, 3, 1), bias(3), [1, 1, 2], "valid")
    f.add("conv_transpose1d", aten.conv_transpose1d.default, rand(1, 2, 4, step=0.5), weight(2, 3, 3), bias(3), [2], [1])
    f.add("conv_transpose2d", aten.conv_transpose2d.input, rand(1, 2, 3, 3, step=0.5), weight(2, 3, 2, 3), bias(3),
          [2, 1], [0, 1], [1, 0])
    f.add("conv_transpose3d", aten.conv_transpose3d.input, rand(1, 2, 2, 3, 2, step=0.5), weight(2, 3, 2, 2, 2), None,
          [1, 2, 1])
    f.add("randint_concat", aten.concat.default, [randint(2, 2, lo=-5, hi=5), randint(1, 2, lo=-5, hi=5)], -2)


def subnormal(f):
    """(F20) A device may take subnormal numbers for zero, but makes no NaN and no infinity of them."""
    x = torch.full((2, 4), 1e-40)
    for name in ("exp", "sqrt", "sigmoid", "tanh", "gelu", "silu", "neg", "square", "erf"):
        f.add(f"{name}_subnormal", getattr(aten, name).default, x, exact=False)
    for name in ("add", "sub", "mul"):
        f.add(f"{name}_subnormal", getattr(aten, name).Tensor, x, rand(2, 4), exact=False)
    f.add("div_subnormal", aten.div.Tensor, x, torch.full((2, 4), 2.0), exact=False)
    f.add("softmax_subnormal", aten._softmax.default, x, 1, False, exact=False)
    f.add("log_softmax_subnormal", aten._log_softmax.default, x, 1, False, exact=False)
    f.add("layer_norm_subnormal", aten.native_layer_norm.default, x, [4], None, None, 1e-12, keep=[0], exact=False)
    f.add("rms_norm_subnormal", aten.rms_norm.default, x, [4], None, 1e-12, exact=False)
    f.add("var_subnormal", aten.var.correction, x, [1], correction=1, exact=False)
    f.add("mean_subnormal", aten.mean.dim, x, [1], exact=False)
