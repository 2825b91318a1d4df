"""Commands that run a program, on a real terminal of 80 columns: no line of theirs is wider."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.support.failing_scripts import SCRIPTS
from tests.support.terminals import in_terminal

from kernelscope.text.widths import columns_of

WITHOUT_TORCH = [
    ["why", "plain.py"], ["run", "plain.py"], ["determinism", "plain.py"], ["why", "fails.py"],
    ["run", "fails.py"],
]  # fmt: skip
WITH_TORCH = [
    ["doctor"], ["run", "makes_nan.py"], ["shadow", "wrong_lowering.py"], ["determinism", "varies.py"],
    ["bisect", "--no-workaround", "--axis", "kernel", "wrong_lowering.py"], ["reduce", "wrong_lowering.py"],
    ["why", "nothing_compiled.py"],
]  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "words",
    [*WITHOUT_TORCH, *(pytest.param(words, marks=pytest.mark.slow) for words in WITH_TORCH)],
    ids=" ".join,
)
def test_no_line_is_wider(words: list[str], tmp_path: Path) -> None:
    home = tmp_path / "a folder with a name that takes almost all of a line of a terminal"
    shutil.copytree(SCRIPTS, home)
    (home / "plain.py").write_text("print('no torch here')\n")
    (home / "fails.py").write_text("raise ValueError('a message that is ' + 'very ' * 40 + 'long')\n")
    shown = in_terminal(words, cwd=home, environ={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")})
    assert "kernelscope" in shown.text or words[0] == "doctor"
    own = [line for line in shown.lines if not line.startswith(("ValueError", "  File ", "Traceback"))]
    wide = [line for line in own if columns_of(_last_of(line)) > 80]
    assert not wide, wide


def _last_of(line: str) -> str:
    """What is left of a line that was written several times, as progress is; no code of a terminal."""
    return re.sub(r"\x1b(\[[\d;]*[A-Za-z]|[78D])", "", re.split(r"\r|\x1b\[2K|\x1b\[K", line)[-1])
