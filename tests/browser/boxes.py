"""What overlaps on a page, what is wider than its window, and what is cut off: measured box by box."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

HERE = Path(__file__).parent
DRAWN = (HERE / "drawn_texts.js").read_text()  # as an init script: what a canvas shows is no box otherwise
MEASURE = (HERE / "measure_boxes.js").read_text()


def faults(page: Page) -> list[str]:
    """Empty if nothing overlaps, sticks out or is cut off without an ellipsis."""
    found: list[str] = page.evaluate(MEASURE)
    return found
