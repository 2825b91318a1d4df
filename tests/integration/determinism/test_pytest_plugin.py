"""The assertions for pytest: silent when all is well, and otherwise a failure that names the kernel."""

from __future__ import annotations

import os
import re
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from _pytest.outcomes import Failed
from tests.support.warm_python import WarmPython

import kernelscope
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


USES = """
import pytest, torch

@torch.compile
def half(x):
    return x.sin() / 2

def test_assertions(assert_deterministic, assert_matches_eager):
    assert callable(assert_matches_eager)
    assert_deterministic(torch.sin, torch.ones(3))

@pytest.mark.kernelscope(values="stats")
def test_fixture(kernelscope_run):
    half(torch.ones(3))
    [call] = kernelscope_run.calls
    assert call.post_stats

def test_passes():
    half(torch.ones(3))

def test_fails():
    half(torch.ones(3))
    assert 1 == 2
"""


FIXTURES = """
@pytest.fixture
def before():
    half(torch.ones(3))
    raise ValueError

@pytest.fixture
def after():
    yield
    half(torch.ones(3))
    raise ValueError

@pytest.fixture
def without_torch():
    raise ValueError

def test_fixtures_before(before):
    pass

def test_fixtures_after(after):
    pass

def test_fixtures_without_torch(without_torch):
    pass
"""


def child_pytest(warm_python: WarmPython, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    if not entry_points(group="pytest11", name="kernelscope"):  # not installed, only on the path
        words += ["-p", "kernelscope.pytest_plugin"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    words += ["test_it.py", *options]
    return warm_python.run(*words, cwd=folder, env=environment)


def test_as_a_plugin(tmp_path: Path, warm_python: WarmPython) -> None:
    """Assertions and the fixture; with --kernelscope the run of a failing test stays."""
    (tmp_path / "test_it.py").write_text(USES)
    child = child_pytest(warm_python, tmp_path, "--kernelscope", "--strict-markers", "--junitxml=results.xml")
    assert child.returncode == 1, child.stdout
    assert "1 failed, 3 passed" in child.stdout
    [path] = (tmp_path / "kscope-runs").iterdir()
    assert path.name == "test_fails-1.kscope"
    [call] = kernelscope.load(path).calls
    assert call.kernel_name == "cpp_fused_div_sin_0"
    assert call.post_hashes
    assert "1 kernel call recorded; the last one is cpp_fused_div_sin_0" in child.stdout
    assert f"kernelscope show {path}" in child.stdout
    assert f'<property name="kernelscope_run" value="{path}"' in (tmp_path / "results.xml").read_text()


def test_what_fails_in_a_fixture_has_its_run(tmp_path: Path, warm_python: WarmPython) -> None:
    """Before the test and after it; a fixture that launched nothing leaves no run."""
    (tmp_path / "test_it.py").write_text(USES + FIXTURES)
    child = child_pytest(warm_python, tmp_path, "--kernelscope", "-k", "fixtures")
    assert re.search(r"1 passed, .*3 errors in", child.stdout), child.stdout
    runs = sorted((tmp_path / "kscope-runs").iterdir())
    assert [path.name for path in runs] == ["test_fixtures_after-1.kscope", "test_fixtures_before-1.kscope"]
    for path in runs:
        assert [call.kernel_name for call in kernelscope.load(path).calls] == ["cpp_fused_div_sin_0"]
        assert f"kernelscope show {path}" in child.stdout


def test_recording_that_fails_does_not_fail_a_test(tmp_path: Path, warm_python: WarmPython) -> None:
    (tmp_path / "test_it.py").write_text("def test_fails():\n    assert 0\n\ndef test_passes():\n    pass\n")
    (tmp_path / "file").write_text("")
    child = child_pytest(warm_python, tmp_path, "--kernelscope", "--kernelscope-dir=file/below")
    assert "1 failed, 1 passed" in child.stdout
    assert "this test was not recorded: " in child.stdout


def test_what_cannot_be_judged_is_a_failure() -> None:
    with pytest.raises(Failed, match="no compiled kernel was launched"):
        assert_matches_eager(lambda x: x, torch.randn(4))
