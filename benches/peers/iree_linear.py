#!/usr/bin/env python3
"""Times linears of IREE through its Vulkan driver, with iree-benchmark-module. Prints one JSON line."""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from arguments import linear_arguments

# What phones of the last years offer; the access is through device addresses, the faster one on lavapipe.
TARGET = ["--iree-hal-target-device=vulkan", "--iree-vulkan-target=vp_android_baseline_2022",
          "--iree-vulkan-dispatch-abi=bda"]
# Tools of the package stand beside its Python.
TOOLS = Path(sys.executable).parent
PRODUCT_MAPS = "[affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>]"
ROW_MAPS = {1: "[affine_map<(m,n)->(m,n)>, affine_map<(m,n)->(m,n)>]",
            2: "[affine_map<(m,n)->(m,n)>, affine_map<(m,n)->(n)>, affine_map<(m,n)->(m,n)>]"}
MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
# All elements of an input are the same, so the result is known: each linear doubles its input or halves it, in turn.
FACTORS = (2.0, 0.5)
# The code of all weights of integers; their scale makes up for it.
CODE = 2


def linear(i, m, k, n, element, weight):
    """`%x{i+1} = %x{i} @ %w{i}^T`, with sums in f32."""
    if element == "f16":
        body = "%aa = arith.extf %a : f16 to f32\n %bb = arith.extf %b : f16 to f32\n %p = arith.mulf %aa, %bb : f32"
    elif weight == "f32":
        body = "%p = arith.mulf %a, %b : f32"
    else:
        body = f"%bb = arith.sitofp %b : {weight} to f32\n %p = arith.mulf %a, %bb : f32"
    sums = f"tensor<{m}x{n}xf32>"
    text = f""" %e{i} = tensor.empty() : {sums}
 %f{i} = linalg.fill ins(%zero : f32) outs(%e{i} : {sums}) -> {sums}
 %r{i} = linalg.generic {{indexing_maps = {PRODUCT_MAPS}, iterator_types = ["parallel", "parallel", "reduction"]}}
   ins(%x{i}, %w{i} : tensor<{m}x{k}x{element}>, tensor<{n}x{k}x{weight}>) outs(%f{i} : {sums}) {{
 ^bb0(%a: {element}, %b: {weight}, %c: f32):
 {body}
 %q = arith.addf %c, %p : f32
 linalg.yield %q : f32 }} -> {sums}
"""
    if element == "f32" and weight == "f32":
        return text.replace(f"%r{i} =", f"%x{i + 1} =")
    extra = "" if element == "f16" else f", %s{i}"
    extra_type = "" if element == "f16" else f", tensor<{n}xf32>"
    arguments = "%a: f32, %b: f16" if element == "f16" else "%a: f32, %b: f32, %c: f32"
    body = "%h = arith.truncf %a : f32 to f16" if element == "f16" else "%h = arith.mulf %a, %b : f32"
    out = f"tensor<{m}x{n}x{element}>"
    return text + f""" %o{i} = tensor.empty() : {out}
 %x{i + 1} = linalg.generic {{indexing_maps = {ROW_MAPS[1 if element == "f16" else 2]}, iterator_types = ["parallel", "parallel"]}}
   ins(%r{i}{extra} : {sums}{extra_type}) outs(%o{i} : {out}) {{
 ^bb0({arguments}):
 {body}
 linalg.yield %h : {element} }} -> {out}
"""


def module(m, k, n, count, dtype):
    """The module's text, its inputs as the tools take them, and what every element of the result is."""
    element = "f16" if dtype == "f16" else "f32"
    weight = {"int8": "i8", "int4": "i4"}.get(dtype, element)
    parameters, inputs = [f"%x0: tensor<{m}x{k}x{element}>"], [f"{m}x{k}x{element}=1"]
    body = ""
    for i in range(count):
        k_i, n_i = (k, n) if i % 2 == 0 else (n, k)
        parameters.append(f"%w{i}: tensor<{n_i}x{k_i}x{weight}>")
        mean = FACTORS[i % 2] / k_i
        coded = weight.startswith("i")
        inputs.append(f"{n_i}x{k_i}x{weight}={CODE if coded else mean}")
        if coded:
            parameters.append(f"%s{i}: tensor<{n_i}xf32>")
            inputs.append(f"{n_i}xf32={mean / CODE}")
        body += linear(i, m, k_i, n_i, element, weight)
    last = k if count % 2 == 0 else n
    result = f"tensor<{m}x{last}x{element}>"
    text = f"func.func @linear({', '.join(parameters)}) -> {result} {{\n %zero = arith.constant 0.0 : f32\n"
    return text + body + f" return %x{count} : {result}\n}}\n", inputs, FACTORS[0] if count % 2 else 1.0


def tool(name, *arguments):
    ran = subprocess.run([str(TOOLS / name), *arguments], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{name}: {ran.stderr.strip()[:400]}")
    return ran.stdout


def main():
    args, (m, k, n) = linear_arguments(__doc__)
    text, inputs, want = module(m, k, n, args.repeat, args.dtype)
    with tempfile.TemporaryDirectory() as folder:
        source, compiled, result = (f"{folder}/linear{suffix}" for suffix in (".mlir", ".vmfb", ".npy"))
        Path(source).write_text(text, encoding="ascii")
        tool("iree-compile", *TARGET, source, "-o", compiled)
        call = [f"--module={compiled}", "--device=vulkan", "--function=linear", *(f"--input={i}" for i in inputs)]
        tool("iree-run-module", *call, f"--output=@{result}")
        got = np.load(result).astype(np.float64)
        # The first repetition makes the pipelines.
        printed = tool("iree-benchmark-module", *call, "--benchmark_format=json", "--benchmark_min_time=1x",
                       f"--benchmark_repetitions={args.runs + 1}")
    runs = json.loads(printed[printed.index("{"):])["benchmarks"]
    runs = [run for run in runs if run["run_type"] == "iteration"][1:]
    times = {clock: statistics.median(run[f"{clock}_time"] * MILLISECONDS[run["time_unit"]] for run in runs)
             for clock in ("real", "cpu")}
    error = float(np.abs(got / want - 1).max())
    print(json.dumps({"cpu_ms": times["cpu"], "wall_ms": times["real"], "relative_error": error}))


if __name__ == "__main__":
    main()
