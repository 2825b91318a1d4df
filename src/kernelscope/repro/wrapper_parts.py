"""The part of a generated wrapper that one launch needs: imports, the kernel, the call. Needs no torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from keyword import iskeyword

_KERNELS = "async_compile"
_VIEW = "reinterpret_tensor"


@dataclass(slots=True)
class LaunchText:
    """One launch, as the wrapper has it."""

    call: str  # the expression, with the kernel's names for its arguments
    target: str = ""  # the variable that gets the result
    items: dict[int, str] = field(default_factory=dict)  # of a result that is a tuple: variable by place
    free: tuple[str, ...] = ()  # names that the call needs besides its tensors
    setup: tuple[str, ...] = ()  # local statements that bind some of them: stream0 = …


@dataclass(frozen=True, slots=True)
class ReturnedView:
    """A result that is another view of a buffer; sizes may be symbols."""

    shape: tuple[str, ...]
    stride: tuple[str, ...]
    offset: str


class Wrapper:
    """A wrapper's source, read."""

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self._tree: ast.Module | None = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            self._tree = None
        self._locals = [n for n in ast.walk(self._tree) if isinstance(n, ast.stmt)] if self._tree else []

    @property
    def is_readable(self) -> bool:
        return self._tree is not None

    def renamed(self) -> dict[str, str]:
        """By variable: the one whose memory it goes on with (`buf2 = buf1; del buf1  # reuse`)."""
        found = {}
        for s in self._locals:
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
                value = s.value
                if isinstance(value, ast.Call) and ast.unparse(value.func) == _VIEW:
                    value = value.args[0]
                if isinstance(value, ast.Name):
                    found[s.targets[0].id] = value.id
        return found

    def results(self, function: str = "call") -> list[str]:
        """The variable in each result of the graph, or of a body in it."""
        return [_first_name(part) for part in self._returned(function)]

    def views(self) -> list[ReturnedView | None]:
        """How each result looks at the memory of its variable; None: as that does."""
        return [_view(part) for part in self._returned("call")]

    def reused(self) -> set[str]:
        """Variables that are given the memory of another, not its value: it is written before it is read."""
        lines = self.source.splitlines()
        return {new for s in self._locals for new in _bound(s) if lines[s.lineno - 1].endswith("# reuse")}

    def function_at(self, line: int) -> str:
        """The innermost function that a line is in: `call`, or the body of a branch or loop."""
        found = self._function_around(line)
        return found.name if found is not None else ""

    def _function_around(self, line: int) -> ast.FunctionDef | None:
        functions = [s for s in self._locals if isinstance(s, ast.FunctionDef)]
        around = [f for f in functions if f.lineno <= line <= (f.end_lineno or f.lineno)]
        return max(around, key=lambda f: f.lineno, default=None)

    def _end_of_function(self, line: int) -> int:
        """Below stand others, such as one that times the wrapper, with variables of the same names."""
        found = self._function_around(line)
        return found.end_lineno or line if found is not None else line

    def is_read_after(self, name: str, line: int) -> bool:
        """Whether anything looks at a variable after this line; what is only freed may hold anything.

        So does who looks at the memory that it is a part of: `buf0 = reinterpret_tensor(buf2, …)  # alias`.
        """
        seen: set[str] = set()
        last = self._end_of_function(line)
        while name and name not in seen:
            if any(line < n <= last for n in self._reads.get(name, ())):
                return True
            seen.add(name)
            name = self._renamed.get(name, "")
        return False

    @cached_property
    def _renamed(self) -> dict[str, str]:
        return self.renamed()

    @cached_property
    def _reads(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for n in ast.walk(self._tree) if self._tree is not None else ():
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
                found.setdefault(n.id, []).append(n.lineno)
        return found

    def _returned(self, function: str) -> list[ast.expr]:
        for s in self._locals:
            if isinstance(s, ast.FunctionDef) and s.name == function:
                for inner in ast.walk(s):
                    if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Tuple):
                        return inner.value.elts
        return []

    def launch(self, line: int, names: Sequence[tuple[str, str]], *, positional: bool) -> LaunchText | None:
        """The launch on a line; `names`: of each tensor argument the wrapper's and the kernel's name.

        A generated kernel is called with its arguments in order; an operator's are found by name.
        """
        statements = [
            s
            for s in self._locals
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
            for place, (_, name) in enumerate(names):
                if name and place < len(call.args):
                    call.args[place] = ast.Name(name, ast.Load())
        else:
            call = _Renaming(names).visit(call)
        own = {name for _, name in names}
        free = tuple(dict.fromkeys(n for n in _names(call) if n not in own))
        setup = tuple(ast.unparse(s) for n in free for s in self._binding(n, line))
        more = [n for text in setup for n in _names(ast.parse(text)) if n not in free]
        return LaunchText(ast.unparse(call), target, self._items(target), (*free, *more), setup)

    def targets(self, line: int) -> dict[int, str]:
        """By place among the tensors that the launch on a line returns: the variable that gets it."""
        for s in self._locals:
            if not (isinstance(s, ast.Assign) and s.lineno <= line <= (s.end_lineno or s.lineno)):
                continue
            if isinstance(s.targets[0], ast.Name) and isinstance(s.value, ast.Call):
                return self._items(s.targets[0].id) or {0: s.targets[0].id}
        return {}

    def _items(self, target: str) -> dict[int, str]:
        found = {}
        for s in self._locals:
            if not (isinstance(s, ast.Assign) and isinstance(s.value, ast.Subscript)):
                continue
            value, place, variable = s.value.value, s.value.slice, s.targets[0]
            of_target = isinstance(value, ast.Name) and value.id == target
            if of_target and isinstance(place, ast.Constant) and isinstance(variable, ast.Name):
                found[int(str(place.value))] = variable.id
        return found

    def _binding(self, name: str, line: int) -> list[ast.stmt]:
        """`stream0 = get_raw_stream(0)`, in the function that launches."""
        found = [
            s
            for s in self._locals
            if isinstance(s, ast.Assign)
            and s.col_offset > 0
            and s.lineno < line
            and "stream" in name
            and isinstance(s.targets[0], ast.Name)
            and s.targets[0].id == name
        ]
        return list(found[-1:])

    def needed(self, names: Sequence[str]) -> list[str]:
        """The statements at the top of the wrapper that bind these names, and what those need."""
        if self._tree is None:
            return []
        bound: dict[str, ast.stmt] = {}
        for s in self._tree.body:
            for name in _bound(s):
                bound.setdefault(name, s)
        wanted: dict[int, ast.stmt] = {}
        todo, seen = list(names), set[str]()
        while todo:
            name = todo.pop()
            if name in seen or name not in bound:
                continue
            seen.add(name)
            s = bound[name]
            wanted[s.lineno] = s
            todo += _names(s)
        lines = self.source.splitlines()
        texts = []
        for number in sorted(wanted):
            s = wanted[number]
            texts.append("\n".join(lines[s.lineno - 1 : s.end_lineno]))
        if _KERNELS in seen:
            texts.append(f"{_KERNELS}.wait(globals())")
        return texts

    def binds(self, name: str) -> bool:
        return self._tree is not None and any(name in _bound(s) for s in self._tree.body)


class _Renaming(ast.NodeTransformer):
    """The wrapper's variables, and views of them, by the names of the arguments that they are."""

    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        self._left: dict[str, list[str]] = {}
        for wrappers, kernels in names:
            if wrappers:
                self._left.setdefault(wrappers, []).append(kernels)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node.func) == _VIEW and node.args and (name := self._take(node.args[0])):
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


def _names(tree: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]


def _first_name(node: ast.expr) -> str:
    return next((n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id != _VIEW), "")


def _view(node: ast.expr) -> ReturnedView | None:
    """Of `reinterpret_tensor(buf0, (6, 6), (1, 6), 0)`."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == _VIEW and len(node.args) == 4):
        return None
    _, shape, stride, offset = node.args
    if not (isinstance(shape, ast.Tuple) and isinstance(stride, ast.Tuple)):
        return None
    sizes, strides = (tuple(ast.unparse(each) for each in part.elts) for part in (shape, stride))
    return ReturnedView(sizes, strides, ast.unparse(offset))


def uniquely(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Names that can be variables of a script, each once."""
    made: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name) or "value"
        plain = f"_{plain}" if plain[0].isdigit() else f"{plain}_" if iskeyword(plain) else plain
        number, each = 2, plain
        while each in made or each in taken:
            each, number = f"{plain}_{number}", number + 1
        made.append(each)
    return made
