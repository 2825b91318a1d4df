"""Trials on a Ray cluster, here of one machine: the same answers, and what happens when workers die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.bisection.bisected_scripts import WRONG

pytest.importorskip("ray", reason="Ray is not installed: pip install 'kernelscope[ray]'")

ROOT = Path(__file__).parents[3]


def answer(folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """In a process of its own: Ray leaves threads behind."""
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope", *words], cwd=folder, capture_output=True, text=True, timeout=280
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def same(folder: Path, command: str, *words: str) -> dict[str, Any]:
    """The answer, which is the same without and with a cluster."""
    found = []
    for more in ((), ("--ray",)):
        status, result, _ = answer(folder, command, "--json", *more, *words)
        notes = result.pop("notes")
        assert any(" on 1 machine of a Ray cluster: " in note for note in notes) == bool(more)
        of_this_one = ("seconds", "folder", "path")
        found.append((status, {name: value for name, value in result.items() if name not in of_this_one}))
    assert found[0] == found[1]
    return found[0][1]


def test_bisect(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WRONG)
    found = same(tmp_path, "bisect", "--no-workaround", "program.py")
    assert found["cause"]["switches"][0]["info"]["kernel"] == "cpp_fused_add_relu_0"
    logs = tmp_path / "kscope-runs" / "program-bisect-2" / "logs"
    assert "the script ran to its end" in (logs / "trial-1.log").read_text()


STEADY = "import torch\nprint((torch.arange(9.0) * 3).sum())\n"
# The kernel itself writes something else each time.
UNSTEADY = """
import os, torch

@torch.library.custom_op("lab::noise", mutates_args=())
def noise(x: torch.Tensor) -> torch.Tensor:
    return x + int.from_bytes(os.urandom(3), "little")

noise(torch.ones(8))
"""


@pytest.mark.parametrize(("text", "status"), [(STEADY, 0), (UNSTEADY, 1)], ids=["steady", "unsteady"])
def test_determinism(tmp_path: Path, text: str, status: int) -> None:
    (tmp_path / "program.py").write_text(text)
    words = ("determinism", "--json", "program.py")
    alone, here, _ = answer(tmp_path, *words)
    spread, there, _ = answer(tmp_path, words[0], "--ray", *words[1:])
    assert alone == spread == status
    assert there["notes"][0].startswith("runs were made on 1 machine of a Ray cluster: ")
    names = [[kernel["kernel_name"] for kernel in found["kernels"]] for found in (here, there)]
    assert names[0] == names[1] == (["lab.noise.default"] if status else [])


# The first time it kills the process of Ray that runs it: its parent's parent, which forks trials.
DEADLY = """
import os, pathlib, signal, torch
parent = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
if not os.path.exists("killed"):
    open("killed", "w").close()
    os.kill(int(parent), signal.SIGKILL)
raise KeyError("each time")
"""


def test_a_worker_dies_during_a_trial(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DEADLY)
    words = ("--fails-on", "exception", "--no-workaround", "--axis", "backend", "program.py")
    _, found, said = answer(tmp_path, "bisect", "--json", "--ray", *words)
    assert "died during a trial" in said
    assert "another worker makes the trial again" in said
    assert any("died during a trial" in note for note in found["notes"])
    assert "KeyError" in found["failure"]
    assert "fails with backend='eager' too" in found["problem"]


CLUSTER = """
import sys
from pathlib import Path
from kernelscope.errors import RunError
from kernelscope.processes.cluster.ray_cluster import connected
from kernelscope.trials.cluster.ray_trials import RayTrials
from kernelscope.trials.settings import Settings

def listening():
    lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}")]
    return {words[1] for words in lines if words[3] == "0A"}

out, before = sys.stdout, listening()
with connected("", "--ray") as ray:
    opened = listening() - before
    beyond = sorted(each for each in opened if not each.rpartition(":")[0].endswith("0100007F"))
    print(len(opened), beyond, file=out)
    job = {"words": ["gone.py"], "check": "exception", "what": ""}
    with RayTrials(ray, job, Path.cwd(), timeout=60, fork=True, say=print) as trials:
        try:
            trials.run(Settings())
        except RunError as error:
            print(error, file=out)
"""


def test_a_cluster_of_this_machine(tmp_path: Path) -> None:
    """It listens on loopback only; a script that its machines do not see is named."""
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    count, _, beyond = done.stdout.splitlines()[0].partition(" ")
    assert int(count) > 0, done.stderr
    assert beyond == "[]"
    last = done.stdout.splitlines()[-1]
    assert last.startswith(
        f"no machine of the Ray cluster can be used: {tmp_path}/gone.py does not exist on "
    )


@pytest.mark.slow
def test_the_sweep(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.sweep", "--ray", "--only", "op:sgn:float32", "--samples", "1"]
    words += ["--journal", str(tmp_path / "journal.jsonl")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [row["status"] for row in rows if "status" in row] == ["ok"]
