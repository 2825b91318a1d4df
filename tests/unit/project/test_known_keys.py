"""`make test` tells each process the keys of torch and Triton, if they are those of its own files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.known_keys import find
from torch._inductor import codecache

PTH = Path(find.__file__).with_name("kernelscope_tests.pth")

# What a process knows, and whether it read Triton's library for that. The first line is that of a .pth file.
PROGRAM = """
{pth}
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import torch._inductor.compile_fx
from torch._inductor import codecache
from triton.runtime import cache
print(codecache.torch_key().hex(), codecache.triton_key(), cache.triton_key(), sep="\\n")
print(any("libtriton" in name for name in opened), type(cache.__loader__) is type(codecache.__loader__))
"""


def answers(tmp_path: Path, keys: find.Keys) -> list[str]:
    (tmp_path / "keys.py").write_text(find.program(keys))
    environment = os.environ | {"KERNELSCOPE_TESTS_KEYS": str(tmp_path / "keys.py")}
    words = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{PROGRAM}"]
    words[-1] = words[-1].format(pth=PTH.read_text())
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_process_has_the_keys_that_it_would_compute(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    torchs, tritons, same, *rest = answers(tmp_path, find.found())
    assert torchs == codecache.torch_key().hex()
    assert tritons == same == codecache.triton_key()
    assert rest[0] == "False True"


def test_keys_of_other_files_are_not_told(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    keys = {name: (f"/elsewhere{file}", "00") for name, (file, _) in find.found().items()}
    torchs, tritons, same, *rest = answers(tmp_path, keys)
    assert torchs == codecache.torch_key().hex()
    assert tritons == same == codecache.triton_key()
    assert rest[0] == "True True"
