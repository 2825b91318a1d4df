"""`kernelscope compare reference.py other.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.json_schemas import wrong_in

ROOT = Path(__file__).parents[3]
REFERENCE = """\
import torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 8).to(torch.float32)
x = torch.randn(32, 16).to(torch.float32)
y = model(x)
loss = y.float().square().mean()
loss.backward()
print(loss.item())
"""


def _ran(folder: Path, *words: str) -> tuple[int, str, str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope", "compare", *words], cwd=folder, env=environment,
        capture_output=True, encoding="utf-8", timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def _compared(folder: Path, other: str) -> tuple[int, dict]:
    (folder / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (folder / "other.py").write_text(other, encoding="utf-8")
    status, printed, _ = _ran(folder, "--json", "reference.py", "other.py")
    form = json.loads(printed)
    assert not wrong_in("compare", form)
    return status, form


def test_an_error_is_named_with_its_line(tmp_path: Path) -> None:
    wrong = REFERENCE.replace("float32", "bfloat16").replace("model(x)", "model(x) * 1.1")
    status, form = _compared(tmp_path, wrong)
    assert status == 1
    assert form["first"]["call"]["name"].startswith("aten.mul")
    assert form["first"]["call"]["origin"][0]["line"] == 5


def test_rounding_is_not_an_error(tmp_path: Path) -> None:
    status, form = _compared(tmp_path, REFERENCE.replace("float32", "bfloat16"))
    assert status == 0, form
    assert form["first"] is None
    assert form["values"]["matched"] == form["values"]["reference"]


def test_a_script_that_fails_is_inconclusive(tmp_path: Path) -> None:
    status, form = _compared(tmp_path, "raise ValueError('no')\n")
    assert status == 2
    assert "ValueError" in form["problem"]


def test_a_script_that_is_missing_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("print('it ran')\n", encoding="utf-8")
    status, printed, said = _ran(tmp_path, "missing.py", "other.py")
    assert (status, printed, said) == (2, "", "kernelscope: there is no script missing.py\n")


def test_a_script_without_tensors_is_inconclusive(tmp_path: Path) -> None:
    status, form = _compared(tmp_path, "print('nothing')\n")
    assert status == 2
    assert form["problem"] == "the other program called no operator of torch, so there is nothing to compare"
    status, printed, said = _ran(tmp_path, "reference.py", "other.py")
    assert (status, said) == (2, f"kernelscope: {form['problem']}\n")
    assert "nothing to compare" not in printed
