"""Element-wise families: unary, binary, compare, cast."""
import torch

from .case import Const, Family, rand, randbool, randint

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
HALVES = (torch.float16, torch.bfloat16)
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.75, -7.25, INF, -INF, NAN])
FINITE = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.75, -7.25, 12.0, -12.0, NAN])
FAST_MATH = (2e-4, 2e-4, "the transcendental functions of the Vulkan standard are this loose")

# name -> values that its domain allows beside the shared special ones
UNARY = ["abs", "neg", "exp", "sigmoid", "tanh", "relu", "silu", "gelu", "sqrt", "rsqrt", "sin", "cos", "log", "log1p",
         "expm1", "log2", "log10", "reciprocal", "floor", "ceil", "round", "trunc", "sign", "erf", "hardswish",
         "hardsigmoid", "softplus", "elu", "mish", "log_sigmoid", "relu6", "selu", "celu", "square", "tan", "asin",
         "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "isnan", "isinf", "isfinite", "logical_not",
         "exp2", "frac", "hardtanh", "leaky_relu", "hardshrink", "softshrink", "threshold"]
EXTRA = {"threshold": (0.5, 20.0)}
# beyond these the standard's sine loses all accuracy, or the result is inf - inf in one of the usual formulas
TRIG = {"sin", "cos", "tan"}
# at infinity PyTorch itself gives inf or NaN, depending on how many elements there are
UNSTEADY = {"gelu"}
LOOSE = {"exp", "sigmoid", "tanh", "silu", "gelu", "sin", "cos", "log", "log1p", "expm1", "log2", "log10", "erf", "tan",
         "softplus", "elu", "mish", "log_sigmoid", "selu", "celu", "asin", "acos", "atan", "sinh", "cosh", "asinh",
         "acosh", "atanh", "exp2"}


def unary():
    f = Family("unary")
    for name in UNARY:
        op = getattr(aten, name).default
        extra = EXTRA.get(name, ())
        special = FINITE if name in TRIG | UNSTEADY else SPECIAL
        exact = name not in LOOSE and name not in {"rsqrt", "sqrt", "reciprocal", "hardswish", "hardsigmoid"}
        tol = FAST_MATH if name in LOOSE else None
        f.add(f"{name}_special", op, special, *extra, exact=exact, tol=tol)
        f.add(f"{name}_rank4", op, rand(2, 3, 1, 5), *extra, tol=tol)
        for dtype in HALVES:
            f.add(f"{name}_{str(dtype)[6:]}", op, rand(7, lo=0.25, hi=0.875, dtype=dtype), *extra)
    shapes(f)
    activations(f)
    not_a_number(f)
    integers(f)
    return f


def shapes(f):
    """Zero-sized, 0-dim, high rank, and more elements than one row of work groups."""
    for name in ("relu", "exp", "neg"):
        op = getattr(aten, name).default
        f.add(f"{name}_0dim", op, torch.tensor(-1.5))
        f.add(f"{name}_empty", op, torch.zeros(2, 0, 3))
        f.add(f"{name}_rank5", op, rand(2, 1, 3, 2, 2))
        f.add(f"{name}_rank6", op, rand(2, 1, 2, 1, 3, 2))
        f.add(f"{name}_rank8", op, rand(1, 2, 1, 2, 1, 2, 1, 3))
    f.add("abs_constant_permuted", aten.abs.default, Const(rand(4, 3, 2).permute(2, 0, 1)), exact=True)
    f.add("relu_constant", aten.relu.default, Const(rand(5)), exact=True)


def activations(f):
    x = torch.tensor([-30.0, -5.0, -1.0, -0.25, 0.0, 0.25, 1.0, 5.0, 30.0])
    for kind in ("none", "tanh"):
        f.add(f"gelu_{kind}", aten.gelu.default, x, approximate=kind, tol=FAST_MATH)
    f.add("leaky_relu_slope", aten.leaky_relu.default, x, 0.1)
    f.add("leaky_relu_negative_slope", aten.leaky_relu.default, x, -0.5)
    f.add("hardtanh_bounds", aten.hardtanh.default, x, 0.0, 6.0, exact=True)
    f.add("elu_alpha", aten.elu.default, x, 0.5, tol=FAST_MATH)
    f.add("elu_scales", aten.elu.default, x, 1.5, 2.0, 0.5, tol=FAST_MATH)
    f.add("celu_alpha", aten.celu.default, x, 0.5, tol=FAST_MATH)
    f.add("softplus_beta", aten.softplus.default, x, 2.0, 10.0, tol=FAST_MATH)
    f.add("hardshrink_lambda", aten.hardshrink.default, x, 0.3, exact=True)
    f.add("softshrink_lambda", aten.softshrink.default, x, 0.25, exact=True)
    f.add("prelu_one", aten.prelu.default, x, Const(torch.tensor([0.25])))
    f.add("prelu_channels", aten.prelu.default, rand(2, 3, 4), Const(torch.tensor([0.25, -0.5, 2.0])))
    for dim in (0, 1, -1):
        f.add(f"glu_dim{dim}", aten.glu.default, rand(4, 6), dim, tol=FAST_MATH)
    f.add("round_decimals", aten.round.decimals, torch.tensor([1.26, -1.26, 0.5, 1234.5678]), decimals=1)
    f.add("nan_to_num", aten.nan_to_num.default, SPECIAL, 0.5, 100.0, -100.0, exact=True)
    f.add("dropout_eval", aten.dropout.default, x, 0.5, False, exact=True)
    f.add("alias", aten.alias.default, x, exact=True)
    f.add("detach", aten.detach.default, x, exact=True)
    f.add("clone_nan", aten.clone.default, SPECIAL, exact=True)


def not_a_number(f):
    """A NaN goes through every clamp, in f32 and half (F16)."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x, kind = torch.tensor([NAN, -3.0, 0.25, 9.0, INF, -INF], dtype=dtype), str(dtype)[6:]
        f.add(f"relu_nan_{kind}", aten.relu.default, x, exact=True)
        f.add(f"clamp_nan_{kind}", aten.clamp.default, x, 0, 1, exact=True)
        f.add(f"clamp_min_only_{kind}", aten.clamp.default, x, 0.5, exact=True)
        f.add(f"clamp_max_only_{kind}", aten.clamp.default, x, None, 6.0, exact=True)
        f.add(f"clamp_crossed_{kind}", aten.clamp.default, x, 2.0, -1.0, exact=True)
        f.add(f"clamp_min_nan_{kind}", aten.clamp_min.default, x, 0.5, exact=True)
        f.add(f"clamp_max_nan_{kind}", aten.clamp_max.default, x, 0.5, exact=True)
        f.add(f"hardtanh_nan_{kind}", aten.hardtanh.default, x, exact=True)
        f.add(f"relu6_nan_{kind}", aten.relu6.default, x, exact=True)
    x = rand(2, 3)
    f.add("clamp_infinite_min", aten.clamp.default, x, -INF, 1.0, exact=True)
    f.add("clamp_tensor_bounds", aten.clamp.Tensor, x, rand(3, seed=1, lo=-1, hi=0), rand(2, 1, lo=0, hi=1), exact=True)
    f.add("clamp_tensor_nan_bound", aten.clamp.Tensor, x, torch.tensor([NAN, 0.0, -1.0]), exact=True)


def integers(f):
    ints = torch.tensor([0, 1, -1, 7, -128, 2147483647, -2147483647])
    for name in ("abs", "neg", "relu", "sign", "bitwise_not", "logical_not", "clone", "square"):
        op = getattr(aten, name).default
        for dtype in (torch.int64, torch.int32):
            x = ints[:5] if name == "square" else ints
            f.add(f"{name}_{str(dtype)[6:]}", op, x.to(dtype), exact=True)
    for name in ("neg", "bitwise_not", "abs"):
        op = getattr(aten, name).default
        f.add(f"{name}_int8", op, torch.tensor([0, 1, -1, 127, -128], dtype=torch.int8), exact=True)
        f.add(f"{name}_uint8", op, torch.tensor([0, 1, 2, 128, 255], dtype=torch.uint8), exact=True)
        f.add(f"{name}_int16", op, torch.tensor([0, 1, -1, 32767, -32768], dtype=torch.int16), exact=True)
    f.add("logical_not_bool", aten.logical_not.default, randbool(2, 3), exact=True)
    f.add("bitwise_not_bool", aten.bitwise_not.default, randbool(2, 3), exact=True)
    f.add("logical_not_empty", aten.logical_not.default, torch.zeros(0, dtype=torch.bool), exact=True)
    f.add("clamp_int64", aten.clamp.default, ints, -5, 5, exact=True)
    f.add("clamp_int_of_float_bounds", aten.clamp.default, torch.tensor([-3, 0, 3]), -0.5, 1.5)
    for name in ("exp", "sqrt", "sin", "sigmoid", "rsqrt", "reciprocal"):
        f.add(f"{name}_of_int64", getattr(aten, name).default, torch.tensor([1, 2, 3]),
              tol=FAST_MATH if name in LOOSE else None)
    f.add("exp_of_bool", aten.exp.default, torch.tensor([True, False]), tol=FAST_MATH)


# ------------------------------------------------------------------ binary
SHAPE_PAIRS = [  # (F25): aligned from the right, both orders
    ((4,), (4,)), ((1, 4, 5, 6), (4, 5, 6)), ((8,), (1, 8)), ((3, 1), (1, 4)), ((2, 1, 5), (4, 1)), ((), (2, 3)),
    ((1,), (0, 3)), ((2, 3, 1, 2, 2), (3, 4, 1, 2)), ((2, 1, 2, 1, 3, 2), (1, 2, 1, 2, 1, 1)),
    ((2, 3, 4), ()), ((1, 1), (1,)), ((2, 1, 2, 1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 2, 1, 2)), ((0, 3), (3,)),
]


def size_text(sizes):
    return "x".join(map(str, sizes)) or "scalar"


def binary():
    f = Family("binary")
    broadcast(f)
    arithmetic(f)
    extremes(f)
    power(f)
    remainder(f)
    integer_arithmetic(f)
    return f


def broadcast(f):
    for name in ("add", "mul", "sub", "div"):
        op = getattr(aten, name).Tensor
        for a, b in SHAPE_PAIRS if name in ("add", "sub") else SHAPE_PAIRS[:6]:
            x, y = rand(*a), rand(*b, seed=1, lo=0.5, hi=2.5)
            f.add(f"{name}_{size_text(a)}_{size_text(b)}", op, x, y)
            if a != b:
                f.add(f"{name}_{size_text(b)}_{size_text(a)}", op, y, x)
    f.add("add_constant_right", aten.add.Tensor, rand(1, 4, 3, 3), Const(rand(4, 3, 3, seed=1)), exact=True)
    f.add("add_constant_left", aten.add.Tensor, Const(rand(4, 3, 3, seed=1)), rand(1, 4, 3, 3), exact=True)
    f.add("mul_constant_transposed", aten.mul.Tensor, rand(3, 4), Const(rand(4, 3, seed=1).t()), exact=True)
    f.add("mul_constant_expanded", aten.mul.Tensor, rand(3, 4), Const(rand(3, 1, seed=1).expand(3, 4)), exact=True)
    f.add("maximum_2x1x5_4x1", aten.maximum.default, rand(2, 1, 5), rand(4, 1, seed=1), exact=True)
    f.add("minimum_1x8_8", aten.minimum.default, rand(1, 8), rand(8, seed=1), exact=True)


def arithmetic(f):
    x, y = rand(2, 3, 4), rand(2, 3, 4, seed=1, lo=0.5, hi=2.5)
    for name in ("add", "sub"):
        op = getattr(aten, name)
        f.add(f"{name}_alpha", op.Tensor, x, y, alpha=2, exact=True)
        f.add(f"{name}_alpha_float", op.Tensor, x, y, alpha=0.5, exact=True)
        f.add(f"{name}_alpha_negative_broadcast", op.Tensor, x, rand(4, seed=2), alpha=-1.5, exact=True)
        f.add(f"{name}_scalar_form", op.Scalar, x, 1.5, exact=True)
        f.add(f"{name}_scalar_alpha", op.Scalar, x, 1.5, 2, exact=True)
        f.add(f"{name}_int_and_float", op.Tensor, randint(3, lo=-4, hi=4), rand(3), exact=True)
    for name in ("add", "mul", "sub", "div"):
        op = getattr(aten, name)
        f.add(f"{name}_number_in_tensor_place", op.Tensor, x, 0.25, exact=True)
        f.add(f"{name}_int_in_tensor_place", op.Tensor, x, 2, exact=True)
        f.add(f"{name}_infinite_number", op.Tensor, torch.tensor([1.0, -1.0, NAN]), INF, exact=True)
        f.add(f"{name}_special", op.Tensor, torch.tensor([INF, -INF, NAN, 0.0, -0.0, 1.0]),
              torch.tensor([INF, 1.0, 1.0, -0.0, 0.0, NAN]), exact=True)
        for dtype in HALVES:
            f.add(f"{name}_{str(dtype)[6:]}", op.Tensor, x[0].to(dtype), y[0].to(dtype))
        f.add(f"{name}_half_and_float", op.Tensor, rand(4, dtype=torch.float16), rand(4, seed=1, lo=0.5, hi=2))
        f.add(f"{name}_half_and_0dim_float", op.Tensor, rand(4, dtype=torch.float16), torch.tensor(0.1),
              tol=(2e-3, 1e-3, "a 0-dim float tensor does not promote half"))
    f.add("add_float_and_bool", aten.add.Tensor, rand(4), randbool(4), exact=True)
    f.add("mul_scalar_form", aten.mul.Scalar, x, 0.125, exact=True)
    f.add("mul_scalar_int", aten.mul.Scalar, randint(5, lo=-9, hi=9), 3, exact=True)
    f.add("mul_scalar_float_of_int", aten.mul.Scalar, randint(5, lo=-9, hi=9), 0.5, exact=True)
    f.add("div_scalar_form", aten.div.Scalar, x, 3.0)
    f.add("div_by_zero", aten.div.Tensor, torch.tensor([1.0, -1.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 0.0, -0.0]),
          exact=True)
    f.add("rsub_scalar", aten.rsub.Scalar, x, 1, exact=True)
    f.add("rsub_tensor_alpha", aten.rsub.Tensor, x, y, alpha=2, exact=True)
    for mode in ("floor", "trunc"):
        a, b = torch.tensor([7.0, -7.0, 7.0, -7.0, 0.5]), torch.tensor([2.0, 2.0, -2.0, -2.0, 2.0])
        f.add(f"div_{mode}", aten.div.Tensor_mode, a, b, rounding_mode=mode, exact=True)
        f.add(f"div_{mode}_int64", aten.div.Tensor_mode, a.long(), b.long(), rounding_mode=mode, exact=True)
        f.add(f"div_{mode}_scalar", aten.div.Scalar_mode, a, 2.0, rounding_mode=mode, exact=True)
    f.add("div_mode_none", aten.div.Tensor_mode, x, y, rounding_mode=None)
    f.add("floor_divide", aten.floor_divide.default, torch.tensor([7, -7, 7, -7]), torch.tensor([2, 2, -2, -2]),
          exact=True)
    f.add("atan2", aten.atan2.default, torch.tensor([1.0, 1.0, -1.0, -1.0, 0.0, 0.0, 2.0]),
          torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 0.0]), tol=FAST_MATH)
    f.add("hypot", aten.hypot.default, torch.tensor([3.0, -5.0]), torch.tensor([4.0, 12.0]))
    f.add("lerp_scalar", aten.lerp.Scalar, x, y, 0.25)
    f.add("lerp_tensor", aten.lerp.Tensor, x, y, rand(4, seed=3, lo=0, hi=1))
    f.add("addcmul", aten.addcmul.default, x, y, rand(4, seed=2), value=0.5)
    f.add("addcdiv", aten.addcdiv.default, x, y, rand(4, seed=2, lo=1, hi=2), value=2)


def extremes(f):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        kind = str(dtype)[6:]
        a = torch.tensor([NAN, 1.0, 2.0, -INF, INF, 0.0], dtype=dtype)
        b = torch.tensor([1.0, NAN, -2.0, 3.0, 3.0, 0.5], dtype=dtype)
        f.add(f"maximum_nan_{kind}", aten.maximum.default, a, b, exact=True)
        f.add(f"minimum_nan_{kind}", aten.minimum.default, a, b, exact=True)
        f.add(f"fmax_nan_{kind}", aten.fmax.default, a, b, exact=True)
        f.add(f"fmin_nan_{kind}", aten.fmin.default, a, b, exact=True)
    f.add("maximum_int64", aten.maximum.default, randint(2, 3, lo=-9, hi=9), randint(3, lo=-9, hi=9, seed=1),
          exact=True)
    f.add("minimum_int32", aten.minimum.default, randint(3, lo=-9, hi=9, dtype=torch.int32),
          randint(3, lo=-9, hi=9, seed=1, dtype=torch.int32), exact=True)
    f.add("maximum_int_and_float", aten.maximum.default, randint(3, lo=-3, hi=3), rand(3), exact=True)
    f.add("maximum_bool", aten.maximum.default, randbool(6), randbool(6, seed=1), exact=True)


def power(f):
    """The shader's own pow is undefined for negative bases (F17)."""
    base = torch.tensor([-1.0, -2.0, -3.0, 0.0, -0.0, 2.0, 0.5, NAN, INF, -INF])
    for e in (2, 3, 0, 1, -1, -2, 0.5, 2.0, 3.0, -0.5, -1.0, 0.0, 2.5, 10.0, -3.0):
        f.add(f"pow_scalar_{e}", aten.pow.Tensor_Scalar, base, e)
    a = torch.tensor([-1.0, -2.0, -2.0, 0.0, 0.0, NAN, -3.0, 2.0, 1.0, -1.0, 4.0, 0.0])
    b = torch.tensor([2.0, 3.0, 0.5, 0.0, -1.0, 0.0, -1.0, 10.0, NAN, INF, 0.5, 2.0])
    f.add("pow_tensor", aten.pow.Tensor_Tensor, a, b)
    f.add("pow_tensor_broadcast", aten.pow.Tensor_Tensor, rand(2, 3, lo=0.5, hi=2), torch.tensor([[2.0], [-1.0]]))
    f.add("pow_of_number", aten.pow.Scalar, 2.0, torch.tensor([-1.0, 0.0, 3.0, 0.5]))
    f.add("pow_of_negative_number", aten.pow.Scalar, -2.0, torch.tensor([2.0, 3.0, 0.5, -1.0]))
    f.add("pow_of_int_number", aten.pow.Scalar, 10000, rand(5, lo=0, hi=1))
    for dtype in HALVES:
        f.add(f"pow_square_{str(dtype)[6:]}", aten.pow.Tensor_Scalar, rand(5, dtype=dtype), 2)
        f.add(f"pow_root_{str(dtype)[6:]}", aten.pow.Tensor_Scalar, rand(5, dtype=dtype), 0.5)
    ints = torch.tensor([-3, -1, 0, 1, 2, 7])
    f.add("pow_int64", aten.pow.Tensor_Scalar, ints, 3, exact=True)
    f.add("pow_int64_zero", aten.pow.Tensor_Scalar, ints, 0, exact=True)
    f.add("pow_int32_tensor", aten.pow.Tensor_Tensor, ints.int(), torch.tensor([3, 4, 0, 5, 10, 2], dtype=torch.int32),
          exact=True)
    f.add("pow_int_to_float", aten.pow.Tensor_Scalar, ints[3:], 0.5)


def remainder(f):
    a = torch.tensor([7.0, -7.0, 7.0, -7.0, 5.5, -5.5, 0.0])
    b = torch.tensor([3.0, 3.0, -3.0, -3.0, 2.0, 2.0, 1.0])
    for name in ("fmod", "remainder"):
        op = getattr(aten, name)
        f.add(f"{name}_tensor", op.Tensor, a, b, exact=True)
        f.add(f"{name}_scalar", op.Scalar, a, 3, exact=True)
        f.add(f"{name}_scalar_negative", op.Scalar, a, -2.5, exact=True)
        f.add(f"{name}_int64", op.Tensor, a.long(), b.long(), exact=True)
        f.add(f"{name}_int64_scalar", op.Scalar, a.long(), -3, exact=True)
        f.add(f"{name}_zero_divisor", op.Scalar, torch.tensor([1.0, -1.0, 0.0]), 0.0, exact=True)


def integer_arithmetic(f):
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        kind, low = str(dtype)[6:], 0 if dtype == torch.uint8 else -9
        x, y = randint(2, 3, lo=low, hi=9, dtype=dtype), randint(3, lo=low, hi=9, seed=1, dtype=dtype)
        for name in ("add", "sub", "mul"):
            f.add(f"{name}_{kind}", getattr(aten, name).Tensor, x, y, exact=True)
        f.add(f"div_{kind}_gives_float", aten.div.Tensor, x, y.clamp(min=1))
    wide = torch.tensor([0, 1, 2147483646, -5])
    f.add("add_int64_near_limit", aten.add.Tensor, wide, 1, exact=True)
    f.add("mul_int64_large", aten.mul.Tensor, torch.tensor([46340, -46340]), torch.tensor([46340, 46340]), exact=True)
    f.add("add_uint8_wraps", aten.add.Tensor, torch.tensor([250, 255, 3], dtype=torch.uint8),
          torch.tensor([10, 1, 4], dtype=torch.uint8), exact=True)
    f.add("mul_int8_wraps", aten.mul.Tensor, torch.tensor([100, -100, 3], dtype=torch.int8),
          torch.tensor([2, 2, 4], dtype=torch.int8), exact=True)
    f.add("add_int64_alpha", aten.add.Tensor, wide[:2], torch.tensor([3, -4]), alpha=5, exact=True)
    f.add("add_int64_0dim", aten.add.Tensor, torch.tensor(41), 1, exact=True)
    f.add("add_bool_bool", aten.add.Tensor, randbool(6), randbool(6, seed=1), exact=True)
    f.add("mul_bool_bool", aten.mul.Tensor, randbool(6), randbool(6, seed=1), exact=True)
    f.add("mul_bool_int64", aten.mul.Tensor, randbool(6), randint(6, lo=-9, hi=9), exact=True)
    f.add("add_int32_int64", aten.add.Tensor, randint(4, lo=-9, hi=9, dtype=torch.int32),
          randint(4, lo=-9, hi=9, seed=1), exact=True)
    f.add("sub_int64_number", aten.sub.Tensor, randint(4, lo=-9, hi=9), 2.5, exact=True)
    f.add("rsub_int64", aten.rsub.Scalar, randint(4, lo=-9, hi=9), 1, exact=True)
