"""A process that ends at once leaves behind what any other would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelscope.processes.quick_start import only_this_process
from kernelscope.trials.checks import CommandCheck
from kernelscope.trials.outcome import PASSED

PROGRAM = """
import atexit, sys
from kernelscope.processes.quick_start import importing, leave

with importing():
    import json
me = {"text": open("text", "w"), "bytes": open("bytes", "wb")}
me["me"] = me
me["text"].write("some words")
me["bytes"].write(b"some bytes")
closed = open("closed", "w")
closed.close()
atexit.register(lambda: open("late", "w").write("at the end"))
print("printed", end="")
leave(3)
"""


def test_what_was_written_is_there(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "printed", "")
    assert (tmp_path / "text").read_text() == "some words"
    assert (tmp_path / "bytes").read_text() == "some bytes"
    assert (tmp_path / "late").read_text() == "at the end"


def test_where_nothing_can_be_printed(tmp_path: Path) -> None:
    program = PROGRAM.replace("leave(3)", "sys.stdout.close(); leave(3)")
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path).returncode == 3
    assert (tmp_path / "text").read_text() == "some words"


def test_a_check_finds_what_the_program_has_written(tmp_path: Path) -> None:
    """Its process goes on after it has ended, and its names are kept."""
    names: dict[str, object] = {}

    def program() -> None:
        names["file"] = file = (tmp_path / "result").open("w")
        file.write("some words")

    command = f"grep -q words '{tmp_path / 'result'}'"
    assert CommandCheck(command).run(program, None).kind == PASSED


def test_whether_torch_is_for_gpus_is_known_without_loading_it(tmp_path: Path) -> None:
    import torch

    ask = "import sys; from kernelscope.processes import quick_start as q; "
    ask += "print(q.torch_is_for_gpus(), 'torch' in sys.modules)"
    is_so = bool(torch.version.cuda or torch.version.hip or torch.version.xpu)
    for path, cuda, expected in ((None, None, is_so), ("a", "'13.0'", True), ("b", "None", False)):
        if path:
            (tmp_path / path / "torch").mkdir(parents=True)
            (tmp_path / path / "torch" / "__init__.py").write_text("raise ImportError('not asked for')")
            (tmp_path / path / "torch" / "version.py").write_text(f"cuda = {cuda}\nhip = None\n")
        said = subprocess.run(
            [sys.executable, "-c", ask],
            cwd=tmp_path / (path or ""),
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout.split() == [str(expected), "False"]


FORKS = """
import os, sys
from kernelscope.processes.quick_start import only_this_process

me = os.getpid()
with only_this_process():
    pid = os.fork()
    if pid == 0:
        print("in the child", flush=True)
        {ends}
    else:
        print("child:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
print("after", os.getpid() == me, flush=True)
"""


@pytest.mark.parametrize(
    ("ends", "status", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('it is over')", 1, "it is over\n"),
        ("raise ValueError('some words')", 1, "ValueError: some words\n"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt\n"),
    ],
)
def test_a_forked_process_ends_where_its_program_does(ends: str, status: int, said: str) -> None:
    program = FORKS.format(ends=ends)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == f"in the child\nchild: {status}\nafter True\n"
    assert done.stderr.endswith(said)
    assert bool(done.stderr) is bool(said)


def test_exceptions_pass_through() -> None:
    with pytest.raises(ZeroDivisionError), only_this_process():
        raise ZeroDivisionError
