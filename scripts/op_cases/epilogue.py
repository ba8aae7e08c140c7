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
    ("mul", {"factor": -0.375}, lambda v: v * -0.375),
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
    batches(f)
    convolutions(f)
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


def batches(f):
    """bmm, baddbmm and matmul: for one row, for tiles, for a vector on the right; with a residual beside a bias and without."""
    for rows, k, n in ((1, 5, 6), (3, 8, 4), (17, 5, 1), (2, 0, 3)):
        text = f"{rows}x{k}x{n}"
        x, y, r, b = rand(2, rows, k), rand(2, k, n, seed=1), rand(2, rows, n, seed=2), rand(n, seed=3)
        product, operands = x.double() @ y.double(), [("self", x), ("mat2", y)]
        call(f, f"bmm_silu_{text}", "bmm", operands, product, SILU)
        call(f, f"bmm_residual_relu_{text}", "bmm", operands, product, RELU, r)
        call(f, f"bmm_scale_{text}", "bmm", operands, product, ACTIVATIONS[18])
        operands = [("self", b), ("batch1", x), ("batch2", y), ("beta", 0.5), ("alpha", 2)]
        call(f, f"baddbmm_gelu_{text}", "baddbmm", operands, 0.5 * b + 2 * product, GELU)
        call(f, f"baddbmm_residual_silu_{text}", "baddbmm", operands, 0.5 * b + 2 * product, SILU, r)
        operands = [("self", x), ("other", y[0])]
        call(f, f"matmul_residual_gelu_{text}", "matmul", operands, x.double() @ y[0].double(), GELU, r)
        call(f, f"matmul_scale_{text}", "matmul", operands, x.double() @ y[0].double(), ACTIVATIONS[18])
        operands = [("self", x), ("other", y[0, :, 0])]
        call(f, f"matmul_vector_relu_{text}", "matmul", operands, x.double() @ y[0, :, 0].double(), RELU, r[..., 0])


def convolutions(f):
    """Kernels of their own and, for 1x1, the product; with tiles of 1, 4, 8 and 16 channels, some in part."""
    for name, x, w, stride, padding, dilation, groups, back in (
        ("2d", (2, 4, 7, 6), (6, 4, 3, 3), 1, 1, 1, 1, False),
        ("2d_1x1", (2, 4, 5, 3), (6, 4, 1, 1), 1, 0, 1, 1, False),
        ("2d_stride", (1, 3, 7, 6), (13, 3, 3, 3), 2, 1, 1, 1, False),
        ("2d_depthwise", (2, 4, 7, 9), (4, 1, 3, 3), 1, 1, 1, 4, False),
        ("2d_groups", (1, 8, 5, 9), (20, 4, 3, 3), 1, 0, 1, 2, False),
        ("1d", (2, 4, 9), (17, 4, 3), 1, 1, 1, 1, False),
        ("1d_dilated", (1, 4, 19), (5, 4, 3), 1, 4, 4, 1, False),
        ("1d_long", (1, 2, 150), (8, 2, 5), 1, 2, 1, 1, False),
        ("1d_transposed", (1, 4, 7), (4, 6, 4), 2, 1, 1, 1, True),
        ("2d_transposed", (1, 4, 3, 5), (4, 3, 4, 3), 2, 1, 1, 1, True),
    ):
        rank = len(x) - 2
        x, w = rand(*x), rand(*w, seed=1)
        channels = w.shape[1] * groups if back else w.shape[0]
        b = rand(channels, seed=2)
        numbers = [(key, (value,) * rank) for key, value in (("stride", stride), ("padding", padding), ("dilation", dilation))]
        rest = [*numbers, ("transposed", back), ("output_padding", (0,) * rank), ("groups", groups)]

        def product(bias):
            return torch.ops.aten.convolution.default(x.double(), w.double(), bias, *(value for _, value in rest))

        r = rand(*product(None).shape, seed=3)
        for label, weight in (("", Const(w)), ("live_", w)):
            operands = [("input", x), ("weight", weight), ("bias", Const(b)), *rest]
            call(f, f"conv{name}_{label}silu", "convolution", operands, product(b.double()), SILU)
            call(f, f"conv{name}_{label}residual_relu", "convolution", operands, product(b.double()), RELU, r)
        operands = [("input", x), ("weight", Const(w)), ("bias", None), *rest]
        call(f, f"conv{name}_unbiased_residual", "convolution", operands, product(None), NONE, r)
        call(f, f"conv{name}_unbiased_clamp", "convolution", operands, product(None), ACTIVATIONS[10])
    x, w, r = rand(1, 0, 5), rand(3, 0, 3, seed=1), rand(1, 3, 3, seed=2)
    operands = [("input", x), ("weight", Const(w)), ("bias", rand(3, seed=3)), ("stride", (1,))]
    call(f, "conv1d_no_channels", "conv1d", operands, rand(3, seed=3).double()[None, :, None].expand(1, 3, 3), SILU, r)
    call(f, "conv1d_no_channels_unbiased", "conv1d", operands[:2], torch.zeros(1, 3, 3).double(), SILU, r)
    for dtype in (torch.float16, torch.bfloat16):
        x, w, b = rand(1, 4, 9, dtype=dtype), rand(6, 4, 3, seed=1, dtype=dtype), rand(6, seed=2, dtype=dtype)
        r = rand(1, 6, 7, seed=3, dtype=dtype)
        operands = [("input", x), ("weight", Const(w)), ("bias", Const(b))]
        product = F.conv1d(x.double(), w.double(), b.double())
        call(f, f"conv1d_{str(dtype)[6:]}_residual_gelu", "conv1d", operands, product, GELU, r)
