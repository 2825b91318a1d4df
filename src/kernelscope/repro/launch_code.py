"""The code that one launch in a wrapper needs: imports, the kernel, the call."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelscope.generated_code.wrapper import VIEW, Wrapper, names_in

_KERNELS = "async_compile"


@dataclass(slots=True)
class LaunchCode:
    """One launch, as the wrapper has it."""

    call: str  # the expression, with the kernel's names for its arguments
    target: str = ""  # the variable that gets the result
    items: dict[int, str] = field(default_factory=dict)  # of a result that is a tuple: variable by index
    free: tuple[str, ...] = ()  # names that the call needs besides its tensors
    setup: tuple[str, ...] = ()  # local statements that bind some of them: stream0 = …


def launch_at(
    wrapper: Wrapper, line: int, names: Sequence[tuple[str, str]], *, positional: bool
) -> LaunchCode | None:
    """The launch on a line; `names`: of each tensor argument the wrapper's and the kernel's name.

    A generated kernel is called with its arguments in order; an operator's are found by name.
    """
    function = wrapper.function_at(line)
    statements = [
        s
        for s in (function.statements if function is not None else ())
        if isinstance(s, ast.Assign | ast.Expr)
        and s.lineno <= line <= (s.end_lineno or s.lineno)
        and isinstance(s.value, ast.Call)
    ]
    if not statements:
        return None
    statement = min(statements, key=lambda s: (s.end_lineno or s.lineno) - s.lineno)
    call = ast.parse(ast.unparse(statement.value), mode="eval").body
    assert isinstance(call, ast.Call)
    target = ""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        target = statement.targets[0].id
    if positional:
        for i, (_, name) in enumerate(names):
            if name and i < len(call.args):
                call.args[i] = ast.Name(name, ast.Load())
    else:
        call = _Renaming(names).visit(call)
    own = {name for _, name in names}
    free = tuple(dict.fromkeys(n for n in names_in(call) if n not in own))
    streams = [
        next((a for a in reversed(wrapper.assignments) if a.target == n and a.line < line), None)
        for n in free
        if "stream" in n
    ]
    setup = [(f"{a.target} = {ast.unparse(a.value)}", a.value) for a in streams if a is not None]
    more = [n for _, value in setup for n in names_in(value) if n not in free]
    return LaunchCode(
        ast.unparse(call), target, wrapper.items(target), (*free, *more), tuple(text for text, _ in setup)
    )


def needed(wrapper: Wrapper, names: Sequence[str]) -> list[str]:
    """The statements at the top of the wrapper that bind these names, and what those need."""
    bound = {name: s for s in reversed(wrapper.tree.body) for name in _bound(s)}
    found: dict[int, ast.stmt] = {}
    todo, seen = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name in seen or name not in bound:
            continue
        seen.add(name)
        statement = found[bound[name].lineno] = bound[name]
        todo += names_in(statement)
    lines = wrapper.source.splitlines()
    texts = ["\n".join(lines[s.lineno - 1 : s.end_lineno]) for _, s in sorted(found.items())]
    return [*texts, f"{_KERNELS}.wait(globals())"] if _KERNELS in seen else texts


def binds(wrapper: Wrapper, name: str) -> bool:
    return any(name in _bound(s) for s in wrapper.tree.body)


class _Renaming(ast.NodeTransformer):
    """The wrapper's variables, and views of them, by the names of the arguments that they are."""

    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        self._left: dict[str, list[str]] = {}
        for wrappers, kernels in names:
            if wrappers:
                self._left.setdefault(wrappers, []).append(kernels)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node.func) == VIEW and node.args and (name := self._take(node.args[0])):
            return ast.Name(name, ast.Load())
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self._take(node)
        return ast.Name(name, ast.Load()) if name else node

    def _take(self, node: ast.expr) -> str:
        left = self._left.get(node.id, []) if isinstance(node, ast.Name) else []
        return (left.pop(0) if len(left) > 1 else left[0]) if left else ""


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(a.asname or a.name).partition(".")[0] for a in statement.names]
    if isinstance(statement, ast.Assign):
        return [t.id for t in statement.targets if isinstance(t, ast.Name)]
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    return []
