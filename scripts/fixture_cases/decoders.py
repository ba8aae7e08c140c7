"""Decoder layers as their families write them: RMS norms in pieces, shared heads, rotary positions, gates."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim

from .case import case, one


class WrittenNorm(nn.Module):
    """The norm of Llama and Qwen."""

    def __init__(self, rng, d, dtype):
        super().__init__()
        self.weight = nn.Parameter((1 + rng.randn(d, scale=.1)).to(dtype), requires_grad=False)

    def forward(self, x):
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype)


def turned(x):
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


class DecoderLayer(nn.Module):
    def __init__(self, rng, d, heads, kv_heads, ff, dtype):
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, d // heads
        self.before, self.after = WrittenNorm(rng, d, dtype), WrittenNorm(rng, d, dtype)
        self.q = rng.linear(d, d, bias=False)
        self.k, self.v = (rng.linear(d, kv_heads * self.width, bias=False) for _ in range(2))
        self.o = rng.linear(d, d, bias=False)
        self.gate, self.up = rng.linear(d, ff, bias=False), rng.linear(d, ff, bias=False)
        self.down = rng.linear(ff, d, bias=False)

    def repeated(self, x):
        b, h, t, w = x.shape
        group = self.heads // self.kv_heads
        return x[:, :, None].expand(b, h, group, t, w).reshape(b, h * group, t, w)

    def forward(self, x, cos, sin, mask):
        b, t, d = x.shape
        h = self.before(x)
        q, k, v = (p(h).view(b, t, -1, self.width).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = (y * cos + turned(y) * sin for y in (q, k))
        k, v = self.repeated(k), self.repeated(v)
        scores = q @ k.transpose(2, 3) * self.width ** -0.5 + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(b, t, d))
        h = self.after(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def positions(t, width):
    angles = torch.arange(t)[:, None] / 100 ** (torch.arange(0, width, 2)[None] / width)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def layer_inputs(rng, b, t, d, width):
    return (rng.randn(b, t, d), *positions(t, width), torch.full((t, t), float("-inf")).triu(1))


@case
def decoder_layer(rng, d=32, heads=4, kv_heads=2, ff=48):
    seq = Dim("seq", min=2, max=64)
    return one(DecoderLayer(rng, d, heads, kv_heads, ff, torch.float32),
               [layer_inputs(rng, 2, t, d, d // heads) for t in (5, 33)],
               "a Llama layer: norms in pieces, keys and values repeated for two heads each, rotary positions, a gate",
               dict(linear=7, addmm=0), dynamic=({1: seq}, {0: seq}, {0: seq}, {0: seq, 1: seq}), tags=["dynamic", "e2e"])


class Norms(nn.Module):
    """Norms of the families over half precision."""

    def __init__(self, rng, d):
        super().__init__()
        self.llama = WrittenNorm(rng, d, torch.float16)
        self.weight = nn.Parameter(rng.randn(d, scale=.1).half(), requires_grad=False)
        self.stock = nn.RMSNorm(d, eps=1e-5, dtype=torch.float16)
        self.stock.weight = nn.Parameter((1 + rng.randn(d, scale=.1)).half(), requires_grad=False)

    def forward(self, x):
        h = x.float()
        gemma = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight.float())
        return self.llama(x), gemma.type_as(x), self.stock(x), x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-3)


@case
def half_norms(rng, d=24):
    return one(Norms(rng, d), [(rng.randn(2, 3, d).half(),)], "RMS norms of half precision computed in float32, in pieces",
               {}, rtol=4e-3, atol=4e-3)


class SharedHeads(nn.Module):
    """Keys and values with fewer heads than the queries, in every way that programs write them."""

    def forward(self, q, k, v, mask):
        b, h, t, w = k.shape
        grouped = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        masked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        interleaved = F.scaled_dot_product_attention(
            q, k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1), attn_mask=mask)
        rows_k, rows_v = (x.transpose(1, 2).unsqueeze(3).expand(b, t, h, 3, w).reshape(b, t, 3 * h, w).transpose(1, 2)
                          for x in (k, v))
        rows = F.softmax(q @ rows_k.transpose(2, 3) * 0.3, dim=-1) @ rows_v
        one_head = F.scaled_dot_product_attention(q, k[:, :1].expand(-1, 3 * h, -1, -1), v[:, :1].expand(-1, 3 * h, -1, -1))
        return grouped, masked, interleaved, rows, one_head


def shared_heads_inputs(rng, queries):
    keys = 7
    mask = torch.zeros(2, 1, queries, keys).masked_fill(rng.randint(0, 3, (2, 1, queries, keys)) == 0, float("-inf"))
    return rng.randn(2, 6, queries, 8), rng.randn(2, 2, keys, 8), rng.randn(2, 2, keys, 8), mask


@case
def shared_heads(rng):
    return one(SharedHeads(), [shared_heads_inputs(rng, n) for n in (5, 1)],
               "each head of keys and values serves three of the queries", {},
               dynamic=({2: Dim("queries", min=1, max=16)}, None, None, {2: Dim("queries", min=1, max=16)}), tags=["dynamic"])


@case
def shared_heads_training_ir(rng):
    return one(SharedHeads(), [shared_heads_inputs(rng, 4)], "the same before decomposition", {}, decompose=False)
