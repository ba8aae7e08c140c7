"""Linear in integer products: the runtime's own ops, held to what PyTorch gives for the dequantised operands.

The operands are laid out here as the runtime documents them; the results are `linear` of floats, `quantize_per_tensor`
of such, and words that say what they hold.
"""
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  registers quantized_decomposed

from .case import Const, Family, Gen, output_text, plain, rand, randint, tolerance_text, value_text

INT8, UINT8 = torch.int8, torch.uint8


def linear_a8():
    f = Family("linear_a8")
    packing(f)
    shapes(f)
    groups(f)
    factors(f)
    quantised(f)
    bounds(f)
    bad(f)
    return f


def own(f, name, op, args, outputs, tol=None):
    """One call of an op that PyTorch does not have; `args` are (name, value) pairs."""
    assert name not in f.seen, f"{f.name}: {name} stands twice"
    f.seen.add(name)
    head = head_of(name, op, args)
    texts = ",".join(output_text(o, False) for o in outputs)
    f._push(f'{head},"outputs":[{texts}]' + tolerance_text(outputs, False, tol))


def head_of(name, op, args):
    kind = lambda value: "Tensor" if isinstance(value, list) else ""
    texts = ",".join(f'{{"name":"{key}",{value_text(value, kind(value))}}}' for key, value in args)
    return f'{{"name":"{name}","op":"vkdelegate.{op}.default","args":[{texts}]'


# ------------------------------------------------------------------ operands
def codes(*sizes, seed=0, dtype=INT8, bits=8):
    span = (0, 2**bits - 1) if dtype == UINT8 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return randint(*sizes, lo=span[0], hi=span[1], seed=seed, dtype=dtype)


def weights(n, k, dtype=INT8, bits=8):
    """Codes too many to write down."""
    low = 0 if dtype == UINT8 else -(2 ** (bits - 1))
    return Gen((n, k), low, low + 2**bits - 1, n + k, dtype)


def packed(x, group_count):
    """What pack_codes gives."""
    unsigned = x.to(torch.int64) + (128 if x.dtype == INT8 else 0)
    padded = torch.nn.functional.pad(unsigned, (0, -x.shape[-1] % 4))
    words = (padded.unflatten(-1, (-1, 4)) << torch.tensor([0, 8, 16, 24])).sum(-1)
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    sums = unsigned.unflatten(-1, (group_count, -1)).sum(-1).to(torch.int32)
    return words, sums


def side_table(signed, scale, zero, bias):
    """Per panel of 4 rows: for each group 4 scales, 4 sums of codes and 4 zero points; then 4 biases; floats as bits."""
    n, group_count = scale.shape
    def bits(t):
        return t.to(torch.float32).view(torch.int32)
    parts = [bits(scale), signed.unflatten(-1, (group_count, -1)).sum(-1).to(torch.int32)]
    if zero is not None:
        parts.append(bits(zero))
    def panels(t):
        return torch.nn.functional.pad(t, (0, 0, 0, -n % 4)).unflatten(0, (-1, 4)).transpose(1, 2)
    table = torch.stack([panels(p) for p in parts], 2).flatten(1)
    if bias is not None:
        table = torch.cat([table, panels(bits(bias).reshape(n, 1)).flatten(1)], 1)
    return table.contiguous()


def call(f, name, x, w, *, bits=8, offset=0, xs=0.25, xz=None, ws=None, wz=None, bias=False, out=None, tol=None,
         constant_factors=False, words=None):
    """`linear` of x and w, codes with scales xs, ws and zero points; wz as the program has it, without the offset."""
    stored, w = w, plain(w)
    (n, k), group_count = w.shape, 1 if ws is None else ws.shape[1]
    ws = 2.0 ** randint(n, group_count, lo=-7, hi=-4, seed=3).float() if ws is None else ws
    xs = torch.tensor([xs]) if isinstance(xs, float) else xs
    b = rand(n, seed=5, lo=-9, hi=9, step=0.5) if bias else None
    values = (x.float() - (0 if xz is None else xz.float())) * xs.float()
    spread = lambda t: t.float().repeat_interleave(k // group_count, 1)  # noqa: E731
    weight = (w.float() - (0 if wz is None else spread(wz))) * spread(ws)
    y = torch.nn.functional.linear(*(None if t is None else t.double() for t in (values, weight, b))).float()
    signed = w.to(torch.int64) - offset
    table = side_table(signed, ws, None if wz is None else wz.float() - offset, b)
    x_words, x_sums = packed(x, group_count) if words is None else words
    wrap = Const if constant_factors else lambda t: t
    args = [("words", x_words), ("sums", x_sums), ("input_scale", wrap(xs))]
    args += [] if xz is None else [("input_zero", wrap(xz))]
    args += [("input_offset", 128 if x.dtype == INT8 else 0), ("k", k), ("weight", Const(stored)),
             ("side", Const(table)), ("offset", offset), ("groups", group_count), ("has_zeros", wz is not None),
             ("has_bias", bias)]
    if out is not None:
        (scale, zero, low, high, dtype), wrapped = out
        zero_arg = None if zero is None else torch.tensor([zero])
        args += [("out_scale", wrapped(torch.tensor([scale])))]
        args += [] if zero is None else [("out_zero", wrapped(zero_arg))]
        args += [("out_min", low), ("out_max", high), ("out_dtype", dtype)]
        y = torch.ops.quantized_decomposed.quantize_per_tensor(y, scale, zero or 0, low, high, dtype)
    own(f, name, f"linear_a8w{bits}", args, [y], tol)


# ------------------------------------------------------------------ cases
def packing(f):
    for dtype, label in ((INT8, "int8"), (UINT8, "uint8")):
        for sizes in ((1, 1), (3, 5), (2, 2, 33), (7,), (1, 260), (0, 8)):
            x = codes(*sizes, dtype=dtype)
            name = f"pack_{label}_" + "x".join(map(str, sizes))
            own(f, name, "pack_codes", [("input", x), ("groups", 1)], packed(x, 1))
        for k, count in ((24, 3), (40, 10), (256, 8)):
            x = codes(3, k, dtype=dtype, seed=1)
            own(f, f"pack_{label}_{count}_groups", "pack_codes", [("input", x), ("groups", count)], packed(x, count))
    x = Const(codes(5, 3, seed=2).t())
    own(f, "pack_transposed_constant", "pack_codes", [("input", x), ("groups", 1)], packed(x.tensor, 1))


def shapes(f):
    """Every rest of words, blocks, tiles and panels, with zero points on both sides."""
    for bits in (4, 8):
        for m, k, n in ((1, 1, 1), (1, 3, 5), (1, 33, 9), (1, 257, 3), (1, 20, 301), (2, 5, 4), (3, 31, 7),
                        (4, 65, 33), (5, 257, 1), (9, 12, 133), (17, 36, 6)):
            x, w = codes(m, k), weights(n, k, bits=bits)
            xz, wz = torch.tensor([-11], dtype=torch.int32), codes(n, 1, seed=2, bits=bits).to(torch.int32)
            call(f, f"w{bits}_{m}x{k}x{n}", x, w, bits=bits, xz=xz, wz=wz, bias=True)
            call(f, f"w{bits}_{m}x{k}x{n}_symmetric", x, w, bits=bits)
    call(f, "batches", codes(2, 3, 20), weights(6, 20), xz=torch.tensor([3]))
    call(f, "no_rows", codes(0, 20), weights(6, 20))


def groups(f):
    for bits, m, size, count in ((8, 1, 4, 3), (8, 1, 8, 2), (8, 6, 4, 5), (8, 1, 12, 9), (8, 3, 32, 3), (4, 1, 8, 3),
                                 (4, 1, 16, 5), (4, 1, 32, 17), (4, 6, 8, 7), (4, 9, 32, 3), (4, 2, 40, 2)):
        x, w = codes(m, size * count), weights(9, size * count, bits=bits)
        ws = 2.0 ** randint(9, count, lo=-7, hi=-4, seed=4).float()
        call(f, f"w{bits}_{m}_rows_{count}_groups_of_{size}", x, w, bits=bits, ws=ws, bias=m == 6,
             wz=codes(9, count, seed=6, bits=bits).to(torch.int32), xz=torch.tensor([5]))
    ws = 2.0 ** randint(5, 3, lo=-7, hi=-4, seed=4).float()
    call(f, "unsigned_codes_with_fractions", codes(3, 24, dtype=UINT8), weights(5, 24, UINT8, 4), bits=4, offset=8,
         ws=ws, wz=rand(5, 3, seed=8, lo=0, hi=15, step=0.375), xz=torch.tensor([101]))


def factors(f):
    w = weights(7, 40)
    for rows in (1, 5):
        x = codes(rows, 40)
        xs, xz = rand(rows, 1, seed=2, lo=0.125, hi=2), randint(rows, 1, lo=-128, hi=127, seed=3)
        call(f, f"scales_of_{rows}_rows", x, w, xs=xs, xz=xz)
        call(f, f"scales_of_{rows}_rows_alone", x, w, xs=xs)
        call(f, f"zeros_of_{rows}_rows_alone", x, w, xs=0.5, xz=xz)
        call(f, f"constant_scales_of_{rows}_rows", x, w, xs=xs, xz=xz, constant_factors=True)
        call(f, f"constant_scale_{rows}", x, w, xs=0.5, xz=torch.tensor(-128), constant_factors=True)
        call(f, f"double_scales_of_{rows}_rows", x, w, xs=xs.double(), xz=xz)
    call(f, "offset_weights", codes(2, 40, dtype=UINT8), weights(7, 40, UINT8), offset=128,
         wz=torch.full((7, 1), 131), xz=torch.tensor([255]))
    call(f, "zero_scale", codes(2, 8), codes(3, 8), xs=0.0, bias=True)
    call(f, "nan_scale", codes(2, 8), codes(3, 8), xs=float("nan"), bias=True)
    ws = torch.tensor([[0.0], [float("nan")], [0.5]])
    call(f, "zero_and_nan_rows", codes(2, 8), codes(3, 8), ws=ws)
    call(f, "zero_point_far_away", codes(1, 600), weights(3, 600), xz=torch.tensor([-2000000]), xs=2.0**-20)


def quantised(f):
    live, held = (lambda t: t), Const
    for kind, wrapped in (("constant", held), ("live", live)):
        for m in (1, 6):
            x, w = codes(m, 40), weights(9, 40)
            signed, unsigned = (2.0, -7, -128, 127, INT8), (0.5, 130, 0, 255, UINT8)
            call(f, f"int8_out_{kind}_{m}", x, w, bias=True, out=(signed, wrapped))
            call(f, f"uint8_out_{kind}_{m}", x, w, xz=torch.tensor([9]), out=(unsigned, wrapped))
            call(f, f"narrow_out_{kind}_{m}", x, w, out=((4.0, None, -8, 7, INT8), wrapped))
    call(f, "halves_out", codes(1, 1) * 0 + 1, torch.arange(-9, 9, dtype=INT8).reshape(18, 1), xs=0.5,
         ws=torch.ones(18, 1), out=((1.0, 0, -128, 127, INT8), held))
    call(f, "nan_out", codes(2, 8), codes(3, 8), xs=float("nan"), out=((1.0, 5, -128, 127, INT8), held))


def bounds(f):
    """Sums of saturated codes around and beyond what 32 bits hold: 2^32 / 255^2 = 66,051 columns, signed half that."""
    for m in (1, 2):
        for k in (32896, 33028, 66048, 66052, 200000):
            for code, zero in ((127, -128), (-128, 127)):
                x = torch.full((m, k), 127, dtype=INT8)
                w = Gen((5, k), code, code, 1, INT8)
                words = (Gen((m, k // 4), -1, -1, 1, torch.int32), Gen((m, 1), 255 * k, 255 * k, 1, torch.int32))
                wz = torch.full((5, 1), zero)
                call(f, f"saturated_{m}x{k}_codes_{code}", x, w, xz=torch.tensor([-128]), wz=wz, words=words,
                     ws=torch.full((5, 1), 2.0**-20), tol=(2e-7, 0, "exact integers, rounded once"))


def bad(f):
    x, w = codes(2, 24), codes(5, 24, seed=1)
    words, sums = packed(x, 1)
    table = side_table(w.to(torch.int64), torch.ones(5, 1), None, None)
    good = {"words": words, "sums": sums, "input_scale": torch.tensor([0.5]), "input_offset": 128, "k": 24,
            "weight": Const(w), "side": Const(table), "offset": 0, "groups": 1}

    def refuse(name, why, op="linear_a8w8", **changed):
        args = [(key, value) for key, value in {**good, **changed}.items() if value is not None]
        f.seen.add(name)
        f._push(head_of(name, op, args) + f',"refused":"{why}"')

    refuse("k_of_another_weight", "K is 24", k=25)
    refuse("too_few_words", "24 codes are 6 words", words=words[:, :5])
    refuse("sums_of_other_groups", "one group", sums=torch.zeros(2, 2, dtype=torch.int32))
    refuse("side_without_bias", "the bias is missing", has_bias=True)
    refuse("groups_of_a_part_of_a_word", "24 / 4 is no multiple of 8", op="linear_a8w4", groups=4)
    refuse("scales_of_three_rows", "2 rows", input_scale=torch.ones(3, 1))
    refuse("zeros_in_floats", "zero points are integers", input_zero=torch.tensor([0.5]))
    refuse("offset_beyond_a_byte", "256", input_offset=256)
    for name, value, count in (("pack_floats", rand(2, 8), 1), ("pack_groups_that_do_not_divide", codes(2, 8), 3),
                               ("pack_nothing", codes(2, 0), 1)):
        f.seen.add(name)
        f._push(head_of(name, "pack_codes", [("input", value), ("groups", count)]) + f',"refused":"{name}"')
