"""A Python that has torch with what it needs, and Triton: there a script of `repro` must run.

Nothing else that is installed can be imported, not even numpy. One process loads torch and has run nothing;
each script is run by a fork of it, with an empty cache.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_SERVER = """
import json, os, runpy, sys, traceback
from importlib.machinery import PathFinder
folder, *known = sys.argv[1:]

class Known:
    "Finds what they are and what they need in that folder, and nothing else."
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, [folder]) if path is None and name in known else None

sys.meta_path.append(Known())
import torch
import torch._dynamo, torch._inductor.async_compile, torch._inductor.codecache
from torch._inductor.codecache import CppPythonBindingsCodeCache
for kind in ("", "at::vec::"):  # asks the C++ compiler what it can, and for its headers; nothing runs
    text = f'#include <torch/csrc/inductor/cpp_prefix.h>\\nextern "C" void kernel(float* x) {{}} // {kind}'
    CppPythonBindingsCodeCache.load_pybinding(["float*"], text)
torch._inductor.codecache.torch_key(), torch._inductor.codecache.triton_key()  # each compilation needs them

def run(request):
    out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1), os.dup2(out, 2)
    os.environ.update(request["environment"])
    sys.argv = request["words"]
    try:
        sys.path += request["paths"]
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        return 99  # no status of ours
    return 0

print("ready", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
        status = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        print(status, flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = run(request)
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status)
    print(pid, flush=True)
"""


def modules() -> tuple[str, list[str]]:
    """Where torch is installed, and the names of what belongs to torch, Triton and what they need."""
    todo, seen, names = ["torch", "triton"], set[str](), set[str]()
    while todo:
        try:
            found = metadata.distribution(todo.pop())
        except metadata.PackageNotFoundError:
            continue
        if found.metadata["Name"] in seen:
            continue
        seen.add(found.metadata["Name"])
        names |= {Path(path.parts[0]).name.partition(".")[0] for path in found.files or ()}
        todo += [
            re.split(r"[\s;<>=!~\[(]", need)[0] for need in found.requires or () if "extra ==" not in need
        ]
    assert "torch" in names
    assert not names & {"kernelscope", "numpy", "safetensors", "pytest"}, names
    return str(metadata.distribution("torch").locate_file("")), sorted(names - {""})


class OnlyTorch:
    """Runs scripts; close it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        place, names = modules()
        # Inductor would start workers when it is imported, and a process with threads is not forked.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SERVER, place, *names],
            env=environment | {"TORCH_WARM_POOL": "0", "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._answer() == "ready"

    def start(self, path: Path, *words: str, paths: Sequence[Path] = ()) -> tuple[int, Path]:
        """Begin to run a script; `paths` has what else it may import."""
        self._count += 1
        log, cache = self._folder / f"log-{self._count}", self._folder / f"cache-{self._count}"
        pid = self._ask(
            words=[str(path), *words],
            log=str(log),
            environment={"TORCHINDUCTOR_CACHE_DIR": str(cache)},
            paths=[str(each) for each in paths],
        )
        return pid, log

    def wait(self, started: tuple[int, Path]) -> tuple[int, str]:
        """Its exit status, and what it printed."""
        pid, log = started
        return self._ask(wait=pid), log.read_text()

    def run(self, path: Path, *words: str, paths: Sequence[Path] = ()) -> tuple[int, str]:
        return self.wait(self.start(path, *words, paths=paths))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, **request: Any) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
