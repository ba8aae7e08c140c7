"""Quantise, dequantise and what chooses a scale: the ops of `quantized_decomposed`, `torchao` and ATen.

Needs torchao.
"""
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  registers quantized_decomposed
import torchao.quantization.quant_primitives  # noqa: F401  registers torchao's ops

from .case import Const, Family, Gen, rand, randint

aten, qd, ao = torch.ops.aten, torch.ops.quantized_decomposed, torch.ops.torchao
INT8 = (-128, 127, torch.int8)
HALVES = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1000, -1000, 0.0, -0.0, float("inf"), float("-inf")])
# Scales are chosen by a division, which a GPU rounds otherwise by a few units in the last place.
CHOSEN = (1e-6, 0, "a division on the device")


def quantize():
    f = Family("quantize", exact=True)
    per_tensor(f)
    per_channel(f)
    per_group(f)
    per_token(f)
    affine(f)
    chosen(f)
    fake(f)
    products(f)
    bad(f)
    return f


def codes(*sizes, seed=0, lo=-128, hi=127, dtype=torch.int8):
    return randint(*sizes, lo=lo, hi=hi, seed=seed, dtype=dtype)


def scales(*sizes, seed=0):
    """Powers of two, so that products are exact however a device rounds."""
    return 2.0 ** randint(*sizes, lo=-4, hi=1, seed=seed).float()


def per_tensor(f):
    """(F12) Halves to even, saturation, the order of clamp and zero point."""
    q, dq = qd.quantize_per_tensor, qd.dequantize_per_tensor
    for zero in (0, 10, 3):
        f.add(f"q_tensor_halves_zp{zero}", q.default, HALVES, 1.0, zero, *INT8)
    f.add("q_tensor_uint8", q.default, HALVES, 0.5, 128, 0, 255, torch.uint8)
    f.add("q_tensor_int16", q.default, HALVES, 0.25, -7, -32768, 32767, torch.int16)
    f.add("q_tensor_int32", q.default, rand(5), 0.125, 2, -100, 100, torch.int32)
    f.add("q_tensor_narrow", q.default, rand(3, 4, lo=-9, hi=9), 0.5, -1, -8, 7, torch.int8)
    f.add("q_tensor_odd_scale", q.default, rand(3, 40, step=0.0625), 0.0323, -14, *INT8)
    f.add("q_tensor_half", q.default, rand(7, dtype=torch.float16), 0.25, 1, *INT8)
    f.add("q_tensor_bfloat16", q.default, rand(7, dtype=torch.bfloat16), 0.25, 1, *INT8)
    f.add("q_tensor_tensor", q.tensor, rand(3, 4), torch.tensor([0.25]), torch.tensor([5]), *INT8)
    f.add("q_tensor_constants", q.tensor, rand(3, 4), Const(torch.tensor(0.25)), Const(torch.tensor(5)), *INT8)
    f.add("q_tensor_empty", q.default, torch.zeros(0, 3), 0.25, 1, *INT8)
    f.add("dq_tensor", dq.default, codes(3, 4), 0.3, 5, *INT8)
    f.add("dq_tensor_uint8", dq.default, codes(9, lo=0, hi=255, dtype=torch.uint8), 0.25, 128, 0, 255, torch.uint8)
    f.add("dq_tensor_int32", dq.default, codes(9, lo=-2000, hi=2000, dtype=torch.int32), 0.25, 100, -9999, 9999,
          torch.int32)
    f.add("dq_tensor_half", dq.default, codes(9), 0.25, 3, *INT8, out_dtype=torch.float16)
    f.add("dq_tensor_tensor", dq.tensor, codes(3, 4), torch.tensor(0.25), torch.tensor(5), *INT8)
    f.add("dq_tensor_constant", dq.tensor, Const(codes(3, 4)), Const(torch.tensor([0.25])), Const(torch.tensor([5])),
          *INT8)
    limits = Const(torch.tensor(-128)), Const(torch.tensor(127))
    f.add("dq_tensor_tensor2", dq.tensor2, codes(3, 4), torch.tensor(0.25), torch.tensor(5), *limits, torch.int8)
    f.add("dq_tensor_transposed", dq.default, Const(codes(4, 3).t()), 0.25, 5, *INT8)


def per_channel(f):
    """(F10) Axes and their negatives, sizes all different and all equal."""
    q, dq = qd.quantize_per_channel.default, qd.dequantize_per_channel.default
    for axis in (0, 1, 2, -1, -2, -3):
        n = (2, 3, 4)[axis]
        f.add(f"q_channel_axis{axis}", q, rand(2, 3, 4), scales(n), codes(n, lo=-9, hi=9, dtype=torch.int64), axis,
              *INT8)
        f.add(f"dq_channel_axis{axis}", dq, codes(2, 3, 4), scales(n), codes(n, lo=-9, hi=9, dtype=torch.int64), axis,
              *INT8)
    same = Const(codes(4, 4, 4)), Const(scales(4)), Const(torch.tensor([1, -2, 3, 0]))
    f.add("dq_channel_equal_sizes", dq, *same, -1, *INT8)
    f.add("dq_channel_last_strides", dq, Const(codes(2, 2, 3, 3).to(memory_format=torch.channels_last)),
          Const(scales(2)), Const(torch.tensor([1, -2])), 1, *INT8)
    f.add("dq_channel_no_zero", dq, codes(3, 4), scales(3), None, 0, *INT8)
    f.add("dq_channel_int32_zero", dq, codes(3, 4), scales(3), torch.tensor([1, 2, 3], dtype=torch.int32), 0, *INT8)
    f.add("dq_channel_float_zero", dq, codes(3, 4), scales(3), torch.tensor([0.5, 2, -3]), 0, *INT8)
    for dtype in (torch.float16, torch.bfloat16):
        for out in (torch.float32, dtype):
            f.add(f"dq_channel_{str(dtype)[6:]}_scale_{str(out)[6:]}", dq, codes(3, 4), torch.tensor([0.1, 0.3, 0.07]).to(dtype),
                  torch.tensor([1, 2, 3]), 0, *INT8, out_dtype=out, exact=True)
    f.add("dq_channel_zero_scale", dq, codes(3, 4), torch.tensor([0.0, 1, 0]), torch.tensor([1, 2, 3]), 0, *INT8)
    f.add("dq_channel_float64_scale", dq, Const(codes(3, 4)), Const(scales(3).double()), Const(torch.tensor([1, 2, 3])),
          0, *INT8)
    f.add("q_channel_constant_float64", q, rand(3, 4), Const(scales(3).double()), Const(torch.tensor([1, 2, 3])), 0,
          *INT8)
    f.add("q_channel_saturates", q, rand(3, 4, lo=-900, hi=900, step=100), scales(3), torch.tensor([0, 100, -100]), 0,
          *INT8)


def per_group(f):
    q, dq = qd.quantize_per_channel_group.default, qd.dequantize_per_channel_group.default
    zeros = codes(3, 4, lo=-2, hi=2, dtype=torch.int32)
    f.add("q_group", q, rand(3, 16), scales(3, 4), zeros, -8, 7, torch.int8, 4)
    f.add("q_group_halves", q, torch.tensor([[0.5, 1.5, 2.5, -0.5]]), torch.ones(1, 2), torch.tensor([[1, 2]]), -8, 7,
          torch.int8, 2)
    f.add("q_group_row", q, rand(3, 6), scales(3, 1), zeros[:, :1].contiguous(), -8, 7, torch.int8, 256)
    f.add("dq_group", dq, codes(3, 16, lo=-8, hi=7), scales(3, 4), zeros, -8, 7, torch.int8, 4, torch.float32)
    for dtype in (torch.float16, torch.bfloat16):
        f.add(f"dq_group_{str(dtype)[6:]}_scale", dq, codes(3, 16, lo=-8, hi=7), rand(3, 4, step=0.01).to(dtype), zeros, -8, 7,
              torch.int8, 4, torch.float32)
    f.add("dq_group_odd", dq, Const(codes(5, 96, lo=0, hi=15)), Const(scales(5, 3)),
          Const(torch.arange(15, dtype=torch.int32).reshape(5, 3)), 0, 15, torch.int8, 32, torch.float32)
    f.add("dq_group_no_zero", dq, codes(3, 16), scales(3, 4), None, -8, 7, torch.int8, 4, torch.float32)
    f.add("dq_group_row", dq, codes(3, 6), scales(3, 1), zeros[:, :1].contiguous(), -8, 7, torch.int8, 256,
          torch.float32)
    f.add("dq_group_half", dq, codes(3, 16), scales(3, 4), zeros, -8, 7, torch.int8, 4, torch.float16)


def per_token(f):
    q, dq = qd.quantize_per_token.default, qd.dequantize_per_token.default
    f.add("q_token", q, rand(2, 3, 5), scales(2, 3, 1), codes(2, 3, 1, lo=-9, hi=9, dtype=torch.int64), *INT8)
    f.add("q_token_halves", q, HALVES.reshape(1, -1), torch.ones(1, 1), torch.full((1, 1), 3), *INT8)
    f.add("q_token_float_zero", q, rand(3, 5), scales(3, 1), torch.zeros(3, 1), *INT8)
    f.add("dq_token", dq, codes(2, 3, 5), scales(2, 3, 1), codes(2, 3, 1, dtype=torch.int64), *INT8, torch.float32)
    f.add("dq_token_half_scale", dq, codes(3, 9), rand(3, 1, step=0.01).half(), torch.tensor([[1], [-2], [3]]), *INT8,
          torch.float32)
    f.add("dq_token_half", dq, codes(3, 5), scales(3, 1), torch.zeros(3, 1, dtype=torch.int64), *INT8, torch.float16)


def affine(f):
    q, dq = ao.quantize_affine.default, ao.dequantize_affine.default
    zeros = codes(3, 4, lo=-2, hi=2, dtype=torch.int32)
    f.add("q_affine_rows", q, rand(3, 5), [1, 5], scales(3), codes(3, dtype=torch.int32), torch.int8)
    f.add("q_affine_groups", q, rand(3, 16), [1, 4], scales(3, 4), zeros, torch.int8, -8, 7)
    f.add("q_affine_tiles", q, rand(4, 6), [2, 3], scales(2, 2), zeros[:2, :2].contiguous(), torch.int8)
    f.add("dq_affine_rows", dq, codes(3, 5), [1, 5], scales(3), codes(3, dtype=torch.int32), torch.int8)
    f.add("dq_affine_groups", dq, codes(3, 16, lo=-8, hi=7), [1, 4], scales(3, 4), zeros, torch.int8, -8, 7)
    f.add("dq_affine_tiles", dq, codes(4, 6), [2, 3], scales(2, 2), zeros[:2, :2].contiguous(), torch.int8)
    f.add("dq_affine_all", dq, codes(4, 6), [4, 6], scales(1), None, torch.int8)
    f.add("dq_affine_int8_zero", dq, Const(codes(3, 16)), [1, 4], Const(scales(3, 4)),
          Const(codes(3, 4, dtype=torch.int32)), torch.int8, -128, 127)


def chosen(f):
    eps, declared = torch.finfo(torch.float32).eps, (torch.float64, torch.int64)
    inputs = {"plain": rand(3, 8), "positive": rand(3, 8, lo=0.5, hi=3.5), "negative": rand(3, 8, lo=-3.5, hi=-0.5),
              "zeros": torch.zeros(3, 8), "long": rand(2, 700)}
    for name, x in inputs.items():
        for op in (qd.choose_qparams.tensor, qd.choose_qparams_symmetric.tensor):
            text = str(op).split(".")[1]
            f.add(f"{text}_{name}", op, x, -128, 127, eps, torch.int8, tol=CHOSEN, exact=False, dtypes=declared)
        for op in (qd.choose_qparams_per_token.default, qd.choose_qparams_per_token_asymmetric.default):
            text = str(op).split(".")[1]
            f.add(f"{text}_{name}", op, x, torch.int8, tol=CHOSEN, exact=False, dtypes=declared)
        for mapping in ("SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"):
            f.add(f"choose_affine_{mapping}_{name}", ao.choose_qparams_affine.default, x, mapping, [1, x.shape[1] // 2],
                  torch.int8, -8, 7, eps, torch.float32, torch.int32, tol=CHOSEN, exact=False)
    f.add("choose_qparams_uint8", qd.choose_qparams.tensor, rand(3, 8), 0, 255, eps, torch.uint8, tol=CHOSEN,
          exact=False, dtypes=declared)
    f.add("choose_qparams_symmetric_uint8", qd.choose_qparams_symmetric.tensor, rand(3, 8), 0, 255, eps, torch.uint8,
          tol=CHOSEN, exact=False, dtypes=declared)
    f.add("choose_qparams_half", qd.choose_qparams.tensor, rand(3, 8, dtype=torch.float16), -128, 127, eps, torch.int8,
          tol=(1e-3, 0, "PyTorch divides in half precision"), exact=False, dtypes=declared)
    f.add("choose_affine_all", ao.choose_qparams_affine.default, rand(3, 8), "ASYMMETRIC", [3, 8], torch.uint8,
          tol=CHOSEN, exact=False)
    f.add("choose_affine_rows", ao.choose_qparams_affine.default, rand(3, 8), "SYMMETRIC", [1, 8], torch.int8,
          tol=CHOSEN, exact=False)
    f.add("choose_affine_keepdim", ao.choose_qparams_affine.default, rand(3, 8), "ASYMMETRIC", [1, 8], torch.int8,
          keepdim=True, tol=CHOSEN, exact=False)


def fake(f):
    x = rand(3, 4, lo=-30, hi=30, step=0.25)
    f.add("fake_tensor", aten.fake_quantize_per_tensor_affine.default, x, 0.25, 3, -100, 90)
    f.add("fake_tensor_qparams", aten.fake_quantize_per_tensor_affine.tensor_qparams, x, torch.tensor([0.25]),
          torch.tensor([3], dtype=torch.int32), -100, 90)
    f.add("fake_tensor_mask", aten.fake_quantize_per_tensor_affine_cachemask.default, x, 0.25, 3, -100, 90)
    zeros = torch.tensor([1, 2, -3], dtype=torch.int32)
    f.add("fake_channel", aten.fake_quantize_per_channel_affine.default, x, scales(3), zeros, 0, -50, 50)
    f.add("fake_channel_mask", aten.fake_quantize_per_channel_affine_cachemask.default, x, scales(3), zeros, 0, -50, 50)


def products(f):
    x = rand(3, 24, step=0.5)
    f.add("int8pack", aten._weight_int8pack_mm.default, x, codes(8, 24), scales(8))
    f.add("int8pack_constant", aten._weight_int8pack_mm.default, x, Const(codes(8, 24)), Const(scales(8)))
    f.add("int8pack_odd", aten._weight_int8pack_mm.default, rand(1, 7, step=0.5), Const(codes(5, 7)), Const(scales(5)))
    f.add("int8pack_bfloat16", aten._weight_int8pack_mm.default, rand(3, 32, step=0.5).bfloat16(), Const(codes(8, 32)),
          Const(scales(8).bfloat16()), tol=(1.6e-2, 1e-2, "one rounding to bfloat16"), exact=False)
    f.add("int_mm", aten._int_mm.default, codes(17, 8), codes(8, 8, seed=1))
    f.add("int_mm_uint8", aten._int_mm.default, codes(17, 8, lo=0, hi=255, dtype=torch.uint8), Const(codes(8, 8, seed=1)))
    f.add("int_mm_largest", aten._int_mm.default, Gen((17, 1024), -128, -128, 0, torch.int8),
          Const(Gen((1024, 8), -128, -128, 0, torch.int8)))


def bad(f):
    """What does not fit is refused by name, and never divided with a remainder. (F09)"""
    dq = qd.dequantize_per_channel_group.default
    f.refuse("group_does_not_divide", dq, "group size 256, K 288", Const(codes(4, 288)), Const(scales(4, 2)),
             Const(codes(4, 2, dtype=torch.int32)), -8, 7, torch.int8, 256, torch.float32)
    f.refuse("block_does_not_divide", ao.dequantize_affine.default, "block of 4, size 6", codes(3, 6), [1, 4],
             scales(3, 2), None, torch.int8)
    f.refuse("range_beyond_int8", qd.quantize_per_tensor.default, "255 in int8", rand(4), 0.5, 0, 0, 255, torch.int8)
    f.refuse("codes_of_another_dtype", qd.dequantize_per_tensor.default, "uint8, not int8",
             codes(4, lo=0, hi=9, dtype=torch.uint8), 0.5, 0, *INT8)
    f.refuse("scales_of_another_size", qd.dequantize_per_channel.default, "3 scales, 4 channels", codes(4, 2), scales(3),
             torch.zeros(3, dtype=torch.int64), 0, *INT8)
    f.refuse("axis_out_of_range", qd.dequantize_per_channel.default, "axis 2 of 2 dims", codes(4, 2), scales(4),
             torch.zeros(4, dtype=torch.int64), 2, *INT8)
