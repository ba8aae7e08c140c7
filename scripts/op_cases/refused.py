"""Calls that PyTorch refuses, and that building a delegate has to refuse by node and reason (F26 and neighbours)."""
import torch

from .case import Family, rand, randint

aten = torch.ops.aten


def refused():
    f = Family("refused")
    dims(f)
    sizes(f)
    dtypes(f)
    return f


def dims(f):
    """A dim of `rank` or `-rank - 1` is outside; unsqueeze and stack allow one more."""
    x, ids = rand(2, 3), torch.tensor([0])
    calls = {
        "softmax": (aten._softmax.default, lambda d: (x, d, False)),
        "sum": (aten.sum.dim_IntList, lambda d: (x, [d])),
        "mean": (aten.mean.dim, lambda d: (x, [d])),
        "amax": (aten.amax.default, lambda d: (x, [d])),
        "any": (aten.any.dim, lambda d: (x, d)),
        "argmax": (aten.argmax.default, lambda d: (x, d)),
        "cumsum": (aten.cumsum.default, lambda d: (x, d)),
        "cat": (aten.cat.default, lambda d: ([x, x], d)),
        "squeeze": (aten.squeeze.dims, lambda d: (x, [d])),
        "permute": (aten.permute.default, lambda d: (x, [0, d])),
        "transpose": (aten.transpose.int, lambda d: (x, 0, d)),
        "split_with_sizes": (aten.split_with_sizes.default, lambda d: (x, [1, 1], d)),
        "slice": (aten.slice.Tensor, lambda d: (x, d, 0, 1)),
        "select": (aten.select.int, lambda d: (x, d, 0)),
        "index_select": (aten.index_select.default, lambda d: (x, d, ids)),
        "gather": (aten.gather.default, lambda d: (x, d, ids[None])),
        "flip": (aten.flip.default, lambda d: (x, [d])),
        "roll": (aten.roll.default, lambda d: (x, [1], [d])),
        "topk": (aten.topk.default, lambda d: (x, 1, d)),
    }
    for name, (op, args) in calls.items():
        for d in (2, -3):
            f.refuse(f"{name}_dim{d}", op, f"dim {d} of a tensor of rank 2", *args(d))
    for d in (3, -4):
        f.refuse(f"unsqueeze_dim{d}", aten.unsqueeze.default, f"dim {d} of a result of rank 3", x, d)
        f.refuse(f"stack_dim{d}", aten.stack.default, f"dim {d} of a result of rank 3", [x, x], d)
    f.refuse("permute_repeated_dim", aten.permute.default, "a dim stands twice", x, [0, 0])
    f.refuse("permute_missing_dim", aten.permute.default, "rank 2, one dim given", x, [0])
    f.refuse("sum_repeated_dim", aten.sum.dim_IntList, "a dim stands twice", x, [0, -2])


def sizes(f):
    x = rand(2, 3)
    f.refuse("add_sizes", aten.add.Tensor, "3 does not broadcast with 4", x, rand(4))
    f.refuse("where_sizes", aten.where.self, "3 does not broadcast with 4", x > 0, x, rand(4))
    f.refuse("expand_sizes", aten.expand.default, "3 cannot become 4", x, [2, 4])
    f.refuse("expand_fewer_dims", aten.expand.default, "rank 2 cannot become 1", x, [3])
    f.refuse("expand_infer_new", aten.expand.default, "-1 for a new dim", x, [-1, 2, 3])
    f.refuse("view_count", aten.view.default, "6 elements are no 7", x, [7])
    f.refuse("view_infer_uneven", aten.view.default, "6 does not divide by 4", x, [-1, 4])
    f.refuse("view_infer_twice", aten.view.default, "two dims to infer", x, [-1, -1])
    f.refuse("view_infer_of_empty", aten.view.default, "any size fits", torch.zeros(0, 3), [-1, 0])
    f.refuse("mm_inner", aten.mm.default, "inner sizes 3 and 4", x, rand(4, 2))
    f.refuse("mm_rank", aten.mm.default, "mm takes matrices", rand(1, 2, 3), rand(3, 2))
    f.refuse("addmm_bias", aten.addmm.default, "a bias of 3 for 2 columns", rand(3), x, rand(3, 2))
    f.refuse("bmm_batch", aten.bmm.default, "batches 2 and 3", rand(2, 2, 3), rand(3, 3, 2))
    f.refuse("linear_inner", aten.linear.default, "3 features for a weight of 4", x, rand(5, 4))
    f.refuse("cat_sizes", aten.cat.default, "other dims differ", [x, rand(2, 4)], 0)
    f.refuse("stack_sizes", aten.stack.default, "sizes differ", [x, rand(2, 4)], 0)
    f.refuse("split_sum", aten.split_with_sizes.default, "1 + 1 is not 3", x, [1, 1], 1)
    f.refuse("select_index", aten.select.int, "index 3 of size 3", x, 1, 3)
    f.refuse("slice_step", aten.slice.Tensor, "step 0", x, 0, 0, 2, 0)
    f.refuse("layer_norm_shape", aten.native_layer_norm.default, "normalises 4 of a size of 3", x, [4], None, None,
             1e-5)
    f.refuse("conv_channels", aten.convolution.default, "3 channels for a weight of 4", rand(1, 3, 5), rand(2, 4, 3),
             None, [1], [0], [1], False, [0], 1)
    f.refuse("conv_kernel_too_large", aten.convolution.default, "a kernel of 7 on 5", rand(1, 3, 5), rand(2, 3, 7),
             None, [1], [0], [1], False, [0], 1)
    f.refuse("grid_of_triples", aten.grid_sampler_2d.default, "three coordinates for images of two axes", rand(1, 1, 3, 3),
             rand(1, 2, 2, 3), 0, 0, False)
    f.refuse("grid_of_another_batch", aten.grid_sampler_2d.default, "a grid for two images, three images", rand(3, 1, 3, 3),
             rand(2, 2, 2, 2), 0, 0, False)
    f.refuse("pool_padding", aten.max_pool2d_with_indices.default, "padding over half the kernel", rand(1, 1, 4, 4),
             [2, 2], [2, 2], [2, 2])
    f.refuse("pad_to_negative", aten.constant_pad_nd.default, "a size below zero", x, [-2, -2])
    f.refuse("amax_of_nothing", aten.amax.default, "no largest of none", torch.zeros(2, 0), [1])
    f.refuse("argmax_of_nothing", aten.argmax.default, "no largest of none", torch.zeros(2, 0), 1)
    f.refuse("topk_k", aten.topk.default, "4 of 3", x, 4)
    f.refuse("slice_scatter_sizes", aten.slice_scatter.default, "a window of 1 row, a source of 2", x, rand(2, 3), 0, 0,
             1)


def dtypes(f):
    f.refuse("embedding_float_ids", aten.embedding.default, "indices of float32", rand(4, 3), rand(2))
    f.refuse("index_float_ids", aten.index.Tensor, "indices of float32", rand(4, 3), [rand(2)])
    f.refuse("mean_of_int64", aten.mean.dim, "mean of int64 without a dtype", randint(2, 3, lo=0, hi=3), [1])
    f.refuse("mm_mixed", aten.mm.default, "float32 times float16", rand(2, 3), rand(3, 2).half())
    f.refuse("where_condition_float", aten.where.self, "a condition of float32", rand(3), rand(3), rand(3, seed=1))
    f.refuse("bitwise_and_float", aten.bitwise_and.Tensor, "bits of float32", rand(3), rand(3, seed=1))
    f.refuse("sub_bool", aten.sub.Tensor, "bool minus bool", torch.tensor([True]), torch.tensor([True]))
