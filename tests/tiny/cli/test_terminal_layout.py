"""What commands print on a real terminal of 80 columns: nothing is wider, and the beginning comes first."""

from __future__ import annotations

import json
import operator
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.hostile_runs import write_hostile
from tests.support.sample_runs import write_sample
from tests.support.terminals import SRC, Shown, command_in_terminal, in_terminal
from tests.support.training_runs import LONG, write_training

from kernelscope.cli import main
from kernelscope.cli.command_list import COMMANDS
from kernelscope.stages.records import FxOrigin
from kernelscope.store import folder
from kernelscope.text.widths import columns_of
from kernelscope.views.terminal import node_rows

# Runs many command lines in one process, each on the terminal: starting Python takes longer than all of them.
SEVERAL = """
import json, sys
from kernelscope.cli import main
for words in json.loads(sys.argv[1]):
    sys.stdout.write("$ " + " ".join(words) + "\\n")
    sys.stdout.flush()
    try:
        main(words)
    except SystemExit:
        pass
    sys.stderr.flush()
"""


def several(commands: list[list[str]], cwd: Path, columns: int = 80) -> Shown:
    words = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
    return command_in_terminal(words, cwd, columns, 24, {}, {})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("terminal")
    (home / folder.HOME).mkdir()
    write_training(home / folder.HOME / "train-1.kscope")
    write_training(home / folder.HOME / "odd-1.kscope", odd_step=3)
    write_sample(home / folder.HOME / "sample-1.kscope")
    writer = write_sample(home / folder.HOME / "dead-1.kscope", close=False, executing=True)
    writer.forget()
    long = ("python", "train.py", *(f"--option-{n}=some_value" for n in range(20)))
    invocation = folder.Invocation(long, str(home), 1, 2, -11)
    folder.write_invocation(home / folder.HOME / "dead-1.kscope", invocation)
    write_hostile(home / folder.HOME / "hostile-1.kscope")
    return home


READING = [
    ["show", "train-1"], ["show", "odd-1"], ["show", "dead-1"], ["show", "--crash", "dead-1"],
    ["show", "train-1", "--call", "0"], ["show", "sample-1", "--call", "0", "--source"],
    ["show", "train-1", "--sort", "time"], ["show", "train-1", "--kernel", "nothing"],
    ["show", "train-1", "--graph", "9", "--step", "77", "--kind", "cp"], ["show", "trian-1"],
    ["show", "train-1", "--kernel", "*addmm*"],
    ["stages", "train-1"], ["stages", "train-1", "--kernel", "*"], ["stages", "train-1", "--fusion"],
    ["stages", "train-1", "--sections"], ["stages", "train-1", "--stage", "output_code"],
    ["stages", "train-1", "--settings"], ["stages", "train-1", "--graph", "5/5"],
    ["diff", "train-1", "odd-1"], ["diff", "sample-1", "dead-1"], ["ls"],
    ["query", "train-1", "SELECT * FROM call LIMIT 3"], ["query", "train-1", "SELECT id, kernel FROM call"],
    ["query", "train-1", "SELEC"], ["export", "train-1", "-o", "/nowhere/at/all"], ["tui", "nothing"],
    ["report", "train-1", "-o", "page.html"], ["pack", "train-1", "-o", "packed.zip"],
    ["unpack", "packed.zip", "-o", "unpacked"], ["repro", "train-1", "--call", "0"],
    ["repro", "train-1", "--graph", "0_forward"], ["issue", "sample-1", "-o", "bug"],
    ["completion", "fish"], ["completion", "klingon"], ["run", "--values", "hsh", "none.py"],
    ["bisect", "--axis", "nothing", "x.py"], ["shadow", "none.py"], ["sho"], ["show", "--kernal", "x"], [],
]  # fmt: skip
HOSTILE = [
    ["show", "hostile-1"], ["show", "hostile-1", "--call", "3", "--source"], ["stages", "hostile-1"],
    ["stages", "hostile-1", "--kernel", "*"], ["query", "hostile-1", "SELECT * FROM call"],
]  # fmt: skip
OF_SHELLS = ("complete -c", "#compdef")  # completion is read by a shell, which a line break would confuse


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_the_terminal(runs: Path, columns: int, tmp_path: Path) -> None:
    here = tmp_path / "here"
    shutil.copytree(runs, here)
    helps = [[name, "--help"] for name in COMMANDS] + [["--help"]]
    shown = several([*READING, *HOSTILE, *helps], here, columns)
    assert shown.status == 0, shown.text[-2000:]
    assert "Traceback" not in shown.text
    command = ""
    for line in shown.lines:
        command = line if line.startswith("$ ") else command
        if not line.startswith(("$ ", *OF_SHELLS)):
            assert columns_of(line) <= columns, (command, line)


def test_everything_into_a_pipe_and_with_wide(runs: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    words = [sys.executable, "-m", "kernelscope", "show", "train-1", "--limit", "0"]
    piped = subprocess.run(
        words, cwd=runs, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert max(map(len, piped.splitlines())) > 500
    assert piped.count(LONG + "0 ") == 30
    wide = in_terminal(["show", "train-1", "--limit", "0", "--wide"], cwd=runs)
    assert wide.text == piped


def test_show_folds_what_repeats(runs: Path) -> None:
    shown = in_terminal(["show", "train-1"], cwd=runs)
    text = shown.text
    assert len(shown.lines) < 40, text
    assert "these 4 calls 5 more times: calls 4 to 23" in text
    assert "steps 2 to 4  the same kernels as step 1: calls 58 to 144" in text  # step 0 has a finding
    assert "×4, to call 28" in text
    assert " forward, graph 0 0_forward" in text
    assert " backward, graph 1 0_backward" in text
    names = [line.split()[3] for line in shown.lines if "µs  →" in line]
    assert len(set(names)) == 5, text  # all are told apart: their ends are still there
    assert "1 finding:" in text[: text.index("step 0")]


def test_what_is_odd_is_not_folded(runs: Path) -> None:
    text = in_terminal(["show", "odd-1"], cwd=runs).text
    assert "step 2  the same kernels as step 1" in text
    assert "step 3  29 calls" in text
    assert "raised RuntimeError: no" in text


def test_a_limit_cuts_a_step(runs: Path) -> None:
    text = in_terminal(["show", "train-1", "--limit", "70"], cwd=runs).text
    assert "step 2  the same kernels as step 1: calls 58 to 69" in text
    assert "more: --first 70" in text


def test_names_of_runs_are_whole(runs: Path) -> None:
    """They are what the user types next; a long command is shortened instead."""
    text = in_terminal(["ls"], cwd=runs).text
    for name in ("train-1", "odd-1", "sample-1", "dead-1", "hostile-1"):
        assert f"{folder.HOME}/{name}.kscope  " in text
    assert "1970-01-01" in text or "1969-12-31" in text
    assert "signal 11" in text


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_a_pager_shows_the_beginning_first(runs: Path) -> None:
    shown = in_terminal(["show", "train-1"], cwd=runs, environ={"PAGER": "less"}, keys={"step 0": b"q"})
    assert shown.status == 0
    assert "145 calls of 5 kernels" in shown.text
    assert "steps 2 to 4" not in shown.text  # that is the end of the list
    short = in_terminal(["show", "train-1", "--kernel", "*sum*", "--step", "0"], cwd=runs, rows=40,
                        environ={"PAGER": "false"})  # fmt: skip
    assert "cpp_fused_sum_2" in short.text  # no pager was needed


def test_no_pager_where_none_can_be_used(runs: Path) -> None:
    for pager in ("", "cat", "/nowhere/less"):
        shown = in_terminal(["show", "train-1"], cwd=runs, environ={"PAGER": pager, "PATH": "/nowhere"})
        assert "steps 2 to 4" in shown.text, pager
        assert shown.status == 0


def test_a_filter_that_matches_nothing_says_so(runs: Path) -> None:
    text = in_terminal(["show", "train-1", "--kernel", "addmm"], cwd=runs).text.replace("\n  ", " ")
    assert "no call matches --kernel addmm; did you mean '*addmm*'? The run has: " in text
    assert "extern_kernels.addmm" in text
    text = in_terminal(["show", "train-1", "--step", "9", "--phase", "fowrard"], cwd=runs).text
    assert "no call matches --step 9; the run has: 0 to 4" in text
    assert "no call matches --phase fowrard; did you mean forward?" in text
    text = in_terminal(["show", "train-1", "--kernel", "*sum_2", "--phase", "forward"], cwd=runs).text
    assert "no call matches all of the given options together" in text


def test_steps_that_only_graph_calls_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a recording without hashes writes them."""
    run = tmp_path / "x.kscope"
    write_sample(run)
    with sqlite3.connect(run / "run.db", isolation_level=None) as db:
        db.execute("UPDATE calls SET step = NULL, phase = NULL")
        db.execute("UPDATE graph_calls SET step = 4")
    assert main(["show", str(run), "--step", "99"]) == 0
    assert "no call matches --step 99; the run has: 4\n" in capsys.readouterr().out
    assert main(["show", str(run), "--phase", "x"]) == 0
    assert "None" not in capsys.readouterr().out


def test_alone_it_prints_questions_and_a_wrong_word_is_corrected(tmp_path: Path) -> None:
    shown = in_terminal([], cwd=tmp_path)
    assert shown.status == 0
    assert len(shown.lines) <= 24
    for command in ("show --crash", "shadow train.py", "bisect train.py", "--stop-on nan", "determinism"):
        assert f"kernelscope {command}" in shown.text or command in shown.text
    shown = in_terminal(["sho"], cwd=tmp_path)
    assert shown.status == 2
    assert shown.text.startswith("kernelscope: there is no command 'sho'; did you mean show? See")
    assert "--kernel?" in in_terminal(["show", "--kernal", "x"], cwd=tmp_path).text
    assert "did you mean" not in in_terminal(["xyzzy"], cwd=tmp_path).text


def test_a_function_of_python_has_its_name() -> None:
    [row] = node_rows([FxOrigin("getitem_1", str(operator.getitem), ("norm",), ())])
    assert row == ("getitem_1", "getitem", "← norm", "")
