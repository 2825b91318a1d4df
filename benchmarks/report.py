"""How soon a page is there, and how smoothly it scrolls: a million calls served, ten thousand in one file.

python benchmarks/report.py [--write-docs] [--check]
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "benchmarks")]

from _report import write_table  # noqa: E402
from playwright.sync_api import Page, sync_playwright  # noqa: E402
from tests.browser.conftest import FLAGS, chromium  # noqa: E402
from tests.support.long_runs import write_long_run  # noqa: E402

PAGE = ROOT / "docs" / "report.md"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}
CALLS, IN_A_FILE = 1_000_000, 10_000
SECONDS = 5.0  # of scrolling
# Counts frames while the page scrolls, and rows that were still empty when they were shown.
WATCH = """() => {
  const found = { frames: [], rows: 0, empty: 0 };
  window.watched = found;
  const each = (now) => {
    found.frames.push(now);
    for (const row of document.querySelectorAll('.row.call:not([hidden])')) {
      found.rows += 1;
      if (row.childElementCount < 3) found.empty += 1;
    }
    if (!found.over) requestAnimationFrame(each);
  };
  requestAnimationFrame(each);
}"""


@contextmanager
def viewed(run: Path) -> Iterator[tuple[str, float]]:
    """The address of a served run, and when its command was started."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "kernelscope", "view", str(run), "--no-browser"]
    child = subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, encoding="utf-8", errors="replace"
    )
    try:
        assert child.stdout is not None
        address = re.search(r"http://\S+", child.stdout.readline())
        assert address is not None
        yield address[0], begin
    finally:
        child.terminate()
        child.wait()


def first_screen(page: Page, address: str, selector: str) -> float:
    """Seconds from the address to what is looked for."""
    page.goto("about:blank")
    begin = time.perf_counter()
    page.goto(address)
    page.locator(selector).first.wait_for()
    return time.perf_counter() - begin


def scrolled(page: Page, pixels: float) -> dict[str, float]:
    """Frames per second while the wheel turns, the longest frame, and the share of rows shown empty."""
    page.mouse.move(700, 500)
    page.evaluate(WATCH)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        page.mouse.wheel(0, pixels)
        time.sleep(1 / 60)
    seen: dict[str, Any] = page.evaluate("() => { window.watched.over = true; return window.watched; }")
    apart = [b - a for a, b in zip(seen["frames"], seen["frames"][1:], strict=False)]
    return {
        "fps": 1000 * len(apart) / (seen["frames"][-1] - seen["frames"][0]),
        "longest": max(apart),
        "empty": seen["empty"] / max(1, seen["rows"]),
    }


def reported(run: Path, target: Path) -> tuple[float, float]:
    """Seconds and megabytes of one file."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "kernelscope", "report", str(run), "-o", str(target)]
    subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin, target.stat().st_size / 1e6


def measured() -> tuple[str, list[str]]:
    """The table, and which promises are broken."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        long = write_long_run(Path(folder, "long.kscope"), CALLS)
        short = write_long_run(Path(folder, "short.kscope"), IN_A_FILE)
        seconds, size = min(reported(short, Path(folder, "page.html")) for _ in range(3))
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        version = browser.version
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        with viewed(long) as (address, begin):
            page.goto(address)
            page.locator("h1").first.wait_for()
            from_command = time.perf_counter() - begin
            overview = min(first_screen(page, address, ".findings, p.fine") for _ in range(3))
            calls = min(first_screen(page, f"{address}#calls", ".row.call .name") for _ in range(3))
            steady, fast = scrolled(page, 120), scrolled(page, 6000)
        from_disk = first_screen(page, Path(folder, "page.html").as_uri() + "#calls", ".row.call .name")
        steady_file = scrolled(page, 120)
        browser.close()
    rows = [
        (f"`view`, {CALLS:,} calls: from the command to the first screen", f"{from_command:.2f} s", ""),
        ("… from the address to the overview with its findings", f"{overview:.2f} s", "< 2 s"),
        ("… from the address to the first rows of the table", f"{calls:.2f} s", "< 2 s"),
        ("… scrolling", _told(steady), "≥ 30 frames/s"),
        ("… scrolling fast, 200 rows a frame", _told(fast), "≥ 30 frames/s"),
        (f"`report`, {IN_A_FILE:,} calls: time", f"{seconds:.2f} s", "< 10 s"),
        ("… size", f"{size:.1f} MB", "< 20 MB"),
        ("… from the file to the first rows", f"{from_disk:.2f} s", ""),
        ("… scrolling", _told(steady_file), ""),
    ]
    lines = ["| | | promised |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    where = f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}"
    lines += [
        "",
        f"Chromium {version} without a GPU, {where}, load {os.getloadavg()[0]:.1f}; every call with hashes.",
    ]
    kept = {
        "first screen": max(overview, calls) < 2,
        "scrolling": min(steady["fps"], fast["fps"]) >= 30,
        "time of a report": seconds < 10,
        "size of a report": size < 20,
    }
    return "\n".join(lines), [f"{name} is not what was promised" for name, held in kept.items() if not held]


def _told(found: dict[str, float]) -> str:
    return (
        f"{found['fps']:.0f} frames/s, the longest {found['longest']:.0f} ms, "
        f"{100 * found['empty']:.1f}% of rows still loading"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/report.md")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a promise is not kept")
    options = parser.parse_args()
    table, broken = measured()
    print(table)
    if options.write_docs:
        write_table(PAGE, "report", table)
    if options.check and broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
