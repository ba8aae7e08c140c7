"""Linear layers whose activations are quantised too, in the forms that exporters write."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim

from .case import case, one
from .quantised import DqPerChannel, ao, qd


class Weight(DqPerChannel):
    low = -127


class PerTensor(nn.Module):
    """One asymmetric scale, chosen at run time, for codes of `dtype`; every layer reads the same codes."""

    def __init__(self, dtype, *layers):
        super().__init__()
        self.dtype, self.layers = dtype, nn.ModuleList(layers)

    def forward(self, x):
        low, high = torch.iinfo(self.dtype).min, torch.iinfo(self.dtype).max
        sc, zp = qd().choose_qparams(x, low, high, 1.1920928955078125e-07, self.dtype)
        q = qd().quantize_per_tensor.tensor(x, sc, zp, low, high, self.dtype)
        x = qd().dequantize_per_tensor.tensor(q, sc, zp, low, high, self.dtype)
        return tuple(layer(x) for layer in self.layers)


@case
def act_per_tensor_uint8(rng, m=5, k=37, n=11):
    return one(PerTensor(torch.uint8, Weight(rng, k, n)), [(rng.randn(m, k) + 0.5,)],
               "activations in uint8 with one zero point, K not a multiple of 4", dict(linear=1, addmm=0),
               fused=dict(linear_a8w8=1), tags=["quant"])


@case
def act_shared(rng, k=24, n=10):
    layers = [Weight(rng, k, n), Weight(rng, k, n, bias=False), Weight(rng, k, 2 * n)]
    return one(PerTensor(torch.int8, *layers), [(rng.randn(b, 3, k),) for b in (2, 5)],
               "three layers read the same codes, as queries, keys and values do; any number of rows",
               dict(linear=3, addmm=0, mm=0), dynamic=({0: Dim("batch", min=1, max=8)},),
               fused=dict(linear_a8w8=3), tags=["quant"])


class PerToken(nn.Module):
    def __init__(self, layer, choose):
        super().__init__()
        self.layer, self.choose = layer, choose

    def forward(self, x):
        sc, zp = getattr(qd(), self.choose)(x, torch.int8)
        a = (sc, zp, -128, 127, torch.int8)
        return self.layer(qd().dequantize_per_token(qd().quantize_per_token(x, *a), *a, torch.float32))


@case
def act_per_token_symmetric(rng, k=32, n=12):
    x = rng.randn(2, 3, k)
    x[0, 1] = 0                                             # a row whose scale is the least there is
    x[1, 2] *= 1e4
    return one(PerToken(Weight(rng, k, n), "choose_qparams_per_token"), [(x,)],
               "a symmetric scale for each row, one row being zeros", dict(linear=1, addmm=0),
               fused=dict(linear_a8w8=1), tags=["quant"])


class Groups(nn.Module):
    """4-bit codes in int8, a scale and zero point for each row and group."""

    def __init__(self, rng, k, n, group):
        super().__init__()
        self.group = group
        self.register_buffer("wq", rng.randint(-8, 8, (n, k)).to(torch.int8))
        self.register_buffer("scale", 0.02 + 0.1 * rng.randn(n, k // group).abs())
        self.register_buffer("zp", rng.randint(-8, 8, (n, k // group)).to(torch.int32))

    def forward(self, x):
        a = (self.wq, self.scale, self.zp, -8, 7, torch.int8, self.group, torch.float32)
        return F.linear(x, qd().dequantize_per_channel_group(*a))


@case
def act_per_token_groups(rng, m=4, k=48, n=10, g=16):
    x = rng.randn(m, k) + 2
    x[1] = 0
    return one(PerToken(Groups(rng, k, n, g), "choose_qparams_per_token_asymmetric"), [(x,), (x[2:3],)],
               "asymmetric rows, an odd number of groups of 4-bit weights with zero points; a single row too",
               dict(linear=1, mm=0), dynamic=({0: Dim("rows", min=1, max=8)},), fused=dict(linear_a8w4=1), tags=["quant"])


class Static(nn.Module):
    """Scales known at export, powers of two: sums and quotients are exact, so halves are met and codes must be equal."""

    def __init__(self, rng, k, n):
        super().__init__()
        self.register_buffer("wq", rng.randint(-3, 4, (n, k)).to(torch.int8))
        self.bias = nn.Parameter(rng.randint(-8, 9, (n,)).float() / 16, requires_grad=False)

    def forward(self, x):
        a, w = (2.0 ** -4, -6, -128, 127, torch.int8), (2.0 ** -2, 0, -128, 127, torch.int8)
        y, u = (2.0 ** -3, 5, -128, 127, torch.int8), (2.0 ** -3, 120, 0, 255, torch.uint8)
        x = qd().dequantize_per_tensor(qd().quantize_per_tensor(x, *a), *a)
        z = F.linear(x, qd().dequantize_per_tensor(self.wq, *w), self.bias)
        r = F.relu(F.linear(x, qd().dequantize_per_tensor(self.wq, *w)))
        return qd().quantize_per_tensor(z, *y), qd().quantize_per_tensor(r, *u)


@case
def act_static_codes(rng, k=20, n=9):
    x = rng.randint(-160, 161, (2, 3, k)).float() / 32      # multiples of half a step, some beyond the range
    x[0, 0, :2] = torch.tensor([300.0, -300.0])
    return one(Static(rng, k, n), [(x,)],
               "static scales on both sides with bias: halves round to even, what is beyond saturates, a relu is part "
               "of the quantise; codes are compared exactly", dict(linear=2, addmm=0, mm=0), fused=dict(linear_a8w8=2),
               tags=["quant"])


class RuntimeScale(Weight):
    def forward(self, x, level):
        sc = level * x.abs().amax() / 127
        a = (sc, torch.tensor(0), -127, 127, torch.int8)
        return super().forward(qd().dequantize_per_tensor.tensor(qd().quantize_per_tensor.tensor(x, *a), *a))


@case
def act_runtime_scale(rng, m=3, k=16, n=6):
    calls = [(rng.randn(m, k), torch.tensor(level)) for level in (1.0, 0.3)]
    return one(RuntimeScale(rng, k, n), calls,
               "a scale computed at run time from something else; the second saturates", dict(linear=1, addmm=0),
               fused=dict(linear_a8w8=1), tags=["quant"])


@case
def act_not_finite(rng, k=16, n=6):
    x = rng.randn(7, k)
    inf = float("inf")
    x[1, 3], x[2, 5], x[3, 5] = float("nan"), inf, -inf
    x[4] = 0
    x[5, :2] = torch.tensor([3e38, -3e38])                  # a range beyond float32
    return one(PerToken(Weight(rng, k, n), "choose_qparams_per_token_asymmetric"), [(x.nan_to_num(0, 1, -1),), (x,)],
               "rows with NaN, infinities and a range beyond float32 give NaN, and only they do",
               dict(linear=1, addmm=0), fused=dict(linear_a8w8=1), tags=["quant"])


class GivenScale(Weight):
    def forward(self, codes, scale, zero):
        return super().forward(qd().dequantize_per_tensor.tensor(codes, scale, zero, -128, 127, torch.int8))


@case
def act_given_scale(rng, m=3, k=16, n=6):
    codes = rng.randint(-128, 128, (m, k)).to(torch.int8)
    scales = (0.5, -0.5, 0.0, float("inf"), -float("inf"), float("nan"), 1e-45)
    return one(GivenScale(rng, k, n), [(codes, torch.tensor(scale), torch.tensor(5)) for scale in scales],
               "codes, scale and zero point of the caller: zero, negative, subnormal, infinite and NaN",
               dict(linear=1, addmm=0), fused=dict(linear_a8w8=1), tags=["quant"])


class Axes(nn.Module):
    """Square weights with scales along either axis, from either end."""

    def __init__(self, rng, k):
        super().__init__()
        self.register_buffer("wq", rng.randint(-128, 128, (k, k)).to(torch.int8))
        self.register_buffer("scale", 0.01 + 0.1 * rng.randn(k).abs())
        self.register_buffer("zp", rng.randint(-20, 20, (k,)))

    def forward(self, x):
        def w(axis):
            return qd().dequantize_per_channel(self.wq, self.scale, self.zp, axis, -128, 127, torch.int8)
        a = (0.04, 3, -128, 127, torch.int8)
        y = qd().dequantize_per_tensor(qd().quantize_per_tensor(x, *a), *a)
        return F.linear(y, w(0)), F.linear(y, w(-2)), y @ w(1), y @ w(-1), F.linear(y, w(1)), x @ w(-1)


@case
def act_axes(rng, m=3, k=16):
    return one(Axes(rng, k), [(rng.randn(m, k),)],
               "scales along axis 0, -2, 1 and -1 of square weights: of the columns of the product four times and of its "
               "sum once, which stays in floats; the last product has float activations", dict(linear=6, mm=0),
               fused=dict(linear_a8w8=4, linear_q8=1), tags=["quant"])


class AffineBlocks(nn.Module):
    """torchao's ops with blocks of rows and of columns, zero points in int8; one weight has a single row."""

    def __init__(self, rng, k, n):
        super().__init__()
        self.register_buffer("wq", rng.randint(-128, 128, (n, k)).to(torch.int8))
        self.register_buffer("one", rng.randint(-8, 8, (1, k)).to(torch.int8))
        self.register_buffer("scale", 0.001 + 0.002 * rng.randn(n // 2, 2).abs())
        self.register_buffer("zp", rng.randint(-20, 20, (n // 2, 2)).to(torch.int8))

    def forward(self, x):
        k, i8 = x.shape[-1], torch.int8
        sc, zp = ao().choose_qparams_affine(x, "ASYMMETRIC", [1, k], i8, -128, 127, None, None, i8)
        q = ao().quantize_affine(x, [1, k], sc, zp, i8, -128, 127)
        y = ao().dequantize_affine(q, [1, k], sc, zp, i8, -128, 127)
        w = ao().dequantize_affine(self.wq, [2, k // 2], self.scale, self.zp, i8, -128, 127)
        v = ao().dequantize_affine(self.one, [1, k], self.scale[:1, :1], None, i8, -8, 7)
        return F.linear(y, w), F.linear(y, v)


@case
def act_affine(rng, m=4, k=24, n=6):
    keep = (ao().choose_qparams_affine.default, ao().quantize_affine.default, ao().dequantize_affine.default)
    return one(AffineBlocks(rng, k, n), [(rng.randn(m, k) - 1,)],
               "torchao's ops kept whole: a row a block, zero points in int8; weights in blocks of rows and columns",
               dict(linear=[1, 2], mm=[0, 1], total=2), keep=keep, fused=dict(linear_a8w8=1, linear_a8w4=1),
               tags=["quant"])


@case
def act_affine_decomposed(rng, m=4, k=24, n=6):
    return one(AffineBlocks(rng, k, n), [(rng.randn(m, k) - 1,)], "the same after a default run_decompositions()",
               dict(linear=[0, 2], mm=[0, 2], total=2), fused=dict(linear_a8w8=1, linear_a8w4=1), tags=["quant"])


def torchao_layers(rng, k, n, config):
    from torchao.quantization import quantize_
    model = nn.Sequential(rng.linear(k, 2 * n), nn.GELU(), rng.linear(2 * n, n, bias=False)).eval()
    quantize_(model, config)
    return model


@case
def ao_int8_dynamic(rng, k=16, n=8):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig
    return one(torchao_layers(rng, k, n, Int8DynamicActivationInt8WeightConfig()), [(rng.randn(b, 3, k),) for b in (2, 4)],
               "torchao's dynamic int8: integer products with scales for rows and columns, and a bias",
               dict(mm=0), dynamic=({0: Dim("batch", min=1, max=8)},), fused=dict(linear_a8w8=2),
               # One activation of the second layer that another order of sums rounds to the next code.
               rtol=1e-2, atol=1e-2, tags=["quant"])


@case
def ao_8da4w(rng, k=64, n=8):
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from torchao.quantization.granularity import PerGroup
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    return one(torchao_layers(rng, k, 32, config), [(rng.randn(3, k),)],
               "torchao's dynamic int8 activations with 4-bit groups, decomposed", dict(mm=[0, 2], addmm=[0, 1]),
               # As above.
               fused=dict(linear_a8w4=2), rtol=1e-2, atol=1e-2, tags=["quant"])
