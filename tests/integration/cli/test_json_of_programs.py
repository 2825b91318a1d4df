"""The JSON of the commands that run a program is what docs/commands.schema.json says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.json_schemas import wrong_in

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "tests" / "programs" / "failing_scripts"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("run", "right.py"), ("run", "crash_in_kernel.py"), ("shadow", "wrong_lowering.py"),
        ("shadow", "right.py"), ("determinism", "varies.py"), ("determinism", "right.py"),
        ("bisect", "wrong_pass.py"), ("reduce", "wrong_lowering.py"), ("why", "makes_nan.py"),
        ("why", "own_mistake.py"), ("audit", "right.py"),
    ],
)  # fmt: skip
def test_json_is_as_documented(command: str, script: str, tmp_path: Path) -> None:
    for file in SCRIPTS.glob("*.py"):
        shutil.copy(file, tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "kernelscope", command, "--json", script]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    text = done.stderr.strip().splitlines()[-1] if command == "run" else done.stdout
    assert not wrong_in(command, json.loads(text)), done.stderr


@pytest.mark.slow
def test_json_of_the_doctor(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-m", "kernelscope", "doctor", "--json"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert not wrong_in("doctor", json.loads(done.stdout))
