"""A stranger's run, opened by every command: nothing is executed, no other file opened, no code sent."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import unicodedata
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.support.hostile_cells import CELLS
from tests.support.hostile_corpus import ATTACKS as TEXTS
from tests.support.hostile_corpus import SECRET_TEXT, Scene
from tests.support.hostile_shapes import SHAPES

import kernelscope
from kernelscope.cli import main

ATTACKS = TEXTS | SHAPES | CELLS
COMMANDS = (
    ["show"], ["show", "--json"], ["show", "--call", "0", "--source"], ["show", "--call", "0", "--json"],
    ["show", "--call", "0", "--value", "in_ptr0"], ["show", "--sort", "time"], ["show", "--crash"],
    ["show", "--crash", "--json"], ["show", "--kernel", "*", "--source"], ["ls", "."], ["ls", "--json", "."],
    ["stages"], ["stages", "--json"], ["stages", "--kernel", "*"], ["stages", "--fusion"],
    ["stages", "--settings"],
    ["stages", "--sections"], ["stages", "--export", "out-stages"], ["query", "SELECT * FROM call"],
    ["query", "--json", "SELECT * FROM sites"], ["pack", "-o", "out.zip"],
    ["pack", "--share", "-o", "out-share.zip"],
    ["pack", "--without", "paths,host,source,environment,command", "-o", "out-little.zip"],
    ["report", "-o", "out.html"], ["export", "--json", "-o", "out.json"], ["export", "--perfetto", "-o", "-"],
    ["export", "--dot", "-o", "out.dot"], ["repro", "--call", "0", "-o", "out-repro"],
    ["repro", "--call", "0", "--run", "-o", "out-run"], ["repro", "--graph", "0", "--run", "-o", "out-graph"],
    ["issue", "-o", "out-issue"], ["issue", "--call", "0", "-o", "out-issue-call"],
    ["issue", "--call", "0", "--no-run", "-o", "out-issue-text"], ["diff"], ["diff", "--json"],
    ["diff", "--save"], ["show", "--changed", "--wide"], ["show", "--call", "0", "--wide"],
    ["stages", "--kernel", "*", "--json"], ["stages", "--graph", "0", "--stage", "output_code"],
    ["query", "SELECT * FROM findings"], ["query", "SELECT * FROM stages"], ["query", "SELECT * FROM info"],
    ["query", "SELECT * FROM kernels"], ["query", "SELECT * FROM provenance, incidents, compilations"],
    ["query", "SELECT char(27) || '[2J', x'1b5b324a', zeroblob(3)"], ["query", "SELECT * FROM hash"],
    ["diff", "--fail-on", "values"], ["tui", "--json"], ["show", "--wide", "--limit", "0"],
    ["show", "--rank", "1"], ["stages", "--graph", "0", "--diff", "dynamo", "post_grad"],
    ["ranks"], ["ranks", "--json"], ["ranks", "--ranks", "0-1"], ["diff", "--ranks", "0,1"],
    ["export", "--parquet", "-o", "out-tables"], ["report", "--diff", "other.kscope", "-o", "out-diff.html"],
    ["unpack", "out.zip", "-o", "out-unpacked"], ["unpack", "--json", "out-share.zip", "-o", "out-shared"],
    ["show", "--call", "0", "--value", "in_ptr0", "--before", "-o", "out.npz"], ["show", "--graph", "0"],
    ["show", "--kind", "c*", "--phase", "forward", "--step", "0"], ["show", "--part", "rank-1"],
    ["stages", "--only", "dag,code", "--lines", "3"], ["stages", "--wide"], ["ranks", "--wide"],
    ["query", "--rank", "1", "SELECT * FROM call"], ["query", "--part", "rank-1", "SELECT * FROM call"],
    ["pack", "--json", "-o", "out-json.zip"], ["issue", "--graph", "0", "--no-run", "-o", "out-issue-graph"],
    ["issue", "--reduced", "evil.kscope", "--no-run", "-o", "out-issue-reduced"],
    ["repro", "--graph", "0", "--stage", "dynamo", "-o", "out-dynamo"],
    ["repro", "--call", "0", "--benchmark", "-o", "out-benchmark"],
    ["export", "--tensorboard", "-o", "out-board"], ["tui", "--json", "--diff", "other.kscope"],
)  # fmt: skip
NAMED_TWICE = ("diff",)
BOTH = "both.kscope"  # both runs as ranks of one
HERE = ("ls", "unpack")  # have what they read among their options
PATIENCE = 60  # seconds for one command

EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "open")
Events = list[tuple[str, tuple[object, ...]]]
_events: Events | None = None


def _hook(event: str, given: tuple[object, ...]) -> None:
    if _events is not None and event in EVENTS:
        _events.append((event, given))


sys.addaudithook(_hook)


@pytest.fixture
def watched() -> Iterator[Events]:
    global _events
    _events = []
    yield _events
    _events = None


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path / "home")
    monkeypatch.chdir(made.home)
    return made


def words_for(command: list[str], run: Path) -> list[str]:
    if command[0] in HERE:
        return command
    name, *options = command
    if name == "ranks" or "--ranks" in options:
        return [*command, str(run.with_name(BOTH))]
    runs = [str(run), str(run.with_name("other.kscope"))] if name in NAMED_TWICE else [str(run)]
    return [name, *options[:-1], *runs, options[-1]] if name == "query" else [name, *options, *runs]


def refuse_to_hang(number: int, frame: object) -> None:
    raise AssertionError("a command hangs")


QUICK = (
    "every text is hostile", "run.db-journal is a pipe", "flight is a link", "flight is another's file",
    "values/1/x.pt is a link", "tensors/ab.safetensors is a pipe", "a tensor above the run", "a trigger",
    "a tensor that fills the memory", "lines of a secret file", "a journal that names another file",
    "a deep command.json", "command and code that are executed", "names that are paths",
    "half characters", "parents in a circle", "calls far away", "a name with escapes", "run.db with a hole",
    "names that are queries", "code: comments of files", "bytes for numbers", "a tensor of many dimensions",
    "source is a pipe", "a name that is HTML",
)  # fmt: skip
assert set(QUICK) <= set(ATTACKS)


@pytest.mark.parametrize(
    "attack", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ATTACKS]
)
def test_every_command_on_every_attack(
    attack: str,
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
    watched: list[tuple[str, tuple[object, ...]]],
) -> None:
    ATTACKS[attack](scene)
    copy_run(scene)
    signal.signal(signal.SIGALRM, refuse_to_hang)
    started = time.process_time()
    for command in COMMANDS:
        if attack not in ("every text is hostile", *SHAPES, *CELLS) and _is_much(command):
            continue
        watched.clear()
        signal.alarm(PATIENCE)
        try:
            status = main(words_for(command, scene.run))
        finally:
            signal.alarm(0)
        out, err = capsys.readouterr()
        assert status in (0, 1, 2), (command, status)
        assert status != 2 or err.startswith("kernelscope: "), (command, out, err)
        check_text(command, out + err)
        assert "Traceback" not in out + err, command
        assert SECRET_TEXT not in out + err, command
        assert not [e for e in watched if e[0] != "open"], (command, watched)
        opened = [str(given[0]) for event, given in watched if event == "open"]
        assert not [path for path in opened if str(scene.secret.parent) in path], (command, opened)
        assert scene.is_untouched(), command
    _check_files(scene)
    assert time.process_time() - started < 2 * PATIENCE


def copy_run(scene: Scene) -> None:
    """Another run of the same kind, to compare with."""
    other = scene.run.with_name("other.kscope")
    shutil.copytree(scene.run, other, symlinks=True, ignore=_not_plain)
    with suppress(sqlite3.Error), closing(sqlite3.connect(other / "run.db", isolation_level=None)) as db:
        db.execute("UPDATE info SET value = '\"other\"' WHERE key = 'uuid'")
        db.execute("UPDATE fingerprints SET bits = bits + 1, other = other || '?' WHERE slot > 1")
    for rank, run in enumerate((scene.run, other)):
        if run.is_dir():
            part = other.with_name(BOTH) / f"rank-{rank}"
            shutil.copytree(run, part, symlinks=True, ignore=_not_plain)
            for name in ("rank-1", "command.json"):
                with suppress(OSError):
                    (part / name).unlink()


def _not_plain(folder: str, names: list[str]) -> list[str]:
    return [
        name for name in names if not stat.S_ISREG((Path(folder) / name).lstat().st_mode)
        or (Path(folder) / name).stat().st_size > 1 << 30 or name.endswith("-journal")
    ]  # fmt: skip


def _is_much(command: list[str]) -> bool:
    """Writers of much text: their own tests have them."""
    return command[0] in ("report", "export") or "--without" in command


def check_text(command: object, text: str) -> None:
    text = text.replace("\r\n", "\n")
    hidden = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")} - {"\n", "\t"}
    assert not hidden, (command, hidden)
    assert not re.search(r"^kernelscope: forged line", text, re.MULTILINE), (command, text[:2000])


def _check_files(scene: Scene) -> None:
    """Nothing is written but what was asked for; it holds no secret, and only its user can read it."""
    known = {"evil.kscope", "other.kscope", "elsewhere", "out-stages", "out.zip", "out-share.zip",
             "out-little.zip", "out.html", "out.json", "out.dot", "out-repro", "out-issue", "out-issue-call",
             "out-issue-text", "out-tables", "out-diff.html", scene.run.name, "real", BOTH,
             "out-unpacked.kscope", "out-shared.kscope", "out.npz", "out-json.zip", "out-issue-graph",
             "out-issue-reduced", "out-dynamo", "out-board"}  # fmt: skip
    assert {path.name for path in scene.home.iterdir()} <= known
    assert sorted(path.name for path in scene.secret.parent.iterdir()) == sorted(
        name for name in ("secret.py", "x.safetensors", "run.db") if (scene.secret.parent / name).exists()
    )
    for path in scene.home.glob("out*"):
        for file in [path, *path.rglob("*")]:
            assert not file.stat().st_mode & 0o077, file
            if file.suffix == ".zip":
                with zipfile.ZipFile(file) as archive:
                    assert not any(
                        SECRET_TEXT.encode() in archive.read(name) for name in archive.namelist()
                    ), file
            elif file.is_file():
                data = file.read_bytes()
                assert SECRET_TEXT.encode() not in data, file
                assert file.suffix != ".html" or b"<img src=x" not in data, file
                if file.suffix == ".md":
                    _check_markdown(data.decode("utf-8"))


def _check_markdown(text: str) -> None:
    """What is outside of code is ours."""
    check_text("issue.md", text)
    outside = re.sub(r"^(`{3,})[^\n]*\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", outside)
    for word in ("owned", "evil", "javascript", "@everyone", "<script"):
        assert word not in outside, outside


def test_trust_is_needed_to_execute(scene: Scene, capfd: pytest.CaptureFixture[str]) -> None:
    ATTACKS["command and code that are executed"](scene)
    other = scene.run.with_name("other.kscope")
    os.rename(scene.run, other)
    ATTACKS["command and code that are executed"](scene)
    with scene.database() as db:
        db.execute("UPDATE fingerprints SET bits = bits + 1 WHERE slot > 4")
        db.execute("UPDATE info SET value = '\"other\"' WHERE key = 'uuid'")
    words = ["diff", str(other), str(scene.run), "--save"]
    assert main(words) == 2
    said = capfd.readouterr().err
    assert f"touch {scene.canary}" in said
    assert "--trust" in said
    assert "LD_PRELOAD" not in said  # it would not be set
    assert not scene.canary.exists()
    main([*words, "--trust"])
    assert scene.canary.exists()


def test_completion_does_not_expand_names(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    runs = scene.home / "kscope-runs"
    (runs / "$(touch canary).kscope").mkdir(parents=True)
    (runs / "train-1.kscope").mkdir()
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asked = 'COMP_WORDS=(kernelscope show ""); COMP_CWORD=2; _kernelscope; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True)
    assert "train-1.kscope" in done.stdout
    assert "--call" in done.stdout
    assert not list(scene.home.rglob("canary"))


def test_nothing_of_a_key_is_in_a_run(scene: Scene) -> None:
    scene.sample()
    key = (Path(os.environ["XDG_STATE_HOME"]) / "kernelscope" / "key").read_bytes()
    for file in scene.run.iterdir():
        data = file.read_bytes()
        assert key not in data
        assert key.hex().encode() not in data
    with scene.database() as db:
        [(origin,)] = db.execute("SELECT value FROM info WHERE key = 'origin'").fetchall()
    assert set(json.loads(origin)) == {"user", "signature"}


def trace(path: Path, events: object, packed: bool = False) -> Path:
    data = json.dumps({"traceEvents": events}).encode() if not isinstance(events, bytes) else events
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


HOSTILE = "kernelscope 0 \x1b]0;owned\x07\u202e\nkernelscope: forged line"
TRACES: dict[str, tuple[object, bool]] = {
    "names": ([{"ph": "X", "cat": "cpu_op", "name": HOSTILE, "ts": 1, "dur": 1, "tid": HOSTILE}], False),
    "numbers": ([{"ph": "X", "cat": "cpu_op", "name": "x", "ts": 1e308, "dur": "nan"}], True),
    "far away": ([{"ph": "X", "cat": "cpu_op", "name": f"kernelscope {9**18} x", "ts": 1, "dur": 1}], False),
    "depth": (b"[" * 1_000_000, False),
    "a pack that fills the memory": (b" " * (65 << 20), True),
    "a broken pack": (b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\xff" * 100, False),
    "not events": ([1, None, {"ph": "X", "cat": []}], False),
}  # fmt: skip


@pytest.mark.parametrize("kind", TRACES)
def test_a_hostile_trace_of_a_profiler(kind: str, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.sample()
    path = trace(scene.home / "trace.json", *TRACES[kind])
    assert main(["show", str(scene.run), "--profile", str(path)]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("kernelscope: ")
    check_text(kind, out + err)
    assert "Traceback" not in err


def test_what_python_prints(scene: Scene) -> None:
    ATTACKS["every text is hostile"](scene)
    run = kernelscope.load(scene.run)
    check_text("str", "\n".join(map(str, (run, run.calls[0], repr(run.calls[0])))))


def test_a_name_that_is_not_utf_8(scene: Scene) -> None:
    """Its bytes are printed, so that the user finds the file, but for those that a terminal obeys."""
    scene.sample()
    run = scene.run.rename(os.fsdecode(b"x\xff\x9b2J\x1b[2J.kscope"))
    for words in (["show", run], ["ls", "."], ["show", "--crash", run], ["pack", run, "-o", "out.zip"]):
        done = subprocess.run(
            [sys.executable, "-m", "kernelscope", *map(str, words)], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
        assert not {0x1B, 0x9B} & {*done.stdout, *done.stderr}
