"""Which pointers a Triton kernel reads and which it writes, from its source.

Follows each parameter through assignments, and into the functions of the same source, to the loads and stores
that it reaches. A branch that the kernel's own constants rule out is not executed, and does not count. A
pointer that is handed to an unknown function may be read and written there: `Use.is_followed` tells.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kernelscope.events import Role

from .constants_in_source import UNKNOWN, Constants, assigned_names, constant, is_constexpr, taken

_READS = {"load", "load_tensor_descriptor", "_experimental_descriptor_load", "gather"}
_WRITES = {"store", "store_tensor_descriptor", "_experimental_descriptor_store", "scatter"}
_HARMLESS = {
    "abs", "advance", "arange", "argmax", "argmin", "assume", "broadcast_to", "cast", "cdiv", "clamp", "cos",
    "cumsum", "debug_barrier", "device_assert", "device_print", "dot", "erf", "exp", "exp2", "expand_dims",
    "float", "fma", "full", "int", "len", "log", "log2", "make_block_ptr", "make_tensor_descriptor", "max",
    "max_contiguous", "maximum", "min", "minimum", "multiple_of", "num_programs", "program_id", "range",
    "reshape", "rsqrt", "sigmoid", "sin", "sqrt", "static_assert", "static_print", "static_range", "sum",
    "to", "trans", "view", "where", "zeros",
}  # fmt: skip
_DEEPEST = 8  # functions inside of each other


@dataclass(frozen=True, slots=True)
class Use:
    """What a kernel does with a pointer that it is passed."""

    is_read: bool
    is_written: bool
    is_followed: bool  # else it may also be read and written where it cannot be seen


def roles_in_source(source: str, name: str) -> dict[str, Role]:
    """Role of each parameter that is used as a pointer; what cannot be followed counts as both."""
    found: dict[str, Role] = {}
    for each, use in uses_in_source(source, name).items():
        if use.is_written or not use.is_followed:
            found[each] = "inout" if use.is_read or not use.is_followed else "out"
        elif use.is_read:
            found[each] = "in"
    return found


@cache
def uses_in_source(source: str, name: str) -> dict[str, Use]:
    """What the named function does with each of its parameters; empty if it is not in the source."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return {}
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    if name not in functions:
        return {}
    parameters, kernel = _parameters(functions[name]), _Kernel(functions)
    kernel.trace(functions[name], {p: {p} for p in parameters}, {}, 0)
    return {p: Use(p in kernel.read, p in kernel.written, p not in kernel.handed_on) for p in parameters}


@dataclass(slots=True)
class _Kernel:
    """The functions of a source, and the parameters of the kernel by what happens to them."""

    functions: Mapping[str, ast.FunctionDef]
    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    handed_on: set[str] = field(default_factory=set)
    known: dict[Any, set[str]] = field(default_factory=dict)  # by call: the pointers that it returns

    def trace(
        self, function: ast.FunctionDef, pointers: dict[str, set[str]], constants: Constants, depth: int
    ) -> set[str]:
        """Follow one call of a function; gives the pointers that it may return."""
        given = frozenset((name, frozenset(found)) for name, found in pointers.items() if found)
        call = function.name, given, repr(sorted(constants.items()))
        if call not in self.known:
            self.known[call] = set()  # a function that calls itself
            tracer = _Tracer(self, function, pointers, constants, depth)
            while tracer.grew:  # a loop carries a pointer back to where it was used
                tracer.grew = False
                tracer.visit_all(function.body)
            self.known[call] = tracer.returned
        return self.known[call]


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [a.arg for a in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]]


class _Tracer(ast.NodeVisitor):
    def __init__(
        self,
        kernel: _Kernel,
        function: ast.FunctionDef,
        pointers: dict[str, set[str]],
        constants: Constants,
        depth: int,
    ) -> None:
        self.grew = True
        self.returned: set[str] = set()
        self._kernel, self._functions, self._depth = kernel, kernel.functions, depth
        self._carries = pointers
        changing = assigned_names(function)
        self._constants = {name: value for name, value in constants.items() if name not in changing}
        self._changing = changing

    def visit_all(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def _pointers(self, node: ast.AST) -> set[str]:
        """Parameters whose address may be in the expression's value (not those it loads a value through)."""
        if isinstance(node, ast.Call):
            name = _called(node)
            if name in (_READS | {"sum", "dot", "max", "min"}):
                return set()
            if name in self._functions and isinstance(node.func, ast.Name) and self._depth < _DEEPEST:
                return self._called_here(node, self._functions[name])
        if isinstance(node, ast.Attribute) and node.attr in ("dtype", "shape", "type"):
            return set()
        if isinstance(node, ast.IfExp) and (which := taken(node.test, self._constants)) is not None:
            return self._pointers(node.body if which else node.orelse)
        found = set(self._carries.get(node.id, ())) if isinstance(node, ast.Name) else set()
        for child in ast.iter_child_nodes(node):
            found |= self._pointers(child)
        return found

    def _assign(self, target: ast.AST, pointers: set[str]) -> None:
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                known = self._carries.setdefault(name.id, set())
                if not pointers <= known:
                    known |= pointers
                    self.grew = True

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        which = taken(node.test, self._constants)
        if which is not False:
            self.visit_all(node.body)
        if which is not True:
            self.visit_all(node.orelse)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            match target, node.value:
                case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
                    for name, value in zip(names, values, strict=True):
                        self._assign(name, self._pointers(value))
                case _:
                    self._assign(target, self._pointers(node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._assign(node.target, self._pointers(node.value))

    def visit_For(self, node: ast.For) -> None:
        self._assign(node.target, self._pointers(node.iter))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self._assign(node.target, self._pointers(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        self.visit(node.value)
        self._assign(node.target, self._pointers(node.value))
        if isinstance(node.target, ast.Name) and is_constexpr(node.annotation):
            name, value = node.target.id, constant(node.value, self._constants)
            if value is not UNKNOWN and name not in self._changing:
                self._constants[name] = value

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.returned |= self._pointers(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name, marks = _called(node), self._kernel
        receiver = self._pointers(node.func.value) if isinstance(node.func, ast.Attribute) else set()
        first = self._pointers(node.args[0]) if node.args else set()
        for keyword in node.keywords:
            if keyword.arg in ("pointer", "desc"):
                first = first | self._pointers(keyword.value)
        if name in _READS:
            marks.read |= first | receiver
        elif name in _WRITES:
            marks.written |= first | receiver
        elif name.startswith("atomic_"):
            marks.read |= first | receiver
            marks.written |= first | receiver
        elif name in self._functions and isinstance(node.func, ast.Name) and self._depth < _DEEPEST:
            self._called_here(node, self._functions[name])
        elif name not in _HARMLESS:
            marks.handed_on |= set().union(
                receiver, *(self._pointers(a) for a in [*node.args, *[k.value for k in node.keywords]])
            )

    def _called_here(self, call: ast.Call, function: ast.FunctionDef) -> set[str]:
        """A function of the same source: what it does with the pointers that this call gives it."""
        given = _bound(call, function)
        if given is None:
            return self._handed_on(call)
        pointers = {name: self._pointers(value) for name, value in given.items()}
        known = {name: constant(value, self._constants) for name, value in given.items()}
        constants = {name: value for name, value in known.items() if value is not UNKNOWN}
        if not any(pointers.values()):
            return set()
        return self._kernel.trace(function, pointers, constants, self._depth + 1)

    def _handed_on(self, call: ast.Call) -> set[str]:
        everything = [*call.args, *[k.value for k in call.keywords]]
        found = set[str]().union(*(self._pointers(a) for a in everything))
        self._kernel.handed_on |= found
        return found


def _bound(call: ast.Call, function: ast.FunctionDef) -> dict[str, ast.expr] | None:
    """The arguments of a call by the names of the parameters, defaults too; None: with * or **."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    names: Sequence[str] = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
    defaults = function.args.defaults
    found = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    found |= {
        a.arg: d
        for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if d is not None
    }
    found |= dict(zip(names, call.args, strict=False))
    return found | {k.arg: k.value for k in call.keywords if k.arg is not None}


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
