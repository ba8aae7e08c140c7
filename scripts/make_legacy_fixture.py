#!/usr/bin/env python3
"""Writes tests/fixtures/legacy: a program in the archive layout of torch up to 2.8. Run it under torch 2.5.1.

    python scripts/make_legacy_fixture.py [--out tests/fixtures/legacy]

Needs torch 2.5.1, numpy, safetensors. Stands alone: newer scripts here do not run on that torch.
"""
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

generator = torch.Generator().manual_seed(3)


def randn(*shape):
    return torch.randn(*shape, generator=generator)


class Net(nn.Module):
    """Two layers, a buffer that is written, a non-persistent one in half, and a strided constant."""

    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(24, 32), nn.Linear(32, 12, bias=False)
        for p in self.parameters():
            p.requires_grad_(False)
            p.copy_(randn(*p.shape) * 0.2)
        self.register_buffer("acc", torch.zeros(12))
        self.register_buffer("bias16", randn(12).half(), persistent=False)
        self.view = randn(40, 12).t()[:, 3:15]

    def forward(self, x):
        y = self.l2(F.relu(self.l1(x)))
        self.acc.add_(y.sum(0))
        return torch.mm(y, self.view) + self.bias16, y - self.acc


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(here, "..", "tests", "fixtures", "legacy"))
    out = parser.parse_args().out
    if not torch.__version__.startswith("2.5."):
        raise SystemExit(f"this is torch {torch.__version__}, which no longer writes the old layout; use 2.5.1")
    os.makedirs(out, exist_ok=True)

    net = Net().eval()
    inputs = [randn(batch, 24) for batch in (5, 2, 7)]
    batch = torch.export.Dim("batch", min=2, max=16)
    program = torch.export.export(net, (inputs[0],), dynamic_shapes=({0: batch},), strict=True).run_decompositions()
    for node in program.graph.nodes:
        for key in ("stack_trace", "source_fn_stack"):
            node.meta.pop(key, None)
    torch.export.save(program, os.path.join(out, "legacy_2_5.pt2"))

    tensors = {}
    for i, x in enumerate(inputs):
        tensors[f"model.inv{i}.in0"] = x
        with torch.no_grad():
            outputs = net(x)
        for j, t in enumerate(outputs):
            tensors[f"model.inv{i}.out{j}"] = t.clone().contiguous()
        tensors[f"model.inv{i}.buf.acc"] = net.acc.clone()
    save_file(tensors, os.path.join(out, "legacy_2_5.safetensors"))


if __name__ == "__main__":
    main()
