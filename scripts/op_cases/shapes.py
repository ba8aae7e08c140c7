"""Ops that move or name elements but compute none: view (of one tensor) and join (of several, with padding)."""
import torch

from .case import Const, Family, Gen, rand, randbool, randint

aten = torch.ops.aten
NAN = float("nan")


def view():
    f = Family("view", exact=True)
    reshapes(f)
    permutes(f)
    expands(f)
    slices(f)
    rank_changes(f)
    splits(f)
    strided(f)
    dtypes(f)
    return f


def reshapes(f):
    x = rand(2, 3, 4)
    for i, sizes in enumerate([[6, 4], [24], [-1], [2, -1, 2], [1, 2, 1, 3, 4], [4, 3, 2], [2, 3, 2, 2]]):
        f.add(f"view_{i}", aten.view.default, x, sizes)
    f.add("view_0dim_to_1", aten.view.default, torch.tensor(2.5), [1, 1])
    f.add("view_to_0dim", aten.view.default, torch.tensor([2.5]), [])
    f.add("view_empty", aten.view.default, torch.zeros(0, 4), [2, 0, 2])
    f.add("view_rank8", aten.view.default, rand(16), [2, 1, 2, 1, 2, 1, 2, 1])
    f.add("view_windows", aten.view.default, Gen((2, 56, 56, 6), -99, 99, 1), [2, 8, 7, 8, 7, 6], sampled=True)
    f.add("reshape", aten.reshape.default, x, [4, -1])
    f.add("reshape_constant_permuted", aten.reshape.default, Const(x.permute(2, 0, 1)), [8, 3])
    f.add("unsafe_view", aten._unsafe_view.default, x, [6, 4])
    f.add("flatten", aten.flatten.using_ints, x, 1)
    f.add("flatten_negative", aten.flatten.using_ints, rand(2, 3, 2, 2), -3, -2)
    f.add("flatten_0dim", aten.flatten.using_ints, torch.tensor(1.5))
    f.add("unflatten", aten.unflatten.int, x, -1, [2, 2])
    f.add("unflatten_infer", aten.unflatten.int, rand(6, 2), 0, [3, -1])


def permutes(f):
    x = rand(2, 3, 4)
    for dims in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [-1, 0, 1], [0, -1, -2]):
        f.add("permute_" + "_".join(map(str, dims)), aten.permute.default, x, dims)
    f.add("permute_rank1", aten.permute.default, rand(3), [0])
    f.add("permute_0dim", aten.permute.default, torch.tensor(1.5), [])
    f.add("permute_heads", aten.permute.default, rand(2, 5, 4, 3), [0, 2, 1, 3])
    f.add("permute_windows", aten.permute.default, Gen((2, 8, 7, 8, 7, 6), -99, 99, 1), [0, 1, 3, 2, 4, 5],
          sampled=True)
    f.add("permute_rank8", aten.permute.default, rand(1, 2, 3, 1, 2, 2, 1, 2), [7, 5, 3, 1, 0, 2, 4, 6])
    f.add("permute_large", aten.permute.default, Gen((300, 257), -99, 99, 2), [1, 0], sampled=True)
    f.add("permute_empty", aten.permute.default, torch.zeros(2, 0, 3), [2, 0, 1])
    f.add("permute_constant", aten.permute.default, Const(rand(3, 4)), [1, 0])
    f.add("permute_constant_strided", aten.permute.default, Const(rand(4, 3).t()), [1, 0])
    for a, b in ((0, 1), (1, 2), (-1, 0), (-2, -1), (1, 1)):
        f.add(f"transpose_{a}_{b}", aten.transpose.int, x, a, b)
    f.add("t", aten.t.default, rand(3, 4))
    f.add("t_rank1", aten.t.default, rand(3))
    f.add("movedim", aten.movedim.int, x, 0, -1)
    f.add("numpy_T", aten.numpy_T.default, x)


def expands(f):
    f.add("expand_column", aten.expand.default, rand(3, 1), [3, 4])
    f.add("expand_keep_size", aten.expand.default, rand(3, 1), [-1, 4])
    f.add("expand_new_dim", aten.expand.default, rand(3), [2, 3])
    f.add("expand_same", aten.expand.default, rand(2, 3), [2, 3])
    f.add("expand_0dim", aten.expand.default, torch.tensor(1.5), [2, 2])
    f.add("expand_to_empty", aten.expand.default, rand(1, 3), [0, 3])
    f.add("expand_heads", aten.expand.default, rand(2, 2, 1, 3, 2), [2, 2, 3, 3, 2])
    f.add("expand_constant", aten.expand.default, Const(rand(1, 3)), [4, 3])
    f.add("expand_as", aten.expand_as.default, rand(3, 1), rand(2, 3, 4))
    for i, repeats in enumerate([[2, 1], [1, 3], [2, 3], [2, 1, 2], [1, 1], [0, 2]]):
        f.add(f"repeat_{i}", aten.repeat.default, rand(2, 3), repeats)
    f.add("repeat_0dim", aten.repeat.default, torch.tensor(1.5), [3])
    f.add("repeat_interleave", aten.repeat_interleave.self_int, rand(2, 3), 2, 1)
    f.add("tile", aten.tile.default, rand(2, 3), [2])


def slices(f):
    x = rand(4, 5, 6)
    for i, args in enumerate([(0, 1, 3), (1, 0, 9223372036854775807), (2, 2, 6, 2), (1, 1, 5, 3), (-1, -4, -1), (-3, 1, 2),
                              (0, None, 2), (1, -2, None), (2, 0, 100), (0, 3, 1), (1, 5, 9), (0, -100, 2), (2, None, None, 5),
                              (-2, 0, 5, 2)]):
        f.add(f"slice_{i}", aten.slice.Tensor, x, *args)
    f.add("slice_default", aten.slice.Tensor, x)
    f.add("slice_rank1_offset", aten.slice.Tensor, rand(9), 0, 3)
    f.add("slice_rank6", aten.slice.Tensor, rand(2, 1, 4, 1, 2, 3), 2, 1, 4, 2)
    f.add("slice_empty", aten.slice.Tensor, torch.zeros(0, 3), 0, 0, 2)
    f.add("slice_constant", aten.slice.Tensor, Const(rand(1, 6)), 1, None, 4)
    f.add("slice_constant_strided", aten.slice.Tensor, Const(rand(3, 6).t()), 0, 1, 6, 2)
    f.add("slice_copy", aten.slice_copy.Tensor, x, 1, 1, 4)
    f.add("narrow", aten.narrow.default, x, 1, 1, 3)
    for args in ((0, 0), (1, 2), (2, -1), (-1, 3), (-2, -5), (-3, 3)):
        f.add(f"select_{args[0]}_{args[1]}", aten.select.int, x, *args)
    f.add("select_to_0dim", aten.select.int, rand(5), 0, 2)
    f.add("select_rank5", aten.select.int, rand(2, 2, 3, 2, 2), 2, 1)
    for offset in (0, 1, -1):
        f.add(f"diagonal_{offset}", aten.diagonal.default, rand(3, 4), offset)
    f.add("unfold", aten.unfold.default, rand(2, 9), 1, 3, 2)


def rank_changes(f):
    x = rand(2, 3)
    for dim in (0, 1, 2, -1, -2, -3):
        f.add(f"unsqueeze_{dim}", aten.unsqueeze.default, x, dim)
    f.add("unsqueeze_0dim", aten.unsqueeze.default, torch.tensor(1.5), 0)
    f.add("unsqueeze_0dim_negative", aten.unsqueeze.default, torch.tensor(1.5), -1)
    y = rand(1, 2, 1, 3, 1)
    for dims in ([0], [2, 4], [-1], [0, 2, -1], [1], [1, 2], []):
        f.add("squeeze_dims_" + "_".join(map(str, dims)), aten.squeeze.dims, y, dims)
    for dim in (0, 1, -1, -3):
        f.add(f"squeeze_dim_{dim}", aten.squeeze.dim, y, dim)
    f.add("squeeze_all", aten.squeeze.default, y)
    f.add("squeeze_to_0dim", aten.squeeze.dims, torch.tensor([[2.5]]), [0, 1])


def splits(f):
    x = rand(4, 6)
    f.add("split_with_sizes", aten.split_with_sizes.default, x, [1, 2, 3], 1)
    f.add("split_with_sizes_dim0", aten.split_with_sizes.default, x, [3, 1])
    f.add("split_with_sizes_negative", aten.split_with_sizes.default, x, [4, 2], -1)
    f.add("split_with_sizes_zero", aten.split_with_sizes.default, x, [0, 4], 0)
    f.add("split_uneven", aten.split.Tensor, x, 4, 1)
    f.add("split_dim0", aten.split.Tensor, x, 2)
    f.add("split_rank6", aten.split.Tensor, rand(2, 1, 4, 1, 2, 3), 2, -4)
    f.add("chunk", aten.chunk.default, x, 3, -1)
    f.add("chunk_uneven", aten.chunk.default, x, 4, 1)
    f.add("unbind", aten.unbind.int, x, 1)
    f.add("unbind_negative", aten.unbind.int, rand(2, 3), -2)


def strided(f):
    """as_strided reads the storage of its operand, not its logical order."""
    x = rand(24)
    f.add("as_strided_transpose", aten.as_strided.default, x, [4, 6], [1, 4])
    f.add("as_strided_offset", aten.as_strided.default, x, [3, 4], [6, 1], 2)
    f.add("as_strided_overlap", aten.as_strided.default, x, [5, 4], [2, 1])
    f.add("as_strided_repeat", aten.as_strided.default, x, [3, 4], [0, 1], 5)
    f.add("as_strided_of_matrix", aten.as_strided.default, rand(4, 6), [24], [1], 0)
    f.add("as_strided_0dim", aten.as_strided.default, x, [], [], 7)
    f.add("clone_contiguous", aten.clone.default, Const(rand(4, 3).t()))
    f.add("contiguous", aten.contiguous.default, Const(rand(4, 3).t()))
    f.add("alias", aten.alias.default, rand(2, 3))
    f.add("copy", aten.copy.default, rand(2, 3), rand(3, seed=1))
    f.add("copy_converts", aten.copy.default, rand(3), randint(3, lo=-9, hi=9))


def dtypes(f):
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
                  torch.bool):
        x, kind = randint(2, 3, 4, lo=0, hi=100).to(dtype), str(dtype)[6:]
        f.add(f"view_{kind}", aten.view.default, x, [6, 4])
        f.add(f"permute_{kind}", aten.permute.default, x, [2, 0, 1])
        f.add(f"slice_{kind}", aten.slice.Tensor, x, 2, 1, 4, 2)
        f.add(f"expand_{kind}", aten.expand.default, x[:, :1, :1], [2, 2, 3])
        f.add(f"clone_{kind}", aten.clone.default, x)
    f.add("permute_nan", aten.permute.default, torch.tensor([[NAN, float("inf")], [-0.0, 1.0]]), [1, 0])


# ------------------------------------------------------------------ joining
def join():
    f = Family("join", exact=True)
    cats(f)
    pads(f)
    turns(f)
    scatters(f)
    return f


def cats(f):
    cat = aten.cat.default
    a, b, c = rand(2, 3, 4), rand(2, 3, 4, seed=1), rand(2, 3, 4, seed=2)
    for dim in (0, 1, 2, -1, -2, -3):
        f.add(f"cat_dim{dim}", cat, [a, b, c], dim)
        f.add(f"stack_dim{dim}", aten.stack.default, [a[0], b[0]], dim)
    f.add("cat_uneven", cat, [rand(2, 1), rand(2, 4), rand(2, 2)], -1)
    f.add("cat_one", cat, [a], 1)
    f.add("cat_same_twice", cat, [a, a], 1)
    f.add("cat_default_dim", cat, [rand(2, 3), rand(1, 3)])
    f.add("cat_empty_rows", cat, [rand(2, 3), torch.zeros(0, 3)])
    f.add("cat_legacy_empty", cat, [torch.zeros(0), rand(2, 3)], 1)
    f.add("cat_all_empty", cat, [torch.zeros(0, 3), torch.zeros(0, 3)])
    f.add("cat_rank6", cat, [rand(2, 1, 2, 1, 2, 3), rand(2, 1, 2, 4, 2, 3)], 3)
    f.add("cat_nine", cat, [rand(1, 2, seed=i) for i in range(9)], 0)
    f.add("cat_constant", cat, [rand(2, 3), Const(rand(1, 3)), Const(rand(3, 1).t())], 0)
    f.add("cat_all_constant", cat, [Const(rand(2, 3)), Const(rand(1, 3))], 0)
    f.add("cat_half", cat, [a.half(), b.half()], 1)
    f.add("cat_int64", cat, [randint(2, 2, lo=-9, hi=9), randint(2, 1, lo=-9, hi=9)], 1)
    f.add("cat_bool", cat, [randbool(2, 2), randbool(2, 1)], 1)
    f.add("cat_mixed_dtypes", cat, [randint(2, 2, lo=-9, hi=9), rand(2, 1)], 1)
    f.add("stack_0dim", aten.stack.default, [torch.tensor(1.5), torch.tensor(-2.0)], 0)
    f.add("stack_int64", aten.stack.default, [randint(3, lo=-9, hi=9), randint(3, lo=-9, hi=9, seed=1)], 1)


def pads(f):
    pad, x = aten.constant_pad_nd.default, rand(2, 3, 4)
    f.add("pad_last", pad, x, [1, 2])
    f.add("pad_two", pad, x, [1, 0, 0, 2], 1.5)
    f.add("pad_three", pad, x, [0, 1, 2, 0, 1, 1], -1)
    f.add("pad_crop", pad, x, [-1, -1])
    f.add("pad_crop_and_grow", pad, x, [-1, 2, 1, -2], 7)
    f.add("pad_infinite", pad, x, [1, 1], float("-inf"))
    f.add("pad_none", pad, x, [0, 0])
    f.add("pad_empty", pad, torch.zeros(0, 2), [0, 0, 1, 1], 3)
    f.add("pad_int64", pad, randint(2, 3, lo=-9, hi=9), [1, 1], 5)
    f.add("pad_bool", pad, randbool(2, 3), [1, 0], True)
    f.add("pad_half", pad, x.half(), [1, 1], 0.5)
    f.add("pad_op_constant", aten.pad.default, x, [1, 2], "constant", 0.5)
    f.add("pad_op_reflect", aten.pad.default, x, [2, 1], "reflect")
    f.add("pad_op_replicate", aten.pad.default, x, [2, 1], "replicate")
    f.add("pad_op_circular", aten.pad.default, x, [2, 1], "circular")
    f.add("reflection_pad1d", aten.reflection_pad1d.default, x, [2, 3])
    f.add("reflection_pad2d", aten.reflection_pad2d.default, rand(1, 2, 3, 4), [1, 2, 2, 1])
    f.add("replication_pad1d", aten.replication_pad1d.default, x, [3, 1])
    f.add("replication_pad2d", aten.replication_pad2d.default, rand(1, 2, 3, 4), [1, 2, 2, 1])


def turns(f):
    x = rand(2, 3, 4)
    for dims in ([0], [1], [-1], [0, 2], [-1, -2], [0, 1, 2], []):
        f.add("flip_" + "_".join(map(str, dims)), aten.flip.default, x, dims)
    for shifts, dims in (([1], [0]), ([-1], [-1]), ([2, 1], [1, 2]), ([7], [2]), ([2], [])):
        f.add(f"roll_{'_'.join(map(str, shifts))}_dims_{'_'.join(map(str, dims))}", aten.roll.default, x, shifts, dims)
    f.add("flip_int64", aten.flip.default, randint(5, lo=-9, hi=9), [0])
    f.add("flip_rank5", aten.flip.default, rand(2, 1, 3, 2, 2), [2, 4])
    for diagonal in (0, 1, -1, 5):
        f.add(f"tril_{diagonal}", aten.tril.default, rand(3, 4), diagonal)
        f.add(f"triu_{diagonal}", aten.triu.default, rand(2, 4, 3), diagonal)
    f.add("pixel_shuffle", aten.pixel_shuffle.default, rand(1, 8, 2, 3), 2)


def scatters(f):
    """A window of one tensor replaced by another."""
    x = rand(4, 5, 6)
    f.add("slice_scatter", aten.slice_scatter.default, x, rand(2, 5, 6), 0, 1, 3)
    f.add("slice_scatter_step", aten.slice_scatter.default, x, rand(4, 2, 6), 1, 0, 4, 2)
    f.add("slice_scatter_negative", aten.slice_scatter.default, x, rand(4, 5, 2), -1, -3, -1)
    f.add("slice_scatter_open_end", aten.slice_scatter.default, x, rand(4, 3, 6), 1, 2, 9223372036854775807)
    f.add("slice_scatter_whole", aten.slice_scatter.default, x, rand(4, 5, 6, seed=1))
    f.add("select_scatter", aten.select_scatter.default, x, rand(4, 6), 1, 2)
    f.add("select_scatter_negative", aten.select_scatter.default, x, rand(4, 5), -1, -1)
    f.add("select_scatter_int64", aten.select_scatter.default, randint(3, 2, lo=-9, hi=9), randint(2, lo=50, hi=60), 0,
          1)
    f.add("slice_scatter_half", aten.slice_scatter.default, rand(4, 3).half(), rand(2, 3).half(), 0, 2, 4)
