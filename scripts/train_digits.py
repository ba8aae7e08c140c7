#!/usr/bin/env python3
"""Trains the demo's model: a small convolutional net on the 8x8 handwritten digits that scikit-learn ships.

    python scripts/train_digits.py [--out examples/digits]

Needs torch, numpy, safetensors, scikit-learn. Takes half a minute on one core; the same versions give the same files:

  digits.pt2            the exported program, any batch from 1 to 512
  heldout.safetensors   the images that training never saw: `images` f32 [n, 1, 8, 8] with pixels 0 to 16,
                        `labels` i64 [n], and `logits` f32 [n, 10] as PyTorch computes them
"""
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from exporting import export_model

EPOCHS, BATCH, WANTED_ACCURACY = 40, 64, 0.97


class DigitNet(nn.Module):
    """Logits [n, 10] of images [n, 1, 8, 8] with pixels 0 to 16."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = nn.Linear(32 * 2 * 2, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        x = F.relu(self.conv1(images / 16))
        x = F.max_pool2d(x, 2)
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = F.relu(self.hidden(x.flatten(1)))
        return self.head(x)


def load():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target, dtype=torch.int64)
    train, held = train_test_split(range(len(labels)), test_size=0.2, random_state=0, stratify=labels)
    return images[train], labels[train], images[held], labels[held]


def train(images, labels):
    """Adam with a cosine schedule; shifts by a pixel make up for the small set."""
    torch.manual_seed(0)
    net = DigitNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(labels)).split(BATCH):
            shift = torch.randint(-1, 2, (2,)).tolist()
            loss = F.cross_entropy(net(images[chosen].roll(shift, (2, 3))), labels[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return net.eval().requires_grad_(False)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(here, "..", "examples", "digits"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    images, labels, held_images, held_labels = load()
    net = train(images, labels)
    logits = net(held_images)
    accuracy = (logits.argmax(1) == held_labels).float().mean().item()
    print(f"{accuracy:.2%} right on {len(held_labels)} held-out images")
    if accuracy < WANTED_ACCURACY:
        raise SystemExit(f"too few: {WANTED_ACCURACY:.0%} are wanted")

    os.makedirs(out, exist_ok=True)
    batch = torch.export.Dim("batch", min=1, max=512)
    program = export_model(net, (held_images[:2].clone(),), dynamic_shapes=({0: batch},))
    torch.export.save(program, os.path.join(out, "digits.pt2"))
    save_file({"images": held_images, "labels": held_labels, "logits": logits}, os.path.join(out, "heldout.safetensors"))


if __name__ == "__main__":
    main()
