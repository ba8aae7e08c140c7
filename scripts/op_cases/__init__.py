"""What PyTorch says an ATen op gives: the cases of `tests/ops/`, one module per group of families."""
from . import (chain, elementwise, embedding_codes, epilogue, experts, image, index, linear_a8, matmul, overloads, quantize,
               refused, rows, select, shapes)

FAMILIES = {fn.__name__: fn for fn in (
    elementwise.unary, elementwise.binary, select.compare, select.cast,
    rows.softmax, rows.reduce, rows.norm, rows.scan, matmul.matmul, matmul.matmul_shapes,
    shapes.view, shapes.join, index.index, index.scatter, index.create,
    image.conv, image.pool, image.resize, image.grid_sample, image.attention, quantize.quantize, overloads.overloads,
    linear_a8.linear_a8, embedding_codes.embedding_codes, epilogue.epilogue, chain.chain, experts.histogram,
    experts.grouped_mm, refused.refused,
)}
