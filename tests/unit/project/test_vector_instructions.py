"""`make test` tells all processes that vector instructions work only where Inductor's check passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch._inductor import cpu_vec_isa

SCRIPT = Path(__file__).parents[2] / "support" / "vector_instructions.py"


def test_a_compiler_that_fails_is_noticed(tmp_path: Path) -> None:
    if cpu_vec_isa.x86_isa_checker() == []:
        pytest.skip("Inductor checks no vector instructions on this processor")
    for name in ("g++", "c++"):
        (tmp_path / name).write_text("#!/bin/sh\necho cannot build this >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("CXX", None)
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "cache")
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "", done.stderr
