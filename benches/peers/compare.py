#!/usr/bin/env python3
"""Times linears of `vkdelegate bench`, ncnn and IREE in turn, and prints medians and ratios. See README.md."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHAPES = "1x768x768,1x2048x2048,1x4096x4096,128x768x768,128x768x3072,512x1024x1024,1024x1024x1024,256x4096x4096"
# Linears in one submission where there is one row: a single one is mostly the cost of submitting it.
ROW_REPEAT = 16
MAX_RELATIVE_ERROR = {"f32": 1e-4, "f16": 1e-2, "int8": 1e-4, "int4": 1e-4}


def last_json_line(command, timeout):
    """The JSON document that `command` prints, or a dict with `error`."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}
    start = ran.stdout.find("{")
    if ran.returncode != 0 or start < 0:
        lines = (ran.stderr.strip() or "no output").splitlines()
        return {"error": next((line for line in lines if "error" in line), lines[-1])[:200]}
    return json.loads(ran.stdout[start:])


def ours(args, shape, dtype, repeat):
    document = last_json_line(
        [args.ours, "bench", "--op", "linear", "--shape", shape, "--dtype", dtype, "--repeat", str(repeat),
         "--runs", str(args.runs), "--json"], args.timeout)
    if "error" in document:
        return document
    return {"cpu_ms": document["cpu_ms"], "wall_ms": document["wall_ms"]["p50"]}


def peer(name, python):
    def measure(args, shape, dtype, repeat):
        return last_json_line(
            [python, str(HERE / f"{name}_linear.py"), "--shape", shape, "--dtype", dtype, "--repeat", str(repeat),
             "--runs", str(args.runs)], args.timeout)
    return measure


def measure_shape(args, runners, shape):
    """Milliseconds of every runner, by its median over the rounds, and what went wrong."""
    repeat = ROW_REPEAT if shape.startswith("1x") else 1
    times = {name: [] for name in runners}
    remarks = {}
    for _ in range(args.rounds):
        for name, runner in runners.items():
            if name in remarks and not times[name]:
                continue
            result = runner(args, shape, args.dtype, repeat)
            if "error" in result:
                remarks[name] = result["error"]
                continue
            if result.get("relative_error", 0.0) > MAX_RELATIVE_ERROR[args.dtype]:
                remarks[name] = f"wrong result, relative error {result['relative_error']:.1e}"
            milliseconds = result["wall_ms"] if args.clock == "wall" else result["cpu_ms"] / os.cpu_count()
            times[name].append(milliseconds)
    medians = {name: statistics.median(values) for name, values in times.items() if values}
    return repeat, medians, remarks


def row(shape, repeat, medians, remarks, names):
    m, k, n = map(int, shape.split("x"))
    gflop = 2e-9 * m * k * n * repeat
    cells = []
    for name in names:
        if name not in medians:
            cells.append("-")
        else:
            mark = " (wrong)" if name in remarks else ""
            cells.append(f"{gflop / medians[name] * 1e3:.1f}{mark}")
    best = min((medians[name] for name in names[1:] if name in medians and name not in remarks), default=None)
    ratio = f"{best / medians['ours']:.2f}" if best and "ours" in medians else "-"
    label = f"{repeat} x {shape}" if repeat > 1 else shape
    return f"| {label} | " + " | ".join(cells) + f" | {ratio} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default=SHAPES, help="MxKxN, with commas between")
    parser.add_argument("--dtype", default="f32", choices=["f32", "f16", "int8", "int4"])
    parser.add_argument("--peers", default="ncnn,iree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10, help="timed runs of each process")
    parser.add_argument("--clock", default="cpu", choices=["cpu", "wall"])
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one process")
    parser.add_argument("--ours", default=str(HERE.parent.parent / "target/release/vkdelegate"))
    parser.add_argument("--ncnn-python", default=sys.executable)
    parser.add_argument("--iree-python", default=sys.executable)
    parser.add_argument("--json", help="also keep all figures in this file")
    args = parser.parse_args()

    runners = {"ours": ours}
    for name in filter(None, args.peers.split(",")):
        runners[name] = peer(name, getattr(args, f"{name}_python"))
    names = list(runners)
    unit = "wall time" if args.clock == "wall" else "CPU time / cores"
    print(f"{args.dtype}, GFLOP/s by {unit}, medians of {args.rounds} rounds in turn\n")
    print("| M x K x N | " + " | ".join(names) + " | ours / best of the others |")
    print("|---" * (len(names) + 2) + "|")
    kept = []
    for shape in args.shapes.split(","):
        repeat, medians, remarks = measure_shape(args, runners, shape)
        print(row(shape, repeat, medians, remarks, names), flush=True)
        for name, remark in remarks.items():
            print(f"{name} at {shape}: {remark}", file=sys.stderr)
        kept.append({"shape": shape, "dtype": args.dtype, "repeat": repeat, "ms": medians, "remarks": remarks})
    if args.json:
        Path(args.json).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
