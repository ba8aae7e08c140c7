"""Lookups in tables of codes: `quantized_decomposed.embedding_byte`, `.embedding_4bit`, `.embedding_2bit`.

Needs executorch, which defines these ops (`pip install executorch`).
"""
import torch

from .case import Const, Family, randint

INF, NAN = float("inf"), float("nan")
IDS = torch.tensor([[0, 6, 3], [3, 3, 1]])


def embedding_codes():
    import executorch.exir.passes._quant_patterns_and_replacements  # noqa: F401  registers the ops
    f = Family("embedding_codes", exact=True)
    byte(f)
    split(f)
    bad(f)
    return f


def bytes_of(*sizes, lo=0, hi=255, dtype=torch.uint8):
    return Const(randint(*sizes, lo=lo, hi=hi, dtype=dtype))


def factors(*sizes, dtype=torch.float32, seed=0):
    """Scales that are no powers of two."""
    return Const(randint(*sizes, lo=1, hi=99, seed=seed).to(dtype) / 64)


def zeros(*sizes, dtype=torch.float32, lo=-9, hi=9):
    return Const(randint(*sizes, lo=lo, hi=hi, seed=5, dtype=dtype))


def byte(f):
    qd = torch.ops.quantized_decomposed
    op, of_dtype = qd.embedding_byte.default, qd.embedding_byte.dtype
    signed, unsigned = bytes_of(7, 12, lo=-128, hi=127, dtype=torch.int8), bytes_of(7, 12)
    f.add("byte", op, signed, factors(7), None, -128, 127, IDS)
    f.add("byte_int32", op, signed, factors(7), None, -128, 127, IDS.int())
    f.add("byte_zeros", op, signed, factors(7), zeros(7), -128, 127, IDS)
    f.add("byte_uint8", op, unsigned, factors(7), zeros(7, lo=100, hi=150), 0, 255, IDS)
    f.add("byte_column", op, signed, factors(7, 1), zeros(7, 1), -128, 127, IDS)
    f.add("byte_0dim", op, signed, factors(7), None, -128, 127, torch.tensor(4))
    f.add("byte_no_ids", op, signed, factors(7), None, -128, 127, torch.zeros(0, dtype=torch.int64))
    f.add("byte_constant_ids", op, signed, factors(7), None, -128, 127, Const(IDS))
    for groups in (2, 3, 4, 6):
        f.add(f"byte_{groups}_groups", op, signed, factors(7, groups), zeros(7, groups), -128, 127, IDS)
    f.add("byte_odd", op, bytes_of(7, 15, lo=-128, hi=127, dtype=torch.int8), factors(7, 5), zeros(7, 5), -128, 127, IDS)
    f.add("byte_half", op, signed, factors(7, dtype=torch.float16), zeros(7, dtype=torch.float16), -128, 127, IDS)
    f.add("byte_to_float", of_dtype, signed, factors(7), None, -128, 127, IDS, dtype=torch.float32)
    f.add("byte_to_half", of_dtype, signed, factors(7), None, -128, 127, IDS, dtype=torch.float16)
    f.add("byte_to_bfloat16", of_dtype, signed, factors(7), None, -128, 127, IDS, dtype=torch.bfloat16)
    f.add("byte_from_half_to_float", of_dtype, signed, factors(7, 2, dtype=torch.float16), None, -128, 127, IDS,
          dtype=torch.float32)
    f.add("byte_zero_scale", op, signed, Const(torch.tensor([0.0, 1, 0, 2, 3, 4, 0])), zeros(7), -128, 127, IDS)
    f.add("byte_nonfinite_scale", op, signed, Const(torch.tensor([INF, NAN, 1, -INF, 1, 1, 1])), zeros(7), -128, 127, IDS)


def split(f):
    """(F07, F08) Which code of a byte comes first, with codes and zero points that tell; odd numbers of groups."""
    qd = torch.ops.quantized_decomposed
    packets = {4: (qd.embedding_4bit, -8, 7), 2: (qd.embedding_2bit, -2, 1)}
    for bits, (packet, low, high) in packets.items():
        op, name, each = packet.default, f"{bits}bit", 8 // bits
        f.add(name, op, bytes_of(7, 6), factors(7), None, low, high, IDS)
        f.add(f"{name}_int32", op, bytes_of(7, 6), factors(7), None, low, high, IDS.int())
        f.add(f"{name}_zeros", op, bytes_of(7, 6), factors(7), zeros(7), low, high, IDS)
        f.add(f"{name}_3_groups", op, bytes_of(7, 6), factors(7, 3), zeros(7, 3), low, high, IDS)
        f.add(f"{name}_5_groups", op, bytes_of(7, 160 // each), factors(7, 5), zeros(7, 5), low, high, IDS)
        f.add(f"{name}_small_groups", op, bytes_of(7, 6), factors(7, 2), None, low, high, IDS)
        f.add(f"{name}_half", op, bytes_of(7, 6), factors(7, dtype=torch.float16), None, low, high, IDS)
        f.add(f"{name}_to_half", packet.dtype, bytes_of(7, 6), factors(7, 3), zeros(7, 3), low, high, IDS,
              dtype=torch.float16)
        f.add(f"{name}_to_float", packet.dtype, bytes_of(7, 5), factors(7), None, low, high, IDS, dtype=torch.float32)


def bad(f):
    qd = torch.ops.quantized_decomposed
    signed = bytes_of(7, 12, lo=-128, hi=127, dtype=torch.int8)
    f.refuse("byte_codes_of_int32", qd.embedding_byte.default, "int32 codes", bytes_of(7, 12, dtype=torch.int32),
             factors(7), None, -128, 127, IDS)
    f.refuse("byte_scales_of_other_rows", qd.embedding_byte.default, "6 scales, 7 rows", signed, factors(6), None, -128, 127,
             IDS)
    f.refuse("byte_groups_do_not_divide", qd.embedding_byte.default, "5 groups, 12 columns", signed, factors(7, 5), None, -128,
             127, IDS)
    f.refuse("byte_int_zeros", qd.embedding_byte.default, "zero points of another dtype than the scales", signed,
             factors(7), zeros(7, dtype=torch.int32), -128, 127, IDS)
    f.refuse("byte_index_out_of_range", qd.embedding_byte.default, "index 7 of 7 rows", signed, factors(7), None, -128, 127,
             torch.tensor([7]))
    f.refuse("byte_negative_index", qd.embedding_byte.default, "index -1", signed, factors(7), None, -128, 127,
             torch.tensor([-1]))
    f.refuse("4bit_of_another_range", qd.embedding_4bit.default, "range 0 to 15", bytes_of(7, 6), factors(7), None, 0, 15,
             IDS)
    f.refuse("2bit_of_another_range", qd.embedding_2bit.default, "range -8 to 7", bytes_of(7, 6), factors(7), None, -8, 7,
             IDS)
