"""The page of torch's debug server that shows what every rank has recorded so far.

Torch runs it in the frontend's process, beside rank 0. It fetches one answer from each rank, and only then
does a rank look at its recording. The frontend escapes nothing, so all text is escaped here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import ProxyHandler, Request, build_opener

from kernelscope.probes.distributed.debug_server import worker_addresses
from kernelscope.text.amounts import counted, duration
from kernelscope.text.visible import one_line

from .written_so_far import compare_written

ANSWER = "kernelscope"  # the name of each rank's answer
PATH = "/kernelscope"
_MOST_BYTES = 1 << 20
_AT_ONCE = 32  # ranks that are asked at the same time
_TEMPLATE = """
{% extends "base.html" %}
{% block header %}<h1>{% block title %}kernelscope{% endblock %}</h1>{% endblock %}
{% block content %}{{ content | safe }}{% endblock %}
"""
_COLUMNS = ("rank", "host", "step", "calls", "kernels", "graphs", "findings", "now")
_STYLE = "<style>td,th{padding:2px 10px;text-align:left;vertical-align:top}</style>"


class Link(NamedTuple):
    path: str
    label: str


class Route(NamedTuple):
    path: str
    handler: Callable[[Any], bytes]


class RanksPage:
    """A handler, as `start_debug_server(handlers=[…])` takes them."""

    fetch_timeout = 60.0  # the frontend sets it

    def routes(self) -> list[Route]:
        return [Route(PATH, self._answer)]

    def nav_links(self) -> list[Link]:
        return [Link(PATH, "kernelscope")]

    def templates(self) -> dict[str, str]:
        return {"kernelscope.html": _TEMPLATE}

    def _answer(self, request: Any) -> bytes:
        ranks = states_of_ranks(self.fetch_timeout)
        compares = request.get_query_arg("compare") is not None
        content = as_html(ranks, self._compared(ranks) if compares else "")
        page: bytes = request.frontend.render_template("kernelscope.html", content=content)
        return page

    def dump(self) -> str | None:
        """The same as text, for the frontend's folder of dumps."""
        return "\n".join(as_lines(states_of_ranks(self.fetch_timeout)))

    def dump_filename(self) -> str:
        return "kernelscope"

    def _compared(self, ranks: list[dict[str, Any]]) -> str:
        if not _COMPARING.acquire(blocking=False):
            return "another comparison is still running; reload the page later"
        try:
            recordings = [recording for state in ranks for recording in _recordings(state)]
            return compare_written(
                [str(each.get("path", "")) for each in recordings],
                sum(_number(each.get("calls")) for each in recordings),
                self.fetch_timeout,
            )
        finally:
            _COMPARING.release()


_COMPARING = threading.Lock()  # the frontend has a thread for each request


def states_of_ranks(seconds: float) -> list[dict[str, Any]]:
    """What each rank answers; {"error": why} for one that does not."""
    addresses = worker_addresses()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda address: _fetched(address, seconds), addresses))


def _fetched(address: str, seconds: float) -> dict[str, Any]:
    if not address:
        return {"error": "its debug server has not been started"}
    opener = build_opener(ProxyHandler({}))  # they are in the same job
    try:
        request = Request(f"{address}/handler/{ANSWER}", data=b"", method="POST")
        with opener.open(request, timeout=seconds) as response:
            state = json.loads(response.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        return {"error": f"no answer from {address}: {error}"}
    return state if isinstance(state, dict) else {"error": f"{address} gave an unexpected answer"}


# -- the same in words, and as a page -------------------------------------------------------------------


def _rows(ranks: list[dict[str, Any]]) -> Iterable[tuple[str, ...]]:
    """One row for each recording of a rank, and one for a rank that has none."""
    for number, state in enumerate(ranks):
        host, recordings = _text(state.get("host", "")), _recordings(state)
        if error := state.get("error"):
            yield (str(number), host, "", "", "", "", "", _text(error))
        elif not recordings:
            yield (str(number), host, "", "", "", "", "", "nothing is being recorded")
        for recording in recordings:
            columns = (recording.get(name) for name in ("step", "calls", "kernels", "graphs"))
            found = _dict(recording.get("findings"))
            yield (str(number), host, *map(_count, columns), _count(found.get("count")), _now(recording))


def _now(recording: dict[str, Any]) -> str:
    """What it is doing, or the last thing that it did."""
    if recording.get("stopped"):
        return f"the recording stopped: {_text(recording['stopped'])}"
    executing = [_dict(call) for call in _list(recording.get("executing"))]
    said = f"compiling {_text(recording['compiling'])}; " if recording.get("compiling") else ""
    said += "paused; " if recording.get("is_paused") else ""
    if executing:
        call = executing[-1]
        return f"{said}for {duration(_seconds(call))} in {_call(call)}"
    last = recording.get("last")
    return said + (f"the last was {_call(_dict(last))}" if last else "no call yet")


def _call(call: dict[str, Any]) -> str:
    group = _text(call.get("collective", ""))
    where = _text(call.get("origin", ""))
    text = f"call {_count(call.get('index'))}, {_text(call.get('kernel_name', '')) or 'a kernel'}"
    return text + (f" (group {group})" if group else "") + (f", at {where}" if where else "")


def _summary(ranks: list[dict[str, Any]]) -> list[str]:
    recordings = {n: _recordings(state) for n, state in enumerate(ranks)}
    recorded = [number for number, found in recordings.items() if found]
    said = [f"{len(recorded)} of {counted(len(ranks), 'rank')} recording"]
    steps = {n: max(_number(each.get("step")) for each in recordings[n]) for n in recorded}
    if len(set(steps.values())) > 1:
        least, most = min(steps.values()), max(steps.values())
        behind = ", ".join(str(n) for n in recorded if steps[n] == least)
        said.append(f"steps differ: {least} to {most}; furthest behind: rank {behind}")
    for number in recorded:
        for recording in recordings[number]:
            found = _dict(recording.get("findings"))
            said += [f"rank {number}: {_text(each)}" for each in _list(found.get("first"))]
    return said


def _paths(ranks: list[dict[str, Any]]) -> list[str]:
    found = (str(each["path"]) for state in ranks for each in _recordings(state) if each.get("path"))
    return list(dict.fromkeys(_text(str(Path(path).parent)) for path in found))


def as_lines(ranks: list[dict[str, Any]]) -> list[str]:
    rows = [_COLUMNS, *_rows(ranks)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS) - 1)]
    table = ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]
    return [*_summary(ranks), "", *table]


def as_html(ranks: list[dict[str, Any]], compared: str) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in _rows(ranks))
    said = "".join(f"<p>{escape(line)}</p>" for line in _summary(ranks))
    answer = f"<pre>{escape(compared)}</pre>" if compared else ""
    where = "".join(f"<p>run: {escape(path)}</p>" for path in _paths(ranks))
    link = f'<p><a href="{PATH}?compare=1">compare the ranks by what they have written so far</a></p>'
    return f"{_STYLE}{said}<table><tr>{head}</tr>{body}</table>{where}{link}{answer}"


# -- another rank's answer may hold anything -------------------------------------------------------------


def _recordings(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in _list(state.get("recordings")) if isinstance(each, dict)]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _seconds(call: dict[str, Any]) -> float:
    value = call.get("seconds")
    return float(value) if isinstance(value, int | float) else 0.0


def _text(value: Any) -> str:
    return one_line(str(value)[:400])
