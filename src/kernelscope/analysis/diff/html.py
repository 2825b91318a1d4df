"""A divergence as HTML for a notebook."""

from __future__ import annotations

from typing import Any

from kernelscope.model.html import Markup, code, marked, page, paragraph, table, text
from kernelscope.text.amounts import counted
from kernelscope.text.frames import source_line
from kernelscope.text.hashes import short_hash

from .divergence_parts import DivergenceFields

_MOST = 12  # rows


def divergence_html(d: DivergenceFields) -> str:
    c = d.compared
    if not d:
        parts = [
            paragraph(marked("no divergence", "good"), f"{counted(c.pairs, 'call')} of {c.a} and {c.b} agree")
        ]
        return page(*parts, *_notes(d))
    calls = f"call {d.index}" if d.index_b in (None, d.index_a) else f"call {d.index_a} / {d.index_b}"
    other = Markup(f" / {code(d.other_kernel_name)}") if d.other_kernel_name else Markup("")
    title = Markup(f"{text(f'at {calls}: [{d.kind}]')} {code(d.kernel_name)}{other}")
    facts: dict[str, Any] = {"why": d.reason}
    if d.origin is not None:
        facts["at"] = d.origin
        facts[""] = code(source_line(d.origin))
    facts["graph"] = f"{d.graph}, step {d.step}, {d.phase}" if d.graph else f"step {d.step}, {d.phase}"
    if d.thread:
        facts["thread"] = d.thread
    if d.source is not None:
        facts["came from"] = d.source.text
    if d.spread.later:
        facts["spread"] = f"{d.spread.differing:,} of {d.spread.later:,} later calls differ"
    rows = [
        (code(each.argument), each.moment, each.what, _side(each.what, each.a), _side(each.what, each.b))
        for each in d.differences[:_MOST]
    ]
    parts = [paragraph(marked(d.verdict, "bad"), title), table([], list(facts.items()))]
    if rows:
        parts.append(table(["argument", "", "", "first run", "second run"], rows))
    if d.errors:
        parts.append(_numbers(d))
    return page(*parts, *_notes(d))


def _side(what: str, value: Any) -> str:
    return short_hash(value) if what == "values" else str(value)


def _numbers(d: DivergenceFields) -> Markup:
    head = ["argument", "elements", "differ", "max abs", "max rel", "max ulp", "largest at"]
    rows = [
        (code(e.argument), f"{e.elements:,}", f"{e.differing:,}", f"{e.max_abs:.3g}", f"{e.max_rel:.3g}",
         "" if e.max_ulp is None else f"{e.max_ulp:,}", f"{list(e.where)}: {e.a} and {e.b}")
        for e in d.errors
    ]  # fmt: skip
    return table(head, rows, right=range(1, 6))


def _notes(d: DivergenceFields) -> list[Markup]:
    return [paragraph(marked(f"note: {note}", "dim")) for note in d.notes]
