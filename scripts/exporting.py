"""What every script here does to export a model: `torch.export`, core ATen, no paths of this machine in the file."""
import copy

import torch
from torch.export import default_decompositions, export


def strip_debug(program):
    """Drops the stack traces: readers ignore them, and they name folders of the exporting machine."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for key in ("stack_trace", "from_node", "source_fn_stack"):
                    node.meta.pop(key, None)
    return program


def export_model(module, args, kwargs=None, dynamic_shapes=None, decompose=True, keep=()):
    """An ExportedProgram of `module`, decomposed to core ATen except for the ops in `keep`."""
    args, kwargs = copy.deepcopy((args, kwargs or {}))       # tracing may write to them
    with torch.no_grad():
        program = export(copy.deepcopy(module), args, kwargs, dynamic_shapes=dynamic_shapes)
        if decompose:
            table = default_decompositions()
            for op in keep:
                table.pop(op, None)
            program = program.run_decompositions(table)
    return strip_debug(program)
