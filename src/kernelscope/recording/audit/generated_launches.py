"""How many launches the text of the generated wrappers has, and how many of them were recorded."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Container, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch._ops import OpOverload

from kernelscope.generated_code.kernels import kernels_in, parsed
from kernelscope.model.run import Run

# Read apart from the code that hooks wrappers: what that overlooks must be found here.
_CALLED = re.compile(r"(extern_kernels|(torch\.ops|aten|inductor_ops)\.[\w.]+)\.?")
_PARTITION = re.compile(r"self\.partitions\[(\d+)\]")
_NO_LAUNCH = re.compile(r"empty_strided|reinterpret_tensor|\.view\b|as_strided|alias|_alloc_from_pool")


@lru_cache(maxsize=256)
def lines_that_launch(source: str) -> tuple[int, ...]:
    """The lines that launch in each execution of the wrapper's `call`, in order: not in a branch or a loop.

    A function for a part of the graph (a subgraph, a partition) has its lines where `call` calls it.
    """
    tree = parsed(source)
    kernels = {kernel.name for kernel in kernels_in(tree)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    parts = {node.name: node.body for node in tree.body if isinstance(node, ast.FunctionDef)}
    calls = [node for node in functions if node.name == "call" and node.args.args[-1].arg == "args"]
    return tuple(line for function in calls[-1:] for line in _lines(function.body, kernels, parts))


def _lines(body: list[ast.stmt], kernels: set[str], parts: dict[str, list[ast.stmt]]) -> Iterator[int]:
    for statement in _always(body):
        called = [ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
        if any(_launches(name, kernels) for name in called):
            yield statement.lineno
        for name in called:
            yield from _lines(parts.get(_PARTITION.sub(r"partition_\1", name), []), kernels, parts)


def _always(body: list[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.With):
            found += _always(statement.body)
        elif not isinstance(statement, ast.If | ast.For | ast.While | ast.FunctionDef):
            found.append(statement)
    return found


def _launches(called: str, kernels: set[str]) -> bool:
    if called.partition(".")[0] in kernels:
        return True
    return bool(_CALLED.match(called)) and not (_NO_LAUNCH.search(called) or _is_view(called))


def _is_view(called: str) -> bool:
    """By torch's own schema: `torch.ops.aten.view_as_real.default`."""
    found: Any = torch.ops
    for name in called.removeprefix("torch.ops.").replace("inductor_ops.", "inductor.").split("."):
        found = getattr(found, name, None)
    return isinstance(found, OpOverload) and found.is_view


def generated_launches(run: Run, raised: Container[int]) -> tuple[int, int]:
    """All, and those with a call; of the executions in `raised`, up to their last call."""
    expected = seen = 0
    recorded = Counter((c.graph_call, c.site.line) for c in run.records_of_calls if c.graph_call >= 0)
    for index, execution in run.graph_calls.items():
        reached = found = 0
        for place, line in enumerate(lines_that_launch(execution.graph.source), start=1):
            if recorded[index, line]:
                recorded[index, line] -= 1
                found += 1
                reached = place
            elif index not in raised:
                reached = place
        expected += reached
        seen += found
    return expected, seen
