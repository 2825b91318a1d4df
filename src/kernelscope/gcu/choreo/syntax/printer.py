"""Syntax tree to text; `parse(show(x)) == x`."""

from __future__ import annotations

from collections.abc import Iterable

from . import tree
from .expressions import LEVELS

_LEVEL = {op: level for level, ops in enumerate(LEVELS) for op in ops}
_TERNARY, _UNARY, _POSTFIX = -1, len(LEVELS), len(LEVELS) + 1


def show(node: tree.File | tree.Function | tree.Stmt | tree.Expr) -> str:
    """The text of a file, a function, a statement or an expression."""
    if isinstance(node, tree.File):
        return "\n\n".join(_item(item) for item in node.items) + "\n"
    if isinstance(node, tree.Function):
        return _item(node)
    if isinstance(node, tree.Stmt):
        return "\n".join(_block((node,), 0))
    return expr(node)


def _item(item: tree.HostCode | tree.DeviceCode | tree.Function) -> str:
    if isinstance(item, tree.HostCode):
        return item.text
    if isinstance(item, tree.DeviceCode):
        return f"__cok__ {{\n{item.text}\n}}"
    parameters = ", ".join(map(_parameter, item.parameters))
    returns = item.returns + ("" if item.dims is None else f" {_dims(item.dims)}")
    head = f"__co__ {returns} {item.name}({parameters}) {{"
    return "\n".join([head, *_block(item.body, 1), "}"])


def _parameter(p: tree.Parameter) -> str:
    dims = "" if p.dims is None else f" {_dims(p.dims)}"
    return f"{'global ' if p.is_global else ''}{p.type}{dims} {p.name}"


def _dims(dims: Iterable[int | str]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _block(body: tree.Block, depth: int) -> list[str]:
    lines: list[str] = []
    for each in body:
        if isinstance(each, tree.Remark) and each.same_line and lines:
            lines[-1] += f" {each.text}"
            continue
        lines += ["  " * depth + line for line in _stmt(each)]
    return lines


def _nested(head: str, body: tree.Block) -> list[str]:
    return [f"{head} {{", *_block(body, 1), "}"]


def _stmt(s: tree.Stmt) -> list[str]:
    match s:
        case tree.Remark():
            return s.text.split("\n")
        case tree.DeclareBuffer():
            words = [s.scope, "mutable" if s.is_mutable else "", s.element, f"[{_list(s.dims)}]", s.name]
            init = "" if s.init is None else f" {{{expr(s.init)}}}"
            return [" ".join(filter(None, words)) + _counts(s.counts) + init + ";"]
        case tree.DeclareEvent():
            return [f"{s.scope + ' ' if s.scope else ''}event {s.name}{_counts(s.counts)};"]
        case tree.DeclareScalar():
            init = "" if s.init is None else f" = {expr(s.init)}"
            words = ["mutable" if s.is_mutable else "", s.type, s.name]
            return [" ".join(filter(None, words)) + init + ";"]
        case tree.DeclareSpan():
            return [f"{s.name} : {expr(s.dims)};"]
        case tree.Assign():
            return [f"{s.name} {s.op} {expr(s.value)};"]
        case tree.Store():
            return [f"{expr(s.target)} {s.op} {expr(s.value)};"]
        case tree.Do():
            return [f"{expr(s.dma)};"]
        case tree.Parallel():
            return _nested(f"parallel {', '.join(map(_level, s.levels))}", s.body)
        case tree.With():
            tied = ", ".join(f"{a} <-> {b}" for a, b in s.tied)
            head = f"with {', '.join(map(_range, s.binds))}"
            return _nested(f"{head} where {tied}" if tied else head, s.body)
        case tree.Foreach():
            hints = f" : {_list(s.hints)}" if s.hints else ""
            return _nested(f"foreach {', '.join(map(_range, s.ranges))}{hints}", s.body)
        case tree.If():
            lines = _nested(f"if ({expr(s.condition)})", s.then)
            if s.other:
                lines[-1:] = _nested("} else", s.other)
            return lines
        case tree.InThreads():
            return _nested(f"inthreads{'.async' if s.is_async else ''} ({expr(s.condition)})", s.body)
        case tree.While():
            return _nested(f"while ({expr(s.condition)})", s.body)
    return [_simple(s)]


def _simple(s: tree.Stmt) -> str:
    match s:
        case tree.Return():
            return "return;" if s.value is None else f"return {expr(s.value)};"
        case tree.Wait():
            return f"wait {_list(s.targets)};"
        case tree.Trigger():
            return f"trigger {_list(s.events)};"
        case tree.Sync():
            return f"sync.{s.scope}{' : ' + s.level if s.level else ''};"
        case tree.Effect():
            return f"{expr(s.value)};"
        case tree.Matrix():
            return _matrix(s)
        case tree.Rotate():
            return f"rotate({', '.join(s.names)});"
        case tree.Break():
            return "break;"
        case tree.Continue():
            return "continue;"
        case tree.Swap():
            return f"swap({s.first}, {s.second});"
        case tree.Call():
            given = f"<{_list(s.settings, tight=True)}>" if s.settings else ""
            return f"call {s.name}{given}({_list(s.args)});"
        case tree.Print():
            return f"{'println' if s.newline else 'print'}({_list(s.args)});"
        case tree.Assert():
            return f"assert({expr(s.condition)}{', ' + s.message if s.message else ''});"
        case tree.Cpp():
            return f"__cpp__({s.text});"
    raise TypeError(f"no text for {type(s).__name__}")


def _matrix(s: tree.Matrix) -> str:
    if s.action == "commit":
        return "mma.commit;"
    words = "".join(f".{w}" for w in s.words)
    swizzle = "" if s.swizzle is None else f".swiz<{_list([s.swizzle], tight=True)}>"
    action = "" if s.action == "product" else f".{s.action}"
    head = f"mma{action}{words}{swizzle}"
    return f"{s.name} = {head} {_list(s.operands)};" if s.is_new else f"{head} {s.name}, {_list(s.operands)};"


def _counts(counts: Iterable[tree.Expr]) -> str:
    return "".join(f"[{expr(c)}]" for c in counts)


def _level(level: tree.Level) -> str:
    names = f"{{{', '.join(level.names)}}}" if level.braced else "".join(level.names)
    bound = expr(level.bound[0]) if len(level.bound) == 1 else f"[{_list(level.bound)}]"
    kind = f" : {level.kind}" if level.kind else ""
    return (f"{names} by {bound}" if names else f"by {bound}") + kind


def _range(r: tree.Bind | tree.Range) -> str:
    if isinstance(r, tree.Bind):
        names = f"{{{', '.join(r.names)}}}" if r.braced else r.names[0]
        return f"{r.whole + ' = ' if r.whole else ''}{names} in {expr(r.domain)}"
    if r.low is None and r.high is None and r.step is None:
        return r.name
    low, high = ("" if e is None else expr(e) for e in (r.low, r.high))
    return f"{r.name}({low}:{high}{'' if r.step is None else ':' + expr(r.step)})"


def _list(items: Iterable[tree.Expr], *, tight: bool = False) -> str:
    # Inside <…> a comparison would end the list.
    return ", ".join(_above(item, _LEVEL["+"] if tight else _TERNARY) for item in items)


def expr(e: tree.Expr) -> str:
    return _text(e)[0]


def _above(e: tree.Expr, level: int) -> str:
    text, own = _text(e)
    return text if own >= level else f"({text})"


def _text(e: tree.Expr) -> tuple[str, int]:
    """The text, and how tightly its outermost operator binds."""
    match e:
        case tree.Int():
            return str(e.value), _POSTFIX
        case tree.Float():
            return e.text, _POSTFIX
        case tree.Text():
            return e.value, _POSTFIX
        case tree.Name():
            return e.id, _POSTFIX
        case tree.Whole():
            return "_", _POSTFIX
        case tree.Extent():
            return f"({e.index})", _POSTFIX
        case tree.Unary():
            # "#-" would be read as one operator.
            inner = _above(e.operand, _POSTFIX if e.op == "#" else _UNARY)
            return e.op + inner, _UNARY
        case tree.Binary():
            level = _LEVEL[e.op]
            return f"{_above(e.left, level)} {e.op} {_above(e.right, level + 1)}", level
        case tree.Ternary():
            condition, then = _above(e.condition, 0), _above(e.then, _TERNARY)
            return f"{condition} ? {then} : {_above(e.other, _TERNARY)}", _TERNARY
        case tree.Builtin():
            name = e.name
            if name.startswith("__cast_"):
                name = f"__to<{name.removeprefix('__cast_')}>"
            return f"{name}({_list(e.args)})", _POSTFIX
        case tree.CallValue():
            given = f"<{_list(e.settings, tight=True)}>" if e.settings else ""
            return f"call {e.name}{given}({_list(e.args)})", _POSTFIX
        case tree.Count():
            return f"|{_above(e.operand, _POSTFIX)}|", _UNARY
        case tree.Tuple():
            return f"{{{_list(e.items)}}}", _POSTFIX
        case tree.Mdspan():
            return f"[{_list(e.items)}]", _POSTFIX
    return _data(e), _POSTFIX


def _data(e: tree.Expr) -> str:
    match e:
        case tree.Member():
            return f"{_above(e.of, _POSTFIX)}.{e.name}"
        case tree.Item():
            return f"{_above(e.of, _POSTFIX)}({expr(e.index)})"
        case tree.Derive():
            return f"{_above(e.of, _POSTFIX)}[{_list(e.items)}]"
        case tree.At():
            return f"{_above(e.of, _POSTFIX)}.at({_list(e.index)})"
        case tree.ChunkAt():
            return f"{_above(e.of, _POSTFIX)}.chunkat({_list(e.index)})"
        case tree.Tile():
            parts = [(e.kind, e.sizes), ("step", e.steps), ("stride", e.strides)]
            parts.append(("from" if e.kind == "view" else "at", e.index))
            return _above(e.of, _POSTFIX) + "".join(f".{word}({_list(x)})" for word, x in parts if x)
        case tree.SpanAs():
            return f"{_above(e.of, _POSTFIX)}.span_as([{_list(e.dims)}])"
        case tree.Dma():
            return _dma(e)
    raise TypeError(f"no text for {type(e).__name__}")


def _dma(d: tree.Dma) -> str:
    if d.kind == "any" or d.source is None or d.target is None:
        return "dma.any"
    given = f"<{_list(d.settings, tight=True)}>" if d.settings else ""
    target = d.target if isinstance(d.target, str) else expr(d.target)
    event = "" if d.event is None else f"<{_list([d.event], tight=True)}>"
    swizzle = "" if d.swizzle is None else f".swiz<{_list([d.swizzle], tight=True)}>"
    head = f"{d.engine}.{d.kind}{given}{'.async' if d.is_async else ''}{event}{swizzle}"
    return f"{head} {expr(d.source)} => {target}{' after ' + d.after if d.after else ''}"
