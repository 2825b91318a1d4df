"""The calls in the functions of a wrapper: what each one calls, and with which arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .kernels import GeneratedKernel
from .syntax import children, walk

PREFIX = "_kernelscope_"  # one underscore: two would be mangled inside a class
_SYMBOL = re.compile(r"[su]\d+")  # a size that is known only when the graph runs
_SHAPES_AT = {"assert_size_stride": 1, "reinterpret_tensor": 1, "alloc_from_pool": 3}  # size, then stride

# Which calls to read: by the path that is called and the kernels of the wrapper.
Choose = Callable[[str, Mapping[str, GeneratedKernel]], bool]


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

    hook: str  # a name made of its position: what may replace it has this name
    line: int
    path: str  # what it calls: "extern_kernels.addmm", "triton_poi_fused_0.run"; ".zero_" on a local
    args: tuple[ArgText, ...]  # of a method of a local: the local first
    kwargs: dict[str, ArgText]
    target: str  # what its result is assigned to
    elsewhere: bool = False  # in a block that may have chosen another stream

    @property
    def steady(self) -> str:
        """The constant with the number that a note of this call has for it."""
        return f"{self.hook}_steady"


def hook_name(call: ast.Call) -> str:
    """Named by its position, so that it has the same name however many other calls are hooked."""
    return f"{PREFIX}{call.lineno}_{call.col_offset}_{call.end_col_offset}"


class CallReader:
    """Reads functions: their statements and chosen calls, both in the order of the text."""

    def __init__(self, choose: Choose, kernels: Mapping[str, GeneratedKernel]) -> None:
        self.is_static = True  # every shape is a number
        self.callsites: list[Callsite] = []
        self.calls: list[ast.Call] = []  # of each callsite
        self.alone: dict[ast.stmt, Callsite] = {}  # statements that are nothing but one chosen call
        self._choose = choose
        self._kernels = kernels
        # Of the function that is being read:
        self._statements: list[ast.stmt] = []
        self._found: list[
            tuple[ast.Call, str, bool]
        ] = []  # inner ones first; what gets the result; elsewhere
        self._around: list[tuple[ast.Assign | ast.Expr, int, int]] = []  # and the calls in it
        self._locals: set[str] = set()
        self._target = ""
        self._own_streams: set[str] = set()  # variables that hold the stream that the function was called on
        self._switched = 0  # blocks around it that may have chosen another stream

    def read(self, function: ast.FunctionDef) -> list[ast.stmt]:
        """Gives the statements of the function, those inside of others too."""
        self._statements, self._found, self._around = [], [], []
        self._own_streams, self._switched = set(), 0
        self._locals = {a.arg for a in function.args.args}
        for node in children(function):
            self._visit(node)
        if any(_SYMBOL.fullmatch(name) for name in self._locals):
            self.is_static = False
        chosen = [len(self.calls)]  # so many, up to each call
        for call, target, elsewhere in self._found:
            self._read_call(call, target, elsewhere)
            chosen.append(len(self.calls))
        for statement, first, end in self._around:
            place = chosen[first]
            if chosen[end] == place + 1 and self.calls[place] is statement.value:
                self.alone[statement] = self.callsites[place]
        return self._statements

    def _visit(self, node: ast.AST) -> None:
        kind = type(node)
        if kind is ast.Constant:
            return
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                self._locals.add(node.id)
        elif isinstance(node, ast.stmt):
            self._visit_statement(node)
        elif isinstance(node, ast.Call):
            target, self._target = self._target, ""  # it belongs to the outermost call only
            for child in children(node):
                self._visit(child)
            self._found.append((node, target, self._switched > 0))
        else:
            for child in children(node):
                self._visit(child)

    def _visit_statement(self, node: ast.stmt) -> None:
        self._statements.append(node)
        first = len(self._found)
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            self._target = target.id if isinstance(target, ast.Name) else ast.unparse(target)
            if not self._switched and _called(node.value) == "current_stream":
                self._own_streams.add(self._target)
        else:
            self._target = ""
        switches = isinstance(node, ast.With) and not all(map(self._keeps_stream, node.items))
        self._switched += switches
        for child in children(node):
            self._visit(child)
        self._switched -= switches
        self._target = ""
        if isinstance(node, ast.Assign | ast.Expr):
            self._around.append((node, first, len(self._found)))

    def _keeps_stream(self, item: ast.withitem) -> bool:
        """Whether entering a block leaves the stream of the graph the current one."""
        entered = item.context_expr
        if isinstance(entered, ast.Name):
            return entered.id in self._own_streams
        return chooses_a_device(entered) or _called(entered) == "use_mem_pool"

    def _read_call(self, node: ast.Call, target: str, elsewhere: bool) -> None:
        path = self._path(node.func)
        if path is None:
            return
        self._note_shapes(path, node)
        if self._choose(path, self._kernels):
            receiver = [node.func.value] if path[0] == "." and isinstance(node.func, ast.Attribute) else []
            args = tuple(map(_arg_text, [*receiver, *node.args]))
            kwargs = {k.arg: _arg_text(k.value) for k in node.keywords if k.arg}
            self.callsites.append(
                Callsite(hook_name(node), node.lineno, path, args, kwargs, target, elsewhere)
            )
            self.calls.append(node)

    def _path(self, func: ast.expr) -> str | None:
        names: list[str] = []
        while isinstance(func, ast.Attribute):
            names.append(func.attr)
            func = func.value
        if isinstance(func, ast.Name) and func.id not in self._locals:
            return ".".join([func.id, *reversed(names)])
        # A method of a local or of an expression: reinterpret_tensor(…).copy_(…).
        return f".{names[0]}" if len(names) == 1 else None

    def _note_shapes(self, path: str, node: ast.Call) -> None:
        name = path.rpartition(".")[2]
        first = 0 if name.startswith("empty_strided") else _SHAPES_AT.get(name)
        sizes = node.args[first : first + 2] if first is not None else []
        if any(isinstance(part, ast.Name) for size in sizes for part in walk(size)):
            self.is_static = False


def chooses_a_device(context: ast.expr) -> bool:
    """Whether a `with` does no more than that."""
    return _called(context) in ("_DeviceGuard", "device", "nullcontext")


def _called(node: ast.expr) -> str:
    """The last name of what an expression calls."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _arg_text(node: ast.expr) -> ArgText:
    if isinstance(node, ast.Name):
        return ArgText(node.id, False, node=node)
    if isinstance(node, ast.List | ast.Tuple):
        items = tuple(_arg_text(item) for item in node.elts)
        return ArgText("", all(i.literal for i in items), items)
    if isinstance(node, ast.Constant) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    ):
        return ArgText("", True)
    if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
        return ArgText("", True)  # torch.float32
    if isinstance(node, ast.Call) and node.args:  # reinterpret_tensor(buf0, …)
        return ArgText(_arg_text(node.args[0]).name, False, node=node)
    return ArgText(ast.unparse(node), False, node=node)
