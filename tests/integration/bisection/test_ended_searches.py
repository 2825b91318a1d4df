"""Searches that a signal ends, that wait for a compiler, or that a forked process would go on with."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}

SLEEPING = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "1000"])
with open("pids.new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.new", "pids")
time.sleep(1000)
"""
FAILING = """
import torch
import torch._inductor.config as config
config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.manual_seed(0)
torch.compile(lambda x: (((x.sin() + 1).relu() * 2).cos() - 3).tanh())(torch.randn(8, 16))
"""
FORKING = """
import os, sys
import torch
from torch._inductor import lowering

def broken(*args, **kwargs):
    raise ValueError("no such lowering")

lowering.lowerings[torch.ops.aten.erf.default] = broken
statuses = []
for how in ("exit", "return"):
    pid = os.fork()
    if pid == 0 and how == "exit":
        sys.exit(7)
    if pid == 0:
        break
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
if pid:
    with open("statuses", "a") as file:
        print(*statuses, file=file)
    torch.compile(lambda x: x.erf() * 2)(torch.ones(4))
"""


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def have_ended(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_running, pids))


def wait_for(path: Path, child: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + 200
    while not path.exists():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_text()


@pytest.mark.parametrize("command", ["reduce", "bisect"])
def test_a_signal_ends_all_of_it(tmp_path: Path, command: str) -> None:
    (tmp_path / "script.py").write_text(SLEEPING)
    words = [sys.executable, "-m", "kernelscope", command, "-o", "out", "script.py", "--epochs", "1"]
    child = subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    pids = [int(word) for word in wait_for(tmp_path / "pids", child).split()]
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 143, said
    assert have_ended(pids)
    assert "ended by SIGTERM" in said
    assert "Traceback" not in said
    again = shlex.split(said.splitlines()[-1])
    assert again[:5] == ["kernelscope", command, "--resume", "-o", "out"]
    assert again[-3:] == ["script.py", "--epochs", "1"]
    assert list((tmp_path / "out").glob("journal*")), "where it can go on from"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_that_was_ended_by_a_signal_goes_on(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os\nfrom pathlib import Path\nfrom kernelscope.reduction import script_search\n"
        "original = script_search.shadow_check\n"
        "def check(candidate):\n"
        "    if not os.path.exists('pids'):\n"
        f"        exec({SLEEPING!r})\n"
        "    return original(candidate)\n"
        "script_search.shadow_check = check\n" + FAILING
    )
    words = [sys.executable, "-m", "kernelscope", "reduce", "--json", "script.py"]
    child = subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    pids = [int(word) for word in wait_for(tmp_path / "pids", child).split()]
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=60)
    assert (child.returncode, have_ended(pids)) == (143, True), said
    again = [sys.executable, "-m", *shlex.split(said.splitlines()[-1])]
    done = subprocess.run(again, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == 1


def test_what_a_script_forks_does_not_search(tmp_path: Path) -> None:
    """It ends as it would without us, and the search is that of one process."""
    (tmp_path / "script.py").write_text(FORKING)
    words = [sys.executable, "-m", "kernelscope", "reduce", "--json", "script.py"]
    done = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "statuses").read_text() == "7 0\n"
    told = json.loads(done.stdout)
    assert told["nodes"] == 1
    assert "no such lowering" in told["failure"]
    journal = (tmp_path / "script-reduced" / "journal.jsonl").read_text().splitlines()
    assert len({json.loads(line)["pid"] for line in journal if "pid" in line}) == 1


def test_what_a_script_forks_takes_no_part_in_trials(tmp_path: Path) -> None:
    """Of `bisect`, whose trials run a script again and again."""
    (tmp_path / "script.py").write_text(
        "import os, sys\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    sys.exit(7)\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
    )
    trials = (
        "from kernelscope.trials.programs import Script\n"
        "script = Script(['script.py'])\n"
        "print([script()['status'] for _ in range(2)], flush=True)\n"
    )
    words = [sys.executable, "-c", trials]
    done = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[7, 7]\n"), done.stderr


def with_compiler_that_hangs(folder: Path, word: str, **variables: str) -> dict[str, str]:
    """A g++ that never ends for sources with that word, and writes down who it is."""
    real = shutil.which("g++")
    assert real is not None
    shim = folder / "bin" / "g++"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\nfor each; do case "$each" in *.cpp)\n'
        f'  if grep -q {word} "$each"; then echo $$ >> {folder}/hung; exec sleep 1000; fi;; esac; done\n'
        f'exec {real} "$@"\n'
    )
    shim.chmod(0o755)
    path = f"{shim.parent}:{os.environ['PATH']}"
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    return ENVIRONMENT | {"PATH": path} | cache | variables


def reduce_with(folder: Path, environment: dict[str, str]) -> tuple[dict[str, Any], str, list[int]]:
    """What was found and said, and which compilers had hung."""
    (folder / "script.py").write_text(FAILING)
    words = [sys.executable, "-m", "kernelscope", "reduce", "--json", "--timeout", "25", "script.py"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pids = [int(line) for line in (folder / "hung").read_text().splitlines()]
    return json.loads(done.stdout), done.stderr, pids


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_compiler_that_hangs_on_the_single_nodes(tmp_path: Path, threads: str) -> None:
    """That is an outcome, and the graph is searched by halves; the program's own kernel has one output."""
    environment = with_compiler_that_hangs(tmp_path, "out_ptr3", TORCHINDUCTOR_COMPILE_THREADS=threads)
    told, said, hung = reduce_with(tmp_path, environment)
    assert told["nodes"] == 1
    assert "relu" in told["code"]
    assert "a trial timed out; continuing without it" in said
    journal = (tmp_path / "script-reduced" / "journal.jsonl").read_text()
    assert journal.count('"timed out"') == 1
    assert len(hung) == 1, "it is not asked again"
    assert have_ended(hung)
