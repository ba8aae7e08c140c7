"""The matmul ops (mm, addmm, bmm, baddbmm, matmul, linear): what they mean, and the shapes that break kernels."""
import torch

from .case import Const, Family, Gen, rand, randint

aten = torch.ops.aten
NAN = float("nan")
HALVES = (torch.float16, torch.bfloat16)


def matmul():
    f = Family("matmul", exact=True)
    scaling(f)
    small(f)
    beyond_half(f)
    empty(f)
    ranks(f)
    return f


def matmul_shapes():
    f = Family("matmul_shapes", exact=True)
    odd_shapes(f)
    long_sums(f)
    return f


def scaling(f):
    """(F13) alpha, beta and the shapes that a bias may have."""
    ones, weight = torch.ones(3, 4), torch.ones(4, 2)
    addmm = aten.addmm.default
    f.add("addmm_beta_alpha", addmm, torch.tensor([1.0, 2.0]), ones, weight, beta=0.5, alpha=0.25)
    f.add("addmm_beta_alpha_constant", addmm, Const(torch.tensor([1.0, 2.0])), ones, Const(weight), beta=0.5,
          alpha=0.25)
    f.add("addmm_beta_zero_hides_nan", addmm, torch.full((2,), NAN), ones, weight, beta=0)
    f.add("addmm_beta_zero_hides_constant_nan", addmm, Const(torch.full((2,), NAN)), ones, Const(weight), beta=0)
    f.add("addmm_alpha_zero", addmm, rand(2), ones, weight, alpha=0)
    f.add("addmm_int_factors", addmm, rand(2), ones, weight, beta=2, alpha=3)
    x, w = rand(3, 4, step=0.5), rand(4, 5, step=0.5, seed=1)
    for sizes in ((5,), (1, 5), (3, 1), (3, 5), (1,), (1, 1), ()):
        text = "x".join(map(str, sizes)) or "scalar"
        f.add(f"addmm_bias_{text}", addmm, rand(*sizes, seed=2), x, w)
        f.add(f"addmm_bias_{text}_constant", addmm, Const(rand(*sizes, seed=2)), x, Const(w), beta=0.5, alpha=2)
    f.add("addmm_transposed_constant", addmm, Const(rand(5, seed=2)), x, Const(rand(5, 4, step=0.5).t()))
    f.add("addmm_nan_in_bias", addmm, torch.tensor([NAN, 1.0, 2.0, 3.0, 4.0]), x, w)
    f.add("baddbmm", aten.baddbmm.default, rand(2, 3, 5), rand(2, 3, 4, step=0.5), rand(2, 4, 5, step=0.5))
    f.add("baddbmm_factors", aten.baddbmm.default, rand(2, 3, 5), rand(2, 3, 4, step=0.5), rand(2, 4, 5, step=0.5),
          beta=0.5, alpha=2)
    f.add("baddbmm_broadcast_bias", aten.baddbmm.default, rand(5), rand(2, 3, 4, step=0.5), rand(2, 4, 5, step=0.5))
    f.add("baddbmm_beta_zero", aten.baddbmm.default, torch.full((2, 3, 5), NAN), rand(2, 3, 4, step=0.5),
          rand(2, 4, 5, step=0.5), beta=0)


def small(f):
    x, w = rand(3, 5, step=0.5), rand(4, 5, step=0.5, seed=1)
    b = rand(4, seed=2)
    f.add("mm", aten.mm.default, x, w.t().contiguous())
    f.add("mm_constant", aten.mm.default, x, Const(w.t().contiguous()))
    f.add("mm_constant_transposed", aten.mm.default, x, Const(w.t()))
    f.add("mm_constant_first", aten.mm.default, Const(x), w.t().contiguous())
    f.add("linear", aten.linear.default, x, Const(w))
    f.add("linear_bias", aten.linear.default, x, Const(w), Const(b))
    f.add("linear_weight_column_major", aten.linear.default, x, Const(rand(5, 4, step=0.5).t()), Const(b))
    f.add("linear_runtime_weight", aten.linear.default, x, w, b)
    f.add("linear_runtime_bias", aten.linear.default, x, Const(w), b)
    f.add("bmm", aten.bmm.default, rand(3, 2, 5, step=0.5), rand(3, 5, 4, step=0.5))
    f.add("bmm_constant", aten.bmm.default, rand(3, 2, 5, step=0.5), Const(rand(3, 4, 5, step=0.5).transpose(1, 2)))
    f.add("bmm_constant_first", aten.bmm.default, Const(rand(3, 2, 5, step=0.5)), rand(3, 5, 4, step=0.5))
    f.add("mm_nan_stays_in_its_row", aten.mm.default, torch.tensor([[NAN, 0.0], [1.0, 2.0]]), torch.ones(2, 3))
    f.add("mm_infinite", aten.mm.default, torch.tensor([[float("inf"), 0.0], [1.0, 2.0]]), torch.ones(2, 3))
    for dtype in HALVES:
        kind = str(dtype)[6:]
        a, c = rand(3, 5, step=0.5, dtype=dtype), rand(5, 4, step=0.5, seed=1, dtype=dtype)
        f.add(f"mm_{kind}", aten.mm.default, a, c, exact=False)
        f.add(f"linear_{kind}", aten.linear.default, a, Const(w.to(dtype)), Const(b.to(dtype)), exact=False)
        f.add(f"addmm_{kind}", aten.addmm.default, Const(b.to(dtype)), a, Const(w.to(dtype).t()), exact=False)
        f.add(f"bmm_{kind}", aten.bmm.default, a[None], c[None], exact=False)
        f.add(f"linear_wide_sum_{kind}", aten.linear.default, Gen((1, 4096), -1, 1, 1, dtype),
              Const(Gen((2, 4096), -1, 1, 2, dtype)))
    f.add("mm_int64", aten.mm.default, randint(3, 4, lo=-9, hi=9), randint(4, 2, lo=-9, hi=9))
    f.add("mm_int32", aten.mm.default, randint(3, 4, lo=-9, hi=9, dtype=torch.int32),
          randint(4, 2, lo=-9, hi=9, dtype=torch.int32))


def beyond_half(f):
    """(F18) Sums that leave the range of half precision on the way and come back."""
    x = torch.tensor([300.0] * 256 + [-300.0] * 256).half()[None]
    one = torch.ones(1, 512).half()
    f.add("linear_beyond_half", aten.linear.default, x, Const(one))
    f.add("mm_beyond_half", aten.mm.default, x, one.t())
    f.add("bmm_beyond_half", aten.bmm.default, x[None], one.t()[None])
    f.add("linear_4096_eights", aten.linear.default, torch.full((1, 4096), 4.0), Const(torch.full((1, 4096), 2.0)))
    f.add("mm_4096_eights", aten.mm.default, torch.full((1, 4096), 4.0), torch.full((4096, 1), 2.0))


def empty(f):
    """(F05, F06) No rows, no columns, nothing to sum."""
    bias = torch.arange(5.0)
    f.add("mm_k0", aten.mm.default, torch.zeros(3, 0), torch.zeros(0, 5))
    f.add("mm_m0", aten.mm.default, torch.zeros(0, 4), torch.zeros(4, 5))
    f.add("mm_n0", aten.mm.default, torch.zeros(3, 4), torch.zeros(4, 0))
    f.add("linear_k0_bias", aten.linear.default, torch.zeros(3, 0), Const(torch.zeros(5, 0)), Const(bias))
    f.add("linear_m0", aten.linear.default, torch.zeros(0, 64), Const(rand(5, 64)), Const(bias))
    f.add("addmm_k0", aten.addmm.default, bias, torch.zeros(3, 0), torch.zeros(0, 5))
    f.add("addmm_k0_factors", aten.addmm.default, bias, torch.zeros(3, 0), torch.zeros(0, 5), beta=0.5, alpha=2)
    f.add("addmm_m0", aten.addmm.default, bias, torch.zeros(0, 4), torch.zeros(4, 5))
    f.add("bmm_k0", aten.bmm.default, torch.zeros(2, 3, 0), torch.zeros(2, 0, 5))
    f.add("bmm_b0", aten.bmm.default, torch.zeros(0, 3, 4), torch.zeros(0, 4, 5))
    f.add("matmul_k0", aten.matmul.default, torch.zeros(3, 0), torch.zeros(0, 5))


def ranks(f):
    pairs = [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (4,)),
             ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)),
             ((1, 3, 4), (2, 4, 5)), ((2, 2, 3, 4), (2, 2, 4, 3)), ((2, 1, 2, 3, 4), (2, 1, 4, 2))]
    for a, b in pairs:
        text = f"{'x'.join(map(str, a))}_{'x'.join(map(str, b))}"
        f.add(f"matmul_{text}", aten.matmul.default, rand(*a, step=0.5), rand(*b, step=0.5, seed=1))
    f.add("matmul_constant", aten.matmul.default, rand(2, 3, 4, step=0.5), Const(rand(4, 5, step=0.5)))
    f.add("matmul_constant_batched", aten.matmul.default, rand(2, 3, 4, step=0.5), Const(rand(2, 4, 5, step=0.5)))
    f.add("matmul_constant_first", aten.matmul.default, Const(rand(3, 4, step=0.5)), rand(2, 4, 5, step=0.5))
    for sizes in ((4,), (2, 3, 4), (2, 1, 3, 4), (2, 1, 2, 1, 4)):
        text = "x".join(map(str, sizes))
        f.add(f"linear_{text}", aten.linear.default, rand(*sizes, step=0.5), Const(rand(5, 4, step=0.5)),
              Const(rand(5)))
    f.add("dot", aten.dot.default, rand(7, step=0.5), rand(7, step=0.5, seed=1))
    f.add("mv", aten.mv.default, rand(3, 7, step=0.5), rand(7, step=0.5, seed=1))


def odd_shapes(f):
    """(F04) Sizes around the tiles; whole numbers in [-2, 2], so that every sum is exact, in half too."""
    seed = 0
    for m in (1, 3, 5, 257):
        for k in (1, 3, 31, 33, 384):
            for n in (1, 2, 3, 7, 1151, 1152, 1153):
                seed += 1
                if seed % 3 == 0 or (m == 257 and n > 7 and k != 33):
                    continue                         # a part of the grid, most of the largest: they cost more than they tell
                dtype = torch.float16 if seed % 3 == 1 and seed % 2 else torch.float32
                x, w = Gen((m, k), -2, 2, seed, dtype), Const(Gen((n, k), -2, 2, seed + 1000, dtype))
                f.add(f"linear_{m}x{k}x{n}_{str(dtype)[6:]}", aten.linear.default, x, w, sampled=True)
    for m, k, n in ((5, 33, 7), (65, 31, 129), (3, 384, 1153), (257, 3, 1), (64, 64, 64), (1, 7, 1)):
        f.add(f"mm_{m}x{k}x{n}", aten.mm.default, Gen((m, k), -2, 2, m), Gen((k, n), -2, 2, n), sampled=True)
        f.add(f"addmm_{m}x{k}x{n}", aten.addmm.default, Gen((n,), -9, 9, k), Gen((m, k), -2, 2, m),
              Gen((k, n), -2, 2, n), sampled=True)
        f.add(f"bmm_3x{m}x{k}x{n}", aten.bmm.default, Gen((3, m, k), -2, 2, m), Gen((3, k, n), -2, 2, n), sampled=True)


def long_sums(f):
    """(F03) One row against many K: the reduction must not lose a part."""
    for k in (1, 2, 3, 16, 63, 64, 255, 256, 257, 511, 512, 513, 1024, 1025, 1536, 6144):
        for n in (1, 3, 5, 512):
            if n == 512 and k not in (257, 1025, 1536):
                continue
            f.add(f"linear_1x{k}x{n}", aten.linear.default, Gen((1, k), -4, 4, k), Const(Gen((n, k), -4, 4, k + 1)),
                  sampled=True)
    for k in (257, 1025):
        f.add(f"mm_1x{k}x5", aten.mm.default, Gen((1, k), -4, 4, k), Gen((k, 5), -4, 4, k + 1), sampled=True)
