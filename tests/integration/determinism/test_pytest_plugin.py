"""The assertions for pytest: silent when all is well, and otherwise a failure that names the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from _pytest.outcomes import Failed

from kernelscope.pytest_plugin import assert_deterministic, assert_matches_eager


def unsteady(x: torch.Tensor) -> torch.Tensor:
    """Looks alike from outside, but its fill is another each time: an operator without arguments to blame."""
    return NOISE(x.sin()).relu()


@torch.library.custom_op("kernelscope_tests::plugin_noise", mutates_args=())
def NOISE(x: torch.Tensor) -> torch.Tensor:
    return x + int.from_bytes(os.urandom(3), "little") * 1e-6


def test_a_deterministic_function_passes() -> None:
    assert_deterministic(lambda x, scale: (x @ x * scale).relu(), torch.randn(4, 4), runs=2, scale=2.0)


def test_the_failure_names_the_kernel() -> None:
    with pytest.raises(Failed) as failure:
        assert_deterministic(unsteady, torch.randn(4, 4), runs=3)
    said = str(failure.value)
    assert "not deterministic in 3 runs" in said
    assert "nondeterministic-kernel" in said
    assert "plugin_noise" in said
    assert f"{__file__}:" in said


def test_as_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import torch\n"
        "def test_one(assert_deterministic, assert_matches_eager):\n"
        "    assert callable(assert_matches_eager)\n"
        "    assert_deterministic(torch.sin, torch.ones(3))\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    if not entry_points(group="pytest11", name="kernelscope"):  # not installed, only on the path
        words += ["-p", "kernelscope.pytest_plugin"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    child = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stdout
    assert "1 passed" in child.stdout


def test_what_cannot_be_judged_is_a_failure() -> None:
    with pytest.raises(Failed, match="no compiled kernel was launched"):
        assert_matches_eager(lambda x: x, torch.randn(4))
