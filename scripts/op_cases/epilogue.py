"""Products with a residual and an activation in one: the runtime's own ops, held to PyTorch's composition of them.

PyTorch computes in float64 here, and only the result is rounded: the fused op keeps what comes between in 32 bits.
"""
import torch

from .case import Const, Family, rand
from .linear_a8 import own

F = torch.nn.functional

# Name, arguments and function of every activation that a product can end in.
ACTIVATIONS = [
    ("relu", {}, F.relu),
    ("relu6", {}, F.relu6),
    ("gelu", {}, F.gelu),
    ("gelu", {"approximate": "none"}, F.gelu),
    ("gelu", {"approximate": "tanh"}, lambda v: F.gelu(v, approximate="tanh")),
    ("silu", {}, F.silu),
    ("sigmoid", {}, torch.sigmoid),
    ("tanh", {}, torch.tanh),
    ("hardswish", {}, F.hardswish),
    ("hardsigmoid", {}, F.hardsigmoid),
    ("clamp", {"min": -0.75, "max": 1.5}, lambda v: v.clamp(-0.75, 1.5)),
    ("clamp", {"max": 0.5}, lambda v: v.clamp(max=0.5)),
    ("clamp_min", {"min": -0.25}, lambda v: v.clamp(min=-0.25)),
    ("clamp_max", {"max": 1}, lambda v: v.clamp(max=1)),
    ("hardtanh", {}, F.hardtanh),
    ("hardtanh", {"min_val": -0.5, "max_val": 2.0}, lambda v: F.hardtanh(v, -0.5, 2.0)),
    ("leaky_relu", {"negative_slope": 0.125}, lambda v: F.leaky_relu(v, 0.125)),
    ("leaky_relu", {}, F.leaky_relu),
    ("mul", {"other": -0.375}, lambda v: v * -0.375),
]
NONE = (None, {}, lambda v: v)
RELU, GELU, SILU = ACTIVATIONS[0], ACTIVATIONS[2], ACTIVATIONS[5]


def epilogue():
    f = Family("epilogue")
    for index, activation in enumerate(ACTIVATIONS):
        for rows in (1, 3):
            linear(f, f"{activation[0]}_{index}_rows_{rows}", (rows, 5), 6, activation)
    shapes(f)
    residuals(f)
    live(f)
    halves(f)
    ends(f)
    return f


def call(f, name, op, operands, product, activation, residual=None):
    base, numbers, function = activation
    wide = product if residual is None else product + residual.double()
    args = list(operands) + ([] if residual is None else [("residual", residual)])
    args += [] if base is None else [("activation", base), *numbers.items()]
    own(f, name, op, args, [function(wide).to(operands[0][1].dtype)])


def linear(f, name, sizes, n, activation, bias=True, residual=False, dtype=torch.float32, constant=False):
    x, w = rand(*sizes, dtype=dtype), rand(n, sizes[-1], seed=1, dtype=dtype)
    b = rand(n, seed=2, dtype=dtype) if bias else None
    r = rand(*sizes[:-1], n, seed=3, dtype=dtype) if residual else None
    operands = [("input", x), ("weight", Const(w))] + ([("bias", Const(b) if constant else b)] if bias else [])
    product = F.linear(*(None if t is None else t.double() for t in (x, w, b)))
    call(f, name, "linear", operands, product, activation, r)


def shapes(f):
    """Kernels for one row, for tiles of 4 and of 16 rows; what the last panel and tile do not fill; no rows, no sums."""
    for sizes, n in (((1, 8), 8), ((1, 7), 5), ((1, 33), 130), ((4, 8), 8), ((5, 7), 3), ((9, 12), 6), ((17, 5), 9),
                     ((33, 16), 20), ((2, 3, 5), 7), ((7,), 5), ((8,), 4), ((3, 4), 1), ((0, 4), 5), ((3, 0), 5)):
        text = "x".join(map(str, (*sizes, n)))
        linear(f, f"gelu_{text}", sizes, n, GELU)
        linear(f, f"sigmoid_unbiased_{text}", sizes, n, ACTIVATIONS[6], bias=False)
        linear(f, f"residual_silu_{text}", sizes, n, SILU, residual=True)
        linear(f, f"residual_unbiased_{text}", sizes, n, NONE, bias=False, residual=True)


def residuals(f):
    for activation in (NONE, RELU, GELU):
        for bias in (False, True):
            linear(f, f"residual_{activation[0]}_{'biased' if bias else 'unbiased'}", (3, 5), 6, activation, bias,
                   residual=True, constant=True)
    x, w, r = rand(2, 3, 5), rand(4, 5, seed=1), rand(3, 2, 4, seed=2).transpose(0, 1)
    product = F.linear(x.double(), w.double())
    operands = [("input", x), ("weight", Const(w))]
    call(f, "residual_constant_transposed", "linear", operands, product, RELU, r.contiguous())
    base = [*operands, ("residual", Const(r)), ("activation", "relu")]
    own(f, "residual_transposed", "linear", base, [F.relu(product + r.double()).float()])


def live(f):
    for rows, k, n in ((1, 5, 6), (3, 8, 4), (17, 5, 1), (2, 0, 3)):
        text = f"{rows}x{k}x{n}"
        x, y, r, b = rand(rows, k), rand(k, n, seed=1), rand(rows, n, seed=2), rand(n, seed=3)
        product = x.double() @ y.double()
        call(f, f"mm_silu_{text}", "mm", [("self", x), ("mat2", y)], product, SILU)
        call(f, f"mm_residual_{text}", "mm", [("self", x), ("mat2", y)], product, NONE, r)
        call(f, f"mm_residual_gelu_{text}", "mm", [("self", x), ("mat2", y)], product, GELU, r)
        operands = [("self", b), ("mat1", x), ("mat2", y), ("beta", 0.5), ("alpha", 2)]
        call(f, f"addmm_relu_{text}", "addmm", operands, 0.5 * b + 2 * product, RELU)
        call(f, f"addmm_residual_silu_{text}", "addmm", operands, 0.5 * b + 2 * product, SILU, r)
        operands = [("self", torch.full((n,), float("nan"))), *operands[1:3], ("beta", 0), ("alpha", 0)]
        call(f, f"addmm_no_terms_{text}", "addmm", operands, 0 * product, ACTIVATIONS[6], r)


def halves(f):
    for dtype in (torch.float16, torch.bfloat16):
        label = str(dtype).removeprefix("torch.")
        for rows in (1, 5):
            for index, activation in enumerate((RELU, GELU, SILU, ACTIVATIONS[7], ACTIVATIONS[10])):
                linear(f, f"{label}_{index}_rows_{rows}", (rows, 8), 6, activation, residual=index % 2 == 0, dtype=dtype)


def ends(f):
    """NaN, infinities and sums far out stay what the activation alone makes of them."""
    x = torch.tensor([[1.0], [float("nan")], [float("inf")], [-float("inf")], [3e38], [-3e38], [200.0], [-200.0]])
    w = torch.tensor([[1.0], [0.5]])
    for index, activation in enumerate(ACTIVATIONS):
        operands = [("input", x), ("weight", Const(w))]
        call(f, f"ends_{activation[0]}_{index}", "linear", operands, F.linear(x.double(), w.double()), activation)
