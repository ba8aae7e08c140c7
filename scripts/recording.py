"""Exports a case, records what eager PyTorch gives for its calls, and writes both beside each other."""
import copy
import os

import torch
from safetensors.torch import save_file
from torch.export.pt2_archive._package import load_pt2, package_pt2
from torch.utils._pytree import tree_leaves, tree_map

from exporting import export_model
from fixture_cases import expect


def split_call(call):
    """(arguments, keyword arguments) of a recorded call."""
    if isinstance(call, tuple) and len(call) == 2 and isinstance(call[0], tuple) and isinstance(call[1], dict):
        return call
    return call, {}


def export_program(program):
    """Traced with the largest call, so that no dynamic size is taken for a 0 or a 1."""
    def numel(call):
        return sum(t.numel() for t in tree_leaves(call) if isinstance(t, torch.Tensor))
    call = program.invocations[0] if program.dynamic is None else max(program.invocations, key=numel)
    return export_model(program.module, *split_call(call), program.dynamic, program.decompose, program.keep)


def as_tensor(leaf):
    return leaf.clone().contiguous() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)


def widen(leaf):
    half = isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float16, torch.bfloat16)
    return leaf.float() if half else leaf


def is_same(old, new):
    """Whether all elements are equal, NaN being equal to NaN."""
    return old.shape == new.shape and bool(((old == new) | (old != old) & (new != new)).all())


def record(case, method, program, tensors):
    """Runs the calls in order on one instance; names as in tests/fixtures/README.md."""
    module = copy.deepcopy(program.module)
    if case.ref_float:
        module = module.float()
    for i, call in enumerate(program.invocations):
        args, kwargs = copy.deepcopy(split_call(call))
        prefix = f"{method}.inv{i}"
        for j, leaf in enumerate(tree_leaves((args, kwargs))):
            if leaf is not None:
                tensors[f"{prefix}.in{j}"] = as_tensor(leaf)
        if case.ref_float:
            args, kwargs = tree_map(widen, (args, kwargs))
        before = copy.deepcopy(tree_leaves((args, kwargs)))
        with torch.no_grad():
            result = module(*args, **kwargs)
        for j, (old, new) in enumerate(zip(before, tree_leaves((args, kwargs)))):
            if isinstance(old, torch.Tensor) and not is_same(old, new):
                tensors[f"{prefix}.mut{j}"] = new.clone()
        for j, leaf in enumerate(tree_leaves(result)):
            if leaf is not None:
                tensors[f"{prefix}.out{j}"] = as_tensor(leaf)
        if case.stateful:
            for name, buffer in module.named_buffers():
                tensors[f"{prefix}.buf.{name}"] = buffer.clone().contiguous()


def histogram(program):
    counts = {}
    for node in program.graph.nodes:
        if node.op == "call_function":
            counts[str(node.target)] = counts.get(str(node.target), 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def describe(case, method, program, exported):
    """The manifest's entry of one method."""
    return dict(
        invocations=len(program.invocations),
        ir="core ATen (run_decompositions)" if program.decompose else "training IR",
        ops=histogram(exported),
        expect_after_rewrite=case.expect.get(method, {}),
        **({"expect_fusions": case.fused[method]} if method in case.fused else {}),
        mutated_buffers=sorted(set(exported.graph_signature.buffers_to_mutate.values())),
        range_constraints={str(symbol): [int(r.lower), int(r.upper) if r.upper < 2 ** 40 else None]
                           for symbol, r in exported.range_constraints.items()})


def write_case(case, folder, archive=None, reference=None):
    """Writes the archive and the references of a case; returns its entry in the manifest."""
    archive, reference = archive or case.name + ".pt2", reference or case.name + ".safetensors"
    exported, tensors, entries = {}, {}, {}
    for method, program in case.programs.items():
        exported[method] = export_program(program)
        expect.check(case, method, exported[method])
        record(case, method, program, tensors)
        entries[method] = describe(case, method, program, exported[method])
    paths = [os.path.join(folder, archive), os.path.join(folder, reference)]
    if list(exported) == ["model"]:
        torch.export.save(exported["model"], paths[0])
    else:
        package_pt2(paths[0], exported_programs=exported)
    save_file(tensors, paths[1])
    check_archive(case, paths[0], tensors)
    return dict(archive=archive, reference=reference, what=case.why, tags=case.tags, stateful=case.stateful,
                rtol=case.rtol, atol=case.atol, programs=entries, bytes=sum(os.path.getsize(p) for p in paths))


def check_archive(case, path, tensors):
    """Loads the archive again and replays every call against the references."""
    for method, exported in load_pt2(path).exported_programs.items():
        module = exported.module()
        for i, call in enumerate(case.programs[method].invocations):
            args, kwargs = copy.deepcopy(split_call(call))
            with torch.no_grad():
                result = module(*args, **kwargs)
            got = {f"out{j}": as_tensor(leaf) for j, leaf in enumerate(tree_leaves(result)) if leaf is not None}
            if case.stateful:
                got |= {f"buf.{name}": buffer for name, buffer in module.named_buffers()}
            for name, value in got.items():
                want = tensors.get(f"{method}.inv{i}.{name}")
                if want is None and name.startswith("buf."):
                    continue                         # export adds constants of its own as buffers
                assert value.shape == want.shape, (case.name, i, name, value.shape, want.shape)
                torch.testing.assert_close(value.to(want.dtype), want, rtol=case.rtol, atol=case.atol, equal_nan=True)
