"""Random contents in every cell and file of a run: each command ends with a sentence, and soon."""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.hostile_corpus import tensor
from tests.support.sample_runs import write_sample

from kernelscope import RunError
from kernelscope.cli import main
from kernelscope.store.packing import pack, unpack

ROUNDS = 10  # of cells
FILES = 60
COMMANDS = (
    ["show"],
    ["show", "--json"],
    ["show", "--call", "3", "--source"],
    ["show", "--call", "0", "--value", "in_ptr0"],
    ["show", "--sort", "time"],
    ["show", "--crash"],
    ["show", "--changed"],
    ["stages"],
    ["stages", "--json"],
    ["stages", "--kernel", "*"],
    ["stages", "--fusion"],
    ["stages", "--sections"],
    ["stages", "--settings"],
    ["export", "--json", "-o", "-"],
    ["export", "--perfetto", "-o", "-"],
    ["export", "--dot", "-o", "-"],
    ["report", "-o", "page.html"],
    ["repro", "--call", "0", "-o", "repro"],
    ["repro", "--graph", "0", "-o", "repro-g"],
    ["issue", "--no-run", "-o", "issue"],
    ["pack", "--share", "--without", "paths,source", "-o", "out.zip"],
)
NUMBERS = (0, -1, 1, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
TEXTS = (
    "",
    "0",
    "null",
    "[]",
    "{}",
    "[1]",
    "[[]]",
    "[null]",
    '["x"]',
    '{"0": 1}',
    '{"x": []}',
    '{"$int": "9"}',
    '{"$float": "inf"}',
    '{"$kind": 1}',
    "[-1]",
    "[9223372036854775807]",
    "[1e308]",
    '[["f", 1, "g"]]',
    "\x1b[2J",
    '[["f", "x", 1]]',
    '[["n", "t", ["a"], [["f", 1, "g"]]]]',
    "a" * 5000,
    "float32",
    "forward",
    "out",
    "NaN",
    "é\u202e",
    '{"nodes": 1}',
    '{"phases": {"x": "y"}}',
    '{"nodes": [{}], "groups": [1], "edges": [[1]]}',
    "[" * 3000,
)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "x.kscope"
    write_sample(path)
    (path / "tensors").mkdir()
    (path / "tensors" / "abcd.safetensors").write_bytes(tensor(list(range(200))))
    with sqlite3.connect(path / "run.db", isolation_level=None) as db:
        for position in range(2):
            db.execute("INSERT INTO tensors VALUES (0, ?, 'before', 'abcd.safetensors')", (position,))
    return path


def columns(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [(table, row[1], row[2]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")]


def fuzz_cells(run: Path, rng: random.Random) -> list[Any]:
    done = []
    with sqlite3.connect(run / "run.db", isolation_level=None) as db:
        known = columns(db)
        for _ in range(rng.choice((1, 1, 2, 4))):
            table, column, kind = rng.choice(known)
            value = rng.choice(NUMBERS if kind == "INTEGER" else TEXTS)
            some = (
                rng.choice(("", " WHERE rowid % 3 = 1"))
                if table not in ("info", "arguments", "tensors")
                else ""
            )
            db.execute(f"UPDATE OR REPLACE {table} SET {column} = ?{some}", (value,))
            done.append((table, column, value if isinstance(value, int) else value[:60], some))
    return done


def command_ends(command: list[str], run: Path, what: object, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    try:
        status = main([*command, str(run)])
    except Exception as error:
        raise AssertionError(f"{command} after {what}") from error
    _, err = capsys.readouterr()
    assert status in (0, 1, 2), (command, what)
    assert status != 2 or err.startswith("kernelscope: "), (command, what, err)
    assert time.monotonic() - started < 60, (command, what)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_cells(
    seed: int,
    pristine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    rng, run = random.Random(seed), tmp_path / "x.kscope"
    shutil.copytree(pristine, run)
    done = fuzz_cells(run, rng)
    for command in rng.sample(COMMANDS, 6):
        command_ends(command, run, done, capsys)


def flipped(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made[: rng.randrange(len(made))]) if rng.random() < 0.2 else bytes(made)


def test_packed_files(pristine: Path, tmp_path: Path) -> None:
    whole = pack(pristine, tmp_path / "x.zip").read_bytes()
    rng = random.Random(7)
    for number in range(FILES):
        file, target = tmp_path / "y.zip", tmp_path / f"{number}.kscope"
        file.write_bytes(flipped(whole, rng))
        try:
            unpack(file, target)
        except RunError:
            assert not target.exists(), number
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".zip", ".kscope")]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("tensors/abcd.safetensors", ["show", "--call", "0", "--value", "in_ptr0"]),
        ("flight", ["show", "--crash"]),
    ],
)
def test_files(
    name: str, command: list[str], pristine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, rng = tmp_path / "x.kscope", random.Random(3)
    shutil.copytree(pristine, run)
    if name == "flight":
        with sqlite3.connect(run / "run.db", isolation_level=None) as db:
            db.execute("DELETE FROM info WHERE key = 'ended_ns'")
    whole = (run / name).read_bytes()[: 1 << 14]
    for number in range(FILES):
        (run / name).write_bytes(flipped(whole, rng))
        command_ends(command, run, (name, number), capsys)


def test_zips_of_any_shape(pristine: Path, tmp_path: Path) -> None:
    shapes: list[Callable[[zipfile.ZipFile], None]] = [
        lambda archive: None,
        lambda archive: archive.writestr("run.db", b""),
        lambda archive: archive.writestr("command.json", b"{}"),
        lambda archive: [archive.writestr(f"tensors/{n:x}.safetensors", b"") for n in range(3000)] and None,
    ]
    for number, shape in enumerate(shapes):
        file = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(file, "w") as archive:
            shape(archive)
        if number == 1:  # an empty run.db is read, and refused, later
            unpack(file, tmp_path / f"{number}.kscope")
            continue
        with pytest.raises(RunError, match="not a packed run"):
            unpack(file, tmp_path / f"{number}.kscope")
