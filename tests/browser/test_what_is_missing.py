"""A run that lacks something: the page says what, and how to record it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kernelscope.events import Finding, GraphCall
from kernelscope.store.writer_thread import Writer
from tests.support.sample_runs import GRAPH, Hashes, compiling, full_call, info, site

from .conftest import ROOT, Write, served, shown

VIEWS = ("overview", "pipeline", "calls", "timeline", "diff")


def small(
    folder: Path, *, hashes: bool = True, time: bool = True, stages: bool = True, calls: int = 4
) -> Path:
    folder.mkdir()
    writer = Writer(folder, info())
    writer.graph_call(GraphCall(0, GRAPH, 7, 0, "forward", 1))
    for _ in range(calls):
        call = full_call(next(writer.flight), site(1), Hashes() if hashes else None)
        call.duration_ns = call.duration_ns if time else -1
        writer.enter(call)
        writer.leave(call)
    if stages:
        writer.compiled += compiling()
    writer.flush()
    writer.close()
    return folder


def only_findings(folder: Path) -> Path:
    folder.mkdir()
    writer = Writer(folder, info())
    writer.finding(Finding("graph-not-seen", "a graph could not be seen"))
    writer.flush()
    writer.close()
    return folder


CASES: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "stages": (lambda path: small(path, stages=False), ["there is no pipeline", "run --stages script.py"]),
    "values": (
        lambda path: small(path, hashes=False),
        ["Hashes were not recorded", "run --values hash script.py"],
    ),
    "time": (lambda path: small(path, time=False), ["Times were not measured", "run --time script.py"]),
    "findings only": (
        only_findings,
        ["graph-not-seen", "a graph could not be seen", "No kernel ran", "--ops all"],
    ),
    "empty": (
        lambda path: small(path, stages=False, calls=0),
        ["No kernel ran during the recording", "kernelscope run --ops all script.py"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_says_what_is_missing(name: str, page: Page, tmp_path: Path, written: Write) -> None:
    make, told = CASES[name]
    run = make(tmp_path / "run.kscope")
    address = written(run)
    for view in VIEWS:
        page.goto(f"{address}#{view}")
        shown(page, view)
        expect(page.get_by_role("alert")).to_have_count(0)
    page.goto(f"{address}#overview")
    for text in told:
        expect(page.locator("main")).to_contain_text(text)
    with served(run) as server:
        page.goto(server.address)
        for text in told:
            expect(page.locator("main")).to_contain_text(text)
        page.goto("about:blank")


def test_without_stages_lines_and_code_are_there(page: Page, tmp_path: Path, written: Write) -> None:
    page.goto(written(small(tmp_path / "run.kscope", stages=False)) + "#pipeline")
    expect(page.locator(".toolbar")).to_contain_text("without stages")
    expect(page.locator(".toolbar")).to_contain_text("kernelscope run --stages")
    expect(page.locator(".pane").nth(2)).to_contain_text("void cpp_fused_relu_0() {}")


def test_without_time_calls_are_marks(page: Page, tmp_path: Path, written: Write) -> None:
    page.goto(written(small(tmp_path / "run.kscope", time=False)) + "#timeline")
    expect(page.locator("main")).to_contain_text("Times were not measured: each call is a mark")
    expect(page.locator("main")).to_contain_text("4 calls in view")


def test_a_call_without_values(page: Page, tmp_path: Path, written: Write) -> None:
    page.goto(written(small(tmp_path / "run.kscope", hashes=False)) + "#call=2")
    expect(page.locator("main")).to_contain_text(
        "Values were not recorded; kernelscope run --values hash script.py"
    )


def test_a_call_that_is_not_there(page: Page, tmp_path: Path, written: Write) -> None:
    run = small(tmp_path / "run.kscope")
    page.goto(written(run) + "#call=99")
    expect(page.get_by_role("alert")).to_contain_text("There is no call 99 in this run.")
    page.goto(written(run, limit=2) + "#call=3")
    expect(page.get_by_role("alert")).to_contain_text("This file has calls 0 to 1 of 4.")
    page.goto(written(run, limit=2) + "#overview")
    expect(page.locator(".heading")).to_contain_text(
        "This file has 2 calls of 4; `kernelscope view` shows all"
    )


def test_a_crash_leads_to_its_kernel(page: Page, tmp_path: Path, written: Write) -> None:
    folder = tmp_path / "run.kscope"
    code = (
        "import os, pathlib, sys; from tests.support.sample_runs import write_sample; "
        "write_sample(pathlib.Path(sys.argv[1]), close=False, executing=True); os._exit(9)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    assert subprocess.run([sys.executable, "-c", code, str(folder)], env=environment).returncode == 9
    page.goto(written(folder))
    expect(page.locator("h1 .chip")).to_have_text("crashed")
    card = page.locator(".card").first
    expect(card).to_contain_text("ended without closing its recording")
    expect(card).to_contain_text("was executing: call 40, cpp_fused_noted_1")
    assert re.search(r"call 40", card.get_by_role("link").inner_text())
