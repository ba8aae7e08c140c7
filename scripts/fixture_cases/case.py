"""What a fixture is: programs to export, calls to record, and what the linear rewrite has to make of them."""
import math
from dataclasses import dataclass, field

import torch
import torch.nn as nn

CASES = {}


@dataclass
class Program:
    """A module to export as one method, and the calls whose results are recorded.

    A call is a tuple of arguments, or (arguments, keyword arguments)."""
    module: nn.Module
    invocations: list
    dynamic: object = None       # dynamic_shapes of torch.export.export
    decompose: bool = True       # to core ATen, else the training IR as exported
    keep: tuple = ()             # ops that decomposition leaves whole


@dataclass
class Case:
    programs: dict               # method name -> Program
    why: str                     # what the rewrite must do, in words
    # method name -> exact node counts after the rewrite; [lo, hi] where either answer is right
    expect: dict = field(default_factory=dict)
    # method name -> how many fusions of each kind the report tells of
    fused: dict = field(default_factory=dict)
    rtol: float = 1e-4
    atol: float = 1e-4
    tags: list = field(default_factory=list)
    stateful: bool = False       # the buffers after each call are recorded too
    ref_float: bool = False      # half types: the reference is computed on a float32 copy
    name: str = ""


def case(fn):
    """Registers a function that makes a Case; its name is the fixture's. The order decides the seed."""
    CASES[fn.__name__] = fn
    return fn


def one(module, invocations, why, expect, dynamic=None, decompose=True, keep=(), fused=None, **kw):
    """A case of one program, the method `model`."""
    program = Program(module.eval(), invocations, dynamic, decompose, keep)
    return Case({"model": program}, why, {"model": expect}, {} if fused is None else {"model": fused}, **kw)


class Rng:
    """Random values from a generator of its own, so that no case depends on another."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def randn(self, *shape, scale=1.0):
        return torch.randn(*shape, generator=self.generator) * scale

    def randint(self, lo, hi, shape):
        return torch.randint(lo, hi, shape, generator=self.generator)

    def param(self, *shape):
        return nn.Parameter(self.randn(*shape, scale=1.0 / math.sqrt(shape[-1])), requires_grad=False)

    def linear(self, k, n, bias=True):
        module = nn.Linear(k, n, bias=bias)
        module.weight = self.param(n, k)
        if bias:
            module.bias = nn.Parameter(self.randn(n, scale=0.1), requires_grad=False)
        return module

    def fill(self, module):
        """The stock module with a value from here in every parameter and running statistic."""
        for name, p in module.named_parameters():
            p.requires_grad_(False)
            if p.dim() > 1:
                p.copy_(self.randn(*p.shape, scale=1.0 / math.sqrt(p[0].numel())))
            elif "weight" in name:
                p.copy_(1 + self.randn(*p.shape, scale=0.1))
            else:
                p.copy_(self.randn(*p.shape, scale=0.1))
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(self.randn(*b.shape, scale=0.1))
            elif name.endswith("running_var"):
                b.copy_(1 + self.randn(*b.shape, scale=0.1).abs())
        return module.eval()
