"""Parsing of expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from . import tree
from .errors import ChoreoError, Span
from .lexer import Token

_T = TypeVar("_T")

# Lowest first. As in Choreo, and unlike in C, the bitwise operators bind tighter than arithmetic.
LEVELS = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
    ("|",),
    ("^",),
    ("&",),
    ("#", "#-", "#+", "#*", "#/", "#%"),
)
_WORDS_OF_PYTHON = {"and": "; write `&&`", "or": "; write `||`", "not": "; write `!`"}
SHIFT = 4  # inside <…>, where > ends the list


class Cursor:
    """Reads tokens; comments are set aside until a statement can hold them."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0
        self.remarks: list[Token] = []
        self._skip()

    def _skip(self) -> None:
        while self._tokens[self._at].kind == "comment":
            self.remarks.append(self._tokens[self._at])
            self._at += 1

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def peek(self) -> Token:
        rest = (t for t in self._tokens[self._at + 1 :] if t.kind != "comment")
        return next(rest, self.token)

    def refuse_scope(self) -> None:
        """`std::cout << x;` and the like, at the beginning of a statement."""
        if [t.text for t in self._tokens[self._at + 1 : self._at + 3]] == [":", ":"]:
            other = "`println(…)` prints, and a kernel that `call` runs may be any C++"
            raise ChoreoError(f"`{self.token.text}::` is C++; {other}", self.token.span)

    def next(self) -> Token:
        token = self.token
        if token.kind != "end":
            self._at += 1
            self._skip()
        return token

    def sees(self, *texts: str) -> bool:
        return self.token.kind in ("mark", "name") and self.token.text in texts

    def take(self, text: str) -> bool:
        if self.sees(text):
            self.next()
            return True
        return False

    def expect(self, text: str, why: str = "") -> Token:
        if not self.sees(text):
            raise self.wrong(f"expected `{text}`" + (f" {why}" if why else ""))
        return self.next()

    def name(self, what: str) -> Token:
        if self.token.kind != "name":
            raise self.wrong(f"expected {what}")
        return self.next()

    def wrong(self, message: str) -> ChoreoError:
        found = self.token
        shown = found.text if found.kind == "end" else f"`{found.text}`"
        advice = _WORDS_OF_PYTHON.get(found.text, "") if found.kind == "name" else ""
        if found.text == "=" and message.endswith("`)`"):
            advice = "; equality is written `==`"
        if found.text == "*" and message == "expected an expression":
            is_power = self._at > 0 and self._tokens[self._at - 1].text == "*"
            advice = "; a power is `__pow(x, y)`" if is_power else "; there are no pointers: write `x.at(…)`"
        return ChoreoError(f"{message}, found {shown}{advice}", found.span)

    def separated(self, item: Callable[[Cursor], _T], end: str = "") -> list[_T]:
        """What stands between commas: up to and including a closing mark, or at least one item."""
        found: list[_T] = []
        while not (end and self.sees(end)):
            found.append(item(self))
            if not self.take(","):
                break
        if end:
            self.expect(end)
        return found


def expression(c: Cursor) -> tree.Expr:
    start = c.token.span
    condition = _binary(c, 0)
    if not c.take("?"):
        return condition
    then = expression(c)
    c.expect(":", "of a conditional")
    return tree.Ternary(condition, then, expression(c), span=start)


def _binary(c: Cursor, level: int) -> tree.Expr:
    if level == len(LEVELS):
        return _unary(c)
    left = _binary(c, level + 1)
    while True:
        if c.token.kind == "mark" and c.token.text in LEVELS[level]:
            op = c.next()
            left = tree.Binary(op.text, left, _binary(c, level + 1), span=op.span)
        elif "/" in LEVELS[level] and c.token.kind == "name" and c.token.text == "cdiv":
            op = c.next()
            left = tree.Builtin("cdiv", (left, _binary(c, level + 1)), span=op.span)
        else:
            return left


def _unary(c: Cursor) -> tree.Expr:
    token = c.token
    if c.take("!"):
        return tree.Unary("!", _unary(c), span=token.span)
    for op in ("#", "~", "&"):
        if c.take(op):
            return tree.Unary(op, _unary(c), span=token.span)
    if c.take("-"):
        if c.token.kind not in ("int", "float"):
            raise ChoreoError("unary minus needs a literal; write 0 - x", token.span)
        return tree.Unary("-", _primary(c), span=token.span)
    if c.take("|"):
        inner = postfix(c)
        c.expect("|", "after the operand of a count")
        return tree.Count(inner, span=token.span)
    return postfix(c)


def listed(c: Cursor, end: str) -> tuple[tree.Expr, ...]:
    """Expressions up to and including a closing mark."""
    return tuple(c.separated(expression, end))


def settings(c: Cursor) -> tuple[tree.Expr, ...]:
    """`<a, b>`: no comparison inside."""
    c.expect("<")
    return tuple(c.separated(lambda c: _binary(c, SHIFT + 1), ">"))


def template_arguments(c: Cursor) -> tuple[tree.Expr, ...]:
    """`<4, f32, wide, modes::fast>`: what a C++ function is made for."""

    def one(c: Cursor) -> tree.Expr:
        span = c.token.span
        if c.token.kind == "name" and c.peek().text == ":":
            return tree.Name(called(c, "a name of C++"), span=span)
        return _binary(c, SHIFT + 1)

    c.expect("<")
    return tuple(c.separated(one, ">"))


def postfix(c: Cursor) -> tree.Expr:
    found = _primary(c)
    while True:
        span = c.token.span
        if c.sees("."):
            found = _member(c, found)
        elif c.sees("[") and isinstance(found, tree.Name | tree.Member | tree.Derive):
            c.next()
            found = tree.Derive(found, _derived(c), span=span)
        elif (c.sees("(") and isinstance(found, tree.Name)) or (
            c.sees("(") and isinstance(found, tree.Member) and found.name == "span"
        ):
            c.next()
            index = expression(c)
            c.expect(")")
            found = tree.Item(found, index, span=found.span)
        else:
            return found


_MEMBERS = ".at(…), .chunkat(…), .chunk(…), .subspan(…), .modspan(…), .view(…), .span_as(…), .span and .data"


def _member(c: Cursor, of: tree.Expr) -> tree.Expr:
    c.expect(".")
    word = c.name("a member: data, span, at, chunkat, chunk, subspan or span_as")
    span = word.span
    match word.text:
        case "data" | "span":
            return tree.Member(of, word.text, span=span)
        case "at":
            c.expect("(")
            return tree.At(of, listed(c, ")"), span=span)
        case "chunkat":
            c.expect("(")
            return tree.ChunkAt(of, listed(c, ")"), span=span)
        case "chunk" | "subspan" | "modspan" | "view":
            return _tile(c, of, word)
        case "span_as":
            c.expect("(")
            bracketed = c.take("[")
            dims = listed(c, "]" if bracketed else ")")
            if bracketed:
                c.expect(")")
            return tree.SpanAs(of, dims, span=span)
    raise ChoreoError(f"there is no member `{word.text}`; data has {_MEMBERS}", span)


def _tile(c: Cursor, of: tree.Expr, word: Token) -> tree.Expr:
    """`subspan(n..).step(s..).stride(t..).at(i..)`: all but the sizes may be left out of a subspan."""
    c.expect("(")
    sizes = listed(c, ")")
    given: dict[str, tuple[tree.Expr, ...]] = {}
    last = "from" if word.text == "view" else "at"
    while last not in given and c.sees(".") and c.peek().text in ("step", "stride", last):
        c.next()
        part = c.next()
        if part.text in given or (part.text != last and word.text != "subspan"):
            raise ChoreoError(f"`{part.text}` cannot stand here, after {word.text}(…)", part.span)
        c.expect("(")
        given[part.text] = listed(c, ")")
    if last not in given and word.text != "subspan":
        c.expect(".", f"{last}(…) after {word.text}(…)")
        c.expect(last)
    steps, strides = given.get("step", ()), given.get("stride", ())
    return tree.Tile(of, word.text, sizes, given.get(last, ()), steps, strides, span=word.span)


def _derived(c: Cursor) -> tuple[tree.Expr, ...]:
    """The items of `sp[(0)/2, (1)]`, where a number in parentheses is an extent."""
    return tuple(c.separated(lambda c: _extents(expression(c)), "]"))


class _Parenthesised(tree.Int):
    """A number in parentheses, until it is known whether it means an extent."""


def _extents(e: tree.Expr) -> tree.Expr:
    if isinstance(e, _Parenthesised):
        return tree.Extent(e.value, span=e.span)
    if isinstance(e, tree.Binary):
        return tree.Binary(e.op, _extents(e.left), _extents(e.right), span=e.span)
    return e


def plain(e: tree.Expr) -> tree.Expr:
    return tree.Int(e.value, span=e.span) if isinstance(e, _Parenthesised) else e


def _primary(c: Cursor) -> tree.Expr:
    token = c.token
    span = token.span
    if token.kind == "int":
        c.next()
        return tree.Int(integer(token), span=span)
    if token.kind == "float":
        c.next()
        return tree.Float(token.text, span=span)
    if token.kind == "text":
        c.next()
        return tree.Text(token.text, span=span)
    if c.take("("):
        inner = expression(c)
        c.expect(")")
        return _Parenthesised(inner.value, span=span) if type(inner) is tree.Int else inner
    if c.take("{"):
        return tree.Tuple(listed(c, "}"), span=span)
    if c.take("["):
        return tree.Mdspan(listed(c, "]"), span=span)
    if token.kind == "name":
        c.next()
        if token.text == "_":
            return tree.Whole(span=span)
        if token.text == "dma":
            raise ChoreoError("a DMA is a statement, not part of an expression", span)
        if token.text == "call":
            return _called(c, span)
        if token.text == "__to":
            return _cast(c, span)
        if (token.text.startswith("__") or token.text in ("select", "cdiv")) and c.take("("):
            return tree.Builtin(token.text, listed(c, ")"), span=span)
        return tree.Name(token.text, span=Span(span.line, span.column, len(token.text)))
    raise c.wrong("expected an expression")


def integer(token: Token) -> int:
    """The value of an integer literal, which may end in U or LL."""
    value = int(token.text.rstrip("uUlL"), 0)
    if value >= 1 << 64:
        raise ChoreoError(f"{token.text} does not fit into 64 bits", token.span)
    return value


def called(c: Cursor, what: str) -> str:
    """The name of a C++ function, which may be in a namespace."""
    name = c.name(what).text
    while c.sees(":") and c.peek().text == ":":
        c.next()
        c.next()
        name += f"::{c.name(what).text}"
    return name


def _called(c: Cursor, span: Span) -> tree.Expr:
    name = called(c, "the function to call")
    given = template_arguments(c) if c.sees("<") else ()
    c.expect("(")
    return tree.CallValue(name, listed(c, ")"), given, span=span)


def _cast(c: Cursor, span: Span) -> tree.Expr:
    c.expect("<", "and a type after __to")
    word = c.name("a type")
    kind = tree.ALIASES.get(word.text, word.text)
    if kind not in tree.AS_ELEMENT:
        raise ChoreoError(f"`{word.text}` is not a type that a number can get", word.span)
    c.expect(">")
    c.expect("(")
    args = listed(c, ")")
    name = "bool" if kind == "bool" else tree.AS_ELEMENT[kind]
    return tree.Builtin(f"__cast_{name}", args, span=span)
