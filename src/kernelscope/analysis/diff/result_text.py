"""A divergence in words, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kernelscope.analysis.tensor_errors import Errors, largest
from kernelscope.events import Frame
from kernelscope.text.amounts import counted
from kernelscope.text.frames import frame_form
from kernelscope.text.frames import source_line as code_of_line
from kernelscope.text.hashes import full_hash

from .divergence_parts import DivergenceFields
from .pairs import ArgumentDifference

_MOST = 12  # lines of a list


def as_json(divergence: DivergenceFields) -> dict[str, Any]:
    """The keys are stable; docs/diff.md has them."""
    return {
        "divergence": _form(divergence) if divergence else None,
        "compared": asdict(divergence.compared),
        "notes": list(divergence.notes),
    }


_OF_DIVERGENCE = (
    "index", "index_a", "index_b", "kernel_name", "kind", "argument", "verdict", "reason", "step", "phase"
)  # fmt: skip


def _form(d: DivergenceFields) -> dict[str, Any]:
    return {name: getattr(d, name) for name in _OF_DIVERGENCE} | {
        "other_kernel_name": d.other_kernel_name or None,
        "origin": frame_form(d.origin),
        "graph": d.graph or None,
        "thread": d.thread or None,
        "thread_a": d.thread_a,
        "thread_b": d.thread_b,
        "differences": [_difference_form(each) for each in d.differences],
        "source": None if d.source is None else asdict(d.source),
        "spread": d.spread.to_json(),
        **largest(d.errors),
        "errors": [each.to_json() for each in d.errors],
    }


def _difference_form(d: ArgumentDifference) -> dict[str, Any]:
    return {
        "argument": d.argument, "position": d.position, "moment": d.moment, "what": d.what,
        "a": _shown(d, d.a), "b": _shown(d, d.b),
    }  # fmt: skip


def _shown(d: ArgumentDifference, value: Any) -> Any:
    return full_hash(value) if d.what == "values" else value


# -- words -----------------------------------------------------------------------------------------------


def lines(d: DivergenceFields) -> Iterator[str]:
    c = d.compared
    if not d:
        yield f"no divergence: {counted(c.pairs, 'call')} of {c.a} and {c.b} agree"
    else:
        yield from _heading(d)
        yield from _facts(d)
        yield from number_lines(d.errors)
        yield from _spread(d)
    yield from (f"  note: {note}" for note in d.notes)


def _heading(d: DivergenceFields) -> Iterator[str]:
    both = d.index_a is not None and d.index_b is not None and d.index_a != d.index_b
    other = f" (call {d.index_b} of the second run)" if both else ""
    what = f"extra call {d.index}" if d.index_a is None else f"first divergence at call {d.index}{other}"
    yield f"{d.verdict}: {what}"
    yield f"  [{d.kind}] {d.kernel_name}" + (f" / {d.other_kernel_name}" if d.other_kernel_name else "")
    yield from source_line(d.origin)


def source_line(origin: Frame | None) -> Iterator[str]:
    if origin is not None:
        yield f"  at {origin}"
        code = code_of_line(origin)
        if code:
            yield f"      {code}"


def _facts(d: DivergenceFields) -> Iterator[str]:
    graph = f"graph {d.graph}, " if d.graph else ""
    thread = f", {d.thread}" if d.thread else ""
    yield f"  {graph}step {d.step}, {d.phase}{thread}"
    yield f"  why: {d.reason}"
    for each in d.differences[:_MOST]:
        if each.what == "values":
            a, b = (f"#{full_hash(value)!s:.16}" for value in (each.a, each.b))
            yield f"  {each.argument} {each.moment}: {a} and {b}"
        else:
            yield f"  {each.argument} {each.moment}: {each.what} {each.a} and {each.b}"
    if len(d.differences) > _MOST:
        yield f"  … and {counted(len(d.differences) - _MOST, 'more argument')}"
    if d.source is not None:
        yield f"  came from: {d.source.text}"


def number_lines(errors: tuple[Errors, ...]) -> Iterator[str]:
    for e in errors:
        ulps = "" if e.max_ulp is None else f", {e.max_ulp:,} ulp"
        yield (
            f"  {e.argument} {e.moment}: {e.differing:,} of {e.elements:,} elements differ, by at most "
            f"{e.max_abs:.3g} absolute, {e.max_rel:.3g} relative{ulps}"
        )
        yield f"      largest at {list(e.where)}: {e.a} and {e.b}"
        if e.histogram:
            yield "      ulp: " + ", ".join(f"{label}: {count:,}" for label, count in e.histogram)


def _spread(d: DivergenceFields) -> Iterator[str]:
    s = d.spread
    if d.index_a is None or d.index_b is None:
        return
    if not s.later and d.index_a + 1 < d.compared.calls_a:
        return  # other calls stand there, which are not followed one by one
    if not s.differing:
        yield f"  no later call differs ({s.later:,} follow)" if s.later else "  it is the last call"
        return
    yield f"  {s.differing:,} of {s.later:,} later calls differ, the last is call {s.last}"
    shown = s.chain if len(s.chain) <= _MOST else (*s.chain[: _MOST - 1], s.chain[-1])
    for link in shown:
        thread = f" on {link.thread}" if link.thread else ""
        yield f"    call {link.parent} → {link.index} {link.kernel_name} through {link.argument}{thread}"
