"""The ranks of a run on its page: which one differs first, where, and who agrees with whom."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kernelscope.report.content.ranks import ranks_of
from kernelscope.report.file import report
from kernelscope.store.ranks.rank_parts import load_rank

from .boxes import DRAWN, faults
from .conftest import ROOT, Write, served, shown
from .test_what_is_missing import small

PROGRAM = ROOT / "tests" / "integration" / "ranks" / "trials.py"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks in training; in step 1 an all-reduce gave rank 1 other values than rank 0."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    words = [[sys.executable, str(PROGRAM), str(rank), "2", str(folder), "0", "given"] for rank in (0, 1)]
    running = [subprocess.Popen(each, env=environment) for each in words]
    assert [process.wait(600) for process in running] == [0, 0]
    return folder / "given.kscope"


@contextmanager
def address(given: Path, rank: int, how: str, tmp_path: Path) -> Iterator[str]:
    run, ranks = load_rank(given, rank), ranks_of(given)
    if how == "file":
        path = tmp_path / "page.html"
        path.write_text(report(run, ranks=ranks), encoding="utf-8")
        yield path.as_uri()
    else:
        with served(run.path, ranks=ranks) as server:
            yield server.address


@pytest.mark.parametrize("how", ["file", "served"])
def test_the_first_deviation_and_the_table(page: Page, given: Path, how: str, tmp_path: Path) -> None:
    with address(given, 1, how, tmp_path) as where:
        page.goto(where)
        page.get_by_role("link", name="Ranks").click()
        shown(page, "ranks")
        expect(page.locator("h1")).to_contain_text(
            "collective-differs one of ranks 0, 1 differs first, in step 1"
        )
        expect(page.locator(".heading")).to_contain_text("c10d.allreduce_.default, argument tensors[0]")
        expect(page.locator(".heading")).to_contain_text("must give all its ranks the same")
        cells = [row.locator("td").all_inner_texts() for row in page.locator(".by-steps tbody tr").all()]
        assert cells == [["A", "A!", "A"], ["A", "B!", "A"]]
        found = page.locator(".by-steps .found").first
        expect(found).to_have_attribute("title", "rank 0, step 1: 134 calls, 1 deviation")
        page.locator(".heading").get_by_role("link").click()  # this page has the calls of rank 1
        expect(page.locator("h1")).to_contain_text("c10d.allreduce_.default")
        page.keyboard.press("6")
        shown(page, "ranks")
        page.goto("about:blank")


def test_the_page_of_another_rank_has_the_command(page: Page, given: Path, tmp_path: Path) -> None:
    with address(given, 0, "file", tmp_path) as where:
        page.goto(f"{where}#ranks")
        command = page.locator(".heading code").nth(1)
        expect(command).to_contain_text("kernelscope show given --rank 1 --call ")


def test_a_run_of_one_process_has_no_such_view(page: Page, tmp_path: Path, written: Write) -> None:
    page.goto(written(small(tmp_path / "run.kscope")))
    expect(page.get_by_role("navigation").get_by_role("link", name="Diff")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name="Ranks")).to_have_count(0)
    page.keyboard.press("6")
    expect(page.locator("main")).to_contain_text("This page has no other rank to compare with")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overlaps(page: Page, given: Path, tmp_path: Path, width: int) -> None:
    page.add_init_script(DRAWN)
    page.set_viewport_size({"width": width, "height": 800})
    with address(given, 1, "file", tmp_path) as where:
        page.goto(f"{where}#ranks")
        shown(page, "ranks")
        assert faults(page) == []
        page.emulate_media(color_scheme="dark")
        assert faults(page) == []
