"""Families that decide or convert: compare (with where and the logical and bitwise ops) and cast."""
import torch

from .case import Const, Family, rand, randbool, randint

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
HALVES = (torch.float16, torch.bfloat16)


def compare():
    f = Family("compare", exact=True)
    relations(f)
    logic(f)
    where(f)
    return f


def relations(f):
    a = torch.tensor([1.0, 2.0, 3.0, NAN, INF, -INF, 0.0])
    b = torch.tensor([2.0, 2.0, 2.0, NAN, INF, 0.0, -0.0])
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        op = getattr(aten, name)
        f.add(f"{name}_float", op.Tensor, a, b)
        f.add(f"{name}_scalar", op.Scalar, a, 2)
        f.add(f"{name}_scalar_float", op.Scalar, rand(2, 3, step=0.5), 0.5)
        f.add(f"{name}_int64", op.Tensor, randint(2, 3, lo=-2, hi=2), randint(3, lo=-2, hi=2, seed=1))
        f.add(f"{name}_int64_scalar", op.Scalar, randint(2, 1, 1, 5, lo=0, hi=1), 0)
        f.add(f"{name}_int_and_float", op.Tensor, randint(5, lo=-2, hi=2), rand(5, step=0.5))
        f.add(f"{name}_int_scalar_float", op.Scalar, randint(5, lo=-2, hi=2), 0.5)
        f.add(f"{name}_broadcast", op.Tensor, rand(2, 1, 3, step=1), rand(2, 1, step=1, seed=1))
        f.add(f"{name}_column_row", op.Tensor, torch.arange(4)[:, None], torch.arange(4)[None])
        f.add(f"{name}_half", op.Tensor, rand(6, step=0.5, dtype=torch.float16),
              rand(6, step=0.5, seed=1, dtype=torch.float16))
        f.add(f"{name}_bool", op.Tensor, randbool(5), randbool(5, seed=1))
    f.add("eq_bool_scalar", aten.eq.Scalar, randbool(6), False)
    f.add("lt_empty", aten.lt.Tensor, torch.zeros(0, 3), torch.zeros(3))
    f.add("eq_0dim", aten.eq.Tensor, torch.tensor(3), torch.tensor(3))
    f.add("gt_rank5", aten.gt.Tensor, rand(2, 1, 2, 1, 3), rand(2, 1, 2, 1, seed=1))
    f.add("eq_uint8", aten.eq.Scalar, torch.tensor([0, 1, 255], dtype=torch.uint8), 255)
    f.add("lt_int64_beyond_f32", aten.lt.Tensor, torch.tensor([16777216, 16777217]), torch.tensor([16777217, 16777217]))
    f.add("eq_scalar_beyond_f32", aten.eq.Scalar, torch.tensor([16777216, 16777217, 16777218]), 16777217)


def logic(f):
    for name in ("logical_and", "logical_or", "logical_xor"):
        op = getattr(aten, name).default
        f.add(f"{name}_bool", op, randbool(2, 4), randbool(4, seed=1))
        f.add(f"{name}_int64", op, randint(5, lo=-1, hi=1), randint(5, lo=-1, hi=1, seed=1))
        f.add(f"{name}_float", op, torch.tensor([0.0, 0.5, NAN, -0.0]), torch.tensor([1.0, 0.0, 0.0, 0.0]))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        op = getattr(aten, name)
        f.add(f"{name}_bool", op.Tensor, randbool(2, 1, 4), randbool(3, 1, seed=1))
        for dtype in (torch.int64, torch.int32, torch.int8):
            f.add(f"{name}_{str(dtype)[6:]}", op.Tensor, randint(6, lo=-100, hi=100, dtype=dtype),
                  randint(6, lo=-100, hi=100, seed=1, dtype=dtype))
        f.add(f"{name}_uint8", op.Tensor, randint(6, lo=0, hi=255, dtype=torch.uint8),
              randint(6, lo=0, hi=255, seed=1, dtype=torch.uint8))
        f.add(f"{name}_scalar", op.Scalar, randint(6, lo=-100, hi=100), 12)
    for name in ("__and__", "__or__"):
        f.add(f"{name}_bool", getattr(aten, name).Tensor, randbool(6), randbool(6, seed=1))
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        op = getattr(aten, name)
        f.add(f"{name}_int64", op.Tensor, torch.tensor([1, 5, -8, 1000]), torch.tensor([0, 3, 1, 2]))
        f.add(f"{name}_scalar", op.Tensor_Scalar, torch.tensor([1, 5, -8, 1000], dtype=torch.int32), 2)


def where(f):
    c = randbool(2, 3)
    f.add("where", aten.where.self, c, rand(2, 3), rand(2, 3, seed=1))
    for i, (a, b, d) in enumerate([((2, 1, 5), (4, 1), ()), ((), (2, 3), (3,)), ((2, 3), (), ()), ((3, 1), (1, 4), (1,)),
                                   ((1,), (0, 3), (1, 3)), ((2, 1, 1, 5), (1, 3, 4, 5), ()), ((1, 4, 5), (5,), (2, 1, 1, 5)),
                                   ((2, 1, 2, 1, 3), (2, 1, 1, 3), (3,)), ((1, 1, 4, 4), (2, 3, 4, 4), (1,))]):
        f.add(f"where_broadcast_{i}", aten.where.self, randbool(*a), rand(*b), rand(*d, seed=1))
    f.add("where_masked_infinity", aten.where.self, randbool(2, 1, 1, 4), torch.tensor(-INF), rand(2, 2, 3, 4))
    f.add("where_nan_not_leaked", aten.where.self, torch.tensor([True, False]), torch.tensor([1.0, NAN]),
          torch.tensor([NAN, 2.0]))
    f.add("where_int64", aten.where.self, c, randint(2, 3, lo=-9, hi=9), randint(3, lo=-9, hi=9, seed=1))
    f.add("where_bool", aten.where.self, c, randbool(2, 3, seed=1), randbool(2, 3, seed=2))
    f.add("where_half", aten.where.self, c, rand(2, 3, dtype=torch.float16), rand(2, 3, seed=1, dtype=torch.float16))
    f.add("where_mixed", aten.where.self, c, rand(2, 3), randint(2, 3, lo=-9, hi=9))
    f.add("where_constants", aten.where.self, c, Const(rand(2, 3)), Const(rand(3, 2, seed=1).t()))
    f.add("where_scalar_other", aten.where.ScalarOther, c, rand(2, 3), -1.5)
    f.add("where_scalar_self", aten.where.ScalarSelf, c, 2.5, rand(2, 3))
    f.add("where_scalars", aten.where.Scalar, c, 1.0, 0.0)
    x = rand(2, 3, 4)
    f.add("masked_fill_number", aten.masked_fill.Scalar, x, randbool(3, 1), -INF)
    f.add("masked_fill_tensor", aten.masked_fill.Tensor, x, randbool(4), torch.tensor(7.0))
    f.add("masked_fill_int64", aten.masked_fill.Scalar, randint(2, 3, lo=-9, hi=9), c, -100)
    f.add("masked_fill_half", aten.masked_fill.Scalar, rand(2, 3, dtype=torch.float16), c, -65504.0)
    f.add("masked_fill_wider_mask", aten.masked_fill.Scalar, rand(3), c, 0.0)


CAST_DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
               torch.float32]


def cast():
    """Every pair of dtypes (F24), without the values that C leaves undefined (floats out of an integer's range)."""
    f = Family("cast", exact=True)
    for source in CAST_DTYPES:
        for target in CAST_DTYPES:
            f.add(f"{name_of(source)}_to_{name_of(target)}", aten._to_copy.default, sample(source, target),
                  dtype=target)
    f.add("int32_to_float32_rounds", aten._to_copy.default, torch.tensor([2, -1, 0, 16777217], dtype=torch.int32),
          dtype=torch.float32)
    f.add("int64_to_float32_rounds", aten._to_copy.default, torch.tensor([16777217, -16777219, 2147483647]),
          dtype=torch.float32)
    f.add("float32_to_int32_truncates", aten._to_copy.default, torch.tensor([-1.7, 2.9, -0.5]), dtype=torch.int32)
    f.add("float32_to_bool_nan", aten._to_copy.default, torch.tensor([-3.0, 0.0, 0.5, -0.0, NAN, 1e-30]),
          dtype=torch.bool)
    f.add("float32_to_float16_edges", aten._to_copy.default,
          torch.tensor([65504.0, 65519.0, 65520.0, -70000.0, 2049.0, 2051.0, 0.0999755859375, 6.2e-5, NAN, INF, -INF]),
          dtype=torch.float16)
    f.add("float32_to_bfloat16_edges", aten._to_copy.default,
          torch.tensor([1.00390625, 1.01171875, -1.00390625, 3.3e38, 0.1, NAN, INF, -INF]), dtype=torch.bfloat16)
    f.add("float16_subnormal_to_float32", aten._to_copy.default,
          torch.tensor([6e-8, -6e-8, 5.9e-5, 1e-4], dtype=torch.float16), dtype=torch.float32)
    f.add("int32_to_uint8_wraps", aten._to_copy.default, torch.tensor([300, -1, 256], dtype=torch.int32),
          dtype=torch.uint8)
    f.add("int64_to_int8_wraps", aten._to_copy.default, torch.tensor([200, -129, 128, 65537]), dtype=torch.int8)
    f.add("int64_to_int16_wraps", aten._to_copy.default, torch.tensor([40000, -40000, 65536]), dtype=torch.int16)
    f.add("int64_to_float16_overflow", aten._to_copy.default, torch.tensor([70000, -70000, 2049]), dtype=torch.float16)
    f.add("no_dtype", aten._to_copy.default, rand(2, 3))
    f.add("same_dtype", aten._to_copy.default, rand(2, 3), dtype=torch.float32)
    f.add("0dim", aten._to_copy.default, torch.tensor(3), dtype=torch.float32)
    f.add("empty", aten._to_copy.default, torch.zeros(0, 4), dtype=torch.int64)
    f.add("rank6", aten._to_copy.default, randint(2, 1, 2, 1, 2, 3, lo=-9, hi=9), dtype=torch.float32)
    f.add("constant_half_transposed", aten._to_copy.default, Const(rand(4, 3, dtype=torch.float16).t()),
          dtype=torch.float32)
    f.add("constant_int8", aten._to_copy.default, Const(randint(3, 5, lo=-128, hi=127, dtype=torch.int8)),
          dtype=torch.float32)
    f.add("to_dtype", aten.to.dtype, randint(2, 3, lo=-9, hi=9), torch.float32)
    f.add("to_dtype_same", aten.to.dtype, rand(2, 3), torch.float32)
    f.add("to_dtype_bool", aten.to.dtype, randint(2, 3, lo=-1, hi=1), torch.bool)
    f.add("to_dtype_layout", aten.to.dtype_layout, rand(2, 3), dtype=torch.int32)
    f.add("type_as", aten.type_as.default, randint(2, 3, lo=-9, hi=9), rand(1))
    return f


def name_of(dtype):
    return str(dtype)[6:]


def sample(source, target):
    if source == torch.bool:
        return torch.tensor([True, False, True])
    if source.is_floating_point:
        values = [0.0, 2.75, 100.0, 1.0] if target == torch.uint8 else [-3.0, 0.0, 0.5, 2.75, -1.625, 100.0, -0.0]
    elif source == torch.uint8:
        values = [0, 1, 127, 128, 255]
    else:
        values = [0, 1, -1, 127, -128] + ([300, -300, 32767, -32768] if source != torch.int8 else [])
        values += [70000, -70000, 2147483647, -2147483648] if source in (torch.int32, torch.int64) else []
    return torch.tensor(values, dtype=source)
