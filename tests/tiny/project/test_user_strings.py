"""What users read is plain English: no string has wording that tools/user_strings.py bans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools import user_strings

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "user_strings.py"


def test_strings_and_docs_are_plain_english() -> None:
    words = [sys.executable, str(TOOL), "--check"]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "riddle",
    [
        "no layout turns what the ranks read into the reference's x",
        "what rank 1 reads is not the reference's x",
        "2 ranks together hold what one process holds",
        "it has equal rows, and which of them is which is not known",
        "AOTAutograd does not say which of its inputs is which",
        "no kernel that was followed makes it so",
        "a profiler is at work",
        "dim says nothing of mask",
        "the debug server takes no pages of others",
        "equal but for rounding",
    ],
)
def test_a_riddle_is_banned(riddle: str) -> None:
    assert list(user_strings.banned([(TOOL, 1, riddle)]))


def test_the_list_has_what_users_read() -> None:
    words = [sys.executable, str(TOOL), "cli", "doctor", "report", "integrations", "bisection", "docs"]
    listed = subprocess.run(words, capture_output=True, encoding="utf-8", check=True).stdout
    for text in (
        "record every kernel that it launches",  # a description
        "torch.compile needs one",  # advice
        "put the query in quotes",  # an exception
        "No compiled graph",  # the page
        "Skip to the content",  # its HTML
        "{…} after {…}",  # one word between two values
        "Run a SELECT over the tables of a run",  # the description of a tool
        "Stop when the cause is named",  # what agents read
        "A room imports only rooms further down",  # a page of docs
    ):
        assert text in listed, text
    assert "`kernelscope run`: the script runs in a child" not in listed, "a docstring"
