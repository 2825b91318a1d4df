"""`kernelscope repro` of Triton kernels: Inductor's, and a user's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.programs import triton_kernels as kernels

import kernelscope
from kernelscope.repro import files
from kernelscope.repro.one_call import call_script

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(900)  # four processes that import torch

# What a GPU would be: the driver that the tests of this folder use. The script itself is as it was written.
RUNNER = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
from conftest import _interpret_triton
_interpret_triton()
import torch._inductor.config
torch._inductor.config.cpu_backend = "triton"
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_script(path: Path) -> tuple[int, str]:
    words = [sys.executable, "-c", RUNNER, str(HERE), str(path)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("inductor_triton")
def test_inductors_triton_kernels(tmp_path: Path) -> None:
    x, y = torch.randn(7, 33), torch.randn(7, 33)
    with kernelscope.record(values="save", stages=True, path=tmp_path / "r"):
        torch.compile(lambda x, y: torch.relu(x * 2 + y))(x, y)
    run = kernelscope.load(tmp_path / "r.kscope")
    assert run.calls[0].kind == "triton"
    script = call_script(run, 0)
    status, said = run_script(files.write(script, tmp_path / "right"))
    assert status == 0, said
    assert "ok   out_ptr0: matches the recording bit by bit" in said
    assert "ok   out_ptr0: matches eager" in said
    assert "recorded config" not in said
    assert " * " in script.text
    script.text = script.text.replace("tmp0 * tmp", "tmp0 - tmp", 1)
    status, said = run_script(files.write(script, tmp_path / "wrong"))
    assert status == 1, said
    assert "FAIL out_ptr0: differs from eager" in said


def test_a_users_triton_kernel(tmp_path: Path) -> None:
    x, y = torch.randn(100), torch.randn(100)
    with kernelscope.record(values="save", path=tmp_path / "r"):
        kernels.add(x, y)
    run = kernelscope.load(tmp_path / "r.kscope")
    script = call_script(run, 0)
    assert any("not compared with eager" in note for note in script.notes)
    status, said = run_script(files.write(script, tmp_path / "right"))
    assert status == 0, said
    assert "ok   out_ptr: matches the recording bit by bit" in said
    script.text = script.text.replace(" + tl.load(", " - tl.load(")
    status, said = run_script(files.write(script, tmp_path / "wrong"))
    assert status == 1, said
