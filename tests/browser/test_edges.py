"""Where lists end and numbers do not fit: the first and the last call, a file cut short, a damaged run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kernelscope.events import GraphCall
from kernelscope.fingerprint import Stats
from kernelscope.store.writer_thread import Writer
from tests.support.long_runs import copy_with_a_fault, write_long_run
from tests.support.sample_runs import GRAPH, Hashes, full_call, info, site, write_sample

from .conftest import Seen, Write, served, shown


def small(folder: Path, fingerprinter: Hashes, calls: int = 4) -> Path:
    folder.mkdir()
    writer = Writer(folder, info())
    writer.graph_call(GraphCall(0, GRAPH, 7, 0, "forward", 1))
    for _ in range(calls):
        call = full_call(next(writer.flight), site(1), fingerprinter)
        writer.enter(call)
        writer.leave(call)
    writer.flush()
    writer.close()
    return folder


@contextmanager
def both(run: Path, written: Write, page: Page) -> Iterator[list[str]]:
    """The addresses of a run, as a file and served."""
    with served(run) as server:
        yield [written(run), server.address]
        page.goto("about:blank")


def test_the_first_and_the_last_call(page: Page, tmp_path: Path, written: Write) -> None:
    run = small(tmp_path / "run.kscope", Hashes())
    with sqlite3.connect(run / "run.db") as db:  # as a run that keeps its last calls
        db.execute("DELETE FROM calls WHERE id = 0")
        db.execute("DELETE FROM details WHERE call = 0")
    db.close()
    with both(run, written, page) as addresses:
        for address in addresses:
            page.goto(f"{address}#call=3")
            shown(page, "call")
            steps = page.locator(".steps")
            expect(steps).to_contain_text("the last →")
            page.keyboard.press("]")
            page.keyboard.press("[")
            expect(page.locator("h1")).to_contain_text("call 2 ")
            steps.get_by_role("link", name="← previous").click()
            expect(page.locator("h1")).to_contain_text("call 1 ")
            expect(steps).to_contain_text("← the first")
            expect(steps.get_by_role("link", name="← previous")).to_have_count(0)


class TooLarge(Hashes):
    """Sums that no float64 can hold, of numbers that it can."""

    def stats(self, slot: int) -> Stats:
        return Stats(8, -1.7e308, 1.7e308, float("inf"), float("inf"), float("inf"), 0, 0, 0, 0)


def test_sums_that_are_too_large(page: Page, tmp_path: Path, written: Write) -> None:
    with both(small(tmp_path / "run.kscope", TooLarge()), written, page) as addresses:
        for address in addresses:
            page.goto(f"{address}#call=1")
            expect(page.locator("table.arguments")).to_contain_text("mean inf · max 1.700e+308 · std inf")
            page.goto(f"{address}#calls")
            expect(page.locator(".row.call:visible")).to_have_count(4)


def test_a_run_that_cannot_be_compared(page: Page, seen: Seen, tmp_path: Path) -> None:
    """It is shown all the same, and why it cannot be is said."""
    write_long_run(tmp_path / "a.kscope", 50)
    small(tmp_path / "b.kscope", Hashes(), calls=0)
    seen.expected = ("422",)
    with served(tmp_path / "a.kscope", tmp_path / "b.kscope") as server:
        page.goto(server.address)
        expect(page.locator(".findings")).to_contain_text("is empty: it has no calls to compare")
        expect(page.locator("table.kernels tbody tr").first).to_be_visible()
        page.goto(server.address + "#diff")
        expect(page.get_by_role("alert")).to_contain_text("is empty: it has no calls to compare")
        page.goto("about:blank")


def test_a_file_that_is_cut_has_the_divergence(page: Page, tmp_path: Path, written: Write) -> None:
    first = write_long_run(tmp_path / "a.kscope", 500)
    second = copy_with_a_fault(first, tmp_path / "b.kscope", 333)
    page.goto(written(first, second, limit=60) + "#diff")
    row = page.locator(".row.aligned.first")
    expect(row).to_be_in_viewport()
    expect(row).to_contain_text("cpp_fused_relu_33")
    expect(page.locator(".heading")).to_contain_text("440 more rows are not in this file")
    page.locator("h1").get_by_role("link", name="call 333").click()
    expect(page.locator("h1")).to_contain_text("call 333")
    page.goto(written(first, second, limit=60, first=0) + "#diff")
    expect(page.locator(".row.aligned").first).to_be_visible()
    expect(page.locator(".row.aligned.first")).to_have_count(0)


def test_a_file_that_begins_after_the_last_call(page: Page, tmp_path: Path, written: Write) -> None:
    address = written(small(tmp_path / "run.kscope", Hashes()), first=100)
    for view in ("overview", "pipeline", "calls", "timeline", "diff"):
        page.goto(f"{address}#{view}")
        shown(page, view)
        expect(page.get_by_role("alert")).to_have_count(0)
        assert "NaN" not in page.locator("main").inner_text()
    page.goto(f"{address}#call=1")
    expect(page.get_by_role("alert")).to_contain_text("This file has no calls.")


def test_moving_needs_no_click(page: Page, tmp_path: Path, written: Write) -> None:
    page.goto(written(small(tmp_path / "run.kscope", Hashes())) + "#calls")
    expect(page.locator(".row.call:visible")).to_have_count(4)
    for key in ("j", "j", "k", "j", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("h1")).to_contain_text("call 1 ")


def test_a_run_that_is_damaged_while_it_is_viewed(page: Page, seen: Seen, tmp_path: Path) -> None:
    run = tmp_path / "run.kscope"
    write_sample(run)
    seen.expected = ("422", "500")
    with served(run) as server:
        page.goto(server.address)
        expect(page.locator("table.kernels tbody tr").first).to_be_visible()
        with sqlite3.connect(run / "run.db") as db:
            db.execute("UPDATE details SET storages = 'x'")
            db.execute("UPDATE fingerprints SET stats = '[1]'")
        db.close()
        page.goto(server.address + "#call=2")
        expect(page.get_by_role("alert")).to_contain_text("is damaged")
        page.get_by_role("link", name="Overview").first.click()
        expect(page.locator("h1").first).to_contain_text("run")
        page.goto("about:blank")


def test_whatever_goes_wrong_is_told(
    page: Page, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page must not believe that nobody serves it any more."""
    write_sample(tmp_path / "run.kscope")
    seen.expected = ("500",)
    with served(tmp_path / "run.kscope") as server:

        def fails(*_: Any) -> None:
            raise ZeroDivisionError("of our own")

        monkeypatch.setattr(server.answers._runs["a"], "call", fails)
        page.goto(server.address + "#call=2")
        expect(page.get_by_role("alert")).to_contain_text("ZeroDivisionError: of our own")
        page.goto("about:blank")


def test_what_is_copied_is_what_is_seen(page: Page, tmp_path: Path, written: Write) -> None:
    """A terminal would act on what a run has hidden in a command."""
    run = small(tmp_path / "a'b;\x1b[201~c\u202e.kscope", Hashes())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(written(run) + "#call=1")
    page.get_by_role("button", name="Copy this").first.click()
    expect(page.locator("#said")).to_contain_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == """kernelscope show 'a'"'"'b;\\u001b[201~c\\u202e' --call 1"""
