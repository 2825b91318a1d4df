"""A printed FX graph, read as text: which line computes what, from what."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from .kernels import parsed

_TENSOR = re.compile(r"^(?P<dtype>[a-z]\w*)\[(?P<shape>[^\]]*)\]")
# Names that the printed code uses without defining them.
_KNOWN = frozenset({"torch", "device", "inf", "nan", "self", "math", "operator", "fx_pytree", "print"})
# Random numbers that eager draws differently, kernels that it does not have, constants of the graph itself.
_UNREPEATABLE = ("prims.inductor_seeds.", "triton_kernel_wrapper", "bernoulli", "self.")
_OPERATOR = re.compile(r" = torch\.ops\.(?P<space>\w+)\.(?P<name>\w+)")
# It writes to each tensor of a list, and returns nothing; in a graph its users take items of it all the same.
_WRITES_A_LIST = re.compile(r"^(\w+) = (torch\.ops\.aten\._foreach_\w*_\.\w+)\(\[([^\[\]]*)\]")
_ITEM = re.compile(r"^\w+ = (\w+)\[(\d+)\]$")
_OF_TORCH = re.compile(r" = torch\.ops\.(aten|prims)\.")
_CASTS = re.compile(r"float16|half|dtype|type|\.to\(|autocast")
_VIEWS = {
    "_conj", "_neg_view", "_reshape_alias", "alias", "as_strided", "detach", "diagonal", "expand", "permute",
    "real", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind",
    "unfold", "unsqueeze", "view", "view_as_complex", "view_as_real",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FxLine:
    """One node, as it was printed."""

    name: str
    code: str  # without the annotation and what is freed
    needs: tuple[str, ...]
    shape: tuple[str, ...] | None = None  # as annotated: sizes may be symbols
    dtype: str = ""  # likewise: "f32"

    @property
    def written_list(self) -> tuple[str, ...]:
        """The nodes in the list that it writes to: `_foreach_add_`."""
        found = _WRITES_A_LIST.search(self.code)
        return tuple(name.strip() for name in found[3].split(",")) if found is not None else ()

    @property
    def statement(self) -> str:
        """Code that runs: what writes to a list returns nothing, so its name gets the list."""
        found = _WRITES_A_LIST.search(self.code)
        if found is None:
            return self.code
        return f"{found[1]} = [{found[3]}]; {found[2]}({found[1]}{self.code[found.end() :]}"

    @property
    def writes(self) -> tuple[str, ...]:
        """Nodes that it may write to; a name of torch's own that ends with "_" writes to its first."""
        if written := self.written_list:
            return written
        operator = _OPERATOR.search(self.code)
        if operator is None or not self.needs:
            return ()
        if operator["space"] in ("aten", "prims"):
            return self.needs[:1] if operator["name"].endswith("_") else ()
        return self.needs

    @property
    def viewed(self) -> str:
        """The node whose memory this one is a view of."""
        operator = _OPERATOR.search(self.code)
        if operator is None or not self.needs or self.written_list:
            return ""
        is_view = operator["name"] in _VIEWS or operator["name"].endswith("_")
        return self.needs[0] if is_view else ""


@dataclass(slots=True)
class FxText:
    """A printed graph."""

    inputs: dict[str, tuple[str, ...] | None] = field(default_factory=dict)  # shapes; None: not a tensor
    dtypes: dict[str, str] = field(default_factory=dict)  # of inputs
    symbols: dict[str, str] = field(default_factory=dict)  # by input that is a size: what it stands for
    lines: dict[str, FxLine] = field(default_factory=dict)
    results: tuple[str, ...] = ()  # "" for a result that is not a node

    def memory_of(self, name: str) -> str:
        """The first node in whose memory the value of a node lies."""
        while name in self.lines and (viewed := self._viewed(self.lines[name])):
            name = viewed
        return name

    def view_of(self, name: str) -> str:
        """Likewise, but an item of a list that is written to is not followed: it has another value."""
        while name in self.lines and (viewed := self.lines[name].viewed):
            name = viewed
        return name

    def _viewed(self, line: FxLine) -> str:
        item = _ITEM.search(line.code)
        if item is None or item[1] not in self.lines:
            return line.viewed
        written = self.lines[item[1]].written_list
        return written[int(item[2])] if int(item[2]) < len(written) else ""

    def is_written(self, name: str) -> bool:
        """Whether some line writes to an input, or to a part of it."""
        return any(self.memory_of(each) == name for line in self.lines.values() for each in line.writes)

    @property
    def changed(self) -> set[str]:
        """Nodes that a later line writes to: what their memory holds is their value for a while only."""
        sure = [line for line in self.lines.values() if _OF_TORCH.search(line.code)]
        return {self.memory_of(each) for line in sure for each in line.writes} - set(self.inputs)

    def is_under_autocast(self) -> bool:
        """Whether a line makes half floats of others, and does not say so."""
        known = dict(self.dtypes)
        for line in self.lines.values():
            needed = [known[name] for name in line.needs if known.get(name)]
            known[line.name] = line.dtype or (needed[0] if len(needed) == 1 else "")
            is_half = line.dtype in ("bf16", "f16")
            if is_half and needed and line.dtype not in needed and not _CASTS.search(line.code):
                return True
        return False

    def last_write(self, name: str) -> tuple[str, str]:
        """The node that leaves its value in an input which the graph changes, and code for that value."""
        copied = f" = torch.ops.aten.copy_.default({name}, "
        for line in reversed(self.lines.values()):
            if copied in line.code:
                return line.name, line.name
            if name in line.written_list:
                return line.name, f"{line.name}[{line.written_list.index(name)}]"
        return "", ""


def read_fx(text: str, body: str = "") -> FxText:
    """A graph, or the body of a branch or loop in it; without lines if the text is not a printed graph."""
    found = FxText()
    tree: ast.AST | None = parsed(_plain(text))
    if tree is not None and body:
        tree = next((n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == body), None)
    nodes = ast.walk(tree) if tree is not None else iter(())
    function = next((n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    if function is None:
        return found
    for argument in function.args.args[1:]:
        text, shape, dtype = _annotated(argument.annotation)
        if text.startswith("Sym("):
            found.symbols[argument.arg] = text[4:-1]
        found.inputs[argument.arg], found.dtypes[argument.arg] = shape, dtype
    for statement in function.body:
        if isinstance(statement, ast.Return):
            value = statement.value
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
            found.results = tuple(p.id if isinstance(p, ast.Name) else "" for p in parts)
        elif (line := _line(statement)) is not None:
            found.lines[line.name] = line
    return found


def _plain(text: str) -> str:
    return re.sub(r"class [^\s(<]*<[^\n(]{0,500}\(", "class GraphModule(", text)


def _line(statement: ast.stmt) -> FxLine | None:
    """None for a statement that computes nothing: `sin = None` frees a node."""
    name, shape, dtype = f"line{statement.lineno}", None, ""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=target), annotation=annotation, value=value):
            _, shape, dtype = _annotated(annotation)
        case ast.Assign(targets=[ast.Name(id=target), *_], value=value):
            pass
        case ast.Expr(value=value):
            target = ""
        case ast.AugAssign() | ast.Assign():  # x += y and x[i] = y: as Dynamo traced them
            return FxLine(name, ast.unparse(statement), _needs(statement))
        case _:
            return None
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return None
    code = f"{target} = {ast.unparse(value)}" if target else ast.unparse(value)
    return FxLine(target or name, code, _needs(value), shape, dtype)


def _needs(tree: ast.AST) -> tuple[str, ...]:
    names = (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in _KNOWN)
    return tuple(dict.fromkeys(names))


def _annotated(annotation: ast.expr | None) -> tuple[str, tuple[str, ...] | None, str]:
    """The text of an annotation, and the shape and dtype in it: "f32[s77, 8][8, 1]cpu"."""
    text = str(annotation.value) if isinstance(annotation, ast.Constant) else ""
    match = _TENSOR.match(text)
    if match is None:
        return text, None, ""
    return text, tuple(size.strip() for size in match["shape"].split(",") if size.strip()), match["dtype"]


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a graph from what is given to one node."""

    lines: tuple[FxLine, ...]
    given: tuple[str, ...]
    missing: tuple[str, ...]  # what is neither given nor can be computed


def _writes_before_reads(graph: FxText, done: Collection[str], wanted: str) -> list[str]:
    """Lines that are not among `done`, and write to memory that one of those reads later."""
    found: list[str] = []
    reads: set[str] = set()  # memory that is read from here on
    is_before = False
    for line in reversed(graph.lines.values()):
        is_before = is_before or line.name == wanted
        if line.name in done:
            reads |= {graph.memory_of(need) for need in line.needs}
        elif is_before and any(graph.memory_of(name) in reads for name in line.writes):
            found.append(line.name)
    return found


def slice_of(graph: FxText, wanted: str, given: frozenset[str]) -> Slice:
    """The lines that compute `wanted` from nodes that are given, and those that write to what they read."""
    done: dict[str, None] = {}
    used: dict[str, None] = {}
    missing: dict[str, None] = {}
    todo = [(wanted, False)]
    while todo or (todo := [(name, False) for name in _writes_before_reads(graph, done, wanted)]):
        name, ready = todo.pop()
        if ready:
            done[name] = None
        elif name in done or name in used or name in missing:
            continue
        elif name in graph.symbols or (name in given and (name != wanted or name in graph.inputs)):
            used[name] = None
        elif name not in graph.lines or any(word in graph.lines[name].code for word in _UNREPEATABLE):
            missing[name] = None
        else:
            todo.append((name, True))
            todo.extend((need, False) for need in reversed(graph.lines[name].needs))
    order = [line for name, line in graph.lines.items() if name in done]
    return Slice(tuple(order), tuple(used), tuple(missing))
