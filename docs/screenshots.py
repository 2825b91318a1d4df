"""Write docs/images: the report of a transformer's training and of a diff, as Chromium shows them.

python docs/screenshots.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.browser.conftest import FLAGS, chromium, shown  # noqa: E402

IMAGES = ROOT / "docs" / "images"
RECORD = ("--stages", "--values", "save", "--time")


def kernelscope(folder: Path, *words: str) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "OMP", "MKL"))}
    # One thread: with more, the gradient of an embedding is not the same each time, and that comes first.
    environment = kept | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "kernelscope", *words], cwd=folder, env=environment, check=True)


def recorded(folder: Path) -> str:
    """The address of a report of two runs, the second with one weight nudged."""
    shutil.copy(ROOT / "examples" / "transformer.py", folder / "train.py")
    kernelscope(folder, "run", *RECORD, "-o", "train-1", "train.py")
    kernelscope(folder, "run", *RECORD, "-o", "train-2", "train.py", "--nudge")
    kernelscope(folder, "report", "train-1", "--diff", "train-2", "-o", "report.html")
    return (folder / "report.html").as_uri()


def taken(page: Page, address: str, view: str, name: str) -> None:
    page.goto(f"{address}#{view}")
    shown(page, view.partition("&")[0])
    page.wait_for_timeout(600)
    page.screenshot(path=IMAGES / f"{name}.png")


def take(page: Page, address: str) -> None:
    taken(page, address, "overview", "report-overview")
    page.goto(f"{address}#pipeline")
    page.locator(".pane .line.linked", has_text="self.down(F.gelu").click()
    page.locator(".launch", has_text="gelu").first.get_by_role("button").click()
    page.mouse.move(700, 60)
    page.wait_for_timeout(400)
    page.screenshot(path=IMAGES / "report-pipeline.png")
    taken(page, address, "calls", "report-calls")
    taken(page, address, "call=5", "report-call")
    taken(page, address, "timeline", "report-timeline")
    taken(page, address, "diff", "report-diff")
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}#pipeline")
    page.locator(".pane .line.linked", has_text="self.down(F.gelu").click()
    page.get_by_role("button", name="Fusion graph").click()
    page.mouse.move(700, 60)
    page.wait_for_timeout(400)
    page.screenshot(path=IMAGES / "report-fusion.png")


def take_narrow(page: Page, address: str) -> None:
    """What a telephone shows."""
    taken(page, address, "overview", "report-narrow-overview")
    taken(page, address, "timeline", "report-narrow-timeline")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kernelscope-") as folder, sync_playwright() as playwright:
        address = recorded(Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        take(browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light"), address)
        take_narrow(browser.new_page(viewport={"width": 390, "height": 760}, color_scheme="light"), address)
        browser.close()


if __name__ == "__main__":
    main()
