"""The case format of `tests/ops/*.json`: operand data, calls of the real op, and JSON text.

The format is documented in `tests/ops/README.md`. Nothing here knows a particular op.
"""
import json
import os
import zlib
from dataclasses import dataclass

import numpy as np
import torch

DTYPE_NAMES = {
    torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64",
    torch.int64: "int64", torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8",
    torch.bool: "bool",
}

# What one rounding to the stored type costs, for outputs that are not exact by construction.
STORE_TOLERANCE = {
    torch.float16: (2e-3, 1e-3, "one rounding to half"),
    torch.bfloat16: (1.6e-2, 1e-2, "one rounding to bfloat16"),
}


# ------------------------------------------------------------------ operand data
def rand(*sizes, seed=0, lo=-2.0, hi=2.0, step=0.125, dtype=torch.float32):
    """Multiples of `step` in [lo, hi]: short decimals, exact in half. Depends on the sizes and `seed` alone."""
    generator = torch.Generator().manual_seed(zlib.crc32(repr((sizes, seed)).encode()))
    count = round((hi - lo) / step) + 1
    return (torch.randint(0, count, sizes, generator=generator) * step + lo).to(dtype)


def randint(*sizes, lo, hi, seed=0, dtype=torch.int64):
    """Whole numbers in [lo, hi]."""
    return rand(*sizes, seed=seed, lo=lo, hi=hi, step=1, dtype=torch.float64).to(dtype)


def randbool(*sizes, seed=0):
    return randint(*sizes, lo=0, hi=1, seed=seed, dtype=torch.bool)


@dataclass
class Const:
    """An operand that the program holds as a constant, with the strides that `tensor` has."""
    tensor: object


@dataclass
class Gen:
    """An operand too large to write down: whole numbers in [lo, hi] from a formula that the reader repeats."""
    sizes: tuple
    lo: int
    hi: int
    seed: int
    dtype: torch.dtype = torch.float32

    def tensor(self):
        count = int(np.prod(self.sizes, dtype=np.int64))
        return torch.from_numpy(self.lo + (lcg(self.seed, count) >> 16) % (self.hi - self.lo + 1)) \
            .to(self.dtype).reshape(self.sizes)


def lcg(seed, count):
    """The first `count` states after `seed` of x -> (1664525 x + 1013904223) mod 2^32, by doubling."""
    mask = (1 << 32) - 1
    states = np.zeros(max(count, 1), dtype=np.uint64)
    states[0] = (1664525 * seed + 1013904223) & mask
    filled, mul, add = 1, 1664525, 1013904223        # x[i + filled] = mul * x[i] + add
    while filled < count:
        n = min(filled, count - filled)
        states[filled:filled + n] = (states[:n] * np.uint64(mul) + np.uint64(add)) & np.uint64(mask)
        add = (mul * add + add) & mask
        mul = mul * mul & mask
        filled += n
    return states[:count].astype(np.int64)


# ------------------------------------------------------------------ JSON text
def number_text(value):
    """A number that reads back as the same float32 (or the same integer)."""
    if isinstance(value, (bool, np.bool_)):
        return "1" if value else "0"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if value != value:
        return '"NaN"'
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    text = str(value)                                # shortest text that round trips
    return text[:-2] if text.endswith(".0") and text != "-0.0" else text


def data_text(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.float()
    return "[" + ",".join(number_text(v) for v in flat.numpy()) + "]"


def head_text(tensor):
    return f'"dtype":"{DTYPE_NAMES[tensor.dtype]}","sizes":{json.dumps(list(tensor.shape), separators=(",", ":"))}'


def tensor_text(operand):
    """The JSON object of one tensor operand."""
    if operand is None:
        return "null"
    extra, constant = "", isinstance(operand, Const)
    if constant:
        operand = operand.tensor
        extra = ',"constant":true'
    if isinstance(operand, Gen):
        gen = f'"kind":"int_range","lo":{operand.lo},"hi":{operand.hi},"seed":{operand.seed}'
        sizes = json.dumps(list(operand.sizes), separators=(",", ":"))
        return f'{{"dtype":"{DTYPE_NAMES[operand.dtype]}","sizes":{sizes},"gen":{{{gen}}}{extra}}}'
    if constant and not operand.is_contiguous():
        extra = f',"strides":{json.dumps(list(operand.stride()), separators=(",", ":"))}' + extra
    return f'{{{head_text(operand)},"data":{data_text(operand)}{extra}}}'


def output_text(tensor, sampled):
    """An expected output: whole, or for a large one some elements and, if it is integer-valued, a weighted sum."""
    if not sampled:
        return f'{{{head_text(tensor)},"data":{data_text(tensor)}}}'
    flat = tensor.contiguous().reshape(-1).to(torch.float64)
    n, whole = flat.numel(), torch.equal(flat, flat.round())
    indices = sorted({0, n - 1, *(int(i) for i in lcg(n, 3 if whole else 12) % n)}) if n else []
    samples = "[" + ",".join(f"[{i},{number_text(np.float32(flat[i]))}]" for i in indices) + "]"
    text = f'{{{head_text(tensor)},"samples":{samples}'
    if whole:
        weights = torch.arange(n, dtype=torch.float64) % 1021 + 1
        text += f',"weighted_sum":{int((flat * weights).sum())}'
    return text + "}"


def is_tensor(value):
    return value is None or isinstance(value, (torch.Tensor, Const, Gen))


def value_text(value, type_name):
    """The JSON member (form and value) of one argument."""
    if value is None:
        return '"none":true'
    if is_tensor(value):
        return f'"tensor":{tensor_text(value)}'
    if isinstance(value, bool):
        return f'"bool":{json.dumps(value)}'
    if isinstance(value, int):
        return f'"int":{value}'
    if isinstance(value, float):
        return f'"float":{number_text(value)}'
    if isinstance(value, str):
        return f'"str":{json.dumps(value)}'
    if isinstance(value, torch.device):
        return '"none":true'                         # no op looks at placement
    if isinstance(value, torch.dtype):
        return f'"dtype":"{DTYPE_NAMES[value]}"'
    if "Tensor" in type_name:
        return '"tensors":[' + ",".join(tensor_text(v) for v in value) + "]"
    if value and isinstance(value[0], bool):
        return f'"bools":{json.dumps(list(value))}'
    if value and isinstance(value[0], float):
        return '"floats":[' + ",".join(number_text(v) for v in value) + "]"
    return f'"ints":{json.dumps(list(value), separators=(",", ":"))}'


def plain(value):
    """The operand as PyTorch wants it."""
    if isinstance(value, Const):
        return plain(value.tensor)
    if isinstance(value, Gen):
        return value.tensor()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


# ------------------------------------------------------------------ families
class Family:
    """The cases of one file. `exact` families ask for equality unless a case says otherwise."""

    def __init__(self, name, exact=False):
        self.name = name
        self.exact = exact
        self.lines = []
        self.seen = set()

    def add(self, name, op, *args, exact=None, tol=None, sampled=False, keep=None, dtypes=None, **kwargs):
        """One call of `op`. `tol` is (rtol, atol, why); `exact` asks for equality; `keep` lists the outputs that
        count (others are placeholders whose content no program may use); `dtypes` are those that an exported program
        declares for the outputs, where eager PyTorch gives others."""
        head = self._head(name, op, args, kwargs)
        with torch.no_grad():
            result = op(*plain(args), **{k: plain(v) for k, v in kwargs.items()})
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        if keep is not None:
            outputs = [o if i in keep else None for i, o in enumerate(outputs)]
        if dtypes is not None:
            outputs = [o.to(dtype) for o, dtype in zip(outputs, dtypes, strict=True)]
        texts = ["null" if o is None else output_text(o, sampled) for o in outputs]
        if op._schema.returns and "List" in str(op._schema.returns[0].type):
            head += ',"returns":"list"'
        exact = self.exact if exact is None else exact
        self._push(head + ',"outputs":[' + ",".join(texts) + "]" + tolerance_text(outputs, exact, tol))

    def refuse(self, name, op, why, *args, **kwargs):
        """A call that PyTorch refuses, and that building a delegate has to refuse too."""
        head = self._head(name, op, args, kwargs)
        try:
            op(*plain(args), **{k: plain(v) for k, v in kwargs.items()})
        except (RuntimeError, IndexError, ValueError, TypeError, AssertionError):
            self._push(f'{head},"refused":{json.dumps(why)}')
            return
        raise AssertionError(f"{self.name}/{name}: PyTorch accepts this call")

    def _head(self, name, op, args, kwargs):
        assert name not in self.seen, f"{self.name}: {name} stands twice"
        self.seen.add(name)
        texts = []
        for i, formal in enumerate(op._schema.arguments):
            if formal.name in kwargs:
                value = kwargs[formal.name]
            elif i < len(args):
                value = args[i]
            else:
                continue
            texts.append(f'{{"name":"{formal.name}",{value_text(value, str(formal.type))}}}')
        return f'{{"name":"{name}","op":"{op}","args":[{",".join(texts)}]'

    def _push(self, text):
        self.lines.append(text + "}")

    def write(self, folder):
        text = "[\n" + ",\n".join(self.lines) + "\n]\n"
        json.loads(text)
        path = os.path.join(folder, self.name + ".json")
        with open(path, "w") as f:
            f.write(text)
        print(f"{path}: {len(self.lines)} cases, {len(text) / 1024:.0f} KiB", flush=True)


def tolerance_text(outputs, exact, tol):
    if not any(o is not None and o.dtype.is_floating_point for o in outputs):
        return ""                                    # equal in any case
    if exact:
        return ',"rtol":0,"atol":0'
    if tol is None:
        tol = next((STORE_TOLERANCE[o.dtype] for o in outputs if o is not None and o.dtype in STORE_TOLERANCE), None)
    if tol is None:
        return ""
    rtol, atol, why = tol
    return f',"rtol":{rtol},"atol":{atol},"why":{json.dumps(why)}'
