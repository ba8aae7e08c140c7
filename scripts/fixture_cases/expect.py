"""Checks a case's expected node counts against the rewrite's rule, restated here in a few lines of Python.

Two readings of "constant" bound the answer: strict (a parameter, perhaps transposed or dequantised) and loose (also what
constant folding reaches). A count that both agree on has to be exact in the case; else the case gives [lo, hi]."""
import torch
from torch.export.graph_signature import InputKind

QUANT = {"quantize_per_tensor", "quantize_per_channel", "quantize_per_channel_group", "quantize_per_token",
         "quantize_affine"}

VIEWS = {"permute", "select", "slice", "t", "transpose", "view"}


def base_name(node):
    """mm of aten.mm.default; the name of a Python function (operator.getitem)."""
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target).split(".")[1]
    return node.target.__name__


def is_written(node, program):
    """Whether an op of the training IR writes to the placeholder, through views too."""
    def root(value):
        while value.op == "call_function" and (base_name(value) in VIEWS or base_name(value).endswith("_")):
            value = value.args[0]
        return value
    return any(root(n) is node for n in program.graph.nodes
               if n.op == "call_function" and base_name(n).endswith("_") and base_name(n) != "detach_")


def is_constant(node, program, loose):
    signature = program.graph_signature
    if node.op == "placeholder":
        if is_written(node, program):
            return False
        spec = next(s for s in signature.input_specs if s.arg.name == node.name)
        if spec.kind == InputKind.BUFFER:
            return spec.target not in set(signature.buffers_to_mutate.values())
        return spec.kind in (InputKind.PARAMETER, InputKind.CONSTANT_TENSOR)
    if node.op != "call_function":
        return False
    inputs = node.all_input_nodes
    if loose:
        return bool(inputs) and all(is_constant(i, program, True) for i in inputs)
    if base_name(node) in ("permute", "t", "transpose"):
        return is_constant(node.args[0], program, False)
    return base_name(node).removeprefix("de") in QUANT and all(is_constant(i, program, False) for i in inputs)


def becomes_linear(node, program, loose):
    name = base_name(node)
    if name not in ("mm", "addmm") or not is_constant(node.args[1 if name == "mm" else 2], program, loose):
        return False
    if loose:
        return True
    weight, bias = node.args[-1], node.args[0]
    plain = all(factor == 1 for factor in node.kwargs.values())
    bias_fits = name == "mm" or (bias.meta["val"].dim() == 1 and bias.op == "placeholder")
    return plain and bias_fits and weight.op != "placeholder"


def name_after_rewrite(node, program, loose):
    if base_name(node) == "linear" and not is_constant(node.args[1], program, loose):
        return "addmm" if len(node.args) > 2 else "mm"
    return "linear" if becomes_linear(node, program, loose) else base_name(node)


def counts_after_rewrite(program, loose):
    counts = {}
    for node in program.graph.nodes:
        if node.op == "call_function":
            name = name_after_rewrite(node, program, loose)
            counts[name] = counts.get(name, 0) + 1
    return counts


def check(case, method, program):
    strict, loose = (counts_after_rewrite(program, loose) for loose in (False, True))
    for op, want in case.expect.get(method, {}).items():
        where = (case.name, method, op, want)
        if op == "total":
            assert sum(strict.get(o, 0) for o in ("linear", "mm", "addmm")) == want, where
        elif op != "permute":                        # what is left of these depends on folding
            low, high = sorted((strict.get(op, 0), loose.get(op, 0)))
            want = want if isinstance(want, list) else [want, want]
            exact = want[0] == want[1]
            assert (low, high) == tuple(want) if exact else want[0] <= low <= high <= want[1], where
