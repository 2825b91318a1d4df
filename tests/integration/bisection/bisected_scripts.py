"""Scripts to bisect, and `kernelscope bisect` in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "kernelscope", "bisect"]

# The second kernel is wrong: Inductor has a setting that plants this fault, for tests.
WRONG = """
import torch, torch._inductor.config as config
config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.manual_seed(0)

@torch.compile
def f(x):
    return (x @ x).relu() + 1

@torch.compile
def g(x):
    return torch.nn.functional.gelu(x).sum(0)

x = torch.randn(16, 16)
g(x)
y = f(x)
expected = (x @ x).relu() + 1
print("the script ran to its end")
"""


def bisect(folder: Path, *words: str, status: int = 0, timeout: int = 900) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [*COMMAND, "--json", *words], cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


def script(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


def kernel_of(result: dict[str, Any]) -> str:
    assert result["cause"]["axis"] == "kernel", result
    (switch,) = result["cause"]["switches"]
    return str(switch["info"]["kernel"])
