#!/usr/bin/env python3
"""Writes tests/ops/FAMILY.json: calls of ATen ops with the results of eager PyTorch on the CPU.

    python scripts/make_op_cases.py [--out tests/ops] [FAMILY ...]

Needs torch and numpy. A rerun with the same torch gives the same bytes. The format is in tests/ops/README.md.
"""
import argparse
import os

import torch

from op_cases import FAMILIES


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="all when none is named")
    parser.add_argument("--out", default=os.path.join(here, "..", "tests", "ops"))
    args = parser.parse_args()
    unknown = set(args.families) - set(FAMILIES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    torch.set_num_threads(1)
    os.makedirs(args.out, exist_ok=True)
    for name in args.families or FAMILIES:
        FAMILIES[name]().write(args.out)


if __name__ == "__main__":
    main()
