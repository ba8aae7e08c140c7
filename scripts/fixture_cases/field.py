"""Programs around faults that comparable runtimes had: stored strides, scalars JSON cannot write, shapes that change."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim

from .case import Case, Program, case, one


class StoredStrides(nn.Module):
    def __init__(self, rng):
        super().__init__()
        weight = rng.randn(4, 3, 3, 3, scale=0.2).to(memory_format=torch.channels_last)
        self.conv = nn.Parameter(weight, requires_grad=False)
        shared = rng.randn(64)
        self.register_buffer("offset", shared[4:20].view(4, 4))
        self.register_buffer("transposed", rng.randn(4, 3).t())
        self.register_buffer("expanded", rng.randn(4, 1).expand(4, 5))
        self.register_buffer("scalar", rng.randn(()))
        self.register_buffer("row", shared[20:26:2])

    def forward(self, x):
        return (F.conv2d(x, self.conv), self.offset * self.scalar, self.transposed + self.row[:, None],
                self.expanded.clone(), self.scalar + 1)


@case
def stored_strides(rng):
    return one(StoredStrides(rng), [(rng.randn(1, 3, 6, 5),)],
               "constants as they lie in the file: channels-last, transposed, an offset and a step into a shared payload, "
               "stride 0, rank 0", dict(convolution=1))


class NonFinite(nn.Module):
    def forward(self, x, mask):
        inf, nan = float("inf"), float("nan")
        return (x.masked_fill(mask == 0, -inf), torch.full((2, 2), inf), x.clamp(min=-inf, max=1.0),
                torch.full((3,), nan), x * inf, x.masked_fill(mask == 0, nan).relu())


@case
def nonfinite_scalars(rng):
    mask = torch.tensor([[1, 0, 1], [0, 1, 1]])
    return one(NonFinite(), [(rng.randn(2, 3), mask)],
               "infinities and NaN as scalars, which the file holds as strings; they arrive exactly", {})


class Int64Io(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.table = rng.param(6, 4)

    def forward(self, x, ids):
        rows = F.embedding(ids, self.table)
        return x, x + 1, rows, rows.argmax(-1), x > 0, (x > 0).to(torch.float32), ids.to(torch.int32)


@case
def int64_io(rng):
    return one(Int64Io(rng), [(torch.tensor([0, 1, 2 ** 31 - 2, -5]), torch.tensor([[5, 0], [2, 2]]))],
               "int64 in and out keep dtype and values; argmax gives int64, comparisons bool", dict(embedding=1))


class Scalars(nn.Module):
    def forward(self, x, s):
        m = x.amax()
        return m, (m - (m - 1)).reshape(1), x / x.sum(), s * 2, x * s, x.sum()


@case
def rank_zero(rng):
    return one(Scalars(), [(rng.randn(3, 4), torch.tensor(0.5)), (rng.randn(3, 4), torch.tensor(-2.0))],
               "0-d tensors as inputs, outputs and operands", {})


class Relayout(nn.Module):
    """Views of tensors whose elements lie in another order."""

    def __init__(self, rng, d):
        super().__init__()
        self.lin = rng.linear(d, 6)
        self.b = rng.param(d)

    def forward(self, x):                                # [2, 3, 4, 8]
        merged = x.permute(0, 2, 1, 3).reshape(2, 4, 24)
        added = x.permute(0, 2, 1, 3).reshape(8, 24) + self.b[0]
        linear = self.lin(x.transpose(2, 3).transpose(1, 3).transpose(2, 3))
        stepped = x[:, ::2, 1::2].reshape(2, -1)
        expanded = x[:, :1].expand(2, 3, 4, 8) @ x.transpose(-1, -2)
        return merged, added, linear, stepped, expanded


@case
def view_after_permute(rng):
    return one(Relayout(rng, 8), [(rng.randn(2, 3, 4, 8),)],
               "view behaves as reshape whatever the layout: after permute, transpose, a step, an expand",
               dict(linear=1, addmm=0, bmm=1))


class Windows(nn.Module):
    """Window partition and its inverse, as shifted-window transformers do it."""

    def __init__(self, rng, window, d):
        super().__init__()
        self.window, self.lin = window, rng.linear(d, d)
        self.register_buffer("bias", rng.randn(1, 1, window, 1, window, 1))

    def forward(self, x):
        b, h, w, c = x.shape
        k = self.window
        x = torch.roll(x, (-1, -1), (1, 2)).view(b, h // k, k, w // k, k, c)
        x = (x + self.bias).permute(0, 1, 3, 2, 4, 5)
        y = self.lin(x.reshape(-1, k * k, c))
        y = y.view(b, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.cat([torch.roll(y, (1, 1), (1, 2)), y], 3)[..., 2:]


@case
def window_attention(rng):
    return one(Windows(rng, 4, 6), [(rng.randn(2, 12, 8, 6),)],
               "rank 6: view, broadcast add, permute; roll, cat, slice", dict(linear=1, addmm=0))


class Pooled(nn.Module):
    def __init__(self, rng, vocab, d):
        super().__init__()
        self.table, self.out = rng.param(vocab, d), rng.linear(d, 5)

    def forward(self, ids):
        h = F.embedding(ids, self.table)
        return self.out(h.sum(1)), h.shape[1], torch.arange(ids.shape[1]) * 2


@case
def changing_length(rng):
    length = Dim("length", min=1, max=128)
    return one(Pooled(rng, 40, 16), [(rng.randint(0, 40, (1, n)),) for n in (8, 3, 8, 5, 1, 128, 77, 8)],
               "lengths that shrink and grow in one session: no stale rows are summed, and sizes come out as they are",
               dict(linear=1, addmm=0), dynamic=({1: length},), tags=["dynamic"])


class ConvNet(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.a = rng.fill(nn.Conv2d(3, 8, 3, stride=2, padding=1))
        self.b = rng.fill(nn.Conv2d(8, 4, 3, padding=2, dilation=2))

    def forward(self, x):
        x = F.relu(self.a(x))
        return F.max_pool2d(self.b(x), 3, stride=1, padding=1).mean((2, 3)), x.amax(dim=(-1, -2), keepdim=True)


@case
def changing_image(rng):
    h, w = Dim("h", min=8, max=64), Dim("w", min=8, max=64)
    return one(ConvNet(rng), [(rng.randn(1, 3, *hw),) for hw in ((32, 32), (17, 31), (32, 32))],
               "convolution with dynamic height and width: sizes are floor divisions of the input's",
               {}, dynamic=({2: h, 3: w},), tags=["dynamic"])


class MeanOfTokens(nn.Module):
    def forward(self, x):
        return torch.flatten(nn.functional.adaptive_avg_pool1d(x.transpose(1, 2), 1), 1)


@case
def changing_batch_mean(rng):
    return one(MeanOfTokens(), [(rng.randn(n, 5, 4),) for n in (2, 7, 1)],
               "a mean of tokens, exported as a mean and `as_strided` of it, with a batch that changes",
               {}, dynamic=({0: Dim("batch", min=1, max=16)},), tags=["dynamic"])


class Halves(nn.Module):
    def forward(self, x):
        a, b = x.view(-1, 2, x.shape[1]).unbind(1)
        return a * b, x.shape[0] * 2 + 1


class Pairs(Halves):
    def forward(self, x, y):
        product, size = super().forward(x)
        return product + y, size


@case
def derived_sizes(rng):
    half = Dim("half", min=2, max=32)
    pairs = [(rng.randn(2 * n, 3), rng.randn(n, 3)) for n in (4, 2, 9)]
    return Case({"alone": Program(Halves().eval(), [(x,) for x, _ in pairs], ({0: 2 * half},)),
                 "pair": Program(Pairs().eval(), pairs, ({0: 2 * half}, {0: half}))},
                "an input has 2*s0 rows: the symbol is solved by exact division; where a second input has s0, both agree",
                tags=["dynamic", "multimethod"])


class Masked(nn.Module):
    """Attention with a padding mask that may leave a row without keys, decomposed by the export."""

    def forward(self, q, k, v, mask):
        plain = F.scaled_dot_product_attention(q, k, v)
        causal = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        masked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return plain, causal, masked, (q @ k.transpose(-1, -2)).masked_fill(~mask, float("-inf")).softmax(-1)


def attention_inputs(rng):
    mask = rng.randint(0, 2, (1, 1, 4, 6)).bool()
    mask[..., 0], mask[..., 2, :] = True, False
    return tuple(rng.randn(1, 2, n, 8) for n in (4, 6, 6)) + (mask,)


@case
def masked_attention(rng):
    return one(Masked(), [attention_inputs(rng)],
               "a query row with every key masked: zeros from the attention op, NaN from a bare softmax, and neither leaks",
               {})


@case
def masked_attention_training_ir(rng):
    return one(Masked(), [attention_inputs(rng)],
               "the same with scaled_dot_product_attention whole", dict(scaled_dot_product_attention=3),
               decompose=False, tags=["training_ir"])


class Rotary(nn.Module):
    def __init__(self, rng, positions, d):
        super().__init__()
        angle = torch.arange(positions)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)[None]
        self.register_buffer("cos", torch.cat([angle.cos()] * 2, 1), persistent=False)
        self.register_buffer("sin", torch.cat([angle.sin()] * 2, 1), persistent=False)
        self.register_buffer("table", rng.randn(positions, d))

    def forward(self, x, pos):
        a, b = x.chunk(2, -1)
        turned = torch.cat([-b, a], -1)
        return x * self.cos[pos] + turned * self.sin[pos], self.table[pos]


@case
def rotary_lookup(rng):
    n = Dim("n", min=1, max=128)
    return one(Rotary(rng, 256, 16), [(rng.randn(m, 16), rng.randint(0, 256, (m,))) for m in (5, 128, 1)],
               "two-dimensional tables looked up by position, beside the rotary pattern",
               {}, dynamic=({0: n}, {0: n}), tags=["dynamic"])


class Powers(nn.Module):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = torch.pow(centred, 2).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + 1e-6), torch.pow(x, 3), torch.softmax(x * 151.29, -1), math.pi * x


@case
def written_out_norms(rng):
    return one(Powers(), [(rng.randn(3, 128),)],
               "variance as pow(x - mean, 2): negative bases; softmax of large logits", {})


class TrainedWeight(nn.Module):
    """A state of every kind, written in place: whole, through views, by index, and behind a product."""

    def __init__(self, rng, n, k):
        super().__init__()
        self.register_buffer("w", rng.randn(n, k, scale=.2))
        self.register_buffer("cache", torch.zeros(6, n))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.lin = rng.linear(n, n)

    def forward(self, x, where):
        y = F.linear(x, self.w)                      # the value before the update
        self.w.add_(torch.tanh(y).t() @ x, alpha=0.01)
        self.w[1:3].t().mul_(0.9)
        z = F.relu(self.lin(F.linear(x, self.w)), inplace=True)
        self.cache[:, 0].zero_()
        self.cache[1:3] = z[:2]
        self.cache[where] = z[2:]
        self.calls += 1
        offsets = torch.tensor([1.0, 2.0, 3.0])
        offsets.mul_(2)
        return y, z, self.cache.sum(0), self.w[0], offsets + self.calls


@case
def in_place_training_ir(rng, m=4, k=16, n=12):
    return one(TrainedWeight(rng, n, k), [(rng.randn(m, k), torch.tensor(at)) for at in ([0, 3], [5, 4], [3, 2], [0, 1])],
               "in-place ops on buffers, through views too: the written weight stays out of linear, before and after "
               "its update", dict(linear=1, mm=2, addmm=0), decompose=False, tags=["training_ir"], stateful=True)
