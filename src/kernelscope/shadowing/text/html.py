"""What shadowing found, as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from kernelscope.model.html import code, folded, marked, page, paragraph, table
from kernelscope.shadowing.culprit import Culprit, Unchecked

_ROWS, _LINES = 10, 100


def result_html(
    title: str,
    is_good: bool,
    counted: str,
    culprits: Sequence[Culprit],
    unchecked: Sequence[Unchecked],
    notes: Sequence[str],
) -> str:
    parts = [paragraph(marked(title, "good" if is_good else "bad"), counted)]
    if culprits:
        head, first = ["verdict", "kernel", "argument", "line", "why", "times"], culprits[0]
        parts.append(table(head, [_row(c) for c in culprits[:_ROWS]], right=(5,)))
        parts += [table([], list(first.numbers.items()))] if first.numbers else []
        parts += [folded(f"source of {first.kernel_name}", first.source)] if first.source else []
    if unchecked:
        parts.append(folded(f"{len(unchecked)} not checked", "\n".join(map(str, unchecked[:_LINES]))))
    parts += [paragraph(marked(note, "dim")) for note in notes]
    return page(*parts)


def _row(c: Culprit) -> tuple[object, ...]:
    return c.verdict, code(c.kernel_name), code(c.argument), c.line, c.reason, c.times
