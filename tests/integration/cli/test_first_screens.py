"""`kernelscope run` on a real terminal, with a program that compiles and prints."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.terminals import in_terminal

from kernelscope.store import folder
from kernelscope.store.stored_run import load

SCRIPT = """
import torch

@torch.compile
def double(x):
    return (x * 2).relu()

for step in range(3):
    print("step", step, end="", flush=True)
    double(torch.ones(8))
    print(" done", flush=True)
raise ValueError("the end")
"""


def test_run_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    shown = in_terminal(["run", "train.py"], cwd=tmp_path, environ=environ)
    assert shown.status == 1
    assert re.search(
        r"kernelscope: compiling (graph|frame) 0/0 .*double \(train\.py:\d+\), \d+ s", shown.text
    )
    assert "0 calls" not in shown.text
    own_rows = r"\x1b7\x1b\[24;1H\n\x1b\[24;1H\x1b\[2K[^\x1b]*\x1b\[24;1H\n\x1b8"
    plain = re.sub(r"\x1b(\[[\d;]*[A-Za-z]|[78D])", "", re.sub(own_rows, "", shown.text))
    for step in range(3):
        assert f"step {step} done" in plain.splitlines()
    *_, head, recorded, last = plain.splitlines()
    assert "the program ended with an exception at" in plain
    assert head.strip().endswith("ValueError: the end")
    assert recorded == "  recorded 3 calls of 1 kernel in 1 graph"
    assert last == "  next: kernelscope show --crash kscope-runs/train-1.kscope"
    run = load(tmp_path / folder.HOME / "train-1.kscope")
    assert run.stages.graphs  # without being asked for: repro needs them
