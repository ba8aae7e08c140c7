#!/usr/bin/env python3
"""Writes tests/fixtures: small exported programs, their inputs and eager PyTorch's outputs, and manifest.json.

    python scripts/make_fixtures.py [--out tests/fixtures] [--only CASE ...]

Needs torch >= 2.9 (the committed files come from 2.15, CPU), numpy, safetensors; the ao_* cases need torchao.
The same torch writes the same bytes. What the files hold is in tests/fixtures/README.md.
"""
import argparse
import json
import os
import warnings

import torch

from exporting import export_model
from fixture_cases import CASES, REFUSED, Rng
from recording import write_case

HERE = os.path.dirname(os.path.abspath(__file__))


def write_json(folder, name, content):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(content, f, indent=1)
        f.write("\n")


def write_refused(folder):
    """Archives that open, or fail to, with an error that says what refused.json says."""
    os.makedirs(folder, exist_ok=True)
    entries = {}
    for name, make in REFUSED.items():
        refused = make()
        program = export_model(refused.module.eval(), refused.args, decompose=refused.decompose)
        torch.export.save(program, os.path.join(folder, name + ".pt2"))
        entries[name] = dict(archive=name + ".pt2", what=refused.why, names=refused.names)
    write_json(folder, "refused.json", entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(HERE, "..", "tests", "fixtures"))
    parser.add_argument("--only", nargs="*", metavar="CASE", help="only these, and no manifest")
    args = parser.parse_args()
    unknown = set(args.only or ()) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    warnings.filterwarnings("ignore")
    os.makedirs(args.out, exist_ok=True)
    cases = {}
    for seed, (name, make) in enumerate(CASES.items()):
        if args.only and name not in args.only:
            continue
        case = make(Rng(seed))
        case.name = name
        cases[name] = write_case(case, args.out)
        print(f"{name:32s} {cases[name]['bytes']:9d} bytes", flush=True)
    if not args.only:
        write_json(args.out, "manifest.json", dict(format=1, torch=torch.__version__, seed=0, cases=cases))
        write_refused(os.path.join(args.out, "refused"))


if __name__ == "__main__":
    main()
