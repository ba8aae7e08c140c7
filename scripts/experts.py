"""The op by which transformers exports a mixture of experts in any dtype but bfloat16.

`transformers::grouped_mm_fallback(input [S, K], weight [G, K, N], offs [G])`: rows `offs[g - 1]..offs[g]` of the input
times `weight[g]`; rows behind the last offset are zeros. Where transformers itself is imported, its definition stands;
else this one, by the same loop of products, is registered under the same name and schema.
"""
import torch


def by_groups(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    output = torch.zeros(input.size(0), weight.size(2), dtype=input.dtype)
    start = 0
    for group, end in enumerate(offs.tolist()):
        if start < end:
            output[start:end] = torch.mm(input[start:end], weight[group])
        start = end
    return output


if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
    torch.library.custom_op("transformers::grouped_mm_fallback", by_groups, mutates_args=(),
                            schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor")
    torch.library.register_fake("transformers::grouped_mm_fallback",
                                lambda input, weight, offs: input.new_empty(input.size(0), weight.size(2)))

grouped_mm_fallback = torch.ops.transformers.grouped_mm_fallback.default
