#!/usr/bin/env python3
"""Times linears of ncnn through Vulkan: InnerProduct layers for one row, Gemm layers for more. Prints one JSON line."""

import json
import os
import statistics
import struct
import tempfile
import time

import ncnn
import numpy as np

from arguments import linear_arguments


def net_text(widths, m):
    """A chain of layers through `widths`, as ncnn's text format has it."""
    count = len(widths) - 1
    rows = f" 1={m}" if m > 1 else ""
    lines = ["7767517", f"{count + 1} {count + 1}", f"Input in 0 1 b0 0={widths[0]}{rows}"]
    for i in range(count):
        k, n = widths[i], widths[i + 1]
        if m == 1:
            # 0 outputs, 1 bias, 2 weights
            lines.append(f"InnerProduct l{i} 1 1 b{i} b{i + 1} 0={n} 1=0 2={k * n}")
        else:
            # 3 B transposed, 4-6 constant A B C, 8 N, 9 K, 10 no C
            lines.append(f"Gemm l{i} 1 1 b{i} b{i + 1} 0=1.0 1=0.0 2=0 3=1 4=0 5=1 6=1 7=0 8={n} 9={k} 10=-1")
    return "\n".join(lines) + "\n"


def write_weights(path, widths, rng):
    weights = []
    with open(path, "wb") as file:
        for k, n in zip(widths, widths[1:]):
            weight = (rng.standard_normal((n, k), dtype=np.float32) / np.sqrt(k)).astype(np.float32)
            file.write(struct.pack("<I", 0))
            file.write(weight.tobytes())
            weights.append(weight)
    return weights


def load(widths, m, dtype, rng):
    net = ncnn.Net()
    net.opt.use_vulkan_compute = True
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = dtype == "f16"
    net.opt.use_fp16_arithmetic = net.opt.use_bf16_storage = False
    net.opt.use_int8_packed = net.opt.use_int8_storage = net.opt.use_int8_arithmetic = False
    with tempfile.TemporaryDirectory() as folder:
        param, weights_file = os.path.join(folder, "net.param"), os.path.join(folder, "net.bin")
        with open(param, "w", encoding="ascii") as file:
            file.write(net_text(widths, m))
        weights = write_weights(weights_file, widths, rng)
        if net.load_param(param) != 0 or net.load_model(weights_file) != 0:
            raise SystemExit("ncnn does not load the net")
    return net, weights


def main():
    args, (m, k, n) = linear_arguments(__doc__)
    if args.dtype.startswith("int"):
        raise SystemExit("ncnn's Vulkan layers have no such weights")
    if ncnn.get_gpu_count() == 0:
        raise SystemExit("ncnn finds no Vulkan device")

    widths = [k if i % 2 == 0 else n for i in range(args.repeat + 1)]
    rng = np.random.default_rng(0)
    net, weights = load(widths, m, args.dtype, rng)
    x = rng.standard_normal((m, k), dtype=np.float32)
    given = x[0].copy() if m == 1 else x
    mat = ncnn.Mat(given)  # shares the memory of `given`

    def run():
        extractor = net.create_extractor()
        extractor.input("b0", mat)
        status, out = extractor.extract(f"b{args.repeat}")
        if status != 0:
            raise SystemExit("ncnn does not run the net")
        return out

    want = x
    for weight in weights:
        want = want @ weight.T
    got = np.array(run()).reshape(want.shape)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    for _ in range(2):
        run()
    wall, cpu = [], []
    for _ in range(args.runs):
        started, cpu_started = time.perf_counter(), time.process_time()
        run()
        wall.append((time.perf_counter() - started) * 1e3)
        cpu.append((time.process_time() - cpu_started) * 1e3)
    print(json.dumps({"cpu_ms": statistics.median(cpu), "wall_ms": statistics.median(wall), "relative_error": error}))


if __name__ == "__main__":
    main()
