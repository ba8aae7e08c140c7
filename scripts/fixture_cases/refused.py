"""Programs that have to be refused, by the node and the reason."""
from dataclasses import dataclass

import torch
import torch.nn as nn

REFUSED = {}


@dataclass
class Refused:
    module: nn.Module
    args: tuple
    why: str                     # what is wrong with it, in words
    names: list                  # what the error has to name
    decompose: bool = True


def refused(fn):
    REFUSED[fn.__name__] = fn
    return fn


class InPlace(nn.Module):
    def forward(self, x):
        y = x * 2
        y.t_()
        return y


@refused
def inplace_training_ir():
    return Refused(InPlace(), (torch.ones(2, 3),), "an op of the training IR that changes the shape of its operand in place",
                   ["aten.t_.default"], decompose=False)


class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


@refused
def branch():
    return Refused(Branch(), (torch.ones(3),), "a higher-order op with graphs of its own", ["cond"])


class Compact(nn.Module):
    def forward(self, x):
        return x[x > 0] * 2


@refused
def data_dependent_size():
    return Refused(Compact(), (torch.tensor([1.0, -1.0, 2.0]),), "an output whose size depends on the data", ["index"])


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()


@refused
def complex_numbers():
    return Refused(Spectrum(), (torch.ones(8),), "values of a complex dtype", ["_fft_r2c"])


class Rare(nn.Module):
    def forward(self, x):
        return torch.lgamma(x) + torch.erfinv(x) + torch.i0(x), x.relu()


@refused
def several_unsupported():
    return Refused(Rare(), (torch.eye(3) * 0.5,), "three ops without kernels: all of them are named at once",
                   ["lgamma", "erfinv", "i0"])
