"""Families that work along dims: softmax, reduce, norm, scan."""
from itertools import combinations

import torch

from .case import Const, Family, Gen, rand, randbool, randint

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
HALVES = (torch.float16, torch.bfloat16)


def softmax():
    f = Family("softmax")
    for name in ("_softmax", "_log_softmax"):
        op = getattr(aten, name).default
        x = rand(2, 3, 5, lo=-8, hi=8)
        for dim in (-3, -2, -1, 0, 1, 2):
            f.add(f"{name}_dim{dim}", op, x, dim, False)
        f.add(f"{name}_rank1", op, rand(7), 0, False)
        f.add(f"{name}_rank2_dim0", op, rand(5, 3), 0, False)
        f.add(f"{name}_rank4", op, rand(2, 2, 3, 4), -1, False)
        f.add(f"{name}_rank5_middle", op, rand(2, 1, 3, 2, 2), 2, False)
        f.add(f"{name}_0dim", op, torch.tensor(2.0), 0, False)
        f.add(f"{name}_one_column", op, rand(4, 1), -1, False)
        f.add(f"{name}_empty_rows", op, torch.zeros(0, 4), -1, False)
        f.add(f"{name}_empty_columns", op, torch.zeros(4, 0), -1, False)
        f.add(f"{name}_large_logits", op,
              torch.tensor([[151.29, 150.0, 0.0], [1000.0, 0.0, -1000.0], [-3e38, 3e38, 0.0]]), -1, False)
        f.add(f"{name}_masked", op, torch.tensor([[0.5, -INF, 1.0], [-INF, -INF, 2.0]]), -1, False)
        f.add(f"{name}_masked_row_is_nan", op, torch.tensor([[0.5, 1.0], [-INF, -INF], [2.0, 0.0]]), -1, False)
        f.add(f"{name}_nan_stays_in_its_row", op, torch.tensor([[0.5, NAN], [1.0, 2.0], [INF, 0.0]]), -1, False)
        for cols in (63, 64, 65, 129, 257):
            f.add(f"{name}_{cols}_columns", op, rand(2, cols, lo=-4, hi=4), -1, False)
        f.add(f"{name}_long_row", op, Gen((3, 5000), -9, 9, 1), -1, False, sampled=True)
        f.add(f"{name}_many_rows", op, Gen((70000, 3), -9, 9, 2), -1, False, sampled=True)
        f.add(f"{name}_long_strided", op, Gen((2, 1500, 3), -9, 9, 3), 1, False, sampled=True)
        f.add(f"{name}_constant_permuted", op, Const(rand(4, 3, 2).permute(2, 0, 1)), 1, False)
        for dtype in HALVES:
            f.add(f"{name}_{str(dtype)[6:]}", op, rand(3, 5, lo=-8, hi=8, dtype=dtype), -1, False)
            f.add(f"{name}_large_{str(dtype)[6:]}", op, torch.tensor([[151.25, 150.0, 0.0]], dtype=dtype), -1, False)
    for name in ("softmax", "log_softmax"):
        op = getattr(aten, name).int
        f.add(f"{name}_int", op, rand(2, 5), -1)
        f.add(f"{name}_int_dim0", op, rand(2, 5), 0)
        f.add(f"{name}_int_dtype", op, rand(2, 5, dtype=torch.float16), -1, torch.float32)
    f.add("logsumexp_large", aten.logsumexp.default, torch.tensor([1000.0, 1000.0]), [0])
    f.add("logsumexp_keepdim", aten.logsumexp.default, rand(2, 3, 4), [1], True)
    f.add("logsumexp_two_dims", aten.logsumexp.default, rand(2, 3, 4), [0, -1])
    f.add("logsumexp_minus_infinity", aten.logsumexp.default, torch.tensor([[-INF, -INF], [-INF, 1.0]]), [1])
    f.add("safe_softmax_masked_row", aten._safe_softmax.default, torch.tensor([[-INF, -INF], [0.5, 1.0]]), -1)
    return f


# ------------------------------------------------------------------ reductions
def subsets(rank):
    return [list(c) for n in range(1, rank + 1) for c in combinations(range(rank), n)]


def reduce():
    f = Family("reduce")
    every_subset(f)
    whole(f)
    extremes(f)
    truth(f)
    norms(f)
    halves_and_ints(f)
    return f


def every_subset(f):
    """(F27) All sets of dims of a rank-4 tensor, keepdim or not, some counted from the end."""
    x = rand(2, 3, 4, 3)
    for i, dims in enumerate(subsets(4)):
        keep, text = bool(i % 2), "".join(map(str, dims))
        back = [d - 4 for d in dims]
        f.add(f"sum_{text}", aten.sum.dim_IntList, x, dims, keep, exact=True)
        f.add(f"mean_{text}", aten.mean.dim, x, back, not keep)
        f.add(f"amax_{text}", aten.amax.default, x, dims, not keep, exact=True)
        f.add(f"amin_{text}", aten.amin.default, x, back, keep, exact=True)
        f.add(f"var_{text}", aten.var.correction, x, dims if keep else back, correction=i % 2, keepdim=keep)
        f.add(f"any_{text}", aten.any.dims, randint(2, 3, 4, 3, lo=0, hi=8) == 0, dims, keep)
    f.add("sum_dims_out_of_order", aten.sum.dim_IntList, x, [3, -4], exact=True)
    f.add("mean_keepdim_last", aten.mean.dim, x, [-1], True)
    f.add("sum_rank6", aten.sum.dim_IntList, rand(2, 1, 2, 3, 1, 2), [1, 3, 5], exact=True)
    f.add("mean_rank5_alternating", aten.mean.dim, rand(2, 3, 2, 3, 2), [0, 2, 4])
    f.add("sum_constant_permuted", aten.sum.dim_IntList, Const(rand(4, 3, 2).permute(2, 0, 1)), [1], exact=True)


def whole(f):
    x = rand(3, 5)
    f.add("sum_all", aten.sum.default, x, exact=True)
    f.add("sum_empty_dims_is_all", aten.sum.dim_IntList, x, [], exact=True)
    f.add("sum_none_is_all", aten.sum.dim_IntList, x, None, True, exact=True)
    f.add("mean_all", aten.mean.default, x)
    f.add("prod_all", aten.prod.default, rand(5))
    f.add("prod_dim", aten.prod.dim_int, x, 1)
    f.add("prod_dim_keep", aten.prod.dim_int, x, -2, True)
    f.add("var_all", aten.var.correction, x)
    f.add("var_no_dims_keepdim", aten.var.correction, x, None, correction=1, keepdim=True)
    f.add("var_dim", aten.var.dim, x, [1], True)
    f.add("var_dim_biased", aten.var.dim, x, [1], False)
    f.add("std_correction", aten.std.correction, x, [0], correction=1)
    f.add("var_mean_correction", aten.var_mean.correction, x, [1], correction=0, keepdim=True)
    f.add("var_one_element_is_nan", aten.var.correction, torch.tensor([[3.0]]), [1], correction=1)
    f.add("var_large_offset", aten.var.correction, rand(2, 9) + 1000, [1], correction=0)
    f.add("var_correction_over_count", aten.var.correction, x, [0, 1], correction=99)
    f.add("var_default", aten.var.default, x, False)
    f.add("std_mean_correction", aten.std_mean.correction, x, [0], correction=1)
    f.add("var_mean_dim", aten.var_mean.dim, x, [-1], False, True)
    f.add("sum_0dim", aten.sum.default, torch.tensor(2.5), exact=True)
    f.add("mean_0dim", aten.mean.dim, torch.tensor(2.5), [0])
    f.add("amax_0dim", aten.amax.default, torch.tensor(2.5), [], exact=True)
    f.add("sum_zero_dim", aten.sum.dim_IntList, torch.zeros(2, 0), [1], exact=True)
    f.add("sum_zero_rows", aten.sum.dim_IntList, torch.zeros(0, 3), [1], exact=True)
    f.add("sum_zero_all", aten.sum.default, torch.zeros(0), exact=True)
    f.add("mean_zero_dim_is_nan", aten.mean.dim, torch.zeros(2, 0), [1])
    f.add("prod_zero_dim_is_one", aten.prod.dim_int, torch.zeros(2, 0), 1)
    f.add("any_zero_dim", aten.any.dim, torch.zeros(2, 0, dtype=torch.bool), 1)
    f.add("all_zero_dim", aten.all.dim, torch.zeros(2, 0, dtype=torch.bool), 1)
    for dims, text in (([0, 1], "all"), ([1], "rows"), ([0], "columns")):
        f.add(f"sum_70000_{text}", aten.sum.dim_IntList, Gen((35, 2000), -2, 2, 1), dims, exact=True, sampled=True)
        f.add(f"amax_70000_{text}", aten.amax.default, Gen((35, 2000), -9999, 9999, 2), dims, exact=True, sampled=True)
    f.add("sum_70000_to_one", aten.sum.default, Gen((70000,), -2, 2, 3), exact=True)
    f.add("mean_70000_to_one", aten.mean.default, Gen((70000,), 0, 3, 3))
    f.add("mean_spatial", aten.mean.dim, Gen((1, 64, 8, 8), -4, 4, 4), [-1, -2], True, sampled=True)
    f.add("sum_many_rows", aten.sum.dim_IntList, Gen((70000, 2), -4, 4, 5), [1], exact=True, sampled=True)


def extremes(f):
    x = rand(2, 3, 4, step=0.5)
    for name in ("max", "min"):
        op, arg = getattr(aten, name), getattr(aten, "arg" + name).default
        for dim in (0, 1, 2, -1, -2, -3):
            f.add(f"{name}_dim{dim}", op.dim, x, dim, bool(dim % 2), exact=True)
            f.add(f"arg{name}_dim{dim}", arg, x, dim, not dim % 2, exact=True)
        f.add(f"{name}_all", op.default, x, exact=True)
        f.add(f"arg{name}_all", arg, x, exact=True)
        f.add(f"arg{name}_ties_first", arg, torch.tensor([[1.0, 5.0, 5.0, -2.0, -2.0]]), 1, exact=True)
        f.add(f"arg{name}_nan_wins", arg, torch.tensor([[1.0, NAN, 5.0, NAN]]), 1, exact=True)
        f.add(f"{name}_nan", op.dim, torch.tensor([[1.0, NAN, 5.0], [1.0, 2.0, 3.0]]), 1, exact=True)
        f.add(f"{name}_0dim", op.default, torch.tensor(-3.5), exact=True)
        f.add(f"arg{name}_0dim", arg, torch.tensor(-3.5), exact=True)
        f.add(f"{name}_int64", op.dim, randint(3, 5, lo=-99, hi=99), 1, exact=True)
        f.add(f"arg{name}_int32", arg, randint(3, 5, lo=-99, hi=99, dtype=torch.int32), 0, exact=True)
        f.add(f"arg{name}_long", arg, Gen((2, 5000), -9999, 9999, 7), -1, exact=True)
        f.add(f"arg{name}_negative", arg, -rand(3, 4, lo=1, hi=2), 1, exact=True)
        f.add(f"a{name}_nan", getattr(aten, "a" + name).default, torch.tensor([[1.0, NAN], [1.0, 2.0]]), [1],
              exact=True)
        f.add(f"a{name}_infinite", getattr(aten, "a" + name).default, torch.tensor([[INF, -INF], [-INF, -INF]]), [1],
              exact=True)


def truth(f):
    b = randint(2, 3, 4, lo=0, hi=3) == 0
    for name in ("any", "all"):
        op = getattr(aten, name)
        for dim in (0, 1, -1):
            f.add(f"{name}_bool_dim{dim}", op.dim, b, dim, dim == 1)
        f.add(f"{name}_bool_all", op.default, b)
        f.add(f"{name}_float", op.dim, torch.tensor([[0.0, -0.0], [NAN, 0.0], [0.5, 1.0]]), 1)
        f.add(f"{name}_int64", op.dim, randint(3, 4, lo=0, hi=1), -1, True)
        f.add(f"{name}_uint8_keeps_dtype", op.dim, randint(3, 4, lo=0, hi=1, dtype=torch.uint8), -1)
    f.add("any_dims_none", aten.any.dims, b)
    f.add("any_dims_empty_reduces_none", aten.any.dims, randint(2, 3, lo=0, hi=2), [])
    f.add("all_dims_empty_reduces_none", aten.all.dims, b, [], True)
    f.add("count_nonzero", aten.count_nonzero.default, torch.tensor([[0.0, NAN, -0.0], [2.0, 0.0, -1.0]]))
    f.add("count_nonzero_dim", aten.count_nonzero.dim_IntList, randint(2, 3, 4, lo=0, hi=2), [0, 2])
    f.add("max_bool", aten.max.dim, b, 1)
    f.add("amin_bool", aten.amin.default, b, [1])


def norms(f):
    x = torch.tensor([[3.0, 0.0, -4.0], [0.0, -0.0, 0.0], [1.0, NAN, -2.0]])
    for order in (0, 1, 2, INF, -INF):
        f.add(f"vector_norm_{order}", aten.linalg_vector_norm.default, x, order, [1])
    f.add("vector_norm_all", aten.linalg_vector_norm.default, rand(2, 3, 4))
    f.add("vector_norm_keepdim", aten.linalg_vector_norm.default, rand(2, 3, 4), 2, [0, -1], True)
    f.add("vector_norm_of_nothing", aten.linalg_vector_norm.default, torch.zeros(2, 0), 2, [1])
    f.add("vector_norm_dtype", aten.linalg_vector_norm.default, rand(2, 3, dtype=torch.float16), 2, [1],
          dtype=torch.float32)
    f.add("norm_dims", aten.norm.ScalarOpt_dim, rand(2, 3, 4), 2, [1], True)
    f.add("norm_default_order", aten.norm.ScalarOpt_dim, rand(2, 3, 4), None, [1, 2])
    f.add("norm_all", aten.norm.Scalar, rand(2, 3, 4), 1)


def halves_and_ints(f):
    for dtype in HALVES:
        kind = str(dtype)[6:]
        f.add(f"sum_{kind}", aten.sum.dim_IntList, rand(3, 5, dtype=dtype), [1])
        f.add(f"mean_{kind}", aten.mean.dim, rand(3, 5, dtype=dtype), [-1], True)
        f.add(f"amax_{kind}", aten.amax.default, rand(3, 5, dtype=dtype), [1], exact=True)
        f.add(f"sum_to_float_{kind}", aten.sum.dim_IntList, rand(3, 5, dtype=dtype), [1], dtype=torch.float32)
        f.add(f"sum_of_4096_{kind}", aten.sum.dim_IntList, torch.ones(1, 4096, dtype=dtype) * 0.5, [1])
    f.add("sum_int64", aten.sum.dim_IntList, randint(3, 5, lo=-9, hi=9), [1])
    f.add("sum_int32_gives_int64", aten.sum.dim_IntList, randint(3, 5, lo=-9, hi=9, dtype=torch.int32), [1])
    f.add("sum_bool_counts", aten.sum.dim_IntList, randbool(3, 5), [1])
    f.add("sum_bool_all", aten.sum.default, randbool(3, 5))
    f.add("sum_uint8_gives_int64", aten.sum.default, torch.full((3,), 200, dtype=torch.uint8))
    f.add("sum_int64_to_float", aten.sum.dim_IntList, randint(3, 5, lo=-9, hi=9), [1], dtype=torch.float32)
    f.add("mean_int64_to_float", aten.mean.dim, randint(3, 5, lo=-9, hi=9), [1], dtype=torch.float32)
    f.add("amax_int64", aten.amax.default, randint(3, 5, lo=-9, hi=9), [1])
    top = 2**31 - 1
    f.add("sum_int64_passes_32_bits_midway", aten.sum.dim_IntList,
          torch.tensor([[top, top, -7, -top - 1], [-top - 1, -top - 1, top, top]]), [1])
    f.add("sum_int32_wraps", aten.sum.dim_IntList, torch.tensor([top, 2], dtype=torch.int32), [0], dtype=torch.int32)
    f.add("sum_int8_wraps", aten.sum.dim_IntList, torch.full((3,), 100, dtype=torch.int8), [0], dtype=torch.int8)
    f.add("sum_int64_long", aten.sum.dim_IntList, Gen((3, 5000), -30000, 30000, 9, torch.int64), [1])
    f.add("sum_int64_columns", aten.sum.dim_IntList, Gen((70, 300), -30000, 30000, 9, torch.int64), [0])
    f.add("sum_zero_dim_int64", aten.sum.dim_IntList, torch.zeros(2, 0, dtype=torch.int64), [1])
    f.add("prod_zero_dim_int64", aten.prod.dim_int, torch.zeros(2, 0, dtype=torch.int64), 1)
    f.add("prod_int64_zero_after_large", aten.prod.default, torch.tensor([top, top, 0, -3]))
    f.add("prod_int64_negative", aten.prod.default, torch.tensor([-46341, 46340, 1]))
    f.add("prod_int32_wraps", aten.prod.default, torch.tensor([top, 3], dtype=torch.int32), dtype=torch.int32)
    f.add("amin_int8", aten.amin.default, torch.tensor([[5, -128], [127, 0]], dtype=torch.int8), [1])
    f.add("amax_uint8", aten.amax.default, torch.tensor([[5, 255], [127, 0]], dtype=torch.uint8), [0])
    f.add("prod_int64", aten.prod.dim_int, randint(3, 4, lo=-4, hi=4), 1)


# ------------------------------------------------------------------ normalisation
def norm():
    f = Family("norm")
    layer_norm(f)
    rms_norm(f)
    group_norm(f)
    batch_norm(f)
    return f


def affine(*sizes):
    return Const(rand(*sizes, seed=8, lo=0.5, hi=1.5)), Const(rand(*sizes, seed=9, lo=-1, hi=1))


def layer_norm(f):
    x = rand(2, 3, 4, 5)
    for n in (1, 2, 3, 4):
        shape = list(x.shape[4 - n:])
        f.add(f"native_last_{n}", aten.native_layer_norm.default, x, shape, *affine(*shape), 1e-5)
        f.add(f"layer_norm_last_{n}", aten.layer_norm.default, x, shape, *affine(*shape))
    native = aten.native_layer_norm.default
    f.add("native_plain", native, x, [5], None, None, 1e-5)
    f.add("native_weight_only", native, x, [5], affine(5)[0], None, 1e-5)
    f.add("native_bias_only", native, x, [5], None, affine(5)[1], 1e-5)
    f.add("native_runtime_affine", native, x, [5], rand(5), rand(5, seed=1), 1e-5)
    f.add("native_large_eps", native, x, [5], None, None, 0.5)
    f.add("native_constant_row", native, torch.full((2, 6), 3.25), [6], *affine(6), 1e-5)
    f.add("native_large_offset", native, rand(2, 8) + 4096, [8], *affine(8), 1e-5,
          tol=(2e-3, 2e-3, "the offset leaves 11 bits to the values; one pass over squares would give nonsense"))
    f.add("native_large_values", native, rand(2, 8) * 3e4, [8], *affine(8), 1e-5)
    f.add("native_nan_stays_in_its_row", native, torch.tensor([[1.0, NAN, 2.0], [1.0, 2.0, 3.0]]), [3], None, None,
          1e-5)
    f.add("native_rank1", native, rand(6), [6], *affine(6), 1e-5)
    f.add("native_one_column", native, rand(3, 1), [1], *affine(1), 1e-5)
    f.add("native_no_rows", native, torch.zeros(0, 4), [4], *affine(4), 1e-5)
    f.add("native_384", native, Gen((7, 384), -9, 9, 1), [384], None, None, 1e-12, sampled=True)
    f.add("native_long_row", native, Gen((2, 5000), -9, 9, 2), [5000], None, None, 1e-5, sampled=True)
    f.add("native_many_rows", native, Gen((66000, 4), -9, 9, 3), [4], None, None, 1e-5, sampled=True)
    f.add("native_zeros_tiny_eps", native, torch.zeros(1, 10), [10], None, None, 1e-12)
    f.add("native_zeros_tiny_eps_half", native, torch.zeros(1, 10, dtype=torch.float16), [10], None, None, 1e-12,
          keep=[0])
    f.add("native_1e15", native, torch.tensor([1e15, -1e15]).repeat(2, 64), [128], None, None, 1e-5, keep=[0])
    f.add("native_30000_half", native, torch.tensor([3e4, -3e4]).repeat(1, 2048).half(), [4096], None, None, 1e-5,
          keep=[0], sampled=True)
    f.add("native_half_float_affine", native, rand(3, 6, dtype=torch.float16), [6], *affine(6), 1e-5, keep=[0])
    for dtype in HALVES:
        w, b = (Const(c.tensor.to(dtype)) for c in affine(6))
        f.add(f"native_{str(dtype)[6:]}", native, rand(3, 6, dtype=dtype), [6], w, b, 1e-5, keep=[0])
        f.add(f"native_large_{str(dtype)[6:]}", native, rand(3, 8, dtype=dtype) * 4000, [8], None, None, 1e-5, keep=[0])


def rms_norm(f):
    x = rand(2, 3, 6)
    w = affine(6)[0]
    f.add("rms_norm", aten.rms_norm.default, x, [6], w, 1e-6)
    f.add("rms_norm_no_weight", aten.rms_norm.default, x, [6], None, 1e-6)
    f.add("rms_norm_default_eps", aten.rms_norm.default, x, [6], w)
    f.add("rms_norm_two_dims", aten.rms_norm.default, x, [3, 6], affine(3, 6)[0], 1e-5)
    f.add("rms_norm_zero_row", aten.rms_norm.default, torch.zeros(2, 4), [4], None, 1e-6)
    f.add("rms_norm_large_values", aten.rms_norm.default, rand(2, 8) * 3e4, [8], None, 1e-6)
    f.add("rms_norm_half", aten.rms_norm.default, rand(2, 8, dtype=torch.float16), [8], None, 1e-6)
    f.add("rms_norm_half_large", aten.rms_norm.default, rand(2, 8, dtype=torch.float16) * 4000, [8], None, 1e-6)


    f.add("rms_norm_8000_half", aten.rms_norm.default, Gen((1, 4096), 8000, 8000, 1, torch.float16), [4096], None, 1e-6,
          sampled=True)
    f.add("rms_norm_default_eps_half", aten.rms_norm.default, torch.full((1, 4), 1e-4, dtype=torch.float16), [4])
    f.add("fused_rms_norm", aten._fused_rms_norm.default, x, [6], w, 1e-5)
    f.add("fused_rms_norm_half", aten._fused_rms_norm.default, rand(3, 8, dtype=torch.float16), [8], None, 1e-5)


def group_norm(f):
    x = rand(2, 6, 3, 2)
    for groups in (1, 2, 3, 6):
        f.add(f"native_group_norm_{groups}", aten.native_group_norm.default, x, *affine(6), 2, 6, 6, groups, 1e-5)
        f.add(f"group_norm_{groups}", aten.group_norm.default, x, groups, *affine(6))
    f.add("native_group_norm_plain", aten.native_group_norm.default, x, None, None, 2, 6, 6, 2, 1e-5)
    f.add("group_norm_rank3", aten.group_norm.default, rand(2, 4, 5), 2, *affine(4))
    f.add("group_norm_rank2", aten.group_norm.default, rand(3, 4), 2, *affine(4))


def batch_norm(f):
    stats = Const(rand(3, seed=5, lo=-1, hi=1)), Const(rand(3, seed=6, lo=0.5, hi=2))
    eval_norm = aten._native_batch_norm_legit_no_training.default
    for sizes in ((2, 3, 4, 5), (2, 3), (2, 3, 4), (1, 3, 2, 2, 2)):
        text = "x".join(map(str, sizes))
        f.add(f"batch_norm_{text}", eval_norm, rand(*sizes), *affine(3), *stats, 0.1, 1e-5, keep=[0])
    f.add("batch_norm_plain", eval_norm, rand(2, 3, 2, 2), None, None, *stats, 0.1, 1e-3, keep=[0])
    f.add("batch_norm_runtime_stats", eval_norm, rand(2, 3, 2, 2), *(c.tensor for c in affine(3)),
          *(c.tensor for c in stats), 0.1, 1e-5, keep=[0])
    f.add("batch_norm_training_ir", aten.batch_norm.default, rand(2, 3, 2, 2), *affine(3), *stats, False, 0.1, 1e-5,
          True)
    f.add("batch_norm_weight_only", eval_norm, rand(2, 3, 2, 2), affine(3)[0], None, *stats, 0.1, 1e-5, keep=[0])
    f.add("batch_norm_bias_only", eval_norm, rand(2, 3, 2, 2), None, affine(3)[1], *stats, 0.1, 1e-5, keep=[0])
    f.add("native_batch_norm", aten.native_batch_norm.default, rand(2, 3, 2, 2), *affine(3), *stats, False, 0.1, 1e-5,
          keep=[0])
    f.add("batch_norm_empty_batch", eval_norm, torch.zeros(0, 3, 2), *affine(3), *stats, 0.1, 1e-5, keep=[0])
    f.add("batch_norm_half", eval_norm, rand(2, 3, 2, 2, dtype=torch.float16),
          *(Const(c.tensor.half()) for c in (*affine(3), *stats)), 0.1, 1e-5, keep=[0])


# ------------------------------------------------------------------ prefix sums and order
def scan():
    f = Family("scan")
    x = rand(2, 3, 5)
    for dim in (0, 1, 2, -1, -2, -3):
        f.add(f"cumsum_dim{dim}", aten.cumsum.default, x, dim, exact=True)
    f.add("cumsum_0dim", aten.cumsum.default, torch.tensor(2.5), 0, exact=True)
    f.add("cumsum_int64", aten.cumsum.default, randint(3, 5, lo=-9, hi=9), 1)
    f.add("cumsum_int32_gives_int64", aten.cumsum.default, randint(5, lo=-9, hi=9, dtype=torch.int32), 0)
    f.add("cumsum_bool", aten.cumsum.default, randbool(2, 7), -1)
    f.add("cumsum_half", aten.cumsum.default, rand(9, dtype=torch.float16), 0)
    f.add("cumsum_empty", aten.cumsum.default, torch.zeros(2, 0), 1, exact=True)
    f.add("cumsum_nan", aten.cumsum.default, torch.tensor([1.0, NAN, 2.0]), 0)
    f.add("cumsum_long", aten.cumsum.default, Gen((2, 3000), -4, 4, 1), 1, exact=True, sampled=True)
    f.add("cumprod", aten.cumprod.default, rand(2, 5, lo=0.5, hi=1.5), 1)
    f.add("cumsum_int64_passes_32_bits", aten.cumsum.default, torch.tensor([2**31 - 1, -5, 5, -2**31]), 0)
    f.add("cumsum_int32_wraps", aten.cumsum.default, torch.tensor([2**31 - 1, 1], dtype=torch.int32), 0,
          dtype=torch.int32)
    f.add("cumsum_float_to_int32", aten.cumsum.default, torch.tensor([1.7, 2.2, -0.5]), 0, dtype=torch.int32)
    f.add("cumsum_int64_long", aten.cumsum.default, Gen((2, 3000), -999, 999, 1, torch.int64), 1, sampled=True)
    f.add("cumsum_constant_permuted", aten.cumsum.default, Const(rand(4, 3, 2).permute(2, 0, 1)), 1, exact=True)
    f.add("cumprod_int64", aten.cumprod.default, torch.tensor([2, -3, 0, 4]), 0)
    f.add("cumprod_dim0", aten.cumprod.default, rand(3, 70, lo=0.5, hi=1.5), 0)
    order(f)
    return f


def order(f):
    distinct = torch.tensor([[3.0, -1.0, 7.5, 0.0, 2.0], [9.0, 8.0, -7.0, 6.0, 5.0]])
    for k in (1, 2, 5):
        f.add(f"topk_{k}", aten.topk.default, distinct, k, exact=True)
    f.add("topk_smallest", aten.topk.default, distinct, 3, -1, False, exact=True)
    f.add("topk_dim0", aten.topk.default, distinct, 1, 0, exact=True)
    f.add("topk_long", aten.topk.default, Gen((1, 3000), -32768, 32767, 5, torch.int32), 8, exact=True)
    f.add("topk_int64", aten.topk.default, torch.tensor([4, -9, 100, 7]), 2, exact=True)
    f.add("topk_infinite", aten.topk.default, torch.tensor([-INF, 3.0, INF, 1.0]), 4, exact=True)
    for descending in (False, True):
        f.add(f"sort_descending_{descending}".lower(), aten.sort.default, distinct, -1, descending, exact=True)
        f.add(f"argsort_descending_{descending}".lower(), aten.argsort.default, distinct, 1, descending, exact=True)
    f.add("sort_dim0", aten.sort.default, distinct, 0, exact=True)
    f.add("topk_all_of_20", aten.topk.default, torch.arange(20.0).roll(7)[None], 20, exact=True)
    f.add("topk_20_of_5000", aten.topk.default, Gen((2, 5000), -32768, 32767, 3), 20, keep=[0], exact=True)
    f.add("topk_ties", aten.topk.default, randint(3, 60, lo=-2, hi=2).float(), 40, keep=[0], exact=True)
    f.add("topk_half_nan", aten.topk.default, torch.tensor([1.0, NAN, 3.0, 2.0], dtype=torch.float16), 3, exact=True)
    f.add("topk_of_middle_dim", aten.topk.default, torch.arange(60.0).roll(23).reshape(3, 5, 4), 2, 1, exact=True)
    f.add("topk_0dim", aten.topk.default, torch.tensor(2.5), 1, exact=True)
    f.add("sort_0dim", aten.sort.default, torch.tensor(2.5), exact=True)
    f.add("sort_empty", aten.sort.default, torch.zeros(2, 0), exact=True)
    f.add("sort_bool", aten.sort.stable, randbool(2, 9), stable=True, exact=True)
    ties = torch.tensor([[3.0, 1.0, NAN, -0.0, 3.0, 0.0, -INF, 1.0, NAN, INF]])
    for descending in (False, True):
        text = "down" if descending else "up"
        f.add(f"sort_stable_{text}", aten.sort.stable, ties, stable=True, dim=1, descending=descending, exact=True)
        f.add(f"argsort_stable_{text}", aten.argsort.stable, ties, stable=True, dim=-1, descending=descending,
              exact=True)
        for cols in (255, 256, 257, 2048):
            f.add(f"sort_{cols}_{text}", aten.sort.stable, Gen((2, cols), -99, 99, cols, torch.int64), stable=True,
                  dim=1, descending=descending, exact=True, sampled=True)
    f.add("sort_columns", aten.sort.stable, Gen((300, 3), -99, 99, 1), stable=True, dim=0, exact=True, sampled=True)
