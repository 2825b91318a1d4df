"""The Python that Inductor generates around the kernels of one graph, parsed once."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from .calls import CallReader, Choose
from .kernels import GeneratedKernel, kernels_in, parsed
from .syntax import walk

VIEW = "reinterpret_tensor"
_NOT_THE_PROGRAM = {"benchmark_compiled_module", "get_args", "recursively_apply_fns", "__init__"}


@dataclass(frozen=True, slots=True)
class Assignment:
    """A statement that gives one variable a value."""

    target: str
    value: ast.expr
    line: int
    end_line: int

    @property
    def renamed(self) -> str:
        """The variable whose memory the target continues: `buf1 = buf0`, or a view of it."""
        inner = _viewed(self.value)
        return inner.id if isinstance(inner, ast.Name) else ""

    @property
    def item(self) -> tuple[str, tuple[int, ...]]:
        """The variable that the target is an item of, and which: (buf1, (1, 0)) of `buf1[1][0]`."""
        value, indices = self.value, list[int]()
        while isinstance(value, ast.Subscript):
            if isinstance(value.slice, ast.Constant) and isinstance(value.slice.value, int):
                indices.insert(0, value.slice.value)
            value = value.value
        is_item = isinstance(value, ast.Name) and value is not self.value
        return (value.id, tuple(indices)) if is_item and isinstance(value, ast.Name) else ("", ())


@dataclass(frozen=True, slots=True)
class View:
    """Another view of a buffer; sizes may be symbols."""

    shape: tuple[str, ...]
    stride: tuple[str, ...]
    offset: str


@dataclass(frozen=True, slots=True)
class Result:
    """One value that a function returns: buf3, or reinterpret_tensor(buf3, …)."""

    variable: str  # "" if it is neither
    view: View | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """One function that runs kernels: `call`, a partition, or the body of a branch or loop."""

    node: ast.FunctionDef
    statements: list[ast.stmt]  # also those inside of other statements

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def end_line(self) -> int:
        return self.node.end_lineno or self.node.lineno

    @property
    def results(self) -> list[Result]:
        values = [s.value for s in self.statements if isinstance(s, ast.Return)]
        return next(([_result(e) for e in v.elts] for v in values if isinstance(v, ast.Tuple)), [])

    @property
    def assignments(self) -> Iterator[Assignment]:
        for s in self.statements:
            match s:
                case ast.Assign(targets=[ast.Name(id=target)], value=value):
                    yield Assignment(target, value, s.lineno, s.end_lineno or s.lineno)


class Wrapper:
    """What the text of a wrapper tells."""

    def __init__(
        self, source: str, filename: str = "<wrapper>", choose: Choose = lambda path, kernels: False
    ) -> None:
        """`choose` picks the calls that become callsites."""
        self.source = source
        self.tree = ast.parse(source, filename)
        found = re.match(r"\s*# AOT ID: \['?([^'\]]*)", source)
        self.aot_name = found.group(1) if found else ""
        self.kernels: Mapping[str, GeneratedKernel] = {k.name: k for k in kernels_in(self.tree)}
        reader = CallReader(choose, self.kernels)
        self.functions = [Function(f, reader.read(f)) for f in program_functions(self.tree)]
        self.is_static = reader.is_static
        self.callsites = reader.callsites
        self.calls = reader.calls  # of each callsite
        self.alone = reader.alone  # by statement that consists of one of these calls
        self._lines = sorted(  # (line, whether it ends its function)
            (s.lineno, isinstance(s, ast.Return))
            for function in self.functions
            for s in function.statements
            if not isinstance(s, ast.Delete | ast.FunctionDef)
        )

    @staticmethod
    @lru_cache(maxsize=16)
    def of_any_text(source: str) -> Wrapper:
        """Of text that may not be Python, which has nothing in it then. Not to be rewritten: it is shared."""
        return Wrapper(source if parsed(source).body else "")

    def release_tree(self) -> None:
        """Free the syntax tree, which is large; `callsites`, `kernels` and `statement_after` remain."""
        self.tree = ast.Module([], [])
        self.functions, self.calls, self.alone = [], [], {}

    def statement_after(self, line: int) -> int | None:
        """The next line of the same function that does something, if there is one."""
        position = bisect_right(self._lines, (line, True))
        if position == len(self._lines) or self._lines[position][1]:
            return None
        return self._lines[position][0]

    def function_at(self, line: int) -> Function | None:
        return next((f for f in self.functions if f.node.lineno <= line <= f.end_line), None)

    def results(self, function: str = "call") -> list[Result]:
        return next((f.results for f in self.functions if f.name == function), [])

    @cached_property
    def assignments(self) -> list[Assignment]:
        return [a for function in self.functions for a in function.assignments]

    @cached_property
    def renamed(self) -> dict[str, str]:
        """By variable: the one whose memory it continues (`buf2 = buf1; del buf1  # reuse`)."""
        return {a.target: a.renamed for a in self.assignments if a.renamed}

    @cached_property
    def reused(self) -> set[str]:
        """Variables that get the memory of another, not its value: they are written before they are read."""
        lines = self.source.splitlines()
        return {a.target for a in self.assignments if lines[a.line - 1].endswith("# reuse")}

    def is_read_after(self, name: str, line: int) -> bool:
        """Whether this function reads a variable, or memory that it is a part of, after this line.

        A part: `buf0 = reinterpret_tensor(buf2, …)  # alias`. To free a variable is not to read it.
        """
        function = self.function_at(line)
        last = function.end_line if function is not None else line
        seen: set[str] = set()
        while name and name not in seen:
            if any(line < n <= last for n in self._reads.get(name, ())):
                return True
            seen.add(name)
            name = self.renamed.get(name, "")
        return False

    @cached_property
    def _reads(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for function in self.functions:
            for n in walk(function.node):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
                    found.setdefault(n.id, []).append(n.lineno)
        return found

    def targets(self, line: int) -> dict[int, str]:
        """By place among the tensors that the launch on a line returns: the variable that gets it."""
        for a in self.assignments:
            if a.line <= line <= a.end_line and isinstance(a.value, ast.Call):
                return self.items(a.target) or {0: a.target}
        return {}

    def items(self, variable: str) -> dict[int, str]:
        """By index in a tuple: the variable that gets this item of it."""
        found = [(a.target, *a.item) for a in self.assignments]
        return {indices[0]: t for t, name, indices in found if name == variable and len(indices) == 1}


def program_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions that the program runs, as opposed to those that benchmark the wrapper."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        for member in members:
            if isinstance(member, ast.FunctionDef) and member.name not in _NOT_THE_PROGRAM:
                yield member


def without_the_rest(tree: ast.Module) -> ast.Module:
    """The functions that the program runs, and what their compilation depends on."""
    kept: list[ast.stmt] = [
        node
        for node in tree.body
        if (isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name not in _NOT_THE_PROGRAM)
        or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    return ast.Module(kept, [])


def _viewed(node: ast.expr) -> ast.expr:
    """buf0 of reinterpret_tensor(buf0, …); any other expression itself."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name == VIEW:
            return inner
    return node


def _result(node: ast.expr) -> Result:
    inner = node.args[0] if isinstance(node, ast.Call) and node.args else node
    variable = inner.id if isinstance(inner, ast.Name) else ""
    match node:
        case ast.Call(args=[_, ast.Tuple(elts=shape), ast.Tuple(elts=stride), offset]) if (
            _viewed(node) is not node
        ):
            view = View(tuple(map(ast.unparse, shape)), tuple(map(ast.unparse, stride)), ast.unparse(offset))
            return Result(variable, view)
    return Result(variable)


def names_in(tree: ast.AST) -> list[str]:
    """The names that this code reads."""
    return [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
