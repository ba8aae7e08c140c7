"""4-bit weights that a CPU's packing op has laid out, in the program and before the export."""
import torch
import torch.nn as nn

from .case import Rng, case, one
from .refused import Refused, refused

ROWS, COLUMNS, GROUP = 80, 64, 32


class Int4Pack(nn.Module):
    """The program packs its weight itself."""

    def __init__(self, rng):
        super().__init__()
        self.register_buffer("codes", rng.randint(0, 16, (ROWS, COLUMNS)).to(torch.uint8))
        groups = COLUMNS // GROUP
        params = torch.stack([0.01 + 0.1 * rng.randn(groups, ROWS).abs(), rng.randn(groups, ROWS, scale=0.2)], -1)
        params[0, 3, 0] = 0                                 # weights that all are the zero
        params[1, 5, 1] = 0
        self.register_buffer("params", params)

    def packed(self):
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(self.codes.int(), 2)

    def forward(self, x):
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed(), GROUP, self.params)


def avx512_layout(codes):
    """What a CPU with AVX512 packs `codes` into: blocks of 64 rows, two halves in each byte; a rest of neighbours."""
    blocks = []
    for block in codes.to(torch.uint8).split(64):
        low, high = block.chunk(2) if len(block) == 64 else (block[::2], block[1::2])
        blocks.append((low | high << 4).t().flatten())
    return torch.cat(blocks).view(len(codes), -1)


class Int4Packed(Int4Pack):
    """The weight was packed before the export, on a CPU with AVX512."""

    def __init__(self, rng):
        super().__init__(rng)
        self.codes = avx512_layout(self.codes)
        if torch.backends.cpu.get_cpu_capability() == "AVX512":
            assert torch.equal(self.codes, Int4Pack(Rng(4)).packed())

    def packed(self):
        return self.codes


def inputs():
    return (Rng(5).randn(3, COLUMNS),)


@case
def weight_int4pack_mm(_rng):
    return one(Int4Pack(Rng(4)), [inputs()],
               "aten._weight_int4pack_mm_for_cpu, whose weight the program packs itself: the codes are known",
               dict(mm=0), fused=dict(linear_q4=1), tags=["quant"])


@refused
def int4pack():
    return Refused(Int4Packed(Rng(4)), inputs(),
                   "a 4-bit weight that was packed before the export, which does not say how: the same weight as that of "
                   "weight_int4pack_mm, packed on a CPU with AVX512",
                   ["_weight_int4pack_mm_for_cpu", "int4pack_layout", "dequantize_affine"])
