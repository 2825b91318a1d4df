"""Pages in real Chromium: every test here ends with no error in the console and no request to anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from kernelscope.report.answers import Answers
from kernelscope.report.content.ranks import RanksOfRun
from kernelscope.report.file import report
from kernelscope.report.server import Server
from kernelscope.store.stored_run import load

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


expect.set_options(timeout=30_000)  # a page that is slow on a busy machine is not wrong


def chromium() -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "there is no Chromium here, and these tests need a real one: `make browser` installs it"
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield browser
        browser.close()


class Seen:
    """What a page did that a test looks at afterwards."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.expected: tuple[str, ...] = ()  # parts of errors that a test provokes

    def unexpected(self) -> list[str]:
        return [error for error in self.errors if not any(part in error for part in self.expected)]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def page(browser: Browser, seen: Seen) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("console", lambda m: seen.errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
    yield page
    foreign = [url for url in seen.requests if not url.startswith(("file:", "data:", "http://127.0.0.1:"))]
    context.close()
    assert not seen.unexpected(), seen.unexpected()
    assert not foreign, foreign
    assert not seen.dialogs


def shown(page: Page, view: str) -> None:
    """Wait until a view is there, with its data."""
    name = view.partition("=")[0]
    expect(page.locator(f'main.view-{name}[data-shown^="{name} "]')).to_be_attached()


Recorded = dict[str, Path]


def kernelscope(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "kernelscope", *words]
    return subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True)


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Two runs of a transformer in training; in the second a weight was nudged before the second step."""
    folder = tmp_path_factory.mktemp("training")
    script = str(ROOT / "examples" / "transformer.py")
    options = ("--stages", "--values", "save", "--time")
    for name, more in (("first", ()), ("second", ("--nudge",))):
        done = kernelscope("run", *options, "-o", name, script, "--small", *more, cwd=folder)
        assert done.returncode == 0, done.stderr
    return {name: folder / f"{name}.kscope" for name in ("first", "second")}


Write = Callable[..., str]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """The address of a report of a run, as a file on disk; each is written once."""
    folder = tmp_path_factory.mktemp("reports")
    known: dict[tuple[Any, ...], str] = {}

    def write(run: Path, other: Path | None = None, **given: Any) -> str:
        key = (run, other, *given.items())
        if key not in known:
            path = folder / f"{len(known)}.html"
            path.write_text(report(load(run), other and load(other), **given), encoding="utf-8")
            known[key] = path.as_uri()
        return known[key]

    return write


@contextmanager
def served(
    run: Path,
    other: Path | None = None,
    ranks: RanksOfRun | None = None,
    precision: dict[str, Any] | None = None,
) -> Iterator[Server]:
    """The run as `kernelscope view` serves it."""
    server = Server(Answers(load(run), None if other is None else load(other), ranks, precision), "test")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
