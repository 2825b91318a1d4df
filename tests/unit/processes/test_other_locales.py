"""A locale without UTF-8: runs, paths and programs with other letters are read and written all the same."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

from kernelscope.repro.script_parts import ending
from kernelscope.values.printing import write_out

SRC = Path(__file__).parents[3] / "src"
PLAIN = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(SRC)}
NAME = "прогон-é×.kscope"

# All in one process: a name in the C locale is what the system's bytes decode to.
COMMANDS = """
import sys
from kernelscope.cli import main
run = sys.argv[1]
assert sys.stdout.encoding.lower() in ("ascii", "ansi_x3.4-1968", "646", "us-ascii"), sys.stdout.encoding
for words in (
    ["ls"], ["ls", "--json"], ["show", run], ["show", run, "--call", "0"], ["show", run, "--json"],
    ["query", run, "SELECT name FROM kernels"], ["stages", run], ["stages", run, "--export", run + "-stages"],
    ["report", run, "-o", run + ".html"], ["export", run, "--perfetto", "-o", run + ".json"],
    ["pack", run, "-o", run + ".zip"],
):
    print("::", *words, flush=True)
    status = main(words)
    assert status == 0, (words, status)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_sample(tmp_path / NAME, kernel="cpp_fused_ядро_0", text="# größer × 2 → µ\n")
    return tmp_path


def test_commands_that_read_a_run(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, NAME], cwd=here, env=os.environ | PLAIN, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace") + done.stderr.decode()
    assert NAME.encode() in done.stdout, "the name of a file is given out as it is"
    assert b"cpp_fused_\\u044f" in done.stdout, "what the terminal cannot show is escaped"
    page = (here / f"{NAME}.html").read_text(encoding="utf-8")
    assert 'charset="utf-8"' in page.lower()
    trace = json.loads((here / f"{NAME}.json").read_text(encoding="utf-8"))
    assert any("ядро" in str(event.get("name")) for event in trace["traceEvents"])
    exported = [path for path in (here / f"{NAME}-stages").rglob("*") if path.is_file()]
    assert any("größer" in path.read_text(encoding="utf-8") for path in exported)


def test_scripts_that_repro_writes_print_anywhere() -> None:
    lines = ending("eager")
    program = "\n".join(
        [
            "import sys",
            "__file__ = launch = GIVEN = RECORDED = NOTES = eager = None",
            "def check(*given): print('3 \\xb5s \\u2192 ok')",
            *lines[lines.index('if __name__ == "__main__":') :],
        ]
    )
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | PLAIN, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"3 \\xb5s \\u2192 ok\n"


def test_values_are_printed_to_a_stream_that_cannot_show_all() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    write_out(stream, "kernel ядро\n")
    stream.flush()
    assert stream.buffer.getvalue() == b"kernel \\u044f\\u0434\\u0440\\u043e\n"
