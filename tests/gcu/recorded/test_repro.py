"""`kernelscope repro` of a gcu kernel: a script that needs torch and a C++ compiler."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.repro import files
from kernelscope.repro.one_call import call_script


@pytest.mark.timeout(900)
@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_gcu_kernel_alone(tmp_path: Path, dynamic: bool, warm_python: WarmPython) -> None:
    torch._dynamo.reset()
    with kernelscope.record(values="save", path=tmp_path / "r"):
        torch.compile(lambda x: (x.exp() + 1).sum(1), backend="gcu", dynamic=dynamic)(torch.randn(4, 8))
    torch._dynamo.reset()
    run = kernelscope.load(tmp_path / "r.kscope")
    script = call_script(run, 0)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    assert "choreo::exp_(f" in script.text
    for change, expected in (("choreo::exp_(", 0), ("choreo::sigmoid_(", 1)):
        folder = tmp_path / str(expected)
        script.text = script.text.replace("choreo::exp_(f", f"{change}f")
        path = files.write(script, folder)
        done = warm_python.run(path, env=environment)
        assert done.returncode == expected, done.stdout + done.stderr
