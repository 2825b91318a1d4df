"""A wrapper whose calls are hooked or noted.

Each chosen call is rewritten to call a hook of its own, so that every launch knows its line without looking
at the stack, and calls that go through no global (`workspace_0.zero_()`) are seen as well. Where a note is
enough, the call stays as it is and a statement before it makes the note.

What the new code needs of ours are constants of the code object itself (`bind` puts them in place of their
names). Nothing is added to the module, and code that still runs when a recording closes has what it needs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, TypeAlias

from kernelscope.generated_code.calls import PREFIX, Callsite
from kernelscope.generated_code.syntax import put_at
from kernelscope.generated_code.wrapper import Wrapper, without_the_rest

# The constants that a note uses, and the local variables.
BUS, HERE, TIME, COMPACT_CALL = f"{PREFIX}bus", f"{PREFIX}here", f"{PREFIX}time", f"{PREFIX}compact"
GRAPH_CALL, END = f"{PREFIX}graph_call", f"{PREFIX}end"

Codes: TypeAlias = dict[tuple[str, int], CodeType]  # by qualified name and first line


def hooked(
    wrapper: Wrapper, filename: str, noted: frozenset[str] = frozenset(), *, ends: bool = False
) -> Codes:
    """The code of a wrapper with all of its callsites hooked; takes the wrapper's tree.

    The hooks named in `noted` are replaced by notes, where a call is a statement of its own; with `ends`
    another statement after it reports that the launch is over.
    """
    notes = {s: c for s, c in wrapper.alone.items() if c.hook in noted}
    without_hook = {c.hook for c in notes.values()}
    for callsite, call in zip(wrapper.callsites, wrapper.calls, strict=True):
        if callsite.hook not in without_hook:
            _hook(callsite, call)
    if noted:
        for function in wrapper.functions:
            _Notes(notes, ends).visit(function.node)
            first = function.node.body[0]
            function.node.body[:0] = at(f"{GRAPH_CALL} = {HERE!r}.graph_call", first)
    codes = compiled(wrapper.tree, filename)
    wrapper.release_tree()
    return codes


def compiled(tree: ast.Module, filename: str) -> Codes:
    tree = without_the_rest(tree)
    try:
        code = compile(tree, filename, "exec", dont_inherit=True)
    except TypeError:  # a node without a line; looking for those takes as long as compiling
        ast.fix_missing_locations(tree)
        code = compile(tree, filename, "exec", dont_inherit=True)
    return dict(_codes_in(code))


def _codes_in(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from _codes_in(constant)


def _hook(callsite: Callsite, call: ast.Call) -> None:
    if callsite.path.startswith(".") and isinstance(call.func, ast.Attribute):
        call.args = [call.func.value, *call.args]
    hook = ast.Attribute(ast.Constant(callsite.hook), "launch", ast.Load())
    put_at(hook, call.func)
    call.func = hook


class _Notes(ast.NodeTransformer):
    """Puts a note before each of these statements."""

    def __init__(self, notes: Mapping[ast.stmt, Callsite], ends: bool) -> None:
        self._notes = notes
        self._ends = ends

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        return self._statement(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        return self._statement(node)

    def _statement(self, node: ast.stmt) -> ast.AST | list[ast.stmt]:
        callsite = self._notes.get(node)
        if callsite is None:
            return node
        if not self._ends:
            return [*at(in_a_graph(contained(note(callsite.steady))), node), node]
        noted = note(callsite.steady, "note_with_end")
        # Also outside of a graph: the function that the variable held before was called already.
        end = f"if {GRAPH_CALL} >= 0 and {END}:\n {contained(f'{END}()')}"
        return [*at(in_a_graph(contained(f"{END} = {noted}", f"{END} = ")), node), node, *at(end, node)]


class Hook:
    """What a call in a wrapper is rewritten to; Python warns of a constant that is called itself."""

    __slots__ = ("launch",)

    def __init__(self, launch: Callable[..., Any]) -> None:
        self.launch = launch


def bind(codes: Codes, constants: Mapping[str, Any]) -> Codes:
    """The code with these constants in place of their names."""
    return {key: _bound(code, constants) for key, code in codes.items()}


def _bound(code: CodeType, constants: Mapping[str, Any]) -> CodeType:
    def bound(constant: Any) -> Any:
        if isinstance(constant, CodeType):
            return _bound(constant, constants)
        return constants.get(constant, constant) if type(constant) is str else constant

    return code.replace(co_consts=tuple(map(bound, code.co_consts)))


def note(steady: str, how: str = "note") -> str:
    """The statement that notes a launch: nothing more, because a graph may have a thousand of them."""
    return f"{BUS!r}.{how}({COMPACT_CALL!r}.pack({steady!r}, {GRAPH_CALL}, {TIME!r}.monotonic_ns()))"


def contained(statement: str, instead: str = "") -> str:
    """The same, with its errors reported and not raised into the program; costs nothing unless it raises."""
    return f"try: {statement}\n except Exception: {instead}{BUS!r}.note_raised()"


def in_a_graph(*statements: str) -> str:
    """These, unless the wrapper is run for another purpose than the program's own."""
    return f"if {GRAPH_CALL} >= 0:\n " + "\n ".join(statements)


def at(text: str, statement: ast.stmt) -> list[ast.stmt]:
    """Statements that have the line of another one."""
    made = ast.parse(text).body
    for each in made:
        put_at(each, statement)
    return made
