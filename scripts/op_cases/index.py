"""Families that look elements up (index), write them by index (scatter), or make them from nothing (create)."""
import torch

from .case import Const, Family, Gen, rand, randbool, randint

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)


def index():
    f = Family("index", exact=True)
    embeddings(f)
    selects(f)
    gathers(f)
    tensors(f)
    return f


def embeddings(f):
    """(F21) Rows of a table, bit-exact."""
    op, table = aten.embedding.default, rand(7, 5)
    ids = torch.tensor([[0, 6, 3], [3, 3, 1]])
    f.add("embedding", op, Const(table), ids)
    f.add("embedding_int32", op, Const(table), ids.int())
    f.add("embedding_runtime_table", op, table, ids)
    f.add("embedding_padding_idx", op, Const(table), ids, 3)
    f.add("embedding_0dim", op, Const(table), torch.tensor(2))
    f.add("embedding_rank3", op, Const(table), randint(2, 1, 3, lo=0, hi=6))
    f.add("embedding_no_ids", op, Const(table), torch.zeros(2, 0, dtype=torch.int64))
    f.add("embedding_constant_ids", op, Const(table), Const(ids))
    f.add("embedding_column_major", op, Const(rand(5, 7).t()), ids)
    for dtype in HALVES:
        f.add(f"embedding_{str(dtype)[6:]}", op, Const(table.to(dtype)), ids)
    for rows in (16384, 16385, 65537):
        for dtype in (torch.float32, torch.float16):
            ids = torch.tensor([0, 1, 16383, min(16384, rows - 1), rows - 1, 1])
            f.add(f"embedding_{rows}_{str(dtype)[6:]}", op, Const(Gen((rows, 6), -999, 999, rows, dtype)), ids,
                  sampled=True)
    f.add("embedding_30522x384", op, Const(Gen((30522, 384), -999, 999, 3)),
          torch.tensor([[101, 30521, 0]], dtype=torch.int32), sampled=True)
    f.add("embedding_long", op, Const(Gen((40, 3), -99, 99, 1)), Gen((1, 70000), 0, 39, 2, torch.int64), sampled=True)


def selects(f):
    op, x = aten.index_select.default, rand(5, 5)
    for ids in ([0, 1], [4, 4, 0]):
        for dim in (0, 1, -1):
            f.add(f"index_select_{'_'.join(map(str, ids))}_dim{dim}", op, x, dim, torch.tensor(ids))
    f.add("index_select_middle", op, rand(2, 4, 3), 1, torch.tensor([3, 0]))
    f.add("index_select_int32", op, rand(2, 4, 3), -2, torch.tensor([3, 0], dtype=torch.int32))
    f.add("index_select_nothing", op, x, 0, torch.zeros(0, dtype=torch.int64))
    f.add("index_select_int64_data", op, randint(4, 3, lo=-9, hi=9), 0, torch.tensor([2, 2, 1]))
    f.add("index_select_bool_data", op, randbool(4, 3), 1, torch.tensor([2, 0]))


def gathers(f):
    op, x = aten.gather.default, rand(3, 4, 5)
    for dim in (0, 1, 2, -1):
        f.add(f"gather_dim{dim}", op, x, dim, randint(2, 3, 4, lo=0, hi=2))
    f.add("gather_longer", op, rand(3, 2), 1, randint(3, 6, lo=0, hi=1))
    f.add("gather_0dim", op, torch.tensor(2.5), 0, torch.tensor(0))
    f.add("gather_rank1", op, rand(5), 0, torch.tensor([4, 0, 0]))
    f.add("gather_nothing", op, rand(3, 2), 1, torch.zeros(3, 0, dtype=torch.int64))
    f.add("gather_int64_data", op, randint(3, 4, lo=-9, hi=9), 1, torch.tensor([[0, 3], [1, 1], [2, 0]]))
    f.add("gather_half", op, rand(3, 4).half(), 0, torch.tensor([[2, 1, 0, 2]]))
    f.add("gather_rank5_shorter", op, rand(3, 2, 4, 2, 3), 2, randint(2, 1, 3, 1, 2, lo=0, hi=3))
    f.add("gather_rank6", op, rand(2, 3, 2, 3, 2, 2), -3, randint(1, 2, 1, 4, 1, 2, lo=0, hi=2))


    op = aten.take_along_dim.default
    f.add("take_along_dim", op, rand(3, 4), torch.tensor([[2, 0], [1, 1], [3, 0]]), 1)
    f.add("take_along_dim_broadcast", op, rand(2, 3, 4), torch.tensor([[[2], [0], [1], [2]]]).reshape(1, 4, 1), 1)
    f.add("take_along_dim_one_row", op, rand(1, 4), torch.tensor([[2, 0], [1, 1], [3, 0]]), -1)
    op = aten.one_hot.default
    f.add("one_hot", op, torch.tensor([[0, 3, 1], [2, 2, 0]]), 4)
    f.add("one_hot_0dim", op, torch.tensor(1), 3)


def tensors(f):
    """(F22) x[ids], x[:, ids], x[ids0, ids1], negative indices, masks of a constant."""
    op, x = aten.index.Tensor, rand(4, 5, 3)
    ids, negative = torch.tensor([3, 0, 3]), torch.tensor([-1, 0, -4])
    f.add("index_dim0", op, x, [ids])
    f.add("index_dim1", op, x, [None, ids])
    f.add("index_dim2", op, x, [None, None, torch.tensor([2, 0])])
    f.add("index_negative", op, x, [negative])
    f.add("index_arange_negative", op, torch.arange(5), [torch.tensor([-1, 0])])
    f.add("index_two", op, x, [ids, torch.tensor([4, 1, 0])])
    f.add("index_three", op, x, [ids, torch.tensor([4, 1, 0]), torch.tensor([0, 2, 1])])
    f.add("index_two_broadcast", op, x, [torch.tensor([[3], [0]]), torch.tensor([4, 1, 0])])
    f.add("index_last_two", op, x, [None, torch.tensor([4, 0]), torch.tensor([2, 1])])
    f.add("index_first_and_last", op, x, [torch.tensor([3, 0]), None, torch.tensor([2, 1])])
    f.add("index_2d_ids", op, x, [torch.tensor([[3, 0], [1, 1], [2, 3]])])
    f.add("index_2d_ids_dim1", op, x, [None, torch.tensor([[3, 0], [1, 4]])])
    f.add("index_0dim_ids", op, x, [torch.tensor(2)])
    f.add("index_int32_ids", op, x, [ids.int()])
    f.add("index_nothing", op, x, [torch.zeros(0, dtype=torch.int64)])
    f.add("index_constant_table", op, Const(rand(16, 16)), [torch.tensor([5])])
    f.add("index_constant_mask_table", op, Const(torch.full((4, 4), float("-inf")).triu(1)), [torch.tensor([2, 0])])
    f.add("index_bool_data", op, randbool(4, 3), [ids])
    f.add("index_int64_data", op, randint(4, 3, lo=-9, hi=9), [ids, torch.tensor([0, 2, 1])])
    f.add("index_rank6_every_other", op, rand(2, 3, 2, 3, 2, 2), [torch.tensor([1, 0]), None, torch.tensor([0, 1]), None,
                                                                  torch.tensor([1, 1])])
    f.add("index_four_ids_apart", op, rand(2, 2, 2, 2, 2, 2, 2), [None, torch.tensor([1, -1]), None, torch.tensor([0, 1]), None,
                                                                  torch.tensor([1, 1])])
    f.add("index_half", op, x.half(), [None, ids])
    f.add("index_many_rows", op, Gen((4096, 64), -999, 999, 1), [Gen((128,), 0, 4095, 2, torch.int64)], sampled=True)


# ------------------------------------------------------------------ writing by index
def scatter():
    f = Family("scatter", exact=True)
    puts(f)
    scatters(f)
    return f


def puts(f):
    op, x = aten.index_put.default, rand(4, 5, 3)
    ids = torch.tensor([3, 0])
    f.add("index_put_dim0", op, x, [ids], rand(2, 5, 3))
    f.add("index_put_dim1", op, x, [None, ids], rand(4, 2, 3))
    f.add("index_put_dim2_one", op, rand(1, 4, 6, 2), [None, None, torch.tensor([5])], rand(1, 4, 1, 2))
    f.add("index_put_two", op, x, [ids, torch.tensor([4, 1])], rand(2, 3))
    f.add("index_put_negative", op, x, [torch.tensor([-1, 1])], rand(2, 5, 3))
    f.add("index_put_broadcast_row", op, x, [ids], rand(3))
    f.add("index_put_broadcast_0dim", op, x, [ids], torch.tensor(9.0))
    f.add("index_put_first_and_last", op, x, [ids, None, torch.tensor([2, 1])], rand(2, 5))
    f.add("index_put_column_row", op, x, [torch.tensor([[3], [0]]), torch.tensor([4, 1])], rand(2, 2, 3))
    f.add("index_put_nothing", op, x, [torch.zeros(0, dtype=torch.int64)], torch.zeros(0, 5, 3))
    f.add("index_put_accumulate", op, rand(4), [torch.tensor([1, 3])], rand(2), True)
    f.add("index_put_accumulate_repeats", op, torch.zeros(4), [torch.tensor([1, 3, 1, 1])],
          torch.tensor([1.0, 2.0, 4.0, 8.0]), True)
    f.add("index_put_accumulate_int64", op, torch.zeros(3, dtype=torch.int64), [torch.tensor([2, 2, 0])],
          torch.tensor([5, 6, 7]), True)
    f.add("index_put_accumulate_rows", op, torch.zeros(4, 5, 3), [None, torch.tensor([3, -5, 3])],
          torch.arange(36.0).reshape(4, 3, 3), True)
    f.add("index_put_accumulate_broadcast", op, torch.ones(4, 3), [torch.tensor([[3, 0], [1, 3]])], torch.tensor([1.0, 2.0, 4.0]),
          True)
    f.add("index_put_accumulate_two", op, torch.zeros(4, 5, 3), [torch.tensor([3, 0, 3]), torch.tensor([4, 1, -1])],
          torch.arange(9.0).reshape(3, 3), True)
    f.add("index_put_accumulate_apart", op, torch.zeros(4, 5, 3), [torch.tensor([3, 0, -1]), None, torch.tensor([2, 1, 2])],
          torch.arange(15.0).reshape(3, 5), True)
    f.add("index_put_accumulate_half", op, torch.ones(4).half(), [torch.tensor([1, 1])], torch.tensor([2.0, 4.0]).half(), True)
    f.add("index_put_rank6_every_other", op, rand(2, 3, 2, 3, 2, 2), [torch.tensor([1, 0]), None, torch.tensor([0, 1]), None,
                                                                      torch.tensor([1, 1])], rand(2, 3, 3, 2))
    f.add("index_put_int64", op, randint(4, 2, lo=-9, hi=9), [ids], randint(2, 2, lo=50, hi=60))
    f.add("index_put_bool", op, randbool(5), [ids], torch.tensor([True, False]))
    f.add("index_put_half", op, rand(4, 2).half(), [ids], rand(2, 2).half())
    f.add("index_put_mask_fill", op, rand(2, 3), [randbool(2, 3)], torch.tensor(-7.0))
    f.add("index_copy", aten.index_copy.default, x, 1, ids, rand(4, 2, 3))
    f.add("index_copy_negative_dim", aten.index_copy.default, x, -1, torch.tensor([2]), rand(4, 5, 1))
    f.add("index_add", aten.index_add.default, x, 0, torch.tensor([1, 1, 3]), rand(3, 5, 3))
    f.add("index_add_alpha", aten.index_add.default, torch.ones(4, 3), 0, torch.tensor([1, 1, 3]),
          torch.arange(9.0).reshape(3, 3), alpha=0.5)
    f.add("index_add_int32", aten.index_add.default, torch.ones(2, 4, dtype=torch.int32), -1, torch.tensor([3, 0, 3]),
          torch.arange(6, dtype=torch.int32).reshape(2, 3), alpha=-2)
    f.add("index_fill", aten.index_fill.int_Scalar, rand(3, 4), 1, torch.tensor([0, 2]), 9.0)


def scatters(f):
    x, ids = rand(3, 4), torch.tensor([[2, 0, 1, 2], [0, 1, 2, 0]])
    f.add("scatter_src_dim0", aten.scatter.src, x, 0, ids, rand(2, 4, seed=1))
    f.add("scatter_src_dim1", aten.scatter.src, x, 1, torch.tensor([[3, 0], [1, 2]]), rand(2, 2))
    f.add("scatter_src_negative_dim", aten.scatter.src, x, -1, torch.tensor([[3, 0], [1, 2]]), rand(2, 2))
    f.add("scatter_src_larger_source", aten.scatter.src, x, 1, torch.tensor([[3], [1]]), rand(3, 4, seed=2))
    f.add("scatter_value", aten.scatter.value, x, 1, torch.tensor([[3, 0], [1, 2]]), 5)
    f.add("scatter_rank3", aten.scatter.src, rand(2, 3, 4), 2, torch.tensor([[[3, 0], [1, 2], [0, 1]]]), rand(1, 3, 2))
    f.add("scatter_int64", aten.scatter.src, randint(2, 3, lo=-9, hi=9), 1, torch.tensor([[2], [0]]),
          torch.tensor([[50], [60]]))
    f.add("scatter_bool", aten.scatter.value, randbool(2, 4), 1, torch.tensor([[2], [0]]), True)
    f.add("scatter_nothing", aten.scatter.src, x, 1, torch.zeros(3, 0, dtype=torch.int64), torch.zeros(3, 0))
    f.add("scatter_add", aten.scatter_add.default, torch.zeros(3, 4), 0, ids, rand(2, 4, seed=1))
    f.add("scatter_add_repeats", aten.scatter_add.default, torch.zeros(1, 3), 1, torch.tensor([[1, 1, 1, 0]]),
          torch.tensor([[1.0, 2.0, 4.0, 8.0]]))
    f.add("scatter_rank5_shorter", aten.scatter.src, rand(3, 2, 4, 2, 3), 2, torch.tensor([3, 0, 1]).reshape(1, 1, 3, 1, 1)
          .expand(2, 1, 3, 1, 2).contiguous(), rand(3, 2, 3, 2, 2))
    f.add("scatter_add_rank5_shorter", aten.scatter_add.default, torch.zeros(3, 2, 4, 2, 3), 2,
          randint(2, 1, 6, 1, 2, lo=0, hi=3), torch.arange(48.0).reshape(2, 2, 6, 1, 2))
    f.add("scatter_add_long", aten.scatter_add.default, torch.zeros(70), 0, Gen((5000,), 0, 69, 3, torch.int64),
          Gen((5000,), -9, 9, 4))
    f.add("masked_scatter_one_row", aten.masked_scatter.default, rand(2, 3),
          torch.tensor([[True, False, True], [False, True, True]]), rand(4))


# ------------------------------------------------------------------ making
def create():
    f = Family("create", exact=True)
    fills(f)
    ranges(f)
    return f


def fills(f):
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int32, torch.bool, torch.uint8):
        kind = str(dtype)[6:]
        f.add(f"full_{kind}", aten.full.default, [2, 3], 1 if dtype == torch.bool else 7, dtype=dtype)
        f.add(f"scalar_tensor_{kind}", aten.scalar_tensor.default, 1, dtype=dtype)
        f.add(f"full_like_{kind}", aten.full_like.default, rand(2, 3), 3, dtype=dtype)
        f.add(f"zeros_{kind}", aten.zeros.default, [3], dtype=dtype)
        f.add(f"ones_{kind}", aten.ones.default, [3], dtype=dtype)
    for value in (0.5, -2, float("inf"), float("-inf"), float("nan"), 1e-9, 3.4e38):
        f.add(f"full_value_{value}", aten.full.default, [2], value, dtype=torch.float32)
        f.add(f"scalar_tensor_value_{value}", aten.scalar_tensor.default, value, dtype=torch.float32)
    f.add("full_default_float", aten.full.default, [2], 1.5)
    f.add("full_default_int", aten.full.default, [2], 3)
    f.add("full_default_bool", aten.full.default, [2], True)
    f.add("full_0dim", aten.full.default, [], 2.5, dtype=torch.float32)
    f.add("full_empty", aten.full.default, [2, 0], 1, dtype=torch.float32)
    f.add("full_rank5", aten.full.default, [2, 1, 2, 1, 3], 1, dtype=torch.float32)
    f.add("scalar_tensor_default", aten.scalar_tensor.default, 2)
    for dtype in (torch.float32, torch.int64, torch.bool, torch.float16):
        f.add(f"full_like_keeps_{str(dtype)[6:]}", aten.full_like.default, torch.zeros(2, 3, dtype=dtype), 1)
        f.add(f"zeros_like_{str(dtype)[6:]}", aten.zeros_like.default, torch.ones(2, 3, dtype=dtype))
        f.add(f"ones_like_{str(dtype)[6:]}", aten.ones_like.default, torch.zeros(2, 3, dtype=dtype))
        f.add(f"new_zeros_{str(dtype)[6:]}", aten.new_zeros.default, torch.ones(2, dtype=dtype), [1, 3])
        f.add(f"new_ones_{str(dtype)[6:]}", aten.new_ones.default, torch.ones(2, dtype=dtype), [1, 3])
    f.add("new_full", aten.new_full.default, rand(2), [3], -1.5)
    f.add("fill_scalar", aten.fill.Scalar, rand(2, 3), 4.5)
    f.add("fill_tensor", aten.fill.Tensor, rand(2, 3), torch.tensor(4.5))
    f.add("eye", aten.eye.default, 3, dtype=torch.float32)


def ranges(f):
    op = aten.arange.start_step
    f.add("arange_int64", op, 0, 7, dtype=torch.int64)
    f.add("arange_no_dtype_int", op, 2, 7, 2)
    f.add("arange_no_dtype_float", op, 0.5, 3.0, 0.5)
    f.add("arange_int_to_float", op, 0, 5, 1, dtype=torch.float32)
    f.add("arange_backwards", op, 5, -3, -2)
    f.add("arange_uneven_step", op, 0, 10, 4, dtype=torch.int64)
    f.add("arange_nothing", op, 3, 3, dtype=torch.int64)
    f.add("arange_tenths", op, 0.0, 1.0, 0.1, dtype=torch.float32, exact=False)
    f.add("arange_int32", op, -3, 4, 3, dtype=torch.int32)
    f.add("arange_half", op, 0, 5, 1, dtype=torch.float16)
    f.add("arange_end", aten.arange.default, 5)
    f.add("arange_end_float", aten.arange.default, 2.5)
    f.add("arange_start", aten.arange.start, 2, 6)
    f.add("arange_long", op, 0, 70000, 1, dtype=torch.float32, sampled=True)
    f.add("linspace", aten.linspace.default, -1.0, 1.0, 5, exact=False)
