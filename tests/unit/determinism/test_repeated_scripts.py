"""A script several times in one process, whatever it does to its surroundings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernelscope.determinism import repeated_script
from kernelscope.store.stored_run import load

REMOVES_ITS_FOLDER = """
import os, tempfile
import torch
os.chdir(tempfile.mkdtemp())
torch.ones(4).sin()
os.rmdir(os.getcwd())
"""
EXITS_IN_THE_MIDDLE = """
import sys
import torch
torch.ones(4).sin()
sys.exit()
torch.ones(4).cos()
"""


@pytest.mark.parametrize("source", [REMOVES_ITS_FOLDER, EXITS_IN_THE_MIDDLE])
def test_each_run_is_recorded(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "script.py").write_text(source)
    words = ["3", "runs", "--values=hash --ops=all", "--", "script.py"]
    assert repeated_script.main(words) == 0
    assert os.getcwd() == str(tmp_path)
    for number in range(3):
        assert [call.kernel_name for call in load(tmp_path / "runs" / f"run-{number}.kscope")][-1:] == [
            "aten.sin.default"
        ]
