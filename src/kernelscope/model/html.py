"""Runs and calls as HTML for a notebook: short, escaped, and readable in light and dark.

What is in a run is text and never markup: everything goes through `text`. No scripts, no links.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kernelscope.events import Finding, Graph
from kernelscope.text.amounts import counted, duration
from kernelscope.text.frames import short_frame
from kernelscope.text.hashes import short_hash
from kernelscope.text.widths import shortened

from .call_facts import CallFacts

_CALLS, _FINDINGS = 20, 10  # rows that are shown
_RIGHT = ' class="n"'
_LONGEST = 160  # letters of one cell
# Not shown as they are: they would move or hide what stands beside them, or cannot be seen themselves.
# report/page/dom.js has the same.
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e007f]"
)

# All below one class, so that nothing else on the page changes; most colours are the notebook's own.
_STYLE = """\
<style>
.kernelscope { font: 13px/1.45 system-ui, sans-serif; color: inherit; max-width: 100%; overflow-x: auto }
.kernelscope table { border-collapse: collapse; margin: .4em 0; font: inherit; color: inherit }
.kernelscope th, .kernelscope td { text-align: left; vertical-align: top; padding: .15em .7em .15em 0;
  border-bottom: 1px solid rgba(128, 128, 128, .35); white-space: nowrap; background: none; color: inherit }
.kernelscope td.n, .kernelscope th.n { text-align: right; font-variant-numeric: tabular-nums }
.kernelscope code, .kernelscope pre { font: 12px/1.4 ui-monospace, monospace; color: inherit;
  background: none }
.kernelscope .dim { opacity: .65 }
.kernelscope .bad { color: #b3261e; font-weight: 600 }
.kernelscope .good { color: #1b6e3c; font-weight: 600 }
.kernelscope details { margin: .3em 0 }
@media (prefers-color-scheme: dark) {
  .kernelscope .bad { color: #ff8a80 } .kernelscope .good { color: #7ddba3 }
}
[data-jp-theme-light="true"] .kernelscope .bad, .vscode-light .kernelscope .bad { color: #b3261e }
[data-jp-theme-light="true"] .kernelscope .good, .vscode-light .kernelscope .good { color: #1b6e3c }
[data-jp-theme-light="false"] .kernelscope .bad, .vscode-dark .kernelscope .bad { color: #ff8a80 }
[data-jp-theme-light="false"] .kernelscope .good, .vscode-dark .kernelscope .good { color: #7ddba3 }
</style>"""


class Markup(str):
    """HTML that was made here; anything else is text and gets escaped."""

    __slots__ = ()


def text(value: Any, longest: int = _LONGEST) -> Markup:
    if isinstance(value, Markup):
        return value
    shown = "" if value is None else str(value)
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return Markup(html.escape(visible(shown), quote=True))


def visible(shown: str) -> str:
    """Without characters that no screen should act on."""
    return CONTROL.sub("\ufffd", shown).encode("utf-8", "replace").decode()


def code(value: Any) -> Markup:
    """A name: a long one is shortened in the middle, because names differ at their ends."""
    shown = value if isinstance(value, Markup) else shortened(str(value), _LONGEST)
    return Markup(f"<code>{text(shown)}</code>")


def marked(value: Any, style: str) -> Markup:
    return Markup(f'<span class="{style}">{text(value)}</span>')


def paragraph(*parts: Any) -> Markup:
    return Markup(f"<div>{' '.join(text(part) for part in parts)}</div>")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> Markup:
    def row(cells: Sequence[Any], tag: str) -> str:
        inner = "".join(
            f"<{tag}{_RIGHT if i in right else ''}>{text(cell)}</{tag}>" for i, cell in enumerate(cells)
        )
        return f"<tr>{inner}</tr>"

    first = row(head, "th") if any(head) else ""
    return Markup(f"<table>{first}{''.join(row(r, 'td') for r in rows)}</table>")


def folded(title: str, inside: str, longest: int = 20_000) -> Markup:
    """A block of text that opens on demand."""
    block = text(inside, longest)
    return Markup(f"<details><summary>{text(title)}</summary><pre>{block}</pre></details>")


def page(*parts: Markup) -> str:
    return f'{_STYLE}<div class="kernelscope">{"".join(parts)}</div>'


# -- a run -----------------------------------------------------------------------------------------------


def run_html(
    name: str, heading: str, total: int, select: Callable[..., Sequence[CallFacts]], noted: Sequence[Finding]
) -> str:
    calls = select(limit=_CALLS)
    parts = [paragraph(Markup(f"<b>{text(name)}</b>"), heading)]
    parts += [_findings(noted)] if noted else []
    head = ["call", "kind", "kernel", "line", "graph", "time"]
    parts.append(table(head, [_row(call) for call in calls], right=(0, 5)))
    if total > len(calls):
        parts.append(marked(f"… {total - len(calls):,} more: run.select(…), or print(run)", "dim"))
    return page(*parts)


def _findings(found: Sequence[Finding]) -> Markup:
    rows = [(f.kind, f"call {f.call}" if f.call >= 0 else "", f.message) for f in found[:_FINDINGS]]
    more = f" (the first {_FINDINGS})" if len(found) > _FINDINGS else ""
    count = f"{counted(len(found), 'finding')}{more}"
    return Markup(paragraph(marked(count, "bad")) + table([], rows))


def _row(call: CallFacts) -> tuple[Any, ...]:
    graph = call.graph
    return (
        call.index, call.kind, code(call.kernel_name), short_frame(call.origin),
        _graph_name(graph) if graph else "", duration(call.time),
    )  # fmt: skip


def _graph_name(graph: Graph) -> str:
    return f"{graph.name or graph.id} ({graph.direction})"


# -- a call ----------------------------------------------------------------------------------------------


def call_html(call: CallFacts) -> str:
    graph = call.graph
    facts = {
        "at": call.origin,
        "graph": f"{_graph_name(graph)}, graph call {call.graph_call}" if graph else "",
        "step": f"{call.step}, {call.phase}",
        "grid": call.grid,
        "config": ", ".join(f"{k}={v}" for k, v in call.config.items()),
        "device": call.device,
        "time": duration(call.time),
        "raised": marked(call.error, "bad") if call.error else "",
    }
    title = Markup(f"<b>call {call.index}</b> {text(f'[{call.kind}]')} {code(call.kernel_name)}")
    parts = [paragraph(title), table([], [(k, v) for k, v in facts.items() if v not in (None, "")])]
    if call.arguments:
        rows = list(_arguments(call))
        shown = [i for i in range(6) if any(row[i] for row in rows)]
        head = ("argument", "role", "", "before", "after", "statistics")
        parts.append(table([head[i] for i in shown], [[row[i] for i in shown] for row in rows]))
    if call.source:
        parts.append(folded("source", call.source))
    return page(*parts)


def _arguments(call: CallFacts) -> Iterable[tuple[Any, ...]]:
    roles, pre, post, values = call.roles, call.pre_hashes, call.post_hashes, call.args
    stats, empty, changed = {**call.pre_stats, **call.post_stats}, call.uninitialised, call.changed_args
    for i, arg in enumerate(call.arguments):
        name = f"{arg.name} = {arg.wrapper_name}" if arg.wrapper_name not in ("", arg.name) else arg.name
        if arg.tensor is None:
            yield code(name), roles[i], values[i] if i < len(values) else "", "", "", ""
            continue
        shape = arg.tensor.text
        before = "uninitialised" if i in empty else short_hash(pre.get(i))
        after = f"{short_hash(post.get(i))}{' changed' if i in changed else ''}"
        yield code(name), roles[i], shape, before, after, stats.get(i, "")
