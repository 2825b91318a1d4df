"""Reading the Python that Inductor generates around its kernels, and marking the calls in it.

Needs no torch: a wrapper is text. Each call that `choose` picks is rewritten to call a hook of its own, so
that every launch knows its place in the source without looking at the stack, and calls that go through no
global (`workspace_0.zero_()`) are seen as well. Where a note will do, the call stays as it is and a statement
before it makes the note.

What the new code needs of ours are constants of the code object itself (`bind` puts them in place of their
names). Nothing is added to the module, and code that still runs when a recording closes has what it needs.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, TypeAlias

PREFIX = "_kernelscope_"  # one underscore: two would be mangled inside a class
# The constants that a note uses, and the local variables.
BUS, HERE, TIME, COMPACT_CALL = f"{PREFIX}bus", f"{PREFIX}here", f"{PREFIX}time", f"{PREFIX}compact"
GRAPH_CALL, END = f"{PREFIX}graph_call", f"{PREFIX}end"
_SYMBOL = re.compile(r"[su]\d+")  # a size that is known only when the graph runs
_NOT_THE_PROGRAM = {"benchmark_compiled_module", "get_args", "recursively_apply_fns", "__init__"}
_SHAPES_AT = {"assert_size_stride": 1, "reinterpret_tensor": 1, "alloc_from_pool": 3}  # size, then stride


Codes: TypeAlias = dict[tuple[str, int], CodeType]  # by qualified name and first line


@dataclass(frozen=True, slots=True)
class ArgText:
    """An argument as the wrapper wrote it."""

    name: str  # the variable in it: buf3 for reinterpret_tensor(buf3, …)
    literal: bool
    items: tuple[ArgText, ...] | None = None  # of a list or tuple display
    node: ast.expr | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Callsite:
    """One call expression of the wrapper."""

    hook: str  # name of the constant that it calls while a recording is open
    line: int
    path: str  # what it calls: "extern_kernels.addmm", "triton_poi_fused_0.run"; ".zero_" on a local
    args: tuple[ArgText, ...]
    kwargs: dict[str, ArgText]
    target: str  # what its result is assigned to

    @property
    def steady(self) -> str:
        """The constant with the number that a note of this call has for it."""
        return f"{self.hook}_steady"


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as defined in the wrapper: `name = async_compile.maker(…, source)`."""

    name: str
    maker: str
    source: str


@dataclass(slots=True)
class Wrapper:
    """What the text of a wrapper tells."""

    aot_name: str = ""
    is_static: bool = True  # every shape in it is a number
    kernels: dict[str, KernelText] = field(default_factory=dict)
    callsites: list[Callsite] = field(default_factory=list)
    codes: Codes = field(default_factory=dict)
    statements: list[tuple[int, bool]] = field(default_factory=list)  # (line, whether it ends its function)

    def statement_after(self, line: int) -> int | None:
        """The next line of the same function that does something, if there is one."""
        position = bisect_right(self.statements, (line, True))
        if position == len(self.statements) or self.statements[position][1]:
            return None
        return self.statements[position][0]


Choose = Callable[[str, Mapping[str, KernelText]], bool]


def read_wrapper(
    source: str,
    filename: str,
    choose: Choose,
    noted: frozenset[str] = frozenset(),
    *,
    ends: bool = False,
) -> Wrapper:
    """Parse a wrapper; `choose` says for a called path and the known kernels whether to hook the call.

    The hooks named in `noted` are replaced by notes, where a call is a statement of its own; with `ends`
    another statement follows it, for those who want to know when the launch is over.
    """
    tree = ast.parse(source, filename)
    wrapper = Wrapper(aot_name=_aot_name(source))
    for statement in tree.body:
        kernel = _kernel_definition(statement)
        if kernel is not None:
            wrapper.kernels[kernel.name] = kernel
    marker = _Marker(wrapper, choose, noted, ends)
    for function in program_functions(tree):
        wrapper.statements += _statements(function)
        marker.mark(function)
    wrapper.statements.sort()
    ast.fix_missing_locations(tree)
    wrapper.codes = dict(codes_in(compile(tree, filename, "exec", dont_inherit=True)))
    return wrapper


def _aot_name(source: str) -> str:
    found = re.match(r"\s*# AOT ID: \['?([^'\]]*)", source)
    return found.group(1) if found else ""


def _kernel_definition(statement: ast.stmt) -> KernelText | None:
    match statement:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=maker), args=args),
        ):
            texts = [a.value for a in args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            return KernelText(name, maker, max(texts, key=len, default=""))
    return None


def program_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        for member in members:
            if isinstance(member, ast.FunctionDef) and member.name not in _NOT_THE_PROGRAM:
                yield member


def _statements(function: ast.FunctionDef) -> Iterator[tuple[int, bool]]:
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.Delete | ast.FunctionDef):
            yield node.lineno, isinstance(node, ast.Return)


def codes_in(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from codes_in(constant)


def hook_name(call: ast.Call) -> str:
    """Named by its place, so that it has the same name however many other calls are hooked."""
    return f"{PREFIX}{call.lineno}_{call.col_offset}_{call.end_col_offset}"


class _Marker(ast.NodeTransformer):
    def __init__(self, wrapper: Wrapper, choose: Choose, noted: frozenset[str], ends: bool) -> None:
        self._wrapper = wrapper
        self._choose = choose
        self._noted = noted
        self._ends = ends
        self._locals: set[str] = set()
        self._target = ""

    def mark(self, function: ast.FunctionDef) -> None:
        self._locals = {a.arg for a in function.args.args} | {
            n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        if any(_SYMBOL.fullmatch(name) for name in self._locals):
            self._wrapper.is_static = False
        self.generic_visit(function)
        if self._noted:
            function.body[:0] = at(f"{GRAPH_CALL} = {HERE!r}.graph_call", function.body[0])

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        self._target = ast.unparse(node.targets[0])
        try:
            return self._statement(node)
        finally:
            self._target = ""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        return self._statement(node)

    def _statement(self, node: ast.Assign | ast.Expr) -> ast.AST | list[ast.stmt]:
        """A launch that is a statement can be noted by another one before it."""
        launched, before = node.value, len(self._wrapper.callsites)
        called = launched.func if isinstance(launched, ast.Call) else None
        self.generic_visit(node)
        inside = self._wrapper.callsites[before:]
        if called is None or len(inside) != 1 or inside[0].hook not in self._noted:
            return node
        assert isinstance(launched, ast.Call)
        if not _calls(launched, inside[0].hook):
            return node  # it is an argument that launches
        launched.func = called
        if inside[0].path.startswith("."):
            del launched.args[0]  # the receiver
        noted = note(inside[0].steady)
        if not self._ends:
            return [*at(in_a_graph(noted), node), node]
        # Also outside of a graph: what stood in the variable was called already.
        end = f"if {GRAPH_CALL} >= 0 and {END}: {END}()"
        return [*at(in_a_graph(f"{END} = {noted}"), node), node, *at(end, node)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        target, self._target = self._target, ""  # it belongs to the outermost call only
        self.generic_visit(node)
        path = self._path(node.func)
        if path is None:
            return node
        self._note_shapes(path, node)
        if not self._choose(path, self._wrapper.kernels):
            return node
        receiver = [node.func.value] if path.startswith(".") and isinstance(node.func, ast.Attribute) else []
        node.args = [*receiver, *node.args]
        hook = hook_name(node)
        args = tuple(_arg_text(a) for a in node.args)
        kwargs = {k.arg: _arg_text(k.value) for k in node.keywords if k.arg}
        self._wrapper.callsites.append(Callsite(hook, node.lineno, path, args, kwargs, target))
        node.func = _at_place(ast.Attribute(ast.Constant(hook), "launch", ast.Load()), node.func)
        return node

    def _path(self, func: ast.expr) -> str | None:
        names: list[str] = []
        while isinstance(func, ast.Attribute):
            names.append(func.attr)
            func = func.value
        if not isinstance(func, ast.Name):
            # A method of an expression, such as reinterpret_tensor(…).copy_(…).
            return f".{names[0]}" if len(names) == 1 else None
        if func.id in self._locals:
            return f".{names[0]}" if len(names) == 1 else None
        return ".".join([func.id, *reversed(names)])

    def _note_shapes(self, path: str, node: ast.Call) -> None:
        name = path.rpartition(".")[2]
        first = 0 if name.startswith("empty_strided") else _SHAPES_AT.get(name)
        sizes = node.args[first : first + 2] if first is not None else []
        if any(isinstance(part, ast.Name) for size in sizes for part in ast.walk(size)):
            self._wrapper.is_static = False


class Hook:
    """What a call in a wrapper is rewritten to; Python warns of a constant that is called itself."""

    __slots__ = ("launch",)

    def __init__(self, launch: Callable[..., Any]) -> None:
        self.launch = launch


def bind(codes: Codes, constants: Mapping[str, Any]) -> Codes:
    """The code with these constants in place of their names."""
    return {place: _bound(code, constants) for place, code in codes.items()}


def _bound(code: CodeType, constants: Mapping[str, Any]) -> CodeType:
    def bound(constant: Any) -> Any:
        if isinstance(constant, CodeType):
            return _bound(constant, constants)
        return constants.get(constant, constant) if type(constant) is str else constant

    return code.replace(co_consts=tuple(map(bound, code.co_consts)))


def _calls(call: ast.Call, hook: str) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Constant(value=name)):
            return bool(name == hook)
    return False


def _at_place(node: ast.expr, place: ast.expr) -> ast.expr:
    for part in ast.walk(node):
        ast.copy_location(part, place)
    return node


def note(steady: str) -> str:
    """The statement that notes a launch: nothing more, because a graph may have a thousand of them."""
    return f"{BUS!r}.note({COMPACT_CALL!r}.pack({steady!r}, {GRAPH_CALL}, {TIME!r}.monotonic_ns()))"


def in_a_graph(*statements: str) -> str:
    """These, unless the wrapper is run for another purpose than the program's own."""
    return f"if {GRAPH_CALL} >= 0: " + "; ".join(statements)


def at(text: str, place: ast.stmt) -> list[ast.stmt]:
    """Statements that have the line of another one."""
    statements = ast.parse(text).body
    for statement in statements:
        for node in ast.walk(statement):
            ast.copy_location(node, place)
    return statements


def _arg_text(node: ast.expr) -> ArgText:
    if isinstance(node, ast.List | ast.Tuple):
        items = tuple(_arg_text(item) for item in node.elts)
        return ArgText("", all(i.literal for i in items), items)
    if isinstance(node, ast.Constant) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    ):
        return ArgText("", True)
    if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
        return ArgText("", True)  # torch.float32
    if isinstance(node, ast.Call) and node.args:  # reinterpret_tensor(buf0, …), our own hooks
        return ArgText(_arg_text(node.args[0]).name, False, node=node)
    return ArgText(ast.unparse(node), False, node=node)
