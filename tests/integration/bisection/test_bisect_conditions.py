"""What decides that a bisected script fails: a command, a predicate, an exception, a NaN; and resuming it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.bisection.bisected_scripts import COMMAND, WRONG, bisect, kernel_of, script

CHECK = """
import sys, torch
y, expected = torch.load("y.pt"), torch.load("expected.pt")
sys.exit(not torch.allclose(y, expected, atol=1e-4))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_command_decides(tmp_path: Path) -> None:
    script(tmp_path, WRONG + '\ntorch.save(y, "y.pt"); torch.save(expected, "expected.pt")\n')
    (tmp_path / "compare.py").write_text(CHECK)
    result, _ = bisect(tmp_path, "--check", f"{sys.executable} compare.py", "program.py")
    assert kernel_of(result) == "cpp_fused_add_relu_0"
    assert result["workaround"] == ["torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = None"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_predicate_decides_in_spawned_processes(tmp_path: Path) -> None:
    script(tmp_path, WRONG)
    (tmp_path / "wrong.py").write_text(
        "import torch\ndef is_wrong(names): return not torch.allclose(names['y'], names['expected'])\n"
    )
    result, _ = bisect(tmp_path, "--spawn", "--predicate", "wrong.py:is_wrong", "program.py")
    assert kernel_of(result) == "cpp_fused_add_relu_0"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ["runtime_error", "compile_error"])
def test_an_exception(tmp_path: Path, fault: str) -> None:
    """Inductor's own test of its relu: the C++ compiler, or the kernel, fails."""
    script(tmp_path, WRONG.replace('"accuracy"', f'"{fault}"'))
    result, _ = bisect(tmp_path, "--fails-on", "exception", "program.py")
    assert result["workaround"] == ["torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = None"]
    if fault == "runtime_error":
        assert kernel_of(result) == "cpp_fused_add_relu_0"
    else:
        assert [s["info"]["node"] for s in result["causes"]["lowering"]["switches"]] == ["relu"]


NAN = """
import torch
from torch._inductor.codegen.cpp import CppOverrides
torch._inductor.config.cpp.simdlen = 1
original = CppOverrides.log
CppOverrides.log = staticmethod(lambda x: f"std::log({x} - 1e6f)")

@torch.compile
def f(x):
    return (x @ x).abs().add(1).log() * 2

f(torch.ones(8, 8))
torch.compile(lambda x: x.sin())(torch.ones(8, 8))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_nan(tmp_path: Path) -> None:
    script(tmp_path, NAN)
    result, _ = bisect(tmp_path, "--fails-on", "nan", "program.py")
    assert "log" in kernel_of(result)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    script(tmp_path, WRONG)
    child = subprocess.Popen([*COMMAND, "program.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said = ""
    for line in child.stderr:
        said += line
        if line.startswith("trial 6:"):
            child.send_signal(signal.SIGINT)
            break
    said += child.stderr.read()
    assert child.wait() == 130
    assert "interrupted after" in said
    assert "kernelscope bisect --resume -o" in said
    result, _ = bisect(tmp_path, "--resume", "program.py")
    assert result["resumed"] >= 6
    assert kernel_of(result) == "cpp_fused_add_relu_0"


FLAKY = """
import random, os
random.seed(os.urandom(4))
if random.random() < 0.5:
    exec(open("wrong.py").read())
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_flaky_failure_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    script(tmp_path, FLAKY)
    result, _ = bisect(tmp_path, "--axis", "kernel", "--axis", "config", "--runs", "6", "program.py")
    assert kernel_of(result) == "cpp_fused_add_relu_0"
    assert result["repeats"] > 1
    assert result["confidence"] >= 0.99
    assert any("not deterministic" in note for note in result["notes"])
