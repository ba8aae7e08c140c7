#!/usr/bin/env python3
"""Exports the speech detector silero-vad (16 kHz) with its state, and what PyTorch gives for 12 chunks in order.

    python scripts/make_silero.py [OUT] [--weights FILE]        (OUT: target/silero)

Needs torch >= 2.9, numpy, safetensors. The weights (MIT) come from the package silero-vad, by pip, unless FILE is its
silero_vad_16k.safetensors already. Writes into OUT:

  model.pt2               the program: 512 samples (float32 [1, 512]) to a probability [1, 1]; three buffers carry state
  reference.safetensors   inputs, outputs and buffers of the calls, for `vkdelegate verify`
"""
import argparse
import math
import os
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file

import pypi_weights
from fixture_cases.case import Rng, one
from recording import write_case

PACKAGE = "silero-vad==6.2.3"
CHUNK, CHUNKS, RATE = 512, 12, 16000


class SileroVad(nn.Module):
    """The published network, attributes named as in its checkpoint. Context and LSTM state are buffers, so that a call
    is one chunk."""

    def __init__(self):
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1, self.conv2 = nn.Conv1d(129, 128, 3, padding=1), nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3, self.conv4 = nn.Conv1d(64, 64, 3, stride=2, padding=1), nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)
        self.register_buffer("context", torch.zeros(1, 64), persistent=False)
        self.register_buffer("h", torch.zeros(1, 128), persistent=False)
        self.register_buffer("c", torch.zeros(1, 128), persistent=False)

    def forward(self, chunk):
        x = F.pad(torch.cat([self.context, chunk], 1), (0, 64), mode="reflect").unsqueeze(1)
        x = self.stft_conv(x)
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(conv(x))
        h, c = self.lstm_cell(x.squeeze(-1), (self.h, self.c))
        self.context.copy_(chunk[:, -64:])
        self.h.copy_(h)
        self.c.copy_(c)
        return torch.sigmoid(self.final_conv(F.relu(h).unsqueeze(-1))).squeeze(1).mean(1, keepdim=True)


def voice():
    """A buzz of eleven harmonics that swells five times a second; the first two chunks are faint noise."""
    t = torch.arange(CHUNK * CHUNKS) / RATE
    wave = sum(torch.sin(2 * math.pi * 140 * k * t) / k for k in range(1, 12))
    wave = wave * (0.5 + 0.5 * torch.sin(2 * math.pi * 5 * t)) * 0.2
    wave[:2 * CHUNK] = 0.001 * Rng(5).randn(2 * CHUNK)
    return [(chunk.clone()[None],) for chunk in wave.split(CHUNK)]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", default=os.path.join(here, "..", "target", "silero"))
    parser.add_argument("--weights", metavar="FILE")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.makedirs(args.out, exist_ok=True)
    weights = args.weights or os.path.join(pypi_weights.fetch(PACKAGE, args.out),
                                           "silero_vad", "data", "silero_vad_16k.safetensors")

    net = SileroVad().eval()
    net.load_state_dict(load_file(weights), strict=True)
    case = one(net.requires_grad_(False), voice(), "silero-vad, one chunk a call", dict(linear=2, mm=0),
               stateful=True, rtol=1e-3, atol=1e-4)
    case.name = "silero"
    entry = write_case(case, args.out, "model.pt2", "reference.safetensors")
    print(f"{entry['bytes'] / 1e6:.1f} MB in {os.path.normpath(args.out)}")


if __name__ == "__main__":
    main()
