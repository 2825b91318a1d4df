"""Parsing of statements."""

from __future__ import annotations

from . import tree
from .declarations import bind, declaration, hint, names_of, range_of, tie
from .errors import ChoreoError
from .expressions import Cursor, called, expression, listed, template_arguments
from .lexer import Token
from .transfers import dma, matrix

_UPDATES = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")


def _remarks(c: Cursor, is_first: bool) -> list[tree.Stmt]:
    found, c.remarks = c.remarks, []
    beside = [not t.starts_line and not (is_first and t is found[0]) for t in found]
    return [tree.Remark(_text(t), b, span=t.span) for t, b in zip(found, beside, strict=True)]


def _text(remark: Token) -> str:
    """A comment without the indentation that its first line has."""
    first, *more = remark.text.split("\n")
    indent = remark.span.column - 1
    return "\n".join([first, *(line[min(indent, len(line) - len(line.lstrip())) :] for line in more)])


def block(c: Cursor) -> tree.Block:
    opening = c.expect("{")
    found: list[tree.Stmt] = []
    while True:
        found += _remarks(c, not found)
        if c.token.kind == "end":
            raise ChoreoError("this block is never closed", opening.span)
        if c.sees("}"):
            c.next()
            return tuple(found)
        if not c.take(";"):
            found += _statement(c)


def _body(c: Cursor) -> tree.Block:
    """A block, or one statement that stands for it."""
    return block(c) if c.sees("{") else tuple(_statement(c))


def _statement(c: Cursor) -> list[tree.Stmt]:
    token = c.token
    if token.kind != "name":
        raise c.wrong("expected a statement")
    special = _STATEMENTS.get(token.text)
    if special is not None:
        return special(c)
    if token.text in (*tree.SCOPES, "mutable", "mdspan", *tree.SCALARS, *tree.ALIASES):
        return declaration(c)
    if token.text in _NOT_HERE:
        raise ChoreoError(f"`{token.text}` {_NOT_HERE[token.text]}", token.span)
    if token.text.startswith("__atomic_") and c.peek().text == "(":
        value = expression(c)
        c.expect(";", f"after {token.text}(…)")
        return [tree.Effect(value, span=token.span)]
    return _named(c)


def _refuse_fragments(c: Cursor, following: Token) -> None:
    """`frag.reduce_max …`, `reduce_max(…)`, `apply {i, j} in …`: work on the registers of an accelerator."""
    opening = {"frag": (".", *tree.SCALARS), "fragment": tree.SCALARS, "apply": ("{",)}
    opening |= dict.fromkeys(("reduce_max", "reduce_sum"), ("(",))
    if following.text in opening.get(c.token.text, ()):
        name = c.token.text + (following.text if following.text == "." else "")
        raise ChoreoError(
            f"`{name}` works on the registers of an accelerator and is not part of this language; "
            "put the matrix into a buffer with mma.store, and write a foreach over its elements",
            c.token.span,
        )


def _named(c: Cursor) -> list[tree.Stmt]:
    """A statement that starts with a name of the program's own."""
    start = c.token.span
    following = c.peek()
    _refuse_fragments(c, following)
    c.refuse_scope()
    if following.text == ":":
        name = c.next().text
        c.next()
        dims = expression(c)
        c.expect(";")
        return [tree.DeclareSpan(name, dims, span=start)]
    if following.text in ("++", "--"):
        name = c.next().text
        update = "+=" if c.next().text == "++" else "-="
        c.expect(";")
        return [tree.Assign(name, tree.Int(1, span=start), update, span=start)]
    if following.text in _UPDATES:
        found = c.separated(_assignment)
        if isinstance(found[-1], tree.Matrix):
            return found
        c.expect(";", "after an assignment")
        return found
    target = expression(c)
    if not isinstance(target, tree.At):
        raise ChoreoError(_no_target(target, following), start)
    op = c.next()
    if op.text in ("++", "--"):
        c.expect(";")
        return [tree.Store(target, tree.Int(1, span=start), "+=" if op.text == "++" else "-=", span=start)]
    if op.text not in _UPDATES:
        raise ChoreoError(f"expected an assignment, found `{op.text}`", op.span)
    value = expression(c)
    c.expect(";", "after an assignment")
    return [tree.Store(target, value, op.text, span=start)]


def _no_target(found: tree.Expr, following: Token) -> str:
    if isinstance(found, tree.Derive):
        return "an element of data is written `.at(i, j)`, not as in host code"
    if isinstance(found, tree.Item) and following.text == "(":
        return "this statement does nothing; a function of the C++ in this file is called by `call name(…);`"
    return "only a name or data.at(…) can be assigned to"


def _assignment(c: Cursor) -> tree.Stmt:
    name = c.name("a name to assign to")
    op = c.next()
    if op.text not in _UPDATES:
        raise ChoreoError(f"expected an assignment, found `{op.text}`", op.span)
    if c.sees("mma") and op.text == "=":
        return matrix(c, name.text, name.span)
    value = dma(c) if c.sees("dma", "tma") else expression(c)
    return tree.Assign(name.text, value, op.text, span=name.span)


def _dma(c: Cursor) -> list[tree.Stmt]:
    start = c.token.span
    found = tree.Do(dma(c), span=start)
    c.expect(";", "after a DMA")
    return [found]


def _matrix(c: Cursor) -> list[tree.Stmt]:
    return [matrix(c)]


def _parallel(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    levels = c.separated(_level)
    return [tree.Parallel(tuple(levels), _body(c), span=start)]


def _level(c: Cursor) -> tree.Level:
    braced, names = (False, ()) if c.sees("by") else names_of(c, "a parallel variable")
    c.expect("by")
    bound = expression(c)
    items = bound.items if isinstance(bound, tree.Mdspan | tree.Tuple) else (bound,)
    kind = ""
    if c.take(":"):
        kind = c.name("block, group or thread").text
        if c.take("-"):
            kind += f"-{c.next().text}"
    return tree.Level(names, items, braced, kind)


def _with(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    binds = tuple(c.separated(bind))
    tied = tuple(c.separated(tie)) if c.take("where") else ()
    return [tree.With(binds, _body(c), tied, span=start)]


def _foreach(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    ranges = tuple(c.separated(range_of))
    hints = tuple(c.separated(hint)) if c.take(":") else ()
    return [tree.Foreach(ranges, _body(c), hints, span=start)]


def _condition(c: Cursor) -> tree.Expr:
    c.expect("(")
    condition = expression(c)
    c.expect(")")
    return condition


def _if(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    condition, then = _condition(c), _body(c)
    return [tree.If(condition, then, _body(c) if c.take("else") else (), span=start)]


def _while(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    return [tree.While(_condition(c), _body(c), span=start)]


def _return(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    value = None if c.sees(";") else expression(c)
    c.expect(";", "after return")
    return [tree.Return(value, span=start)]


def _wait(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    targets = c.separated(expression)
    c.expect(";", "after wait")
    return [tree.Wait(tuple(targets), span=start)]


def _trigger(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    events = c.separated(expression)
    c.expect(";", "after trigger")
    return [tree.Trigger(tuple(events), span=start)]


def _inthreads(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    is_async = c.take(".")
    if is_async:
        c.expect("async")
    condition = _condition(c)
    return [tree.InThreads(condition, _body(c), is_async, span=start)]


def _sync(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    c.expect(".", "and shared, global or local after sync")
    word = c.name("shared, global or local")
    if word.text not in (*tree.SCOPES, "barrier", "fence"):
        raise ChoreoError(f"there is no sync.{word.text}; use sync.shared", word.span)
    level = ""
    if word.text in ("barrier", "fence") and c.take(":"):
        level = c.name("block, thread, group or device").text
    c.expect(";")
    return [tree.Sync(word.text, level, span=start)]


def _rotate(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    c.expect("(")
    names = tuple(c.separated(lambda c: c.name("a future").text, ")"))
    c.expect(";")
    if len(names) < 2:
        raise ChoreoError("rotate needs at least two futures", start)
    return [tree.Rotate(names, span=start)]


def _leave(c: Cursor) -> list[tree.Stmt]:
    word = c.next()
    c.expect(";")
    kind = tree.Break if word.text == "break" else tree.Continue
    return [kind(span=word.span)]


def _swap(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    c.expect("(")
    first = c.name("a future").text
    c.expect(",")
    second = c.name("a future").text
    c.expect(")")
    c.expect(";")
    return [tree.Swap(first, second, span=start)]


def _call(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    name = called(c, "the kernel to call")
    given = template_arguments(c) if c.sees("<") else ()
    c.expect("(")
    args = listed(c, ")")
    c.expect(";", "after a call")
    return [tree.Call(name, args, given, span=start)]


def _print(c: Cursor) -> list[tree.Stmt]:
    word = c.next()
    c.expect("(")
    args = listed(c, ")")
    c.expect(";")
    return [tree.Print(args, word.text == "println", span=word.span)]


def _literal(c: Cursor, what: str) -> str:
    token: Token = c.next()
    if token.kind != "text":
        raise ChoreoError(f"{what} is a string literal, not `{token.text}`", token.span)
    return token.text


def _assert(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    c.expect("(")
    condition = expression(c)
    message = _literal(c, "the message of an assertion") if c.take(",") else ""
    c.expect(")")
    c.expect(";")
    return [tree.Assert(condition, message, span=start)]


def _cpp(c: Cursor) -> list[tree.Stmt]:
    start = c.next().span
    c.expect("(")
    text = _literal(c, "the argument of __cpp__")
    c.expect(")")
    c.expect(";")
    return [tree.Cpp(text, span=start)]


# Words that people bring along from elsewhere.
_NOT_HERE = {
    "for": "is C++; a loop of Choreo is `foreach i in [n] { … }`",
    "const": "is C++; a variable that is not `mutable` is constant, so leave it out",
    "auto": "is C++; write `name = value;`",
    **dict.fromkeys(("unsigned", "long", "char", "size_t"), "is a type of C++; use s32, u32, s64, u8 …"),
    "switch": "is C++; write `if … else if …`",
    "do": "is C++; write `while (…) { … }`",
    "else": "has no `if` before it",
    "__co__": "begins another function, which cannot stand inside this one; close this one first",
    "__syncthreads": "is CUDA's; all threads of a block wait at `sync.shared;`",
    "__cok__": "holds C++, which stands outside of functions; move it above the `__co__`",
    "__call_tcle": "calls a vector library of the hardware; write `call` and a kernel in plain C++",
}

_STATEMENTS = {
    "dma": _dma,
    "tma": _dma,
    "mma": _matrix,
    "parallel": _parallel,
    "with": _with,
    "foreach": _foreach,
    "if": _if,
    "while": _while,
    "return": _return,
    "wait": _wait,
    "trigger": _trigger,
    "inthreads": _inthreads,
    "sync": _sync,
    "rotate": _rotate,
    "break": _leave,
    "continue": _leave,
    "swap": _swap,
    "call": _call,
    "print": _print,
    "println": _print,
    "assert": _assert,
    "__cpp__": _cpp,
}
