"""One `__co__` function to C++: the computation, a host function on views, an entry for other languages."""

from __future__ import annotations

from dataclasses import dataclass

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError
from kernelscope.gcu.choreo.syntax.walk import nodes, root, written

from .shapes import Dim, contiguous, dim, shown
from .statements import Statements
from .values import Data, Scalar, Scope, cpp_name, cpp_type

WIDE = 1 << 14  # elements; below, a second thread costs more than it saves


@dataclass(frozen=True)
class Argument:
    """One argument of the entry point `choreo_NAME`."""

    name: str
    type: str
    dims: tuple[int | str, ...] | None  # None: a scalar
    role: str  # "in", "out", "inout", "scalar"


@dataclass(frozen=True)
class FunctionCode:
    name: str
    cpp: str
    arguments: tuple[Argument, ...]  # of the entry point: parameters, then what is returned
    symbols: tuple[str, ...]  # dimensions passed after them
    signature: str
    kept: tuple[str, ...] = ()  # the DMA sequence, as it was translated
    allocations: tuple[tuple[str, str, str, str], ...] = ()  # name, scope, type, shape
    parallel: tuple[str, ...] = ()
    chunking: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[Argument, ...]:
        """What a caller gives: all arguments but what is returned."""
        return self.arguments if self.signature.startswith("void ") else self.arguments[:-1]


class CppFunction:
    def __init__(self, function: tree.Function, elide: bool, checked: bool, file: str | None = None) -> None:
        self._f = function
        self._file = file  # which the C++ compiler's messages shall name
        self._elide = elide
        self._checked = checked
        self._scope = Scope()
        self._written = written(function.body)
        self._symbols: dict[str, tuple[str, int]] = {}  # symbol → parameter and dimension that bind it
        self._unnamed: dict[tuple[str, int], str] = {}

    def translate(self) -> FunctionCode:
        f = self._f
        for p in f.parameters:
            self._declare(p)
        returned = self._returned()
        statements = Statements(f, self._scope, self._elide, self._checked, self._file)
        output = None
        if returned is not None:
            shape = statements.expressions.shape(returned.dims)
            output = Data(
                returned.element, shape, contiguous(shape), cpp_name(returned.name), dim(0), returned.name
            )
            self._scope.declare(returned.name, output, returned.span)
            self._check_declared(output)
        statements.block(f.body, skip=returned)
        return self._code(statements, output)

    def _declare(self, p: tree.Parameter) -> None:
        name = cpp_name(p.name)
        if p.dims is None:
            self._scope.declare(p.name, Scalar(name, p.type), p.span)
            return
        shape: list[Dim] = []
        for place, given in enumerate(p.dims):
            if isinstance(given, int):
                shape.append(dim(given))
            elif given == "?":
                symbol = self._unnamed[p.name, place] = f"{name}_dim{place}"
                shape.append(dim(symbol))
            else:
                if given not in self._symbols:
                    known = self._scope.find(given)
                    if known is not None:
                        raise ChoreoError(f"`{given}` is a dimension and a parameter", p.span)
                    self._symbols[given] = (p.name, place)
                    self._scope.declare(given, dim(cpp_name(given)), p.span)
                shape.append(dim(cpp_name(given)))
        const = p.name not in self._written
        view = Data(p.type, tuple(shape), contiguous(shape), name, dim(0), p.name, is_const=const)
        self._scope.declare(p.name, view, p.span)

    def _returned(self) -> tree.DeclareBuffer | None:
        """The buffer that the function returns, which its caller provides."""
        f = self._f
        returns = [s for s in nodes(f.body) if isinstance(s, tree.Return)]
        if f.returns == "void":
            wrong = next((s for s in returns if s.value is not None), None)
            if wrong is not None:
                raise ChoreoError("a void function returns nothing", wrong.span)
            return None
        if not returns or returns[-1] is not f.body[-1] or len(returns) > 1:
            raise ChoreoError(f"`{f.name}` must have one return, as its last statement", f.span)
        value = returns[0].value
        if not isinstance(value, tree.Name):
            raise ChoreoError("return must name a buffer of the function", returns[0].span)
        for s in f.body:
            if isinstance(s, tree.DeclareBuffer) and s.name == value.id and s.scope in ("", "global"):
                return s
        raise ChoreoError(f"`{value.id}` is not a buffer declared at the top of `{f.name}`", value.span)

    def _check_declared(self, output: Data) -> None:
        f = self._f
        if f.returns == "auto":
            return
        if f.returns != output.element:
            raise ChoreoError(f"`{f.name}` returns {f.returns}, not {output.element}", f.span)
        if f.dims is not None and len(f.dims) != len(output.shape):
            message = f"`{f.name}` returns rank {len(f.dims)}, not {shown(output.shape)}"
            raise ChoreoError(message, f.span)
        for given, extent in zip(f.dims or (), output.shape, strict=False):
            if isinstance(given, int) and extent.value is not None and given != extent.value:
                raise ChoreoError(
                    f"`{f.name}` returns {shown(output.shape)}, not {list(f.dims or ())}", f.span
                )

    # -- text ------------------------------------------------------------------------------------------

    def _code(self, statements: Statements, output: Data | None) -> FunctionCode:
        f = self._f
        arguments = [self._argument(p) for p in f.parameters]
        inner = [self._inner_parameter(p) for p in f.parameters]
        if output is not None:
            dims = tuple(d.value if d.value is not None else d.text for d in output.shape)
            arguments.append(Argument(output.root, output.element, dims, "out"))
            inner.append(f"{cpp_type(output.element)}* __restrict {output.pointer}")
        symbols = [*map(cpp_name, self._symbols), *self._unnamed.values()]
        inner += [f"int64_t {s}" for s in symbols]
        sizes = " + ".join(self._size(p) for p in f.parameters if p.dims is not None) or "0"
        body = "\n".join(statements.lines)
        core = f"static void {f.name}_run({', '.join(inner)}) {{\n  const bool wide = ({sizes}) > {WIDE};\n"
        core += f"  (void)wide;\n{body}\n}}\n"
        host = self._host(output)
        return FunctionCode(
            f.name,
            f"{core}\n{host[1]}\n{self._entry(arguments, symbols)}\n",
            tuple(arguments),
            tuple(symbols),
            host[0],
            tuple(statements.copies),
            tuple(statements.allocations),
            tuple(statements.parallel),
            tuple(statements.chunking),
        )

    def _argument(self, p: tree.Parameter) -> Argument:
        if p.dims is None:
            return Argument(p.name, p.type, None, "scalar")
        read = p.name in _read(self._f.body)
        role = "in" if p.name not in self._written else "inout" if read else "out"
        return Argument(p.name, p.type, p.dims, role)

    def _inner_parameter(self, p: tree.Parameter) -> str:
        if p.dims is None:
            return f"{cpp_type(p.type)} {cpp_name(p.name)}"
        const = "const " if p.name not in self._written else ""
        return f"{const}{cpp_type(p.type)}* __restrict {cpp_name(p.name)}"

    def _size(self, p: tree.Parameter) -> str:
        view = self._scope.find(p.name)
        assert isinstance(view, Data)
        return " * ".join(["INT64_C(1)", *(d.atom for d in view.shape)])

    def _host(self, output: Data | None) -> tuple[str, str]:
        """The function that C++ calls with views: it binds symbols, checks shapes, allocates the result."""
        f = self._f
        parameters, checks, names = [], [], []
        for number, p in enumerate(f.parameters):
            name = cpp_name(p.name)
            if p.dims is None:
                parameters.append(f"{cpp_type(p.type)} {name}")
                names.append(name)
                continue
            parameters.append(f"const choreo::spanned_view<{cpp_type(p.type)}, {len(p.dims)}>& {name}")
            names.append(f"{name}.data()")
            for place, given in enumerate(p.dims):
                actual = f"{name}.shape()[{place}]"
                if isinstance(given, str) and self._symbols.get(given) == (p.name, place):
                    checks.append(f"const int64_t {cpp_name(given)} = {actual};")
                elif given == "?":
                    checks.append(f"const int64_t {self._unnamed[p.name, place]} = {actual};")
                else:
                    expected = cpp_name(str(given))
                    message = f"{f.name}: dimension {place} of argument {number} ({p.name}) is not {given}"
                    checks.append(f'choreo::require({actual} == {expected}, "{message}");')
        symbols = [*map(cpp_name, self._symbols), *self._unnamed.values()]
        returns = "void"
        if output is not None:
            kind = f"{cpp_type(output.element)}, {len(output.shape)}"
            returns = f"choreo::spanned_data<{kind}>"
            extents = ", ".join(d.text for d in output.shape)
            checks.append(f"auto result_ = choreo::make_spandata<{kind}>({{{extents}}});")
            names.append("result_.data()")
        signature = f"{returns} {f.name}({', '.join(parameters)})"
        lines = [*checks, f"{f.name}_run({', '.join([*names, *symbols])});", "choreo::raise_failure();"]
        lines += ["return result_;"] if output is not None else []
        text = "\n  ".join(lines)
        return signature, f"[[maybe_unused]] static {signature} {{\n  {text}\n}}\n"

    def _entry(self, arguments: list[Argument], symbols: list[str]) -> str:
        """What Python calls: plain pointers and numbers, an error code back."""
        parameters, names = [], []
        for a in arguments:
            name = cpp_name(a.name)
            if a.dims is None:
                parameters.append(f"{cpp_type(a.type)} {name}")
                names.append(name)
                continue
            const = "const " if a.role == "in" else ""
            parameters.append(f"{const}void* {name}")
            names.append(f"static_cast<{const}{cpp_type(a.type)}*>({name})")
        parameters += [f"int64_t {s}" for s in symbols]
        call = f"{self._f.name}_run({', '.join([*names, *symbols])});"
        head = f'extern "C" int choreo_{self._f.name}({", ".join(parameters)})'
        return f"{head} {{\n  {call}\n  return choreo::failed();\n}}\n"


def _read(body: tree.Block) -> set[str]:
    """The roots of what is read: elements, and sources of copies."""
    found: set[str] = set()
    for each in nodes(body):
        match each:
            case tree.Store():
                if each.op != "=":
                    found.add(root(each.target.of))
                found |= {
                    root(n.of) for n in nodes((each.value, *each.target.index)) if isinstance(n, tree.At)
                }
            case (
                tree.Assign() | tree.DeclareScalar() | tree.If() | tree.While() | tree.Print() | tree.Assert()
            ):
                looked = getattr(each, "value", None) or getattr(each, "init", None)
                looked = looked or getattr(each, "condition", None) or getattr(each, "args", ())
                found |= {root(n.of) for n in nodes(looked) if isinstance(n, tree.At)}
            case tree.Dma() if each.source is not None:
                found.add(root(each.source))
            case tree.Call():
                found |= {root(arg) for arg in each.args}
    return found
