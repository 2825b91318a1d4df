"""Which pointers a Triton kernel reads and which it writes, from its source.

Follows each parameter through assignments to the loads and stores it reaches. Whatever cannot be followed
(a pointer handed to another function) counts as read and written: a wrong "only written" would hide an input.
"""

from __future__ import annotations

import ast
import textwrap
from functools import cache

from kernelscope.events import Role

_READS = {"load", "load_tensor_descriptor"}
_WRITES = {"store", "store_tensor_descriptor"}
_HARMLESS = {
    "abs", "advance", "arange", "argmax", "argmin", "broadcast_to", "cast", "cdiv", "clamp", "cos",
    "cumsum", "device_assert", "device_print", "dot", "erf", "exp", "exp2", "expand_dims", "float",
    "fma", "full", "int", "len", "log", "log2", "make_block_ptr", "make_tensor_descriptor", "max",
    "max_contiguous", "maximum", "min", "minimum", "multiple_of", "num_programs", "program_id", "range",
    "reshape", "rsqrt", "sigmoid", "sin", "sqrt", "static_assert", "static_print", "static_range", "sum",
    "to", "trans", "view", "where", "zeros",
}  # fmt: skip


@cache
def roles_in_source(source: str, name: str) -> dict[str, Role]:
    """Role of each parameter of the named function that is used as a pointer."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return {}
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
    if function is None:
        return {}
    tracer = _Tracer(
        [a.arg for a in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]]
    )
    while tracer.grew:  # a loop carries a pointer back to where it was used
        tracer.grew = False
        for statement in function.body:
            tracer.visit(statement)
    return {name: tracer.role(name) for name in tracer.parameters if tracer.role(name) is not None}  # type: ignore[misc]


class _Tracer(ast.NodeVisitor):
    def __init__(self, parameters: list[str]) -> None:
        self.parameters = parameters
        self.grew = True
        self._carries: dict[str, set[str]] = {p: {p} for p in parameters}
        self._read: set[str] = set()
        self._written: set[str] = set()

    def role(self, name: str) -> Role | None:
        if name in self._written:
            return "inout" if name in self._read else "out"
        return "in" if name in self._read else None

    def _pointers(self, node: ast.AST) -> set[str]:
        """Parameters whose address may be in the expression's value (not those it loads a value through)."""
        if isinstance(node, ast.Call) and _called(node) in (_READS | {"sum", "dot", "max", "min"}):
            return set()
        if isinstance(node, ast.Attribute) and node.attr in ("dtype", "shape", "type"):
            return set()
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
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, self._pointers(node.value))

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = _called(node)
        receiver = self._pointers(node.func.value) if isinstance(node.func, ast.Attribute) else set()
        first = self._pointers(node.args[0]) if node.args else set()
        for keyword in node.keywords:
            if keyword.arg == "pointer":
                first = first | self._pointers(keyword.value)
        if name in _READS:
            self._read |= first | receiver
        elif name in _WRITES:
            self._written |= first | receiver
        elif name.startswith("atomic_"):
            self._read |= first | receiver
            self._written |= first | receiver
        elif name not in _HARMLESS:
            anywhere = set().union(
                receiver, *(self._pointers(a) for a in [*node.args, *[k.value for k in node.keywords]])
            )
            self._read |= anywhere
            self._written |= anywhere


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
