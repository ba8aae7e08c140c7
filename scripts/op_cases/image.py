"""Families over images and signals (conv, pool, resize, grid_sample), and attention."""
import torch

from .case import Const, Family, Gen, rand, randbool

aten = torch.ops.aten
INF = float("inf")
HALVES = (torch.float16, torch.bfloat16)
NAN = float("nan")


def weight(*sizes, dtype=torch.float32):
    return Const(rand(*sizes, seed=7, lo=-1, hi=1, step=0.25, dtype=dtype))


def bias(n, dtype=torch.float32):
    return Const(rand(n, seed=8, dtype=dtype))


def conv():
    f = Family("conv", exact=True)
    one_dim(f)
    two_dims(f)
    transposed(f)
    large(f)
    beyond_half(f)
    return f


def convolve(f, name, x, w, b, stride, padding, dilation=None, groups=1, transposed=False, output_padding=None, **kw):
    ones, zeros = [1] * len(stride), [0] * len(stride)
    f.add(name, aten.convolution.default, x, w, b, stride, padding, dilation or ones, transposed,
          output_padding or zeros, groups, **kw)


def beyond_half(f):
    """(F18) A sum that leaves the range of half precision on the way and comes back."""
    x = torch.tensor([300.0] * 256 + [-300.0] * 256).half().reshape(1, 512, 1, 1).expand(1, 512, 2, 2).contiguous()
    convolve(f, "conv2d_1x1_beyond_half", x, Const(torch.ones(1, 512, 1, 1).half()), None, [1, 1], [0, 0])


def one_dim(f):
    x = rand(2, 4, 9, step=0.5)
    for k, stride, padding, dilation in ((1, 1, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (5, 3, 0, 1),
                                         (2, 1, 1, 1), (9, 1, 0, 1), (4, 4, 3, 1)):
        convolve(f, f"conv1d_k{k}_s{stride}_p{padding}_d{dilation}", x, weight(6, 4, k), bias(6), [stride], [padding],
                 [dilation], 1)
    convolve(f, "conv1d_depthwise", x, weight(4, 1, 5), bias(4), [1], [2], [1], 4)
    convolve(f, "conv1d_depthwise_double", x, weight(8, 1, 3), None, [1], [1], [1], 4)
    convolve(f, "conv1d_groups", x, weight(6, 2, 3), None, [1], [1], [1], 2)
    convolve(f, "conv1d_no_bias", x, weight(3, 4, 3), None, [1], [1])
    f.add("conv1d_unbatched", aten.conv1d.default, x[0], weight(3, 4, 3), bias(3), [1], [1])
    convolve(f, "conv1d_runtime_weight", x, weight(3, 4, 3).tensor, bias(3).tensor, [1], [1])
    convolve(f, "conv1d_one_output", x, weight(1, 4, 9), bias(1), [1], [0])
    convolve(f, "conv1d_empty_batch", torch.zeros(0, 4, 9), weight(3, 4, 3), bias(3), [1], [1])
    f.add("conv1d_training_ir", aten.conv1d.default, x, weight(3, 4, 3), bias(3), [2], [1])
    for dtype in HALVES:
        convolve(f, f"conv1d_{str(dtype)[6:]}", x.to(dtype), weight(3, 4, 3, dtype=dtype), bias(3, dtype), [1], [1],
                 exact=False)


def two_dims(f):
    x = rand(2, 4, 7, 6, step=0.5)
    for k, stride, padding, dilation in (((1, 1), (1, 1), (0, 0), (1, 1)), ((3, 3), (1, 1), (1, 1), (1, 1)),
                                         ((3, 3), (2, 2), (1, 1), (1, 1)), ((3, 2), (2, 1), (1, 0), (1, 1)),
                                         ((3, 3), (1, 1), (2, 2), (2, 2)), ((1, 3), (1, 2), (0, 1), (1, 2)),
                                         ((3, 3), (3, 3), (0, 0), (1, 1)), ((7, 6), (1, 1), (0, 0), (1, 1))):
        text = "_".join(f"{c}{a}{b}" for c, (a, b) in zip("kspd", (k, stride, padding, dilation)))
        convolve(f, f"conv2d_{text}", x, weight(3, 4, *k), bias(3), list(stride), list(padding), list(dilation))
    convolve(f, "conv2d_depthwise", x, weight(4, 1, 3, 3), bias(4), [1, 1], [1, 1], [1, 1], 4)
    convolve(f, "conv2d_depthwise_stride", x, weight(4, 1, 3, 3), None, [2, 2], [1, 1], [1, 1], 4)
    convolve(f, "conv2d_groups", x, weight(6, 2, 3, 3), bias(6), [1, 1], [1, 1], [1, 1], 2)
    f.add("conv2d_unbatched", aten.conv2d.default, x[0], weight(3, 4, 3, 3), bias(3), [1, 1], [1, 1])
    channels_last = Const(weight(4, 4, 3, 3).tensor.to(memory_format=torch.channels_last))
    convolve(f, "conv2d_channels_last_weight", x, channels_last, bias(4), [1, 1], [1, 1])
    convolve(f, "conv2d_runtime_weight", x, weight(3, 4, 3, 3).tensor, None, [1, 1], [1, 1])
    convolve(f, "conv2d_nan_is_local", torch.tensor([[[[NAN, 0.0, 1.0, 2.0]]]]), weight(1, 1, 1, 2), None, [1, 1],
             [0, 0])
    f.add("conv2d_training_ir", aten.conv2d.default, x, weight(3, 4, 3, 3), bias(3), [2, 2], [1, 1])
    f.add("conv2d_training_ir_groups", aten.conv2d.default, x, weight(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], 4)
    f.add("conv2d_padding_same", aten.conv2d.padding, x, weight(3, 4, 3, 3), bias(3), [1, 1], "same")
    convolve(f, "conv3d", rand(1, 2, 3, 4, 3, step=0.5), weight(2, 2, 2, 2, 2), bias(2), [1, 1, 1], [0, 1, 0])
    for dtype in HALVES:
        convolve(f, f"conv2d_{str(dtype)[6:]}", x.to(dtype), weight(3, 4, 3, 3, dtype=dtype), bias(3, dtype), [2, 2],
                 [1, 1], exact=False)


def transposed(f):
    x, y = rand(2, 4, 5, step=0.5), rand(1, 4, 3, 4, step=0.5)
    convolve(f, "transposed1d", x, weight(4, 3, 4), bias(3), [2], [1], [1], 1, True, [0])
    convolve(f, "transposed1d_output_padding", x, weight(4, 3, 3), None, [3], [0], [1], 1, True, [2])
    convolve(f, "transposed1d_groups", x, weight(4, 2, 3), bias(4), [2], [1], [1], 2, True, [0])
    convolve(f, "transposed1d_dilation", x, weight(4, 3, 3), bias(3), [1], [2], [2], 1, True, [0])
    convolve(f, "transposed2d", y, weight(4, 3, 2, 2), bias(3), [2, 2], [0, 0], [1, 1], 1, True, [0, 0])
    convolve(f, "transposed2d_padding", y, weight(4, 2, 3, 4), None, [1, 2], [1, 1], [1, 1], 1, True, [0, 1])
    convolve(f, "transposed2d_depthwise", y, weight(4, 1, 3, 3), bias(4), [2, 2], [1, 1], [1, 1], 4, True, [1, 1])


def large(f):
    """(F33) Strides over 1 on larger images, whole numbers so that sums are exact."""
    w, b = Const(Gen((16, 16, 3, 3), -2, 2, 2)), Const(Gen((16,), -9, 9, 3))
    for name, hw, stride, dilation in (("stride2", (48, 47), 2, 1), ("stride3", (49, 51), 3, 1),
                                       ("dilation2", (40, 41), 1, 2)):
        convolve(f, f"conv2d_16_channels_{name}", Gen((1, 16, *hw), -2, 2, 1), w, b, [stride] * 2, [1, 1],
                 [dilation] * 2,
                 sampled=True)
    convolve(f, "conv2d_patches", Gen((1, 3, 64, 64), -2, 2, 4), Const(Gen((40, 3, 16, 16), -2, 2, 5)), None, [16, 16],
             [0, 0],
             sampled=True)
    convolve(f, "conv1d_stft", Gen((1, 1, 640), -2, 2, 6), Const(Gen((258, 1, 256), -2, 2, 7)), None, [128], [0],
             sampled=True)
    convolve(f, "conv1d_many_outputs", Gen((1, 2, 40000), -2, 2, 8), Const(Gen((2, 2, 3), -2, 2, 9)), None, [1], [1],
             sampled=True)


# ------------------------------------------------------------------ pooling
def pool():
    f = Family("pool")
    x = rand(2, 3, 6, 7)
    maxima = aten.max_pool2d_with_indices.default
    for args in (([2, 2],), ([2, 2], [2, 2]), ([3, 3], [2, 2], [1, 1]), ([3, 2], [1, 2], [1, 0]),
                 ([2, 2], [1, 1], [0, 0], [2, 2]), ([3, 3], [3, 3], [1, 1], [1, 1], True)):
        f.add(f"max_pool2d_{len(f.lines)}", maxima, x, *args, exact=True)
    f.add("max_pool2d_unbatched", maxima, x[0], [2, 2], exact=True)
    f.add("max_pool2d_negative_with_padding", maxima, -rand(1, 1, 4, 4, lo=1, hi=2), [3, 3], [2, 2], [1, 1], exact=True)
    f.add("max_pool2d_nan", maxima, torch.tensor([[[[1.0, NAN, 2.0, 3.0], [0.0, 0.5, 1.0, -INF]]]]), [2, 2], exact=True)
    f.add("max_pool2d_ties", maxima, torch.ones(1, 1, 4, 4), [2, 2], exact=True)
    f.add("max_pool2d_half", maxima, x.half(), [2, 2], exact=True)
    f.add("max_pool2d_training_ir", aten.max_pool2d.default, x, [2, 2], [2, 2], exact=True)
    f.add("max_pool1d", aten.max_pool1d.default, rand(2, 3, 8), [3], [2], [1], exact=True)
    average = aten.avg_pool2d.default
    for args in (([2, 2],), ([3, 3], [2, 2], [1, 1]), ([3, 3], [2, 2], [1, 1], False, False),
                 ([3, 3], [2, 2], [1, 1], True), ([3, 3], [2, 2], [1, 1], True, False),
                 ([2, 3], [1, 2]), ([2, 2], [2, 2], [0, 0], False, True, 3)):
        f.add(f"avg_pool2d_{len(f.lines)}", average, x, *args)
    f.add("avg_pool2d_half", average, x.half(), [2, 2])
    f.add("avg_pool1d", aten.avg_pool1d.default, rand(2, 3, 8), [3], [2], [1])
    for sizes in ([1, 1], [2, 3], [6, 7], [4, 5], [7, 9]):
        f.add(f"adaptive_avg_pool2d_{sizes[0]}x{sizes[1]}", aten.adaptive_avg_pool2d.default, x, sizes)
        f.add(f"_adaptive_avg_pool2d_{sizes[0]}x{sizes[1]}", aten._adaptive_avg_pool2d.default, x, sizes)
    f.add("adaptive_avg_pool1d", aten.adaptive_avg_pool1d.default, rand(2, 3, 7), [3])
    f.add("max_pool2d_large", maxima, Gen((1, 16, 64, 64), -9999, 9999, 1), [3, 3], [2, 2], [1, 1], exact=True,
          sampled=True)
    return f


def resize():
    f = Family("resize")
    x = rand(1, 2, 3, 4)
    nearest, linear = aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec
    for sizes in ([6, 8], [5, 7], [3, 4], [2, 3], [1, 1]):
        text = f"{sizes[0]}x{sizes[1]}"
        f.add(f"nearest_{text}", nearest, x, sizes, None, exact=True)
        for corners in (False, True):
            f.add(f"bilinear_{text}_corners_{corners}".lower(), linear, x, sizes, corners, None)
    f.add("nearest_scale_2", nearest, x, None, [2.0, 2.0], exact=True)
    f.add("nearest_scale_uneven", nearest, x, None, [1.5, 2.25], exact=True)
    f.add("bilinear_scale_2", linear, x, None, False, [2.0, 2.0])
    f.add("bilinear_scale_uneven", linear, x, None, False, [1.5, 2.25])
    f.add("nearest_half", nearest, x.half(), None, [2.0, 2.0], exact=True)
    f.add("nearest2d_sizes", aten.upsample_nearest2d.default, x, [5, 6], exact=True)
    f.add("bilinear2d_sizes", aten.upsample_bilinear2d.default, x, [5, 6], False)
    f.add("nearest1d", aten.upsample_nearest1d.vec, rand(1, 2, 5), [8], None, exact=True)
    f.add("nearest1d_scale", aten.upsample_nearest1d.vec, rand(1, 2, 5), None, [2.0], exact=True)
    return f


# ------------------------------------------------------------------ images read through a grid
def grid_sample():
    f = Family("grid_sample")
    read = aten.grid_sampler_2d.default
    x, grid = rand(2, 3, 4, 5), rand(2, 3, 6, 2)
    names = {0: "zeros", 1: "border", 2: "reflection"}
    for mode, how in ((0, "bilinear"), (1, "nearest")):
        for padding, beyond in names.items():
            for corners in (False, True):
                f.add(f"{how}_{beyond}_corners_{corners}".lower(), read, x, grid, mode, padding, corners)
    # Far outside, at infinity and nowhere: no pixel there is read.
    far = torch.tensor([[-1e9, 0.0], [0.0, 1e30], [float("nan"), 0.5], [float("inf"), 0.0]]).reshape(1, 2, 2, 2)
    for padding in (0, 1):
        f.add(f"far_{names[padding]}", read, x[:1].clone(), far, 1, padding, False)
    f.add("one_pixel", read, rand(1, 2, 1, 1), rand(1, 2, 2, 2), 0, 2, True)
    f.add("half", read, x.half(), grid.half(), 0, 0, False, tol=(2e-3, 2e-3, "PyTorch mixes in half precision"))
    f.add("composite", aten.grid_sampler.default, x, grid, 0, 1, False)
    return f


# ------------------------------------------------------------------ attention
def attention():
    f = Family("attention")
    op = aten.scaled_dot_product_attention.default
    q, k, v = (rand(1, 2, n, 4, seed=i) for i, n in enumerate((3, 5, 5)))
    f.add("plain", op, q, k, v)
    f.add("scale", op, q, k, v, scale=0.25)
    f.add("causal", op, rand(1, 2, 4, 4), rand(1, 2, 4, 4, seed=1), rand(1, 2, 4, 4, seed=2), None, 0.0, True)
    f.add("causal_longer_keys", op, q, k, v, None, 0.0, True)
    f.add("float_mask", op, q, k, v, rand(3, 5))
    f.add("float_mask_minus_infinity", op, q, k, v, torch.full((3, 5), -INF).triu(1))
    f.add("bool_mask", op, q, k, v, randbool(3, 5) | torch.eye(3, 5, dtype=torch.bool))
    f.add("bool_mask_per_head", op, q, k, v, torch.rand(1, 2, 3, 5, generator=torch.Generator().manual_seed(1)) > 0.3)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    f.add("bool_mask_dead_row_is_zero", op, q, k, v, mask)
    f.add("float_mask_dead_row", op, q, k, v, torch.zeros(3, 5).masked_fill(~mask, -INF))
    f.add("padding_mask", op, rand(2, 2, 3, 4), rand(2, 2, 5, 4), rand(2, 2, 5, 4, seed=2),
          torch.arange(5)[None, None, None] < torch.tensor([5, 2])[:, None, None, None])
    f.add("large_logit", op, rand(1, 1, 2, 128) * 8, rand(1, 1, 3, 128, seed=1) * 8, rand(1, 1, 3, 128, seed=2))
    f.add("large_logit_half", op, (rand(1, 1, 2, 128) * 8).half(), (rand(1, 1, 3, 128, seed=1) * 8).half(),
          rand(1, 1, 3, 128, seed=2).half())
    # (F18) each score is 0, and sums up to 76800 on the way
    beyond = torch.tensor([300.0] * 256 + [-300.0] * 256).half().reshape(1, 1, 1, 512)
    f.add("scores_beyond_half", op, beyond, torch.ones(1, 1, 3, 512).half(), rand(1, 1, 3, 4, seed=2).half())
    f.add("rank3", op, rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 4, seed=2))
    f.add("value_width_differs", op, q, k, rand(1, 2, 5, 6))
    f.add("one_query", op, rand(1, 2, 1, 4), rand(1, 2, 33, 4), rand(1, 2, 33, 4, seed=1))
    f.add("grouped_queries", op, rand(1, 4, 3, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4, seed=1), enable_gqa=True)
    for dtype in HALVES:
        f.add(str(dtype)[6:], op, q.to(dtype), k.to(dtype), v.to(dtype))
    # Queries, keys and elements that fill no tile and no block; whole numbers, scaled so that no weight is all.
    for queries, keys, width, kwargs in ((33, 17, 36, {}), (17, 65, 64, dict(is_causal=True)), (9, 1, 32, {}),
                                         (1, 4096, 64, {}), (1, 257, 128, {}), (70, 130, 96, {})):
        rows = [Gen((2, 3, n, width), -2, 2, seed) for seed, n in enumerate((queries, keys, keys), 1)]
        f.add(f"{queries}x{keys}x{width}", op, *rows, scale=0.125, sampled=True, **kwargs)
    shared = [Gen((2, heads, n, 32), -2, 2, seed) for seed, (heads, n) in enumerate(((6, 20), (2, 33), (2, 33)), 1)]
    f.add("grouped_queries_masked", op, *shared, attn_mask=torch.ones(20, 33, dtype=torch.bool).tril(5), scale=0.125,
          enable_gqa=True, sampled=True)
    return f
