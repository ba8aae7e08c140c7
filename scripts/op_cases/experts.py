"""What a mixture of experts is made of: histograms that count the rows of each, and products of groups of rows."""
import torch

from experts import grouped_mm_fallback

from .case import Const, Family, Gen, rand, randint

aten = torch.ops.aten
histc = aten.histc.default
INF, NAN = float("inf"), float("nan")


def histogram():
    f = Family("histogram")
    ids = randint(37, lo=0, hi=7).float()
    f.add("experts", histc, ids, 8, 0, 7)
    f.add("experts_of_one", histc, torch.tensor([3.0, 0.0]), 4, 0, 3)
    f.add("experts_beyond", histc, randint(50, lo=-2, hi=9, seed=1).float(), 8, 0, 7)
    f.add("experts_many", histc, Gen((5000,), 0, 127, 3), 128, 0, 127)
    f.add("edges", histc, torch.arange(0, 11) / 10, 10, 0, 1)
    f.add("edges_thirds", histc, torch.arange(-6, 7) / 3, 6, -1, 1)
    # From 1 on: devices may take what lies just below 0 for 0.
    f.add("edges_just_below", histc, torch.nextafter(torch.arange(1.0, 9.0), torch.tensor(-INF)), 7, 0, 7)
    f.add("edges_sevenths", histc, torch.arange(0, 57) / 7, 56, 0, 8)
    f.add("fractions", histc, rand(3, 50, step=0.125), 5, -1.5, 1.7)
    f.add("range_of_data", histc, rand(40), 7)
    f.add("range_of_data_by_name", histc, rand(40), 7, min=3, max=3)
    f.add("range_of_equal_data", histc, torch.full((3,), 3.0), 4)
    f.add("default_bins", histc, rand(40, seed=1), min=-2, max=2)
    f.add("not_finite", histc, torch.tensor([NAN, INF, -INF, 1.0, 2.0]), 4, 0, 2)
    f.add("scalar", histc, torch.tensor(1.5), 4, 0, 2)
    f.add("none", histc, torch.zeros(0), 4, 0, 2)
    f.add("none_without_range", histc, torch.zeros(0), 4)
    f.add("one_bin", histc, rand(9), 1, -1, 1)
    f.add("constant_transposed", histc, Const(rand(4, 5).t()), 3, -1, 1)
    f.add("rank5", histc, rand(2, 1, 3, 2, 2), 3, -1, 1)
    f.refuse("no_bins", histc, "no bins", rand(3), 0, 0, 1)
    f.refuse("range_falls", histc, "from 2 down to 1", rand(3), 4, 2, 1)
    f.refuse("range_endless", histc, "a range up to infinity", rand(3), 4, 0, INF)
    f.refuse("int64", histc, "counts int64", randint(3, lo=0, hi=3), 4, 0, 3)
    f.refuse("range_of_nan", histc, "the data are not finite", torch.tensor([NAN, 1.0]), 4)
    f.refuse("range_of_inf", histc, "the data are not finite", torch.tensor([INF, 1.0]), 4)
    return f


def ends(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


def grouped_mm():
    f = Family("grouped_mm", exact=True)
    op, own = grouped_mm_fallback, aten._grouped_mm.default
    x, w = rand(7, 8, step=0.5), rand(3, 8, 12, step=0.5)
    f.add("three", op, x, w, ends(2, 5, 7))
    f.add("three_constant", op, x, Const(w), ends(2, 5, 7))
    f.add("three_constant_transposed", op, x, Const(rand(3, 12, 8, step=0.5).transpose(1, 2)), ends(2, 5, 7))
    f.add("int64_offsets", op, x, w, ends(2, 5, 7, dtype=torch.int64))
    f.add("constant_offsets", op, x, w, Const(ends(2, 5, 7)))
    f.add("empty_groups", op, x, rand(5, 8, 12, step=0.5), ends(0, 3, 3, 7, 7))
    f.add("rows_behind", op, x, w, ends(1, 1, 4))
    f.add("no_rows_in_groups", op, x, w, ends(0, 0, 0))
    f.add("one_group", op, x, rand(1, 8, 12, step=0.5), ends(7))
    f.add("a_row_each", op, rand(4, 8, step=0.5), rand(4, 8, 4, step=0.5), ends(1, 2, 3, 4))
    f.add("tiles", op, rand(33, 12, step=0.5), rand(3, 12, 20, step=0.5), ends(6, 21, 30))
    for k, n in ((1, 1), (3, 5), (7, 4), (4, 7), (8, 3), (5, 16)):
        f.add(f"odd_{k}x{n}", op, rand(21, k, step=0.5), rand(4, k, n, step=0.5), ends(3, 3, 13, 20))
        f.add(f"odd_{k}x{n}_few", op, rand(5, k, step=0.5), Const(rand(4, k, n, step=0.5)), ends(1, 2, 2, 5))
    f.add("large", op, Gen((130, 96), -2, 2, 1), Gen((8, 96, 68), -2, 2, 2), ends(9, 9, 40, 64, 65, 100, 128, 130),
          sampled=True)
    f.add("nan_stays_in_its_row", op, torch.tensor([[NAN, 0.0], [1.0, 2.0], [3.0, 1.0]]), torch.ones(2, 2, 3), ends(2, 3))
    f.add("nan_stays_in_its_group", op, torch.ones(3, 2), torch.tensor([[[NAN], [1.0]], [[1.0], [2.0]]]), ends(1, 3))
    f.add("no_rows", op, torch.zeros(0, 8), w, ends(0, 0, 0))
    f.add("no_columns", op, x, torch.zeros(3, 8, 0), ends(2, 5, 7))
    f.add("no_terms", op, torch.zeros(7, 0), torch.zeros(3, 0, 4), ends(2, 5, 7))
    f.add("no_groups", op, x, torch.zeros(0, 8, 12), torch.zeros(0, dtype=torch.int32))
    for dtype in (torch.float16, torch.bfloat16):
        kind = str(dtype)[6:]
        f.add(f"three_{kind}", op, x.to(dtype), w.to(dtype), ends(2, 5, 7), exact=False)
        wide = rand(3, 8, 16, step=0.5, dtype=dtype)     # rows of whole 16 bytes, as the op asks for
        f.add(f"own_{kind}", own, x.to(dtype), wide, ends(2, 5, 7), exact=False)
    f.add("own", own, x, w, ends(2, 5, 7))
    f.add("own_small", own, rand(2, 4, step=0.5), rand(2, 4, 4, step=0.5), ends(1, 2))
    f.add("own_out_dtype", own, x, Const(w), ends(2, 5, 7), out_dtype=torch.float32)
    f.refuse("own_bias", own, "a bias", x, w, ends(2, 5, 7), torch.ones(3, 12))
    f.refuse("own_other_dtype", own, "half of floats", x, w, ends(2, 5, 7), out_dtype=torch.float16)
    f.refuse("own_int64_offsets", own, "offsets of int64", x, w, ends(2, 5, 7, dtype=torch.int64))
    f.refuse("own_no_offsets", own, "rows without offsets", x, w)
    f.refuse("own_terms", own, "8 columns times 9 rows", x, rand(3, 9, 12), ends(2, 5, 7))
    f.refuse("own_groups", own, "3 matrices, 2 offsets", x, w, ends(2, 7))
    f.refuse("mixed", op, "float32 times float16", x, w.half(), ends(2, 5, 7))
    f.refuse("terms", op, "8 columns times 9 rows", x, rand(3, 9, 12), ends(2, 5, 7))
    f.refuse("rank", op, "rows of rank 3", x[None], w, ends(2, 5, 7))
    return f
