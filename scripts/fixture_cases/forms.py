"""addmm forms, dtypes, dynamic sizes, state, several programs, nested inputs and outputs."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim

from .case import Case, Program, case, one


# -------------------------------------------------------------- addmm details
class AddmmForms(nn.Module):
    def __init__(self, rng, k, n, m):
        super().__init__()
        self.w, self.b1, self.b2 = rng.param(n, k), rng.param(n), nn.Parameter(rng.randn(m, n), requires_grad=False)

    def forward(self, x, rb):
        return (torch.addmm(self.b1, x, self.w.t(), beta=0.5, alpha=2.0),
                torch.addmm(self.b2, x, self.w.t()),
                torch.addmm(rb, x, self.w.t()),
                torch.addmm(self.b1, x, self.w.t()))


@case
def addmm_forms(rng, m=4, k=32, n=24):
    return one(AddmmForms(rng, k, n, m), [(rng.randn(m, k), rng.randn(n)) for _ in range(2)],
               "constant weight, but: beta/alpha != 1 (linear only if scaled correctly), 2-d [M,N] bias, "
               "runtime 1-d bias. The plain last one must become linear; the others may, numbers decide",
               dict(linear=[1, 4], addmm=[0, 3], total=4))


# ----------------------------------------------------------------- dtypes, sizes
class HalfNet(nn.Module):
    def __init__(self, rng, k, n, dt):
        super().__init__()
        self.l1, self.l2 = rng.linear(k, n).to(dt), rng.linear(n, k, bias=False).to(dt)

    def forward(self, x):
        return self.l2(F.silu(self.l1(x)))


@case
def weight_fp16(rng, m=4, k=64, n=48):
    return one(HalfNet(rng, k, n, torch.float16), [(rng.randn(m, k).half(),)],
               "float16 weights, input and output", dict(linear=2, addmm=0, mm=0),
               rtol=1e-2, atol=5e-3, ref_float=True, tags=["fp16"])


@case
def weight_bf16(rng, m=4, k=64, n=48):
    return one(HalfNet(rng, k, n, torch.bfloat16), [(rng.randn(m, k).bfloat16(),)],
               "bfloat16 weights, input and output", dict(linear=2, addmm=0, mm=0),
               rtol=4e-2, atol=3e-2, ref_float=True, tags=["bf16"])


class CastWeight(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(w.half(), requires_grad=False)

    def forward(self, x):
        return F.linear(x, self.w.float())


@case
def weight_fp16_cast(rng, m=4, k=64, n=48):
    return one(CastWeight(rng.randn(n, k, scale=.1)), [(rng.randn(m, k),)],
               "_to_copy(float16 parameter) as float32 weight: linear or mm",
               dict(linear=[0, 1], mm=[0, 1], total=1), tags=["fp16"])


class ZeroSize(nn.Module):
    def __init__(self, rng, k, n):
        super().__init__()
        self.lin = rng.linear(k, n)
        self.register_buffer("empty", torch.zeros(0, n))

    def forward(self, x):
        y = self.lin(x)
        return torch.cat([y, self.empty], 0), y.sum(0), self.empty.clone()


@case
def zero_size(rng, k=16, n=32):
    return one(ZeroSize(rng, k, n), [(rng.randn(m, k),) for m in (0, 3, 1)],
               "zero-length payload and a batch that may be 0 at run time",
               dict(linear=1, addmm=0), dynamic=({0: Dim("m", min=0, max=16)},), tags=["dynamic"])


# ---------------------------------------------------------------------- dynamic
@case
def dynamic_batch(rng, k=48, h=64, n=16):
    net = nn.Sequential(rng.linear(k, h), nn.LayerNorm(h), nn.GELU(), rng.linear(h, n), nn.Softmax(-1))
    return one(rng.fill(net), [(rng.randn(m, k),) for m in (1, 7, 64)],
               "batch is Dim(1..64)", dict(linear=2, addmm=0),
               dynamic=({0: Dim("batch", min=1, max=64)},), tags=["dynamic"])


class MiniAttention(nn.Module):
    def __init__(self, rng, d, heads):
        super().__init__()
        self.q, self.k, self.v, self.o = (rng.linear(d, d) for _ in range(4))
        self.ln = rng.fill(nn.LayerNorm(d))
        self.h = heads

    def forward(self, x, mask=None):
        b, t, d = x.shape
        f = lambda l: l(x).view(b, t, self.h, d // self.h).transpose(1, 2)
        q, k, v = f(self.q), f(self.k), f(self.v)
        a = q @ k.transpose(-1, -2) / math.sqrt(d // self.h)
        if mask is not None:
            a = a.masked_fill(mask[:, None, None, :] == 0, float("-inf"))
        y = (a.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)
        return self.ln(x + self.o(y))


@case
def dynamic_attention(rng, d=64, heads=4):
    def inp(b, t):
        mask = torch.ones(b, t, dtype=torch.int64)
        mask[-1, t - t // 3:] = 0
        return (rng.randn(b, t, d), mask)
    B, T = Dim("batch", min=1, max=8), Dim("seq", min=2, max=64)
    return one(MiniAttention(rng, d, heads), [inp(1, 5), inp(3, 16), inp(2, 33)],
               "batch and seq symbolic, sizes flow through sym_size/mul nodes into view; masked_fill with -inf",
               dict(linear=4, addmm=0, bmm=2), dynamic=({0: B, 1: T}, {0: B, 1: T}), tags=["dynamic"])


class SymIntInput(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.register_buffer("w", w)

    def forward(self, x, n: int):
        return F.linear(x, self.w)[:, :n] * n


@case
def symint_input(rng, m=3, k=16, n=32):
    return one(SymIntInput(rng.randn(n, k, scale=.2)), [(rng.randn(m, k), i) for i in (9, 4, 31)],
               "an int user input (as_sym_int) used as slice end and as a scalar factor",
               dict(linear=1, mm=0), dynamic=(None, Dim.DYNAMIC), tags=["dynamic"])


# --------------------------------------------------------------------- state
class KvDecode(nn.Module):
    def __init__(self, rng, d, heads, tmax):
        super().__init__()
        self.q, self.k, self.v, self.o = (rng.linear(d, d, bias=False) for _ in range(4))
        self.h, self.dh = heads, d // heads
        self.register_buffer("k_cache", torch.zeros(1, heads, tmax, d // heads))
        self.register_buffer("v_cache", torch.zeros(1, heads, tmax, d // heads))
        self.register_buffer("mask", torch.full((tmax, tmax), float("-inf")).triu(1), persistent=False)

    def forward(self, x, pos):
        b, t, d = x.shape
        f = lambda l: l(x).view(b, t, self.h, self.dh).transpose(1, 2)
        self.k_cache[:, :, pos] = f(self.k)
        self.v_cache[:, :, pos] = f(self.v)
        a = f(self.q) @ self.k_cache.transpose(-1, -2) / math.sqrt(self.dh) + self.mask[pos]
        return self.o((a.softmax(-1) @ self.v_cache).transpose(1, 2).reshape(b, t, d))


@case
def kv_cache_decode(rng, d=64, heads=4, tmax=16):
    return one(KvDecode(rng, d, heads, tmax),
               [(rng.randn(1, 1, d), torch.tensor([i])) for i in range(6)],
               "index_put into two mutated buffers, position is a tensor; 4 projections are linear, "
               "the cache matmuls stay bmm; six calls in order",
               dict(linear=4, mm=0, bmm=2), stateful=True)


class Counter(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = w
        self.register_buffer("n", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(w.shape[0]))

    def forward(self, x):
        y = F.linear(x, self.w)
        self.n.add_(1)
        self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return y - self.mean


@case
def running_mean(rng, m=4, k=24, n=32):
    return one(Counter(rng.param(n, k)), [(rng.randn(m, k),) for _ in range(3)],
               "0-d int64 and 1-d float state buffers, weight itself constant: linear",
               dict(linear=1, mm=0), stateful=True)


class InputMutation(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = w

    def forward(self, x, acc):
        acc.add_(F.linear(x, self.w))
        return acc * 2


@case
def user_input_mutation(rng, m=4, k=24, n=32):
    return one(InputMutation(rng.param(n, k)), [(rng.randn(m, k), rng.randn(m, n))],
               "output spec user_input_mutation: the caller's acc must hold the sum afterwards "
               "(reference tensor `mut1`)", dict(linear=1, mm=0), tags=["input_mutation"])


# --------------------------------------------------------------- several programs
class LoraBase(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x)


class Lora(nn.Module):
    def __init__(self, base, a, b, scale):
        super().__init__()
        self.base, self.lora_a, self.lora_b, self.scale = base, a, b, scale

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scale


@case
def multimethod_lora(rng, k=64, n=48, rank=4, m=3):
    base = rng.linear(k, n)
    lora = Lora(base, rng.param(rank, k), rng.param(n, rank), 0.5)
    x = [(rng.randn(m, k),) for _ in range(2)]
    return Case({"base": Program(LoraBase(base).eval(), x), "lora": Program(lora.eval(), x)},
                "two programs in one archive; each carries its own copy of base.weight (not shared on "
                "disk): a loader may share equal payloads",
                {"base": dict(linear=1), "lora": dict(linear=3, mm=0, addmm=0)}, tags=["multimethod"])


# ------------------------------------------------------------------ pytree I/O
class Nested(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = w

    def forward(self, a, pair, *, opts, flag=True, none=None):
        y = F.linear(a, self.w) + pair[0]
        return {"y": y, "rest": (a, [y.relu(), y], pair[1] * 2), "const": 7, "none": none, "w": self.w}


@case
def nested_io(rng, m=3, k=16, n=24):
    def inp():
        return ((rng.randn(m, k), (rng.randn(n), rng.randn(2, 2))), dict(opts={"unused": rng.randn(4)}))
    return one(Nested(rng.param(n, k)), [inp() for _ in range(2)],
               "nested inputs (tuple, kwarg dict, unused input), outputs that are an input, a parameter, "
               "the same tensor twice, an int constant and None",
               dict(linear=1, mm=0), tags=["pytree"])
