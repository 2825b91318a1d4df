"""What users read is plain English: no string has wording that tools/user_strings.py bans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "user_strings.py"

NOT_YET_CLEAN: set[str] = set()  # rooms with banned wording, until they are reworded


def test_strings_are_plain_english() -> None:
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "src" / "kernelscope").iterdir()}
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check", *sorted(rooms - NOT_YET_CLEAN)],
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_list_has_what_users_read() -> None:
    words = [sys.executable, str(TOOL), "cli", "doctor", "report", "integrations", "bisection"]
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
    ):
        assert text in listed, text
    assert "`kernelscope run`: the script runs in a child" not in listed, "a docstring"
