"""A mixture of experts as transformers exports it: rows sorted by expert, counted, and multiplied group by group."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim

from experts import grouped_mm_fallback

from .case import case, one


class Experts(nn.Module):
    """The block of Mixtral and Qwen. Matrices are stored with their columns first, as those of linear layers."""

    def __init__(self, rng, d, ff, experts, top_k):
        super().__init__()
        self.experts, self.top_k = experts, top_k
        self.router = rng.linear(d, experts, bias=False)
        self.gate_up, self.down = rng.param(experts, 2 * ff, d), rng.param(experts, d, ff)

    def forward(self, x, scale):
        rows, d = x.shape
        weights, chosen = torch.topk(F.softmax(self.router(x), dim=-1), self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        ids, order = torch.sort(chosen.reshape(-1))
        counts = torch.histc(ids.float(), bins=self.experts, min=0, max=self.experts - 1)
        offs = torch.cumsum(counts, dim=0, dtype=torch.int32)
        h = x[order // self.top_k]
        gate, up = grouped_mm_fallback(h, self.gate_up.transpose(1, 2), offs).chunk(2, dim=-1)
        # A factor from outside makes the second weight a live one, which is read in the order that it has.
        h = grouped_mm_fallback(F.silu(gate) * up, (self.down * scale).transpose(1, 2), offs)
        h = h * weights.reshape(-1)[order][:, None]
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel())
        return h[back].view(rows, self.top_k, d).sum(1), counts


@case
def experts(rng, d=16, ff=12, count=6, top_k=2):
    rows = Dim("rows", min=1, max=64)
    return one(Experts(rng, d, ff, count, top_k), [(rng.randn(n, d), torch.tensor(0.75)) for n in (1, 5, 40)],
               "a mixture of experts: the router is a linear, products of groups stay what they are",
               dict(linear=1, grouped_mm_fallback=2), dynamic=({0: rows}, None), tags=["dynamic"])
