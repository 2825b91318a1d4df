"""`kernelscope run` on programs that fork, spawn, exit, raise, change directory, or run in several ranks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernelscope
from kernelscope.store import folder

PROGRAM = Path(__file__).parents[2] / "programs" / "small.py"
SRC = Path(__file__).parents[3] / "src"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SRC)}


def kernelscope_run(
    *words: str | Path, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelscope", "run", *map(str, words)]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment or ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_forks_spawns_changes_directory_and_exits(tmp_path: Path) -> None:
    home = tmp_path / "ein Ordner mit Ümläuten 量子"
    home.mkdir()
    shutil.copy(PROGRAM, home / "mein skript.py")
    words = ["print=hello", "call=3", "fork", "spawn", f"chdir={tmp_path}", "call=2", "exit=5"]
    ran = kernelscope_run("mein skript.py", *words, cwd=home)
    assert ran.returncode == 5, ran.stderr
    assert ran.stdout == f"hello mein skript.py __main__ {home}\n"
    assert "kernelscope" not in ran.stderr  # quiet in a pipe
    path = home / folder.HOME / "mein-skript-1.kscope"
    run = kernelscope.load(path)
    assert run.is_closed
    assert len(run) == 5 * 2  # mm and one C++ kernel; what the forked child ran is not among them
    assert {c.kind for c in run.calls} == {"extern", "cpp"}
    assert run.calls[0].origin is not None
    assert run.calls[0].origin.file.endswith("mein skript.py")
    parts = [folder.part_name(path, part) for part in folder.parts(path)]
    assert [name.partition("-")[0] for name in parts] == ["", "child"]  # the spawned one records too
    assert len(kernelscope.load(path, part=parts[1])) == 2
    invocation = folder.read_invocation(path)
    assert invocation is not None
    assert invocation.status == 5


def test_raises(tmp_path: Path) -> None:
    ran = kernelscope_run(
        "--values", "hash", "--steps", "2:4", "--time", "-o", "here", PROGRAM, "steps=5", "raise=no way",
        cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.rstrip().endswith("RuntimeError: no way")
    run = kernelscope.load(tmp_path / "here.kscope")
    assert run.metadata["exception"] == "RuntimeError: no way"
    assert [call.step for call in run.calls] == [2, 2, 3, 3]
    assert all(call.post_hashes and call.time for call in run.calls)
    assert run.info.settings == {"values": "hash", "steps": (2, 4), "time": True, "stages": True}
    again = kernelscope_run("-o", "here", PROGRAM, cwd=tmp_path)  # never written over
    assert again.returncode == 2
    assert again.stderr.startswith("kernelscope: here.kscope already exists")


def test_two_ranks_in_one_run(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ran = kernelscope_run("-o", "both", "--", *torchrun, PROGRAM, "ranks", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("by 2 of 2 ranks") == 1, "not once more by rank 0 itself"
    path = tmp_path / "both.kscope"
    assert [part.name for part in folder.parts(path)] == ["rank-0", "rank-1"]
    for rank in (0, 1):
        run = kernelscope.load(path, part=f"rank-{rank}")
        assert (run.info.rank, run.info.world_size) == (rank, 2)
        assert len(run) == 2


def test_the_variable_alone_and_workers(tmp_path: Path) -> None:
    """Needs no `kernelscope run`, where kernelscope is installed; DataLoader's workers do not record."""
    if not _has_startup_file():
        pytest.skip("kernelscope is not installed here, so Python does not know of KERNELSCOPE_RUN")
    environment = ENVIRONMENT | {"KERNELSCOPE_RUN": "alone", "KERNELSCOPE_OPTIONS": "--values hash"}
    words = [sys.executable, str(PROGRAM), "workers=fork", "workers=spawn", "call=1"]
    ran = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    path = tmp_path / "alone.kscope"
    assert folder.parts(path) == [path]
    run = kernelscope.load(path)
    assert len(run) == 2
    assert run.info.settings == {"values": "hash"}


SERVED = """
import multiprocessing
import torch

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        return torch.full((4,), float(i)).square()

def work():
    torch.ones(3).cos()

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    for batch in torch.utils.data.DataLoader(Squares(), num_workers=1, multiprocessing_context=context):
        batch.sin()
    child = context.Process(target=work)
    child.start()
    child.join()
"""


@pytest.mark.parametrize("words", [[], pytest.param(["--workers"], marks=pytest.mark.slow)], ids=" ".join)
def test_a_forkserver_and_workers_that_compute(tmp_path: Path, words: list[str]) -> None:
    """What it forks is recorded, to its end; a DataLoader's worker is not, unless that is asked for."""
    (tmp_path / "served.py").write_text(SERVED)
    ran = kernelscope_run("--ops", "all", *words, "-o", "run", "served.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    parts = [kernelscope.load(part) for part in folder.parts(tmp_path / "run.kscope")]
    names = [{call.kernel_name for call in part} for part in parts]
    assert "aten.sin.default" in names[0]
    assert sum("aten.cos.default" in each for each in names[1:]) == 1
    assert sum("aten.full.default" in each for each in names[1:]) == len(words)
    assert len(parts) == 2 + len(words)


def _has_startup_file() -> bool:
    code = "import sys, os; sys.exit(not any(os.path.exists(os.path.join(p, 'kernelscope_autorecord.pth')) for p in sys.path))"  # noqa: E501
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_segfault_is_told_by_the_parent(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import torch\n"
        "torch._inductor.config.assert_indirect_indexing = False\n"
        "@torch.compile\n"
        "def gather(x, index):\n"
        "    return x[index] * 2\n"
        "for far in (1, 1, 1, 1 << 40):\n"
        "    gather(torch.ones(9), torch.tensor([0, far]))\n"
    )
    ran = kernelscope_run(script, cwd=tmp_path)
    assert ran.returncode == 128 + 11
    assert "killed by SIGSEGV" in ran.stderr
    assert "completed through 2; call 3 was executing" in ran.stderr
    assert "[cpp] cpp_fused_index_mul_0" in ran.stderr
    assert f"{script}:5" in ran.stderr
    shown = subprocess.run(
        [sys.executable, "-m", "kernelscope", "show", "--crash", "--json"],
        cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    crash = json.loads(shown.stdout)["crash"]
    assert crash["completed_through"] == 2
    assert crash["executing"][0]["index"] == 3
    assert [arg["name"] for arg in crash["executing"][0]["args"]] == ["in_ptr0", "in_ptr1", "out_ptr0"]


def test_a_wrong_setting_is_said_before_anything_starts(tmp_path: Path) -> None:
    ran = kernelscope_run("--values", "everything", PROGRAM, cwd=tmp_path)
    assert ran.returncode == 2
    assert "'everything' is unknown; use one of off, hash" in ran.stderr
    assert list(tmp_path.iterdir()) == []
