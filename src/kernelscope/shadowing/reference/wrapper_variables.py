"""What the text of a wrapper tells about its variables: renamings, who writes and who reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelscope.generated_code.calls import Callsite
from kernelscope.generated_code.kernels import GeneratedKernel
from kernelscope.generated_code.wrapper import Wrapper, names_in
from kernelscope.probes.triton.kernel_signatures import cpp_arguments, inductor_roles
from kernelscope.probes.triton.pointer_roles import roles_in_source

from .node_kinds import written_names

_READING = ast.Assign | ast.Expr | ast.Return | ast.If | ast.While
_WRITTEN = re.compile(r"(in_)?out_ptr|ws_ptr")
# A kernel that updates in place what it has made itself does not read what the memory held before.
_MADE_INSIDE = re.compile(r"auto out_ptr\d+ = (in_out_ptr\d+);")


@dataclass(slots=True)
class WrapperText:
    """By variable of the wrapper."""

    renamed: dict[str, str] = field(default_factory=dict)  # buf1 = buf0; del buf0  # reuse
    items: dict[str, str] = field(default_factory=dict)  # buf5 = buf4[0]
    item_places: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by item: where in the whole
    last_read: dict[str, int] = field(default_factory=dict)  # the last line that mentions it, but for `del`
    last_write: dict[str, int] = field(default_factory=dict)  # the last launch that writes to it
    writes: dict[str, list[int]] = field(default_factory=dict)  # the lines of all of them
    updated: set[str] = field(default_factory=set)  # what the first launch to write to it reads, too
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

    def goes_on_after(self, name: str, line: int) -> bool:
        """Whether a later launch makes something else of it in place, under this name or a newer one."""
        if name in self.updated and self.last_write.get(name, 0) > line:
            return True
        return any(self.goes_on_after(new, line) for new, old in self.renamed.items() if old == name)

    def items_of(self, name: str) -> list[str]:
        return [item for item, whole in self.items.items() if whole == name]


def read_text(source: str, path: str, body: str = "", bodies: Collection[str] = ()) -> WrapperText:
    """Of the wrapper without those of its functions that are `bodies` of branches and loops, or of one."""
    wrapper = Wrapper(source, path, lambda called, kernels: True)
    text, renamings = WrapperText(), dict[int, str]()
    for function in wrapper.functions:
        if function.name != body if body else function.name in bodies:
            continue
        if function.name == (body or "call"):
            text.results = [result.variable for result in function.results]
        for assignment in function.assignments:
            text.targets[assignment.line] = assignment.target
            if assignment.renamed:
                text.renamed[assignment.target] = assignment.renamed
                renamings[assignment.line] = assignment.target
            elif assignment.item[0]:
                text.items[assignment.target], text.item_places[assignment.target] = assignment.item
        for statement in function.statements:
            # Whether the value goes on with a new name is decided below.
            is_renaming = isinstance(statement, ast.Assign) and statement.lineno in renamings
            if isinstance(statement, _READING) and not is_renaming:
                _note_reads(statement, text)
    text.updated = _note_writes(wrapper, text)
    going_on: set[str] = set()
    for line, target in reversed(renamings.items()):  # later names first: a name may be reused twice
        is_kept = target not in text.last_write and (target in text.last_read or target in going_on)
        if target in text.updated or is_kept:  # else a launch writes to it before anybody reads it
            name = text.renamed[target]
            text.last_read[name] = max(line, text.last_read.get(name, 0))
            going_on.add(name)
    for target, source in _aliases(wrapper, text, renamings):  # who reads a view reads what it views
        text.last_read[source] = max(text.last_read.get(source, 0), text.last_read.get(target, 0))
    return text


def _aliases(wrapper: Wrapper, text: WrapperText, renamings: Mapping[int, str]) -> list[tuple[str, str]]:
    """Variables that only view another one, with that one; the last first."""
    found = {line: (target, text.renamed[target]) for line, target in renamings.items()}
    for callsite in wrapper.callsites:
        schema, target = _schema_of(callsite), text.targets.get(callsite.line, "")
        if schema is not None and target and callsite.args and schema.arguments:
            alias = schema.arguments[0].alias_info
            if alias is not None and not alias.is_write and callsite.args[0].name:
                found[callsite.line] = target, callsite.args[0].name
    return [pair for _, pair in sorted(found.items(), reverse=True) if pair[0] not in text.last_write]


def _note_reads(statement: ast.stmt, text: WrapperText) -> None:
    tested = statement.test if isinstance(statement, ast.If | ast.While) else statement
    last = statement if isinstance(statement, ast.While) else tested  # a loop tests after each round
    line = last.end_lineno or statement.lineno
    for name in names_in(tested):
        text.last_read[name] = max(line, text.last_read.get(name, 0))
        if isinstance(statement, ast.Return):
            text.returned.add(name)


def _note_writes(wrapper: Wrapper, text: WrapperText) -> set[str]:
    """Gives the variables that the first launch to write to them reads, too."""
    updated: set[str] = set()
    first: dict[str, int] = {}
    for callsite in wrapper.callsites:
        for name, role in _written_names(callsite, wrapper.kernels):
            text.last_write[name] = max(callsite.line, text.last_write.get(name, 0))
            if callsite.line not in (lines := text.writes.setdefault(name, [])):
                lines.append(callsite.line)
            if callsite.line <= first.setdefault(name, callsite.line) and role == "inout":
                updated.add(name)
    return updated


def _written_names(callsite: Callsite, kernels: Mapping[str, GeneratedKernel]) -> Iterator[tuple[str, str]]:
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
    schema = _schema_of(callsite)
    if schema is None or not schema.is_mutable:
        return
    named = dict(zip([a.name for a in schema.arguments], callsite.args, strict=False)) | callsite.kwargs
    for name in written_names(schema):
        if name in named and name not in callsite.kwargs.keys() & {"out"}:  # that one is an output
            for part in named[name].items or (named[name],):
                yield part.name, "inout"


def _schema_of(callsite: Callsite) -> Any:
    if not callsite.path.startswith(("torch.ops.", "aten.")):
        return None
    operator: Any = torch.ops
    for part in callsite.path.removeprefix("torch.ops.").split("."):
        operator = getattr(operator, part, None)
    return getattr(operator, "_schema", None)


def _roles(kernel: GeneratedKernel) -> list[str]:
    if kernel.maker == "cpp_pybinding":
        made_inside = set(_MADE_INSIDE.findall(kernel.source))
        return ["out" if name in made_inside else role for name, role in cpp_arguments(kernel.source)]
    found = re.search(rf"def {re.escape(kernel.name)}\(([^)]*)\)", kernel.source)
    if found is None:
        named = re.search(r"@triton\.jit\s+def (\w+)\(([^)]*)\)", kernel.source)
        if named is None:
            return []
        roles = roles_in_source(kernel.source, named[1])
        return [roles.get(n, "scalar") for n in _parameters(named[2])]
    names = _parameters(found[1])
    roles = inductor_roles(kernel.source, kernel.name, names, ())
    return [
        "inout" if n.startswith("in_out_ptr") else "out" if _WRITTEN.match(n) else roles[n] for n in names
    ]


def _parameters(text: str) -> list[str]:
    return [p.split(":")[0].strip() for p in text.split(",") if p.strip() and "constexpr" not in p]
