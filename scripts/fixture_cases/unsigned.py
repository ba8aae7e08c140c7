"""Integer products of codes that are made unsigned on the way."""
import torch
import torch.nn as nn

from .case import case, one


class IntMmUnsigned(nn.Module):
    """What torchao writes where the CPU multiplies unsigned with signed bytes only."""

    def __init__(self, rng, k, n):
        super().__init__()
        self.register_buffer("wq", rng.randint(-128, 128, (n, k)).to(torch.int8))
        self.register_buffer("scale", 0.01 + 0.1 * rng.randn(n).abs())

    def forward(self, codes, scales):
        w = self.wq.t()
        raised = (codes.to(torch.int32) + 128).to(torch.uint8)
        sums = torch._int_mm(raised, w) - 128 * w.sum(0, keepdim=True, dtype=torch.int32)
        return sums.to(torch.float32) * scales * self.scale


@case
def act_int_mm_unsigned(rng, m=5, k=40, n=8):
    codes = rng.randint(-128, 128, (m, k)).to(torch.int8)
    codes[0], codes[1] = -128, 127
    return one(IntMmUnsigned(rng, k, n), [(codes, 0.01 + rng.randn(m, 1).abs())],
               "codes made unsigned on the way, and the column sums taken off again", dict(linear=[0, 1], mm=0),
               fused=dict(linear_a8w8=1), tags=["quant"])
