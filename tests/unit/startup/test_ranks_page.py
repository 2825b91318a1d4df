"""The page over all ranks, from answers that another machine may have sent."""

from __future__ import annotations

from typing import Any

import pytest

from kernelscope.startup.ranks_page import as_html, as_lines
from kernelscope.startup.written_so_far import compare_written

HOSTILE: list[Any] = [
    {"recordings": [{"step": "<b>", "calls": None, "findings": [], "last": 3, "executing": {"a": 1}}]},
    {"recordings": "none", "host": "<script>alert(1)</script>"},
    {"error": "</table><script>\x1b[2J"},
    {"recordings": [{"last": {"kernel_name": "<img src=x onerror=y>", "origin": "\u202eyp.a:1"}}, 7]},
    {"recordings": [{"executing": [{"kernel_name": "k", "seconds": ""}], "findings": {"first": ["<i>"]}}]},
]


def test_no_answer_of_a_rank_becomes_markup_or_an_escape_sequence() -> None:
    page = as_html(HOSTILE, "<u>")
    for tag in ("<script", "<img", "<b>", "<i>", "<u>", "\x1b", "\u202e"):
        assert tag not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("<tr>") == 1 + len(HOSTILE)
    text = "\n".join(as_lines(HOSTILE))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_rank_that_is_furthest_behind_is_named() -> None:
    ranks = [{"recordings": [{"step": step, "findings": {"count": 0}}]} for step in (5, 3, 5)]
    assert "steps differ: 3 to 5; furthest behind: rank 1" in as_lines(ranks)
    assert not any("steps differ" in line for line in as_lines([*ranks[:1], *ranks[2:]]))


@pytest.mark.parametrize(
    ("parts", "calls", "says"),
    [
        ([], 0, "there is nothing to compare"),
        (["/a/rank-0", "/b/rank-1"], 9, "do not record into one folder"),
        (["/nowhere.kscope/rank-0", "/nowhere.kscope/rank-1"], 9, "/nowhere.kscope is not on this machine"),
        (["/tmp/rank-0", "/tmp/rank-1"], 5_000_000, "5,000,000 calls take long to compare; run: kernelscope"),
    ],
)
def test_what_is_not_compared_gets_a_sentence(parts: list[str], calls: int, says: str) -> None:
    assert says in compare_written(parts, calls, 1.0)
