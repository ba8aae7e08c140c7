"""Chains of element-wise functions: the runtime's own op, held to PyTorch's functions one after the other.

PyTorch computes in float32 here, step by step, and only the last result is rounded to half precision.
"""
import functools

import torch

from .case import Const, Family, rand
from .linear_a8 import head_of, own

F = torch.nn.functional


def chain():
    f = Family("chain")
    steps(f)
    functions(f)
    shapes(f)
    halves(f)
    dtypes(f)
    ends(f)
    refused(f)
    return f


def call(f, name, text, function, *inputs):
    tensors = [i.tensor if isinstance(i, Const) else i for i in inputs]
    result = function(*(t.float() for t in tensors)).to(tensors[0].dtype)
    own(f, name, "elementwise", [("inputs", list(inputs)), ("steps", text)], [result])


def steps(f):
    x, z = rand(2, 3), rand(2, 3, seed=1)
    call(f, "one_step", "relu x", F.relu, x)
    call(f, "two_inputs", "add x z; mul last z", lambda x, z: (x + z) * z, x, z)
    call(f, "alpha", "add x z a=0.5; add last x a=-2.0", lambda x, z: x + 0.5 * z - 2 * x, x, z)
    call(f, "numbers", "mul x 3.0; add 1.5 last a=-1.0; div 2.0 last", lambda x: 2 / (1.5 - 3 * x), x)
    call(f, "swiglu", "silu x; mul last z", lambda x, z: F.silu(x) * z, x, z)
    w = rand(3, seed=2)
    call(f, "three_inputs", "add x z; mul last w; add last z a=-1.0", lambda x, z, w: (x + z) * w - z, x, z, w)
    call(f, "third_first", "mul w x -> slot_0; exp z; add slot_0 last; div last w", lambda x, z, w: (w * x + z.exp()) / w, x, z, w + 3)
    call(f, "sixteen_steps", "; ".join(["add last z", "mul last w"] * 8),
         lambda x, z, w: functools.reduce(lambda y, _: (y + z) * w, range(8), x), x, z, w)
    call(f, "seventeen_steps", "; ".join(["add last z"] * 17), lambda x, z: x + 17 * z, x, z)
    call(f, "numbers_beyond_a_pipeline", "; ".join(f"add last {n}.25" for n in range(9)), lambda x: x + 38.25, x)
    call(f, "twice", "exp x; mul last last", lambda x: x.exp() * x.exp(), x)
    call(f, "slots", "exp x -> slot_0; neg z -> slot_1; mul slot_0 last -> slot_2; add slot_0 last -> slot_3; "
         "add slot_1 slot_2 -> slot_1; mul slot_1 slot_3",
         lambda x, z: (-z + x.exp() * -z) * (x.exp() + x.exp() * -z), x, z)
    call(f, "last_is_kept", "neg x -> slot_0; exp last; add last slot_0", lambda x: (-x).exp() - x, x)
    call(f, "hundred_sums", "; ".join(["add last z"] * 100), lambda x, z: x + 100 * z, x, z)
    call(f, "gelu_spelt_out", "mul x 0.7071067811865476; erf last; add last 1.0; mul x last; mul last 0.5", F.gelu, x)
    call(f, "constant", "mul x z; tanh last", lambda x, z: (x * z).tanh(), x, Const(z))


def functions(f):
    """Every kind of number that a function takes, and functions of two that are not symmetric."""
    x, z = rand(11), rand(11, seed=1)
    for name, text, function in (
        ("clamp", "clamp x a=-0.5 b=1.0", lambda x: x.clamp(-0.5, 1.0)),
        ("leaky_relu", "leaky_relu x a=0.125", lambda x: F.leaky_relu(x, 0.125)),
        ("elu", "elu x a=1.5 b=1.0 c=0.5", lambda x: torch.where(x > 0, x, 1.5 * torch.expm1(0.5 * x))),
        ("softplus", "softplus x a=2.0 b=20.0", lambda x: F.softplus(x, 2.0)),
        ("threshold", "threshold x a=0.25 b=7.0", lambda x: F.threshold(x, 0.25, 7.0)),
        ("round_to", "round_to x a=10.0", lambda x: (x * 10).round() / 10),
        ("hardshrink", "hardshrink x a=0.5", F.hardshrink),
    ):
        call(f, f"{name}_then_neg", f"{text}; neg last", lambda x: -function(x), x)
    for name, function in (("maximum", torch.maximum), ("minimum", torch.minimum), ("atan2", torch.atan2),
                           ("fmod", torch.fmod), ("remainder", torch.remainder), ("copysign", torch.copysign),
                           ("hypot", torch.hypot), ("div_floor", lambda a, b: torch.div(a, b, rounding_mode="floor")),
                           ("div_trunc", lambda a, b: torch.div(a, b, rounding_mode="trunc"))):
        shifted = z + 0.0625
        call(f, f"{name}_of_neg", f"neg x; {name} z last", lambda x, z: function(z, -x), x + 0.0625, shifted)


def shapes(f):
    """Quads and single elements, operands that repeat, views that do not merge, no elements, no dims."""
    text, function = "add x z a=-1.0; mul last x", lambda x, z: (x - z) * x
    for a, b in (((4, 8), (4, 8)), ((4, 8), (8,)), ((4, 8), (4, 1)), ((3, 5), (5,)), ((3, 5), (3, 1)), ((2, 1, 4), (3, 1)),
                 ((130,), (130,)), ((2, 3, 4, 5), (3, 1, 5)), ((2, 1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 2)), ((0, 3), (3,)),
                 ((), ()), ((4,), ())):
        label = "x".join(map(str, a)) + "_by_" + "x".join(map(str, b))
        call(f, f"shape_{label}", text, function, rand(*a), rand(*b, seed=1))

    for a, b, c in (((4, 8), (8,), (4, 1)), ((3, 5), (3, 1), (5,)), ((2, 1, 4), (3, 1), (1,)), ((2, 3, 4, 5), (3, 1, 5), (4, 1)),
                    ((2, 1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 2), (2, 1, 1))):
        label = "_by_".join("x".join(map(str, sizes)) for sizes in (a, b, c))
        call(f, f"three_{label}", "mul x w; add last z", lambda x, z, w: x * w + z, rand(*a), rand(*b, seed=1), rand(*c, seed=2))


def halves(f):
    for dtype in (torch.float16, torch.bfloat16):
        label = str(dtype).removeprefix("torch.")
        for sizes in ((3, 8), (3, 5)):
            x, z = rand(*sizes, dtype=dtype), rand(*sizes, seed=1, dtype=dtype)
            call(f, f"{label}_{sizes[1]}", "exp x; mul last z; add last 0.125; silu last",
                 lambda x, z: F.silu(x.exp() * z + 0.125), x, z)
    x = torch.tensor([300.0, -300.0], dtype=torch.float16)
    call(f, "half_between_is_not_rounded", "mul x x; mul last 0.0078125", lambda x: x * x / 128, x)


def dtypes(f):
    """Truth values, choices and conversions; a dtype of the result that is not the first input's."""
    for sizes in ((3, 8), (3, 5)):
        x, z, n, m = rand(*sizes), rand(*sizes, seed=1), rand(*sizes, seed=2) * 4, rand(*sizes, seed=3) * 4
        half, truth, n, m = z.half(), z > 0, n.long(), m.long()
        for name, inputs, text, result in (
            ("where", [x, z], "gt x z; choose last x z", torch.where(x > z, x, z)),
            ("masked", [x, truth], "choose z -inf x; exp last", x.masked_fill(truth, -torch.inf).exp()),
            ("numbers", [x], "le x 0.25; choose last 1.5 -2.0", torch.where(x <= 0.25, 1.5, -2.0)),
            ("truth", [x, z], "is_finite x -> slot_0; ne x z; logical_and slot_0 last", x != z),
            ("integers", [n, m, x], "int_ge x z; choose last w 0.0", torch.where(n >= m, x, 0.0)),
            ("integers_as_floats", [n, x], "mul x z; neg last", -(n * x)),
            ("widened", [half, x], "add x z; mul last x", (half + x) * half),
            ("narrowed", [x, z], "mul x z; neg last", -(x * z).half()),
            ("rounded", [x], "exp x; round_f16 last; neg last", -x.exp().half()),
            ("rounded_bf16", [x], "exp x; round_bf16 last; neg last", -x.exp().bfloat16()),
            ("to_integers", [x], "mul x 50.0; round last", (x * 50).round().long()),
            ("to_bytes", [x], "abs x; mul last 50.0", (x.abs() * 50).to(torch.uint8)),
        ):
            args = [("inputs", inputs), ("steps", text), ("dtype", result.dtype)]
            own(f, f"{name}_{sizes[1]}", "elementwise", args, [result])


def ends(f):
    """NaN, infinities and what overflows on the way."""
    x = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 0.0, -0.0])
    call(f, "ends_relu", "mul x 2.0; relu last", lambda x: F.relu(x * 2), x)
    call(f, "ends_clamp", "neg x; clamp last a=-1.0 b=inf", lambda x: (-x).clamp(min=-1), x)
    call(f, "ends_maximum", "neg x; maximum x last", lambda x: torch.maximum(x, -x), x)
    call(f, "ends_sigmoid", "mul x 2.0; sigmoid last; mul last x", lambda x: (x * 2).sigmoid() * x, x)
    call(f, "ends_nan_to_num", "neg x; nan_to_num last a=1.0 b=2.0 c=3.0", lambda x: (-x).nan_to_num(1, 2, 3), x)


def refused(f):
    """What the text of the steps must not be."""
    x, z = rand(3), rand(3, seed=1)
    for name, inputs, text in (("no_steps", [x], ""), ("no_function", [x], "sum x"), ("no_operand", [x], "add x"),
                               ("no_second_input", [x], "add x z"), ("empty_slot", [x], "neg slot_0"),
                               ("no_third_input", [x, z], "add x w"), ("four_inputs", [x, z, x, z], "add x z"),
                               ("many_steps_of_three", [x, z, x], "; ".join(["add last w"] * 17)), ("no_inputs", [], "neg x"),
                               ("floats_as_integers", [x, z], "int_lt x z"), ("no_third_operand", [x, z], "choose x z")):
        head = head_of(f"refused_{name}", "elementwise", [("inputs", inputs), ("steps", text)])
        f._push(head + f',"refused":"{name.replace("_", " ")}"')
