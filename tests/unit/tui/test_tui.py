"""The terminal application, driven by Textual's own pilot: keys pressed, screens read."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.hostile_texts import write_hostile
from tests.support.long_runs import copy_with_a_fault, write_long_run
from tests.support.sample_runs import info, write_sample

import kernelscope
from kernelscope.cli import main
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.writer_thread import Writer

pytest.importorskip("textual")

from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from kernelscope.tui.app import RunApp
from kernelscope.tui.calls_table import PAGE, CallsTable
from kernelscope.tui.filter_query import InvalidFilter, parse_filter
from kernelscope.tui.screens import CallPage, DiffPage

Driver = Callable[[RunApp, "Pilot[None]"], Awaitable[None]]


def drive(run: StoredRun, driver: Driver, other: StoredRun | None = None) -> None:
    async def session() -> None:
        app = RunApp(run, other)
        async with app.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            await driver(app, pilot)

    # On a thread of its own: a browser that other tests have open keeps a loop running on this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, session()).result()


def screen_text(app: RunApp) -> str:
    """What a person sees, line by line."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    assert len(strips) <= height + 1
    return "\n".join(strip.text[:width].rstrip() for strip in strips)


async def sees(app: RunApp, pilot: Pilot[None], *texts: str) -> str:
    """Waits for what is to be seen, on however many lines: a slow machine draws late."""
    for _ in range(200):
        await pilot.pause(0.02)
        seen = screen_text(app)
        in_a_line = " ".join(seen.split())
        if all(text in seen or text in in_a_line for text in texts):
            return seen
    raise AssertionError(f"{texts} are not all in\n{screen_text(app)}")


def said(app: RunApp) -> str:
    return str(app.query_one("#said", Static).render())


@pytest.fixture
def sample(tmp_path: Path) -> StoredRun:
    write_sample(tmp_path / "sample.kscope")
    return kernelscope.load(tmp_path / "sample.kscope")


def test_calls_a_call_and_its_source(sample: StoredRun) -> None:
    async def driver(app: RunApp, pilot: Pilot[None]) -> None:
        await sees(app, pilot, "40 calls of 3 kernels in 1 graph", "model.py:11", "1.50 µs", "raised")
        await pilot.press("down", "down", "enter")
        await sees(app, pilot, "call 2  [cpp] extern_kernels.mm", "in_ptr0 = arg0_1")
        assert isinstance(app.screen, CallPage)
        await pilot.press("n")
        await pilot.pause()
        assert app.screen.call.index == 3
        await pilot.press("p", "p", "p", "p")
        await pilot.pause()
        assert app.screen.call.index == 0
        await pilot.press("s")
        await sees(app, pilot, "void cpp_fused_relu_0()")
        await pilot.press("escape", "escape", "f")
        await sees(app, pilot, "[undeclared-write] call 3 something")

    drive(sample, driver)


def test_keys_of_the_list_mean_nothing_elsewhere(sample: StoredRun) -> None:
    async def driver(app: RunApp, pilot: Pilot[None]) -> None:
        for page in ("enter", "s", "f"):
            await pilot.press(page)
            await pilot.pause()
            here = app.screen
            await pilot.press("slash", "d", "enter", "f" if page != "f" else "s")
            await pilot.pause()
            assert app.screen is here
            await pilot.press("q")
            await pilot.pause()
            assert app.screen is not here
            assert app.is_running

    drive(sample, driver)


def test_choosing_calls(sample: StoredRun) -> None:
    async def typed(app: RunApp, pilot: Pilot[None], line: str) -> list[str]:
        await pilot.press("slash")
        app.query_one("#asked", Input).value = line
        await pilot.press("enter")
        await pilot.pause()
        return [call.kernel_name for call in app.query_one(CallsTable).calls]

    async def driver(app: RunApp, pilot: Pilot[None]) -> None:
        assert await typed(app, pilot, "mm") == ["extern_kernels.mm"] * 10
        assert len(await typed(app, pilot, "kind=cpp phase=forward step=1")) == 40
        assert len(await typed(app, pilot, "37")) == 3
        assert await typed(app, pilot, "no_such") == []
        assert said(app) == "no call matches"
        before = app.query_one(CallsTable).row_count
        await typed(app, pilot, "colour=red")
        assert "unknown filter 'colour'" in said(app)
        assert app.query_one(CallsTable).row_count == before
        await pilot.press("escape", "enter", "s", "d")  # no call is there, and no other run
        assert "--diff OTHER" in said(app)

    drive(sample, driver)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", {}),
        ("mm", {"kernel": "*mm*"}),
        ("*mm step=3", {"kernel": "*mm", "step": 3}),
        ("graph=0_forward", {"graph": "0_forward"}),
        ("graph=2 first=7", {"graph": 2, "first": 7}),
    ],
)
def test_what_is_asked(line: str, found: dict[str, Any]) -> None:
    assert parse_filter(line) == found


@pytest.mark.parametrize("line", ["a=b", "step=x", "kind=", "=x"])
def test_what_is_not_understood(line: str) -> None:
    with pytest.raises(InvalidFilter):
        parse_filter(line)


def test_a_long_run_is_read_on_demand_and_a_diff(tmp_path: Path) -> None:
    path = write_long_run(tmp_path / "a.kscope", 2000)
    other = copy_with_a_fault(path, tmp_path / "b.kscope", 700)

    async def driver(app: RunApp, pilot: Pilot[None]) -> None:
        table = app.query_one(CallsTable)
        assert table.row_count == PAGE
        table.move_cursor(row=PAGE - 1)
        await pilot.pause()
        assert table.row_count == 2 * PAGE
        await pilot.press("d")
        await sees(app, pilot, "nondeterministic-kernel: first divergence at call 700")
        assert isinstance(app.screen, DiffPage)
        sides = app.screen.query_one("#sides", DataTable)
        rows = [[str(cell) for cell in sides.get_row_at(i)] for i in range(sides.row_count)]
        assert ["▶", "700  cpp_fused_relu_0", "700  cpp_fused_relu_0"] in rows
        assert len(rows) == 20

    drive(kernelscope.load(path), driver, kernelscope.load(other))


def test_runs_that_cannot_be_compared(tmp_path: Path, sample: StoredRun) -> None:
    (tmp_path / "empty.kscope").mkdir()

    Writer(tmp_path / "empty.kscope", info()).close()
    empty = kernelscope.load(tmp_path / "empty.kscope")

    async def driver(app: RunApp, pilot: Pilot[None]) -> None:
        assert said(app) == "the run has no calls"
        await pilot.press("enter", "s", "f")
        await sees(app, pilot, "no findings")
        await pilot.press("escape", "d")
        await pilot.pause()
        assert "is compared with itself" in said(app)

    drive(empty, driver, sample)


def test_a_damaged_run_is_one_sentence(sample: StoredRun) -> None:
    """Wherever it is stumbled upon: at a call's neighbour, and in the list."""

    def damage() -> None:
        with sqlite3.connect(sample.path / "run.db") as db:
            db.execute("UPDATE details SET pre = 'not json' WHERE call = 6")
        db.close()

    async def walk(app: RunApp, pilot: Pilot[None]) -> None:
        await sees(app, pilot, "model.py:11")
        app.query_one(CallsTable).move_cursor(row=5)
        await pilot.press("enter")
        await sees(app, pilot, "call 5  [cpp]")
        damage()
        await pilot.press("n")
        await sees(app, pilot, "is damaged and cannot be read in full")
        await pilot.press("escape")
        await sees(app, pilot, "model.py:11")

    async def look(app: RunApp, pilot: Pilot[None]) -> None:
        await sees(app, pilot, "is damaged and cannot be read in full")
        await pilot.press("enter", "s")  # no call is there

    drive(kernelscope.load(sample.path), walk)
    drive(kernelscope.load(sample.path), look)


def test_hostile_content_is_text(tmp_path: Path) -> None:
    run = kernelscope.load(write_hostile(tmp_path / "h.kscope"))

    async def driver(app: RunApp, pilot: Pilot[None]) -> None:
        for keys in ([], ["enter"], ["s"], ["escape", "escape", "f"], ["escape", "d"]):
            await pilot.press(*keys)
            seen = await sees(app, pilot, "<script>alert(1)</script>")
            assert not set(seen) & set("\x1b\x07\x00\u202e\u200b\u2028")

    drive(run, driver, run)


def test_the_command(
    sample: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tui", "sample.kscope"]) == 2
    assert "tui needs a terminal" in capsys.readouterr().err
    assert main(["tui", "none"]) == 2
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "kernelscope.tui.app", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "kernelscope.tui.app")
    assert main(["tui", "sample.kscope"]) == 2
    assert "pip install 'kernelscope[tui]'" in capsys.readouterr().err
