"""Weights and tables of codes with float activations: every axis and kind of zero point, what saturates, halves, lookups."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup

from .case import case, one
from .quantised import ao, qd

INT8, UINT8 = (-128, 127, torch.int8), (0, 255, torch.uint8)


def scales_of(rng, n):
    """Scales of 0.002 to 0.02, each another."""
    return rng.randint(20, 200, (n,)).float() / 10000


class Channels(nn.Module):
    """codes [rows, columns] with a scale and a zero point for each index of `axis`."""

    def __init__(self, rng, rows, columns, axis, unsigned=False):
        super().__init__()
        n = (rows, columns)[axis]
        self.axis, self.range = axis, UINT8 if unsigned else INT8
        low, high, dtype = self.range
        self.register_buffer("codes", rng.randint(low, high + 1, (rows, columns)).to(dtype))
        self.register_buffer("scale", scales_of(rng, n))
        self.register_buffer("zero", rng.randint(low, high + 1, (n,)))

    def forward(self):
        return qd().dequantize_per_channel(self.codes, self.scale, self.zero, self.axis, *self.range)


class Asymmetric(nn.Module):
    def __init__(self, rng, k, n):
        super().__init__()
        self.signed, self.unsigned = Channels(rng, n, k, 0), Channels(rng, n, k, 0, unsigned=True)
        self.bias = rng.param(n)
        self.signed.scale[1::5] = 0                  # rows of zeros
        self.unsigned.zero[:3] = torch.tensor([0, 255, 128])

    def forward(self, x):
        return F.linear(x, self.signed(), self.bias), F.linear(x, self.unsigned())


@case
def wo_asymmetric(rng, m=3, k=39, n=21):
    return one(Asymmetric(rng, k, n), [(rng.randn(m, k),), (rng.randn(m, k),)],
               "zero points over the whole range of int8 and uint8, scales of zero, sizes that fill no word: linear",
               dict(linear=2, mm=0, addmm=0), tags=["quant"])


class Axes(nn.Module):
    """Square codes, where a wrong axis changes values only."""

    def __init__(self, rng, k):
        super().__init__()
        self.tables = nn.ModuleList(Channels(rng, k, k, axis) for axis in (0, 1, -1, -2))

    def forward(self, x):
        return [product for table in self.tables for product in (F.linear(x, table()), x @ table())]


@case
def wo_axes(rng, m=3, k=20):
    return one(Axes(rng, k), [(rng.randn(m, k),)],
               "axis 0, 1, -1 and -2 of a square weight, as it is and transposed: the scales follow the axis, along K too",
               dict(linear=8, mm=0), tags=["quant"])


class Rounded(nn.Module):
    """Float weights that the program quantises: halves of a step, and values far outside."""

    def __init__(self, rng, k, n):
        super().__init__()
        steps = rng.randint(-9, 10, (n, k)).float() + 0.5
        steps[0, :6] = torch.tensor([1000.0, -1000, 127.5, -128.5, 126.5, -127.5])
        self.register_buffer("scale", 2.0 ** -rng.randint(3, 7, (n,)).float())
        self.w = nn.Parameter(steps * self.scale[:, None], requires_grad=False)
        self.register_buffer("zero", rng.randint(-20, 20, (n,)))
        self.register_buffer("group_zero", rng.randint(-2, 3, (n, k // 8)))

    def forward(self, x):
        channel = (self.scale, self.zero, 0, *INT8)
        group = (self.scale[:, None].expand(-1, self.w.shape[1] // 8).contiguous(), self.group_zero, -8, 7, torch.int8, 8)
        a = qd().dequantize_per_channel(qd().quantize_per_channel(self.w, *channel), *channel)
        b = qd().dequantize_per_channel_group(qd().quantize_per_channel_group(self.w, *group), *group, torch.float32)
        return F.linear(x, a), F.linear(x, b)


@case
def wo_halves(rng, m=2, k=32, n=12):
    return one(Rounded(rng, k, n), [(rng.randint(-8, 9, (m, k)).float(),)],
               "quantize(float parameter) where every value is half a step or saturates: halves to even before the zero "
               "point is added per channel, after it per group", dict(linear=[0, 2], mm=[0, 2], total=2), rtol=0, atol=1e-6,
               tags=["quant"])


class Blocks(nn.Module):
    """dequantize_affine with blocks of a whole row, of several rows, and of everything."""

    def __init__(self, rng, k, n):
        super().__init__()
        self.blocks = [[1, k], [4, k], [4, 8], [n, k], [1, 8]]
        for i, (rows, columns) in enumerate(self.blocks):
            sizes = (n // rows, k // columns)
            self.register_buffer(f"codes{i}", rng.randint(-8, 8, (n, k)).to(torch.int8))
            self.register_buffer(f"scale{i}", rng.randint(20, 200, sizes).float() / 1000)
            self.register_buffer(f"zero{i}", rng.randint(-3, 4, sizes).to(torch.int32))

    def forward(self, x):
        parts = ((getattr(self, f"{name}{i}") for name in ("codes", "scale", "zero")) for i in range(len(self.blocks)))
        return [F.linear(x, ao().dequantize_affine(codes, block, scale, zero, torch.int8, -8, 7))
                for block, (codes, scale, zero) in zip(self.blocks, parts)]


@case
def wo_blocks(rng, m=3, k=40, n=12):
    return one(Blocks(rng, k, n), [(rng.randn(m, k),)],
               "one group a row, blocks over several rows, one block, an odd number of groups: linear",
               dict(linear=5, mm=0), keep=(ao().dequantize_affine.default,), tags=["quant"])


class Tables(nn.Module):
    def __init__(self, rng, rows, d):
        super().__init__()
        self.signed, self.unsigned = Channels(rng, rows, d, 0), Channels(rng, rows, d, 0, unsigned=True)
        self.groups = IntxTable(rng, rows, d, 6)

    def forward(self, ids, back):
        table = self.signed()
        return (F.embedding(ids, table, padding_idx=0), F.embedding(ids.int(), self.unsigned()), table[back],
                table.index_select(0, ids[0]), table[:, back], table.gather(0, ids[:, :1].expand(-1, table.shape[1])),
                self.groups(ids))


class IntxTable(nn.Module):
    def __init__(self, rng, rows, d, group):
        super().__init__()
        self.group = group
        self.register_buffer("codes", rng.randint(-8, 8, (rows, d)).to(torch.int8))
        self.register_buffer("scale", rng.randint(20, 200, (rows, d // group)).float() / 1000)
        self.register_buffer("zero", rng.randint(-3, 4, (rows, d // group)).to(torch.int32))

    def forward(self, ids):
        return F.embedding(ids, ao().dequantize_affine(self.codes, [1, self.group], self.scale, self.zero, torch.int8, -8, 7))


@case
def wo_embedding(rng, rows=19, d=18):
    ids, back = rng.randint(0, rows, (2, 5)), torch.tensor([-1, 0, -18, 3])
    ids[0, 0] = rows - 1
    return one(Tables(rng, rows, d), [(ids, back)],
               "lookups in int8 and uint8 tables with a scale and zero point for each row, by embedding, index with "
               "negative numbers, index_select, along columns and by gather, and in a 4-bit one with groups of 6",
               {}, keep=(ao().dequantize_affine.default,), tags=["quant"])


class TiedCodes(Channels):
    def forward(self, ids):
        table = super().forward()
        return F.linear(torch.tanh(F.embedding(ids, table)), table)


@case
def wo_tied(rng, vocab=37, d=24):
    return one(TiedCodes(rng, vocab, d, 0), [(rng.randint(0, vocab, (2, 5)),)],
               "one table of codes is looked up and is the weight of a product", dict(embedding=1, linear=1, mm=0),
               tags=["quant"])


class Net(nn.Module):
    def __init__(self, rng, vocab, d):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.emb.weight = rng.param(vocab, d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.emb(ids)))


def quantised(rng, config):
    net = Net(rng, 40, 64).eval()
    quantize_(net, config, lambda module, _: isinstance(module, (nn.Embedding, nn.Linear)))
    return net, [(rng.randint(0, 40, (2, 5)),)]


@case
def ao_embedding_int8(rng):
    return one(*quantised(rng, Int8WeightOnlyConfig()),
               "torchao Int8WeightOnly on an embedding and the linear that it is tied to, decomposed",
               dict(embedding=1, linear=[0, 1], mm=[0, 1], total=1), tags=["quant"])


@case
def ao_embedding_int4(rng):
    return one(*quantised(rng, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))),
               "torchao IntxWeightOnly in 4-bit groups on an embedding and the linear that it is tied to, decomposed",
               dict(embedding=1, linear=[0, 1], mm=[0, 1], total=1), tags=["quant"])
