"""One `__co__` function to C++: the computation, a host function on views, an entry for other languages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelscope.gcu.choreo.cpp.declared.aliases import aliases, closed
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError
from kernelscope.gcu.choreo.syntax.walk import always_returns, nodes, read, root, with_values, written

from .declared.result_type import type_of
from .loops.simd import can_stop
from .shapes import Dim, contiguous, dim, same, shown
from .statements import Statements
from .values import Data, Scalar, Scope, cpp_name, cpp_type, line_mark
from .waits import Choices

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
    uses_threads: bool = False  # that wait for one another
    divisors: tuple[tuple[str, str], ...] = ()  # of the result's shape, each with what is said where it is 0

    @property
    def parameters(self) -> tuple[Argument, ...]:
        """What a caller gives: all arguments but what is returned."""
        return self.arguments if self.signature.startswith("void ") else self.arguments[:-1]


class CppFunction:
    def __init__(
        self,
        function: tree.Function,
        elide: bool,
        checked: bool,
        file: str | None = None,
        choices: Choices | None = None,
        in_blocks: bool = False,
        as_threads: bool = False,
        cpp: str | None = "",
    ) -> None:
        self._cpp = cpp
        self._in_blocks = in_blocks
        self._as_threads = as_threads
        self._choices = choices or {}
        self._f = function
        self._file = file  # which the C++ compiler's messages shall name
        self._elide = elide
        self._checked = checked
        self._scope = Scope()
        self._aliases = aliases(function.body)
        self._written = closed(written(function.body), self._aliases)
        self._symbols: dict[str, tuple[str, int]] = {}  # symbol → parameter and dimension that bind it
        self._unnamed: dict[tuple[str, int], str] = {}
        self._divisors: tuple[tuple[str, str], ...] = ()

    def translate(self) -> FunctionCode:
        f = self._f
        for p in f.parameters:
            self._declare(p)
        returned = self._returned()
        statements = Statements(f, self._scope, self._elide, self._checked, self._file)
        statements.expressions.choices = self._choices
        statements.expressions.cpp = self._cpp
        statements.in_blocks = self._in_blocks
        statements.as_threads = self._as_threads
        output = self._output(returned, statements)
        skip = returned if isinstance(returned, tree.DeclareBuffer) else None
        statements.block(f.body, skip=skip)
        return self._code(statements, output)

    def _output(self, returned: tree.DeclareBuffer | tree.Expr | None, statements: Statements) -> Data | None:
        """What the caller provides: the buffer that is returned, a copy of a parameter, or one number."""
        f, e = self._f, statements.expressions
        if returned is None:
            return None
        if isinstance(returned, tree.DeclareBuffer):
            shape = e.shape(with_values(returned.dims, f.body[: f.body.index(returned)]), returned.span)
            name = cpp_name(returned.name)
            self._divisors = tuple(e.divisors)
            output = Data(returned.element, shape, contiguous(shape), name, dim(0), returned.name)
            self._scope.declare(returned.name, output, returned.span)
            self._check_declared(output)
            return output
        given = self._scope.find(root(returned))
        if isinstance(given, Data) and not isinstance(returned, tree.At):
            output = replace(given, pointer="result_", root="result_", is_const=False)
            self._check_declared(output)
            statements.result = lambda value: self._give_back(value, output, statements)
            return output
        if f.dims is not None:
            raise ChoreoError(f"`{f.name}` returns data, not a number", returned.span)
        return self._number(returned, statements)

    def _give_back(self, value: tree.Expr, result: Data, statements: Statements) -> None:
        """A copy of what one `return` names."""
        data = statements.expressions.data(value)
        ranks = len(data.shape), len(result.shape)
        is_other = ranks[0] != ranks[1] or any(map(_differ, data.shape, result.shape))
        if is_other or data.element != result.element:
            kinds = [f"{each.element} {shown(each.shape)}" for each in (data, result)]
            raise ChoreoError(f"this `return` gives {kinds[0]}, another one {kinds[1]}", value.span)
        lists = [", ".join(d.text for d in dims) for dims in (data.shape, data.strides, result.strides)]
        listed = ", ".join(f"{{{each}}}" for each in lists)
        statements.emit(f"choreo::copy<{ranks[0]}>({data.address}, result_, {listed});")

    def _number(self, returned: tree.Expr, statements: Statements) -> Data:
        f = self._f
        kind = (
            tree.AS_ELEMENT.get(f.returns, "")
            if f.returns != "auto"
            else type_of(returned, self._scope, f.body)
        )
        if not kind:
            raise ChoreoError(f"`{f.name}` must say which type it returns; auto is not enough here", f.span)

        def keep(value: tree.Expr) -> None:
            statements.emit(
                f"*result_ = static_cast<{cpp_type(kind)}>({statements.expressions.text(value)});"
            )

        statements.result = keep
        return Data(kind, (), (), "result_", dim(0), "result_")

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

    def _returned(self) -> tree.DeclareBuffer | tree.Expr | None:
        """What the function returns: a buffer that its caller provides, or a value."""
        f = self._f
        returns = [s for s in nodes(f.body) if isinstance(s, tree.Return)]
        if f.returns == "void":
            wrong = next((s for s in returns if s.value is not None), None)
            if wrong is not None:
                raise ChoreoError("a void function returns nothing", wrong.span)
            return None
        empty = next((s for s in returns if s.value is None), None)
        if empty is not None:
            raise ChoreoError(f"`{f.name}` must return a value", empty.span)
        if not returns or not always_returns(f.body):
            raise ChoreoError(f"`{f.name}` must end with a return", f.span)
        value = returns[-1].value
        assert value is not None
        name = root(value) if isinstance(value, tree.Name | tree.Member) else ""
        if isinstance(value, tree.Member) and value.name != "data":
            raise ChoreoError("a span cannot be returned", value.span)
        for s in f.body:
            if isinstance(s, tree.DeclareBuffer) and s.name == name and s.scope in ("", "global"):
                if len(returns) > 1:
                    message = (
                        f"`{f.name}` returns a buffer, so it must have one return, as its last statement"
                    )
                    raise ChoreoError(message, returns[0].span)
                return s
        declared = [s for s in nodes(f.body) if isinstance(s, tree.DeclareBuffer) and s.name == name]
        futures = [s for s in nodes(f.body) if isinstance(s, tree.Assign) and isinstance(s.value, tree.Dma)]
        if declared or any(s.name == name for s in futures):
            raise ChoreoError(f"`{name}` is not a buffer declared at the top of `{f.name}`", value.span)
        return value

    def _check_declared(self, output: Data) -> None:
        f = self._f
        if f.returns == "auto":
            return
        if f.dims is None:
            raise ChoreoError(f"`{f.name}` returns a number, not {shown(output.shape)}", f.span)
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
        if statements.uses_threads or can_stop(statements.lines):
            world = "  choreo::world world_;\n" if statements.uses_threads else ""
            body = f"{world}  try {{\n{body}\n  }} catch (const choreo::stopped&) {{\n  }}"
        core += f"  (void)wide;\n{body}\n}}\n"
        host = self._host(output)
        here = "" if self._file is None else line_mark(f.span.line, self._file) + "\n"
        return FunctionCode(
            f.name,
            f"{here}{core}\n{here}{host[1]}\n{here}{self._entry(arguments, symbols)}\n",
            tuple(arguments),
            tuple(symbols),
            host[0],
            tuple(statements.copies),
            tuple(statements.allocations),
            tuple(statements.parallel),
            tuple(statements.chunking),
            statements.uses_threads,
            tuple((text, message[1:-1]) for text, message in self._divisors),
        )

    def _argument(self, p: tree.Parameter) -> Argument:
        if p.dims is None:
            return Argument(p.name, p.type, None, "scalar")
        is_read = p.name in closed(read(self._f.body), self._aliases)
        role = "in" if p.name not in self._written else "inout" if is_read else "out"
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
        taken = ["// Convert PyTorch tensors to GCU buffers"]
        for number, p in enumerate(f.parameters):
            name = cpp_name(p.name)
            if p.dims is None:
                parameters.append(f"{cpp_type(p.type)} {name}")
                names.append(name)
                continue
            parameters.append(f"const choreo::spanned_view<{cpp_type(p.type)}, {len(p.dims)}>& {name}")
            names.append(f"gcu_{name}")
            taken.append(f"auto gcu_{name} = choreo::tensor_to_gcu_buffer({name});")
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
        if output is not None and not output.shape:
            returns = cpp_type(output.element)
            checks.append(f"{returns} result_{{}};")
            names.append("&result_")
        elif output is not None:
            kind = f"{cpp_type(output.element)}, {len(output.shape)}"
            returns = f"choreo::spanned_data<{kind}>"
            checks += [f"choreo::require({text} != 0, {message});" for text, message in self._divisors]
            for extent in output.shape:
                if extent.value is None and extent.text not in symbols:
                    message = f"{f.name}: a dimension of the result, {extent}, is below 0"
                    checks.append(f'choreo::require({extent.atom} >= 0, "{message}");')
            extents = ", ".join(d.text for d in output.shape)
            shape = f"choreo::mdspan<{len(output.shape)}>({extents})"
            taken.append(f"auto gcu_output = choreo::allocate_buffer<{kind}>({shape});")
            names.append("gcu_output.data()")
        signature = f"{returns} {f.name}({', '.join(parameters)})"
        lines = [*checks, *(taken if len(taken) > 1 else ()), "// Launch kernel"]
        lines += [f"{f.name}_run({', '.join([*names, *symbols])});", "choreo::raise_failure();"]
        if output is not None and output.shape:
            lines += ["// Convert result back to PyTorch tensor"]
            lines += ["return choreo::gcu_buffer_to_tensor(gcu_output);"]
        elif output is not None:
            lines += ["return result_;"]
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
            names.append(f"choreo::tensor_to_gcu_buffer<{const}{cpp_type(a.type)}>({name})")
        parameters += [f"int64_t {s}" for s in symbols]
        call = f"{self._f.name}_run({', '.join([*names, *symbols])});"
        head = f'extern "C" int choreo_{self._f.name}({", ".join(parameters)})'
        return f"{head} {{\n  {call}\n  return choreo::failed();\n}}\n"


def _differ(a: Dim, b: Dim) -> bool:
    """Whether sizes are not known to be equal: a result has one shape, whichever `return` makes it."""
    return same(a, b) is not True
