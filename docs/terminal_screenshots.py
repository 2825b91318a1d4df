"""Pictures of the terminal application for the docs: python docs/terminal_screenshots.py RUN [OTHER]

RUN is a run of getting-started.md's train.py, recorded as it says there; OTHER is another one, for the diff.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import kernelscope
from kernelscope.tui.app import RunApp

IMAGES = Path(__file__).parent / "images"
# By picture: the keys that lead there.
VIEWS = {"tui-calls": ["down"] * 7, "tui-call": ["enter"], "tui-source": ["s"]}
WIDTH, HEIGHT = 120, 32


def clean(svg: str) -> str:
    """Without fonts from another host."""
    return re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)


async def take(app: RunApp) -> None:
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        for name, keys in VIEWS.items():
            await pilot.press(*keys)
            await pilot.pause(0.5)
            (IMAGES / f"{name}.svg").write_text(
                clean(app.export_screenshot(title="kernelscope tui")), encoding="utf-8"
            )


def main() -> None:
    runs = [kernelscope.load(path) for path in sys.argv[1:]]
    if not runs:
        raise SystemExit(__doc__)
    if len(runs) > 1:
        VIEWS["tui-diff"] = ["escape", "escape", "d"]
    IMAGES.mkdir(exist_ok=True)
    asyncio.run(take(RunApp(runs[0], runs[1] if len(runs) > 1 else None)))


if __name__ == "__main__":
    main()
