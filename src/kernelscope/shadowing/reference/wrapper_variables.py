"""What the text of a wrapper tells about its variables: renamings, who writes and who reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelscope.probes.python_wrappers.wrapper_source import (
    Callsite,
    KernelText,
    program_functions,
    read_wrapper,
)
from kernelscope.probes.triton.kernel_signatures import cpp_arguments
from kernelscope.probes.triton.pointer_roles import roles_in_source

from .node_kinds import written_names

_WRITTEN = re.compile(r"(in_)?out_ptr|ws_ptr")


@dataclass(slots=True)
class WrapperText:
    """By variable of the wrapper."""

    renamed: dict[str, str] = field(default_factory=dict)  # buf1 = buf0; del buf0  # reuse
    items: dict[str, str] = field(default_factory=dict)  # buf5 = buf4[0]
    last_read: dict[str, int] = field(default_factory=dict)  # the last line that mentions it, but for `del`
    last_write: dict[str, int] = field(default_factory=dict)  # the last launch that writes to it
    writes: dict[str, list[int]] = field(default_factory=dict)  # the lines of all of them
    returned: set[str] = field(default_factory=set)
    results: list[str] = field(default_factory=list)  # the variable in each result of the graph
    targets: dict[int, str] = field(default_factory=dict)  # by line: what the statement there assigns
    users: dict[str, int] = field(default_factory=dict)  # by node: the line that launches a user's kernel

    @property
    def variables(self) -> set[str]:
        return {*self.targets.values(), *self.last_read}

    def is_read_after(self, name: str, line: int) -> bool:
        if self.last_read.get(name, 0) > line:
            return True
        return any(self.is_read_after(item, line) for item, whole in self.items.items() if whole == name)

    def items_of(self, name: str) -> list[str]:
        return [item for item, whole in self.items.items() if whole == name]


def read_text(source: str, path: str, body: str = "", bodies: Collection[str] = ()) -> WrapperText:
    """Of the wrapper without those of its functions that are `bodies` of branches and loops, or of one."""
    text, renamings = WrapperText(), list[int]()
    for function in program_functions(ast.parse(source)):
        if function.name != body if body else function.name in bodies:
            continue
        for statement in _statements(function):
            if function.name == (body or "call") and isinstance(statement, ast.Return):
                text.results = _results(statement)
            _note_assignment(statement, text)
            if _is_renaming(statement, text):
                renamings.append(statement.lineno)  # whether the value goes on too is seen below
                continue
            for part in ast.walk(statement.test if isinstance(statement, ast.If | ast.While) else statement):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                    line = _end(statement)
                    text.last_read[part.id] = max(line, text.last_read.get(part.id, 0))
                    if isinstance(statement, ast.Return):
                        text.returned.add(part.id)
    wrapper = read_wrapper(source, path, lambda called, kernels: True)
    updated: set[str] = set()
    for callsite in wrapper.callsites:
        for name, role in _written_names(callsite, wrapper.kernels):
            text.last_write[name] = max(callsite.line, text.last_write.get(name, 0))
            if callsite.line not in (lines := text.writes.setdefault(name, [])):
                lines.append(callsite.line)
            if role == "inout":
                updated.add(name)
    for line in reversed(renamings):  # later names first: a name may go on twice
        target = text.targets[line]
        if target in updated or (target in text.last_read and target not in text.last_write):
            source_name = text.renamed[target]
            text.last_read[source_name] = max(line, text.last_read.get(source_name, 0))
            updated.add(source_name)
    return text


def _statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.Expr | ast.Return | ast.If | ast.While):
            yield node


def _end(statement: ast.stmt) -> int:
    if isinstance(statement, ast.While):  # asked again after each round
        return statement.end_lineno or statement.lineno
    return (statement.test if isinstance(statement, ast.If) else statement).end_lineno or statement.lineno


def _results(statement: ast.Return) -> list[str]:
    """buf3 of buf3, and of reinterpret_tensor(buf3, …)."""
    parts = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
    inner = [p.args[0] if isinstance(p, ast.Call) and p.args else p for p in parts]
    return [p.id if isinstance(p, ast.Name) else "" for p in inner]


def _note_assignment(statement: ast.stmt, text: WrapperText) -> None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=value):
            text.targets[statement.lineno] = target
            match value:
                case ast.Name(id=source):
                    text.renamed[target] = source
                case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[ast.Name(id=source), *_]):
                    text.renamed[target] = source
                case ast.Subscript(value=inner):
                    while isinstance(inner, ast.Subscript):  # buf1[1][0]
                        inner = inner.value
                    if isinstance(inner, ast.Name):
                        text.items[target] = inner.id


def _is_renaming(statement: ast.stmt, text: WrapperText) -> bool:
    target = text.targets.get(statement.lineno)
    return isinstance(statement, ast.Assign) and target is not None and target in text.renamed


def _written_names(callsite: Callsite, kernels: Mapping[str, KernelText]) -> Iterator[tuple[str, str]]:
    kernel = kernels.get(callsite.path.split(".")[0])
    if kernel is None:
        if "out" in callsite.kwargs:
            yield callsite.kwargs["out"].name, "out"
        if callsite.path.rpartition(".")[2].endswith("_") and callsite.args:
            yield callsite.args[0].name, "inout"
        elif callsite.path.startswith(("torch.ops.", "aten.")):
            yield from _written_by_operator(callsite)
        return
    roles = dict(enumerate(_roles(kernel)))
    for i, argument in enumerate(callsite.args):
        if roles.get(i, "in") in ("out", "inout"):
            yield argument.name, roles[i]


def _written_by_operator(callsite: Callsite) -> Iterator[tuple[str, str]]:
    """What an operator's schema says that it writes to: torch.ops.mine.add_into.default(buf0, buf1)."""
    operator: Any = torch.ops
    for part in callsite.path.removeprefix("torch.ops.").split("."):
        operator = getattr(operator, part, None)
    schema = getattr(operator, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    named = dict(zip([a.name for a in schema.arguments], callsite.args, strict=False)) | callsite.kwargs
    for name in written_names(schema):
        if name != "out" and name in named:
            yield named[name].name, "inout"


def _roles(kernel: KernelText) -> list[str]:
    if kernel.maker == "cpp_pybinding":
        return [role for _, role in cpp_arguments(kernel.source)]
    found = re.search(rf"def {re.escape(kernel.name)}\(([^)]*)\)", kernel.source)
    if found is None:
        named = re.search(r"@triton\.jit\s+def (\w+)\(([^)]*)\)", kernel.source)
        if named is None:
            return []
        roles = roles_in_source(kernel.source, named[1])
        return [roles.get(n, "scalar") for n in _parameters(named[2])]
    names = _parameters(found[1])
    return ["inout" if n.startswith("in_out_ptr") else "out" if _WRITTEN.match(n) else "in" for n in names]


def _parameters(text: str) -> list[str]:
    return [p.split(":")[0].strip() for p in text.split(",") if p.strip() and "constexpr" not in p]
