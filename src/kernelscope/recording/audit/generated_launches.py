"""How many launches the text of the generated wrappers has, and how many of them were recorded."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import lru_cache
from typing import Any

import torch
from torch._ops import OpOverload

from kernelscope.generated_code.kernels import kernels_in, parsed
from kernelscope.model.run import Run

# Read apart from the code that hooks wrappers: what that overlooks must be found here.
_CALLED = re.compile(r"(extern_kernels|(torch\.ops|aten|inductor_ops)\.[\w.]+)\.?")
_NO_LAUNCH = re.compile(r"empty_strided|reinterpret_tensor|\.view\b|as_strided|alias|_alloc_from_pool")


@lru_cache(maxsize=256)
def lines_that_launch(source: str) -> frozenset[int]:
    """The lines of the wrapper's `call` that launch once in each execution: not in a branch or a loop."""
    tree = parsed(source)
    kernels = {kernel.name for kernel in kernels_in(tree)}
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "call" and node.args.args[-1].arg == "args"
    ]
    return frozenset(
        statement.lineno
        for function in calls[-1:]
        for statement in _always(function.body)
        if any(_launches(node, kernels) for node in ast.walk(statement))
    )


def _always(body: list[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.With):
            found += _always(statement.body)
        elif not isinstance(statement, ast.If | ast.For | ast.While | ast.FunctionDef):
            found.append(statement)
    return found


def _launches(node: ast.AST, kernels: set[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    if called.partition(".")[0] in kernels:
        return True
    return bool(_CALLED.match(called)) and not (_NO_LAUNCH.search(called) or _is_view(called))


def _is_view(called: str) -> bool:
    """By torch's own schema: `torch.ops.aten.view_as_real.default`."""
    found: Any = torch.ops
    for name in called.removeprefix("torch.ops.").replace("inductor_ops.", "inductor.").split("."):
        found = getattr(found, name, None)
    return isinstance(found, OpOverload) and found.is_view


def generated_launches(run: Run) -> tuple[int, int]:
    """All, and those with a call."""
    expected = seen = 0
    recorded = Counter((c.graph_call, c.site.line) for c in run.records_of_calls if c.graph_call >= 0)
    for index, execution in run.graph_calls.items():
        for line in lines_that_launch(execution.graph.source):
            expected += 1
            seen += (index, line) in recorded
    return expected, seen
