"""`mma`: small matrices in registers, to C++."""

from __future__ import annotations

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.walk import nodes

from .shapes import Dim, same, shown
from .teams import Teams
from .values import FRACTIONS, Data, Fragment

_TOO_WIDE = ("s64", "u64")  # a fragment computes in double precision


class Fragments(Teams):
    """The part of a function's body that multiplies matrices."""

    def private_fragments(self, body: tree.Block) -> None:
        """Each thread of a parallel has a matrix of its own, with what it held before."""
        used = {n.name for n in nodes(body) if isinstance(n, tree.Matrix | tree.Assign)}
        for name in sorted(used):
            outer = self.scope.find(name)
            if isinstance(outer, Fragment):
                one = self.fresh(name)
                self.emit(f"choreo::fragment {one}({outer.name});")
                self.scope.names[name] = Fragment(one, outer.shape)

    def matrix(self, s: tree.Matrix) -> None:
        match s.action:
            case "fill":
                value = self.expressions.text(s.operands[0])
                into = self._new_matrix(s) if s.is_new else self._fragment(tree.Name(s.name, span=s.span))
                self.emit(f"{into.name}.fill(static_cast<double>({value}));")
            case "load":
                data = self._plane(s.operands[0])
                into = self._new_matrix(s)
                into.shape[:] = data.shape
                self.emit(f"{into.name}.load({self._layout(data)});")
            case "product":
                self._product(s)
            case "store":
                self._store_matrix(s)

    def _new_matrix(self, s: tree.Matrix) -> Fragment:
        known = self.scope.names.get(s.name)
        if isinstance(known, Fragment):
            return known
        made = Fragment(self.local(s.name))
        self.emit(f"choreo::fragment {made.name};")
        self.scope.declare(s.name, made, s.span)
        return made

    def _fragment(self, e: tree.Expr) -> Fragment:
        found = self.scope.find(e.id) if isinstance(e, tree.Name) else None
        if not isinstance(found, Fragment):
            raise ChoreoError("mma needs a matrix that mma.fill or mma.load has made", e.span)
        return found

    def _plane(self, e: tree.Expr) -> Data:
        data = self.expressions.data(e)
        if len(data.shape) != 2:
            raise ChoreoError(f"mma needs data of rank 2, not {shown(data.shape)}", e.span)
        if data.element in _TOO_WIDE:
            raise ChoreoError(f"mma cannot multiply {data.element}", e.span)
        return data

    def _layout(self, data: Data) -> str:
        return ", ".join([data.address, *(d.text for d in (*data.shape, *data.strides))])

    def _product(self, s: tree.Matrix) -> None:
        into = self._fragment(tree.Name(s.name, span=s.span))
        left, right = (self._fragment(e) for e in s.operands)
        # Of `row.col` the right matrix has a column for each column of the result, of `row.row` a row.
        turned = (s.words[0] == "col", s.words[1] == "row")
        shapes = [f.shape[::-1] if t else f.shape for f, t in zip((left, right), turned, strict=True)]
        if all(shapes):
            self._agree(shapes[0][1], shapes[1][0], shapes, s.span)
            if not into.shape:
                into.shape[:] = [shapes[0][0], shapes[1][1]]
            for have, comes in zip(into.shape, (shapes[0][0], shapes[1][1]), strict=True):
                self._agree(have, comes, [into.shape, *shapes], s.span)
        message = self.quoted("mma: the shapes of the matrices do not fit", s.span)
        flags = ", ".join(str(t).lower() for t in turned)
        self.emit(f"{into.name}.multiply({left.name}, {right.name}, {flags}, {message});")

    def _agree(self, a: Dim, b: Dim, shapes: list[list[Dim]], span: Span) -> None:
        if same(a, b) is False:
            texts = " and ".join(shown(shape) for shape in shapes)
            raise ChoreoError(f"mma: the shapes {texts} do not fit", span)

    def _store_matrix(self, s: tree.Matrix) -> None:
        one = self._fragment(tree.Name(s.name, span=s.span))
        data = self._plane(s.operands[0])
        rows, strides = list(data.shape), list(data.strides)
        if s.words:
            rows, strides = rows[::-1], strides[::-1]
        for have, goes in zip(one.shape, rows, strict=False):
            self._agree(have, goes, [one.shape, rows], s.span)
        message = self.quoted("mma: the matrix does not fit into its target", s.span)
        layout = ", ".join([data.address, *(d.text for d in (*rows, *strides))])
        self.emit(f"{one.name}.store({layout}, {message});")

    def change_matrix(self, one: Fragment, s: tree.Assign) -> None:
        """`m += bias;`: each element by itself."""
        number = self.expressions.scalar(s.value)
        if s.op not in ("+=", "-=", "*=", "/=") or number.type in ("text", "address", "bool"):
            raise ChoreoError(f"a matrix can be changed by += -= *= /= and a number, not by {s.op}", s.span)
        if s.op == "/=" and number.type not in (*FRACTIONS, ""):
            raise ChoreoError("a matrix is divided by a fraction: write 2.0f, not 2", s.span)
        value = f"static_cast<double>({number.text})"
        self.emit(f"{one.name}.apply([&](double x_) {{ return x_ {s.op[0]} {value}; }});")
