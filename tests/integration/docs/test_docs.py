"""Every shell and Python block of the documentation is executed, and the site is built."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.support.docs_blocks import (
    AFTERWARDS,
    DOCS,
    PAGES,
    PRELUDE,
    PRELUDES,
    REFUSED,
    ROOT,
    SHOWN,
    SLOW,
    STARTS,
    Block,
    all_blocks,
    blocks_of,
    train_py,
)
from tests.support.torch_release import RELEASE

import kernelscope
from kernelscope.cli import main, parser_for
from kernelscope.cli.command_list import COMMANDS

RECORDED = "kernelscope run --values save --time train.py"
# `view` serves until it is interrupted, `tui` needs a terminal, and train.py has no fault to look for.
FUNCTIONS = f"""\
python() {{ "{sys.executable}" "$@"; }}
kernelscope() {{
  local status=0
  case "$1" in
    view)
      timeout -s INT 8 "{sys.executable}" -m kernelscope "$@" --no-browser || status=$?
      test $status = 124 ;;
    tui) python -m kernelscope "$@" --json ;;
    invariance|compare) python -m kernelscope "$@" || status=$?; test $status -le 1 ;;
    ranks) python -m kernelscope "$@" || status=$?; test $status = 0 -o $status = 2 ;;
    bisect|reduce) python -m kernelscope "$@" || status=$?; test $status = 2 ;;
    *) python -m kernelscope "$@" ;;
  esac
}}
torchrun() {{ python -m torch.distributed.run "$@"; }}
"""
MIXED = ("export.md", "profiler.md", "gcu.md")  # their commands are about what their Python makes
DOCTOR = "kernelscope doctor"  # takes seconds, and says the same each time
DONE: list[str] = []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.py and two runs of it; the newer one is made by the command of the first page."""
    home = tmp_path_factory.mktemp("home")
    for name in ("train.py", "script.py", "serve.py"):
        (home / name).write_text(train_py())
    (home / "verify.py").write_text("")  # a check that is content
    before, arguments = Path.cwd(), sys.argv
    os.chdir(home)
    sys.argv = ["train.py"]
    try:
        with kernelscope.record(values="save", time=True, path="kscope-runs/train-1"):
            runpy.run_path("train.py")
    finally:
        sys.argv = arguments
        os.chdir(before)
    assert RECORDED in [c for b in blocks_of("getting-started.md") for c in b.commands]
    done = run_for_real(RECORDED, home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("epoch 0: loss")
    return home


def run_for_real(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-ec", FUNCTIONS + line],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )


def at_home(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each page begins with the same two runs."""
    shutil.copytree(home, folder / "home")
    monkeypatch.chdir(folder / "home")
    return folder / "home"


def pages(language: str, but: tuple[str, ...] = ()) -> list[Any]:
    among = [page for page in PAGES if page not in but]
    found = [page for page in among if any(b.language == language for b in blocks_of(page))]
    return [pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page for page in found]


@pytest.mark.parametrize("page", pages("python"))
def test_python(page: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """The blocks of a page one after the other; commands between them that need what they made follow."""
    if page == "stages.md" and RELEASE < (2, 12):
        pytest.skip("torch 2.11 does not tell what post-grad passes start from")
    at_home(home, tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    torch._dynamo.reset()
    module = ModuleType("page")  # what a block defines can be found where a program's own would be
    monkeypatch.setitem(sys.modules, "page", module)
    space = vars(module)
    exec(PRELUDE + PRELUDES.get(page, ""), space)
    for block in blocks_of(page):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(DOCS / page), "exec"), space)
        elif page in MIXED:
            execute(block.commands, capfd)
    for name, value in list(space.items()):
        if name.startswith("test_"):
            value()
    exec(AFTERWARDS.get(page, ""), space)
    torch._dynamo.reset()


@pytest.mark.parametrize("page", pages("sh", MIXED))
def test_shell(page: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    at_home(home, tmp_path, monkeypatch)
    for block in blocks_of(page):
        if block.language == "sh":
            execute(block.commands, capfd)


def execute(commands: list[str], capfd: Any) -> None:
    """What reads is run here; what starts a program is checked by its parser."""
    for line in commands:
        if SHOWN.search(line):
            continue
        first, name, *words = shlex.split(line)
        if STARTS.search(line):
            if first == "kernelscope":
                parser_for(name).parse_args([name, *words])
            continue
        assert first == "kernelscope", line
        if line == DOCTOR and line in DONE:
            continue
        DONE.append(line)
        if name == "view":
            look(words)
            continue
        status = main([name, *words, *(["--json"] if name == "tui" else [])])  # a test has no terminal
        said = capfd.readouterr()
        if line in REFUSED and not torch.cuda.is_available():
            assert status == 2
            assert REFUSED[line] in said.err
        else:
            assert status == 0, f"{line}: {said.err}"
            assert said.out or "-o" in words, line


def look(words: list[str]) -> None:
    """The page is served, until Ctrl-C."""
    command = [sys.executable, "-m", "kernelscope", "view", *words, "--no-browser"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        assert child.stdout is not None
        _, _, address = child.stdout.readline().strip().rpartition(" at ")
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert "kernelscope</title>" in answer.read().decode()
    finally:
        child.send_signal(signal.SIGINT)
    assert child.wait(60) == 128 + signal.SIGINT


PROGRAMS = [
    pytest.param(block, id=f"{page}:{block.line}")
    for page in PAGES
    for block in blocks_of(page)
    if block.language == "sh" and any(STARTS.search(line) for line in block.commands)
]


@pytest.mark.slow
@pytest.mark.parametrize("block", PROGRAMS)
def test_programs(block: Block, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole blocks, by a shell that stops at the first line that fails."""
    folder = at_home(home, tmp_path, monkeypatch)
    shutil.copytree(ROOT / "examples", folder / "examples")
    lines = [line for line in block.commands if not SHOWN.search(line)]
    done = run_for_real("\n".join(lines), folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_has_a_page_and_is_in_the_overview() -> None:
    overview = (DOCS / "cli.md").read_text()
    for name in COMMANDS:
        assert (DOCS / "commands" / f"{name}.md").is_file(), f"write docs/commands/{name}.md"
        assert f"`{name}" in overview, name


def test_every_question_has_a_page() -> None:
    """Those that the first page asks, each with a command that answers it, and all of them in the site."""
    asked = re.findall(
        r"^\| \[.+?\]\((questions/[\w-]+\.md)\) \| `kernelscope ", (DOCS / "index.md").read_text(), re.M
    )
    assert len(asked) == 10
    assert set(asked) == {page for page in PAGES if page.startswith("questions/")}
    site = (ROOT / "mkdocs.yml").read_text()
    for page in asked:
        assert f": {page}\n" in site
        assert any(block.language == "sh" for block in blocks_of(page)), page


def test_commands_are_in_blocks_that_are_run() -> None:
    """A block without a language is not executed, and so must not be one of commands."""
    for page in PAGES:
        for block in all_blocks(page):
            if block.language not in ("sh", "python"):
                assert not re.search(r"^kernelscope \w", block.text, re.M), f"{page}:{block.line}"


def test_the_site(tmp_path: Path) -> None:
    """Strictly: a dead link fails. Nothing in it comes from another host."""
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    show = (tmp_path / "site" / "commands" / "show.html").read_text()
    assert "--profile TRACE" in show
    assert "kernelscope show --crash" in show
    for page in (tmp_path / "site").rglob("*.html"):
        for attribute in ("src=", "stylesheet"):
            for part in page.read_text().split(attribute)[1:]:
                assert "//" not in part.partition(">")[0], f"{page}: {part[:100]}"
