"""What a shadowed program showed, as HTML for a notebook."""

from __future__ import annotations

from kernelscope.model.html import Markup, code, folded, marked, page, paragraph, table

from .result import Culprit, ShadowResult

_MOST = 10  # rows


def shadow_html(result: ShadowResult) -> str:
    counts, wrong = result.counts, result.culprits
    told = f"{counts.buffers:,} buffers of {counts.launches:,} launches judged"
    if wrong:
        title = marked(f"{len(wrong)} wrong", "bad")
    elif result.problem:
        title = marked(result.problem, "bad")
    else:
        title = marked("nothing wrong", "good")
    parts = [paragraph(title, told)]
    if wrong:
        head = ["verdict", "kernel", "argument", "line", "why", "times"]
        parts.append(table(head, [_row(c) for c in wrong[:_MOST]], right=(5,)))
        first = wrong[0]
        numbers = [(key, value) for key, value in first.numbers.items()]
        parts += [table([], numbers)] if numbers else []
        parts += [folded(f"source of {first.kernel_name}", first.source)] if first.source else []
    if result.unchecked:
        parts.append(_unchecked(result))
    parts += [paragraph(marked(note, "dim")) for note in result.notes]
    return page(*parts)


def _row(c: Culprit) -> tuple[object, ...]:
    return c.verdict, code(c.kernel_name), code(c.argument), c.line, c.reason, c.times


def _unchecked(result: ShadowResult) -> Markup:
    left = result.unchecked
    lines = "\n".join(map(str, left[:100]))
    return folded(f"{len(left)} not judged", lines)
