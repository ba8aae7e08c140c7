"""Quantised linear layers as PT2E, the ATen pack ops and torchao export them."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from .case import case, one


# ------------------------------------------------------------------- quantised
def quant_per_channel(w, bits=8):
    """Symmetric per-output-channel int8 (or narrower, still stored int8)."""
    qmax = 2 ** (bits - 1) - 1
    scale = w.abs().amax(1).clamp_min(1e-6) / qmax
    q = torch.clamp(torch.round(w / scale[:, None]), -qmax - 1, qmax).to(torch.int8)
    return q, scale


def qd():
    import torch.ao.quantization.fx._decomposed  # noqa: F401  registers the ops
    return torch.ops.quantized_decomposed


class DqPerChannel(nn.Module):
    """int8 codes from `low` to 127 with a scale for each row, and a bias."""

    low = -128

    def __init__(self, rng, k, n, bias=True):
        super().__init__()
        q, sc = quant_per_channel(rng.param(n, k))
        self.register_buffer("wq", q)
        self.register_buffer("scale", sc)
        self.register_buffer("zp", torch.zeros(n, dtype=torch.int64))
        self.bias = rng.param(n) if bias else None

    def forward(self, x):
        w = qd().dequantize_per_channel(self.wq, self.scale, self.zp, 0, self.low, 127, torch.int8)
        return F.linear(x, w, self.bias)


@case
def dq_per_channel(rng, m=4, k=64, n=48):
    return one(nn.Sequential(DqPerChannel(rng, k, n), nn.ReLU(), DqPerChannel(rng, n, k, bias=False)),
               [(rng.randn(m, k),)],
               "weight = dequantize_per_channel(int8 buffer, constant scales): constant, so linear "
               "(a fused int8 linear or an explicit dequantize, same numbers)",
               dict(linear=2, addmm=0, mm=0), fused=dict(linear_q8=2), tags=["quant"])


class DqPerTensor(nn.Module):
    def __init__(self, rng, k, n):
        super().__init__()
        w = rng.param(n, k)
        self.scale = float(w.abs().max() / 127)
        self.wq = nn.Parameter(torch.clamp((w / self.scale).round(), -128, 127).to(torch.int8), requires_grad=False)
        self.register_buffer("ts", torch.tensor(self.scale))
        self.register_buffer("tz", torch.tensor(3))

    def forward(self, x):
        w = qd().dequantize_per_tensor(self.wq, self.scale, 0, -128, 127, torch.int8)
        v = qd().dequantize_per_tensor.tensor(self.wq, self.ts, self.tz, -128, 127, torch.int8)
        return F.linear(x, w), F.linear(x, v)


@case
def dq_per_tensor(rng, m=4, k=64, n=48):
    return one(DqPerTensor(rng, k, n), [(rng.randn(m, k),)],
               "dequantize_per_tensor .default (float scale, int zero point in the node) and .tensor "
               "(0-d constant tensors, zero point 3): linear", dict(linear=2, mm=0), fused=dict(linear_q8=2), tags=["quant"])


class DqQParam(nn.Module):
    def __init__(self, rng, k, n):
        super().__init__()
        self.w = rng.param(n, k)
        self.register_buffer("scale", quant_per_channel(self.w)[1])
        self.register_buffer("zp", torch.zeros(n, dtype=torch.int64))

    def forward(self, x):
        a = (self.scale, self.zp, 0, -128, 127, torch.int8)
        w = qd().dequantize_per_channel(qd().quantize_per_channel(self.w, *a), *a)
        return F.linear(x, w)


@case
def dq_q_param(rng, m=4, k=64, n=48):
    return one(DqQParam(rng, k, n), [(rng.randn(m, k),)],
               "convert_pt2e(fold_quantize=False) form dequantize(quantize(float parameter)): still constant, linear; "
               "rounding is half-to-even", dict(linear=1, mm=0), rtol=1e-3, atol=1e-3, fused=dict(linear_q8=1), tags=["quant"])


class DqGroup(nn.Module):
    def __init__(self, rng, k, n, g, zp):
        super().__init__()
        w = rng.param(n, k).view(n, k // g, g)
        sc = w.abs().amax(-1).clamp_min(1e-6) / 7
        z = rng.randint(-2, 3, (n, k // g)) if zp else torch.zeros(n, k // g, dtype=torch.int64)
        q = torch.clamp((w / sc[..., None]).round() + z[..., None], -8, 7).view(n, k)
        self.register_buffer("wq", q.to(torch.int8))
        self.register_buffer("scale", sc)
        self.register_buffer("zp", z.to(torch.int32))
        self.g = g

    def forward(self, x):
        w = qd().dequantize_per_channel_group(self.wq, self.scale, self.zp, -8, 7, torch.int8, self.g, torch.float32)
        return F.linear(x, w)


@case
def dq_per_channel_group_4bit(rng, m=4, k=64, n=48, g=32):
    return one(nn.Sequential(DqGroup(rng, k, n, g, False), DqGroup(rng, n, k, 16, True)),
               [(rng.randn(m, k),)],
               "4-bit values (-8..7) in an int8 tensor, scales and zero points per [row, group]: linear",
               dict(linear=2, mm=0), fused=dict(linear_q4=2), tags=["quant"])


class DqRuntime(nn.Module):
    def forward(self, x, y):
        q = qd().quantize_per_tensor(y, 0.02, 1, -128, 127, torch.int8)
        w = qd().dequantize_per_tensor(q, 0.02, 1, -128, 127, torch.int8)
        return F.linear(x, w)


@case
def dq_runtime(rng, m=4, k=32, n=24):
    return one(DqRuntime(), [(rng.randn(m, k), rng.randn(n, k)) for _ in range(2)],
               "dequantize of runtime data is NOT constant: mm must stay", dict(linear=0, mm=1),
               rtol=1e-3, atol=1e-3, fused=dict(), tags=["quant"])


class DynActInt8(DqPerChannel):
    """PT2E dynamic: per-tensor asymmetric activation quantisation at run time."""

    def forward(self, x):
        sc, zp = qd().choose_qparams(x, -128, 127, 1.1920928955078125e-07, torch.int8)
        xq = qd().quantize_per_tensor.tensor(x, sc, zp, -128, 127, torch.int8)
        return super().forward(qd().dequantize_per_tensor.tensor(xq, sc, zp, -128, 127, torch.int8))


@case
def dyn_act_int8(rng, m=4, k=64, n=48):
    return one(DynActInt8(rng, k, n), [(rng.randn(m, k),) for _ in range(2)],
               "choose_qparams + quantize/dequantize_per_tensor.tensor on the activation, dequantize_per_channel "
               "weight: linear with a runtime (dequantised) input", dict(linear=1, addmm=0),
               rtol=2e-2, atol=2e-2, fused=dict(linear_a8w8=1), tags=["quant"])


class PerToken(DqGroup):
    def forward(self, x):
        sc, zp = qd().choose_qparams_per_token_asymmetric(x, torch.int8)
        xq = qd().quantize_per_token(x, sc, zp, -128, 127, torch.int8)
        return super().forward(qd().dequantize_per_token(xq, sc, zp, -128, 127, torch.int8, torch.float32))


@case
def per_token_8da4w(rng, m=4, k=64, n=48, g=32):
    return one(PerToken(rng, k, n, g, False), [(rng.randn(m, k),)],
               "8-bit dynamic per-token activation, 4-bit group weight (8da4w)", dict(linear=1, mm=0),
               rtol=2e-2, atol=2e-2, fused=dict(linear_a8w4=1), tags=["quant"])


class Int8Pack(nn.Module):
    def __init__(self, rng, k, n):
        super().__init__()
        q, sc = quant_per_channel(rng.param(n, k))
        self.register_buffer("wq", q)
        self.register_buffer("scales", sc)

    def forward(self, x):
        return torch.ops.aten._weight_int8pack_mm(x, self.wq, self.scales)


@case
def weight_int8pack_mm(rng, m=4, k=64, n=48):
    return one(Int8Pack(rng, k, n), [(rng.randn(m, k),)],
               "aten._weight_int8pack_mm(x, int8 [N,K], scales [N]) is its own op", dict(_weight_int8pack_mm=1),
               fused=dict(_weight_int8pack_mm=1), tags=["quant"])


class StaticInt8(nn.Module):
    """What convert_pt2e leaves for static quantisation, dead float weight included."""

    def __init__(self, rng, k, n):
        super().__init__()
        self.w = rng.param(n, k)                       # unused, but stays in the file
        q, sc = quant_per_channel(self.w)
        self.register_buffer("_frozen_param0", q)
        self.register_buffer("_scale_0", sc)
        self.register_buffer("_zero_point_0", torch.zeros(n, dtype=torch.int64))
        self.bias = rng.param(n)

    def forward(self, x):
        w = qd().dequantize_per_channel(self._frozen_param0, self._scale_0, self._zero_point_0, 0, -127, 127, torch.int8)
        xa, ya = (0.03, -14, -128, 127, torch.int8), (0.02, -128, -128, 127, torch.int8)
        x = qd().dequantize_per_tensor(qd().quantize_per_tensor(x, *xa), *xa)
        y = F.relu(F.linear(x, w, self.bias))
        return qd().dequantize_per_tensor(qd().quantize_per_tensor(y, *ya), *ya)


@case
def static_int8(rng, m=4, k=64, n=48):
    return one(StaticInt8(rng, k, n), [(rng.randn(m, k),)],
               "PT2E static flow: q/dq on activations, frozen int8 weight; the float parameter it came "
               "from is a dead input (do not upload it)", dict(linear=1, addmm=0),
               rtol=2e-2, atol=2.1e-2, fused=dict(linear_a8w8=1), tags=["quant"])


def ao():
    import torchao.quantization.quant_primitives  # noqa: F401  registers torchao::*_affine
    return torch.ops.torchao


class AoGroup(DqGroup):
    def forward(self, x):
        w = ao().dequantize_affine(self.wq, [1, self.g], self.scale, self.zp, torch.int8, -8, 7)
        return F.linear(x, w)


@case
def ao_dequantize_affine(rng, m=4, k=64, n=48, g=32):
    return one(AoGroup(rng, k, n, g, True), [(rng.randn(m, k),)],
               "torchao IntxWeightOnly int4 group-wise, op kept whole (popped from the decomposition table): linear",
               dict(linear=1, mm=0), keep=(ao().dequantize_affine.default,), fused=dict(linear_q4=1), tags=["quant"])


@case
def ao_dequantize_decomposed(rng, m=4, k=64, n=48, g=32):
    return one(AoGroup(rng, k, n, g, True), [(rng.randn(m, k),)],
               "the same after a default run_decompositions(): dequantize_affine has become view/_to_copy/sub/mul/view, "
               "a constant expression: mm, or linear after constant folding",
               dict(linear=[0, 1], mm=[0, 1], total=1), fused=dict(linear_q4=1), tags=["quant"])


class AoInt8WeightOnly(Int8Pack):
    def forward(self, x):
        w = self.wq.t()
        torch.ops.aten._assert_tensor_metadata(w, None, None, torch.int8, device=w.device, layout=torch.strided)
        return torch.mm(x, w.to(x.dtype)) * self.scales


@case
def ao_int8_weight_only(rng, m=4, k=64, n=48):
    return one(AoInt8WeightOnly(rng, k, n), [(rng.randn(m, k),)],
               "torchao Int8WeightOnly: mm(x, _to_copy(permute(int8))) * scale, with an _assert_tensor_metadata "
               "node (no outputs) to skip: mm, or linear after constant folding",
               dict(linear=[0, 1], mm=[0, 1], total=1), fused=dict(linear_q8=1), tags=["quant"])
