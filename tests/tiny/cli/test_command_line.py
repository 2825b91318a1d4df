"""The command line itself: help, usage errors, completion, odd places. No torch."""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from kernelscope.cli import main, parser_for
from kernelscope.cli.command_list import COMMANDS
from kernelscope.doctor import checks
from kernelscope.options import byte_count, parse_options, step_range

SRC = Path(__file__).parents[3] / "src"
Capture = pytest.CaptureFixture[str]


def test_a_current_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["show"]) == 2
    assert "the current folder no longer exists" in capsys.readouterr().err


HELPS = """
import contextlib, io, sys
from kernelscope.cli import main
for name in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*name.split(), "--help"])
    heavy = sys.modules.keys() & {"torch", "numpy", "safetensors"}
    usage = out.getvalue().partition("\\n")[0]
    if heavy or "examples:" not in out.getvalue() or usage.count("kernelscope") != 1:
        sys.exit(f"kernelscope {name} --help: loads {sorted(heavy)}, says {out.getvalue()!r}")
"""


def test_help_is_quick_and_has_examples() -> None:
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    words = [sys.executable, "-c", HELPS, "", *COMMANDS]
    child = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    words = [sys.executable, "-X", "importtime", "-m", "kernelscope", "show", "--help"]
    child = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "examples:" in child.stdout
    loaded = {line.rpartition("|")[2].strip() for line in child.stderr.splitlines()}
    assert not loaded & {"torch", "numpy", "safetensors"}


def test_commands_have_json_as_the_page_says() -> None:
    page = (SRC.parent / "docs" / "cli.md").read_text(encoding="utf-8")
    assert "all but `choreo` have `--json`" in page
    without = []
    for name in COMMANDS:
        [commands] = [a for a in parser_for(name)._actions if isinstance(a, argparse._SubParsersAction)]
        if "--json" not in commands.choices[name]._option_string_actions:
            without.append(name)
    assert without == ["choreo"]


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["show", "--nonsense"], ["run", "--steps", "x", "y.py"], ["show", "--limit", "-1"],
     ["show", "--call", "9" * 30], ["show", "--step", "x"], ["query", "--limit", "-1", "SELECT 1"],
     ["run", "--max-tensors", "9" * 400, "y.py"]],
)  # fmt: skip
def test_usage_errors(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("kernelscope: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--versoin"], "unknown argument --versoin; did you mean --version?"),
        ([""], "there is no command ''"),
        (["run", "--values", "foo", "x.py"], "--values: 'foo' is unknown; use one of off, hash, stats, save"),
        (["run", "--verify", "foo", "x.py"], "--verify: 'foo' is unknown; use one of reread, poison"),
        (["run", "--steps", "5:3", "x.py"], "'5:3' is not a range of steps; write 3:5 or 3"),
        (["run", "--stop-at", "x", "x.py"], "'x' is not an integer"),
        (["bisect", "--confidence", "x", "x.py"], "'x' is not a number"),
        (["stages", "--lines", "-1"], "it must be at least 0"),
    ],
)
def test_a_wrong_word_is_named_with_what_is_right(words: list[str], says: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("kernelscope: ")
    assert says in said


def test_a_refused_search_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    refused = (
        ["bisect", "--runs", "1", "x.py"],
        ["bisect", "--timeout", "0", "x.py"],
        ["bisect", "--confidence", "1", "x.py"],
        ["bisect", "--predicate", "check.py:fails", "x.py"],
        ["why", "--predicate", "check.py", "x.py"],
        ["determinism", "--", "ls"],
        ["run", "--kind", "op", "x.py"],
        ["run", "--no-stages", "--fresh", "x.py"],
    )
    for words in refused:
        assert main(words) == 2, words
    said = capsys.readouterr().err
    assert said.count("kernelscope: ") == len(refused)
    assert "record(" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["x.py"]


def test_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["show"]) == 2
    assert "make one: kernelscope run" in capsys.readouterr().err
    assert main(["ls"]) == 0
    (tmp_path / "empty.kscope").mkdir()
    assert main(["show"]) == 2
    assert "no process in it recorded anything" in capsys.readouterr().err
    assert main(["ls"]) == 0
    assert "nothing recorded" in capsys.readouterr().out


def test_a_program_without_torch(tmp_path: Path) -> None:
    """Its exit status, output and input are its own; nothing is recorded, and that is no error."""
    (tmp_path / "plain.py").write_text("import sys\nprint(sys.argv[1:], input())\nsys.exit(9)\n")
    words = [sys.executable, "-m", "kernelscope", "run", "plain.py", "-o", "x", "--json"]
    child = subprocess.run(
        words, input="typed\n", env=os.environ | {"PYTHONPATH": str(SRC)}, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 9, child.stderr
    assert child.stdout == "['-o', 'x', '--json'] typed\n"
    assert child.stderr == ""


def test_a_live_line_on_a_terminal_only(tmp_path: Path) -> None:
    text = "import os, time\nwhile not os.path.exists('seen'): time.sleep(0.01)\n"
    (tmp_path / "slow.py").write_text(text)
    ours, theirs = os.openpty()
    words = [sys.executable, "-m", "kernelscope", "run", "slow.py"]
    child = subprocess.Popen(words, stderr=theirs, env=os.environ | {"PYTHONPATH": str(SRC)}, cwd=tmp_path)
    shown = ""
    while "kernelscope: waiting for torch" not in shown:
        assert select.select([ours], [], [], 60)[0], shown
        shown += os.read(ours, 10_000).decode()
    (tmp_path / "seen").touch()
    assert child.wait(60) == 0
    os.close(theirs)
    shown += os.read(ours, 10_000).decode()
    os.close(ours)
    assert " ".join(shown.split()).endswith(
        "nothing was recorded: no process imported torch (kscope-runs/slow-1.kscope)"
    )


def test_completion(capsys: Capture) -> None:
    for shell in ("fish", "zsh", "bash"):
        assert main(["completion", shell]) == 0
        out = capsys.readouterr().out
        assert "sort" in out
        assert "doctor" in out
    subprocess.run(["bash", "-n"], input=out, text=True, check=True)


def test_sizes_steps_and_options() -> None:
    assert [byte_count(t) for t in ("2GB", "1.5 GiB", "500mb", "10")] == [2 * 10**9, 3 << 29, 5 * 10**8, 10]
    assert (step_range("3:5"), step_range("3")) == ((3, 5), (3, 4))
    given = parse_options("--values hash --kernel '*a b*' --kernel c --steps 1:2 --max-tensors 1MB")
    assert (given.values, given.kernel, given.steps, given.max_tensors) == (
        "hash",
        ["*a b*", "c"],
        (1, 2),
        10**6,
    )
    with pytest.raises(ValueError, match="KERNELSCOPE_OPTIONS"):
        parse_options("--nonsense")


@pytest.mark.parametrize(
    ("installed", "given", "health", "says"),
    [
        ((), "", "bad", "none found"),
        (("g++",), "", "ok", "g++"),  # without c++
        (("g++",), "no-such-compiler", "bad", "CXX=no-such-compiler is not a program"),
    ],
)
def test_doctor_blames_cxx_only_where_it_is_set(
    installed: tuple[str, ...],
    given: str,
    health: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in installed:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", given)
    [found] = [each for each in checks.compiler() if each.what == "C++ compiler"]
    assert found.health == health
    assert says in found.found
