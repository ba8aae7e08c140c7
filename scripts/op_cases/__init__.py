"""What PyTorch says an ATen op gives: the cases of `tests/ops/`, one module per group of families."""
from . import elementwise, matmul, rows, select

FAMILIES = {fn.__name__: fn for fn in (
    elementwise.unary, elementwise.binary, select.compare, select.cast,
    rows.softmax, rows.reduce, rows.norm, rows.scan, matmul.matmul,
)}
