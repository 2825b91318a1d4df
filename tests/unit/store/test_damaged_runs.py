"""A damaged, foreign or newer run: one clear sentence, never a traceback, never a hang."""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.sample_runs import make_older, write_sample

import kernelscope
from kernelscope import RunError
from kernelscope.cli import main
from kernelscope.store.flight.crash import crash_in

MUTATIONS = 400
Mutation = Callable[[bytearray, random.Random], bytearray]


def flip(data: bytearray, rng: random.Random) -> bytearray:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def cut(data: bytearray, rng: random.Random) -> bytearray:
    return data[: rng.randrange(len(data))]


def overwrite(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    length = rng.randrange(1, 64)
    data[start : start + length] = rng.randbytes(length)
    return data


def repeat(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    return data[:start] + data[start // 2 : start] + data[start:]


def foreign(data: bytearray, rng: random.Random) -> bytearray:
    return bytearray(rng.choice((b"", b"hello\n", b"SQLite format 3\0", rng.randbytes(5000), b"\0" * 9000)))


MUTATE: list[Mutation] = [flip, flip, flip, cut, overwrite, overwrite, repeat, foreign]
WORDS = (["show"], ["show", "--json"], ["show", "--call", "5"], ["show", "--crash"], ["ls"],
         ["show", "--sort", "time"], ["stages"], ["stages", "--json"], ["stages", "--fusion"],
         ["stages", "--graph", "0/0", "--sections"], ["stages", "--kernel", "*"],
         ["query", "SELECT * FROM call"], ["pack"], ["report", "--json"], ["export", "--json", "-o", "-"],
         ["export", "--perfetto", "-o", "-"], ["export", "--dot", "-o", "-"])  # fmt: skip


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as a crash leaves it: the log beside the database, a call executing."""
    folder = tmp_path_factory.mktemp("pristine")
    writer = write_sample(folder / "live", close=False, executing=True)
    shutil.copytree(folder / "live", folder / "crashed.kscope")
    writer.close()
    shutil.copytree(folder / "live", folder / "closed.kscope")
    return folder


def fuzz(pristine: Path, tmp_path: Path, count: int, capsys: pytest.CaptureFixture[str], seed: int) -> int:
    rng, refused = random.Random(seed), 0
    for number in range(count):
        source = pristine / rng.choice(("crashed.kscope", "closed.kscope"))
        run = tmp_path / "fuzzed.kscope"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(source, run)
        file = rng.choice(
            [path for path in run.iterdir() if path.stat().st_size and not path.name.endswith("shm")]
        )
        data = bytearray(file.read_bytes())
        if file.name == "flight" and rng.random() < 0.7:  # most of the ring is empty
            kept = data[: 4096 + 40 * 60]
            file.write_bytes(rng.choice(MUTATE)(kept, rng) + data[len(kept) :])
        else:
            file.write_bytes(rng.choice(MUTATE)(data, rng))
        start = time.monotonic()
        words = rng.choice(WORDS)
        where = {"ls": str(tmp_path), "query": None}.get(words[0], str(run))
        given = [*words, where] if where else ["query", str(run), words[1]]
        given += ["-o", str(tmp_path / f"{number}.zip")] if words[0] in ("pack", "report") else []
        status = main(given)
        said = capsys.readouterr()
        assert status in (0, 2), given
        assert "Traceback" not in said.err + said.out
        if status == 2:
            refused += 1
            assert said.err.startswith("kernelscope: "), said.err
        assert time.monotonic() - start < 30
    return refused


def test_fuzzed(pristine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = fuzz(pristine, tmp_path, MUTATIONS, capsys, seed=1)
    assert refused > MUTATIONS // 10  # the mutations do hit something


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fuzzed_10_000_times(pristine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = fuzz(pristine, tmp_path, 10_000, capsys, seed=2)  # raises when one is neither read nor refused
    assert refused > 1000
    with capsys.disabled():
        print(f"\n10,000 mutations: {refused} refused in one sentence, the others read")


def test_not_fuzzed_it_reads(pristine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("crashed.kscope", "closed.kscope"):
        for words in WORDS[:11]:
            assert main([*words, str(pristine if words == ["ls"] else pristine / name)]) == 0
    assert "extern_kernels.mm" in capsys.readouterr().out


def test_a_newer_schema(pristine: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pristine / "closed.kscope", tmp_path / "newer.kscope")
    with sqlite3.connect(run / "run.db") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(RunError, match=r"schema 99.*reads up to 6.*upgrade"):
        kernelscope.load(run)


def test_an_older_schema_reads(pristine: Path, tmp_path: Path) -> None:
    """Version 2 had no stages; everything else is there."""
    run = shutil.copytree(pristine / "closed.kscope", tmp_path / "older.kscope")
    with sqlite3.connect(run / "run.db") as db:
        make_older(db, 2)
    found = kernelscope.load(run)
    assert [c.kernel_name for c in found.calls] == [
        c.kernel_name for c in kernelscope.load(pristine / "closed.kscope").calls
    ]
    assert len(found.stages) == 0
    assert found.calls[0].provenance is None
    assert main(["stages", str(run)]) == 2


def test_a_newer_flight(pristine: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pristine / "crashed.kscope", tmp_path / "newer.kscope")
    data = bytearray((run / "flight").read_bytes())
    data[8] = 77
    (run / "flight").write_bytes(data)
    with pytest.raises(RunError, match=r"version 77.*newer"):
        crash_in(run)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE other (x)",
        "CREATE TRIGGER t AFTER INSERT ON calls BEGIN DELETE FROM calls; END",
        "DROP VIEW call; CREATE VIEW call AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
        "SELECT n AS id FROM r",
    ],
)
def test_a_foreign_schema_is_refused(pristine: Path, tmp_path: Path, sql: str) -> None:
    run = shutil.copytree(pristine / "closed.kscope", tmp_path / "foreign.kscope")
    with sqlite3.connect(run / "run.db") as db:
        db.executescript(sql)
    with pytest.raises(RunError, match="not those of schema"):
        kernelscope.load(run)


def test_another_programs_database(tmp_path: Path) -> None:
    (tmp_path / "x.kscope").mkdir()
    with sqlite3.connect(tmp_path / "x.kscope" / "run.db") as db:
        db.execute("CREATE TABLE calls (id)")
    with pytest.raises(RunError, match="another program's database"):
        kernelscope.load(tmp_path / "x.kscope")
    (tmp_path / "x.kscope" / "run.db").write_bytes(b"")
    with pytest.raises(RunError, match="is empty"):
        kernelscope.load(tmp_path / "x.kscope")
    (tmp_path / "x.kscope" / "run.db").write_bytes(b"hello")
    with pytest.raises(RunError, match="not an SQLite database"):
        kernelscope.load(tmp_path / "x.kscope")


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM calls", "ATTACH 'x.db' AS x", "PRAGMA query_only=OFF", "INSERT INTO info VALUES (1, 2)",
     "SELECT load_extension('x')", "SELECT fts3_tokenizer('simple')", "VACUUM INTO 'x.db'", "nonsense", "",
     "SELECT 1; DELETE FROM calls"],
)  # fmt: skip
def test_a_query_only_reads(pristine: Path, sql: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = (pristine / "closed.kscope" / "run.db").read_bytes()
    assert main(["query", str(pristine / "closed.kscope"), sql]) == 2
    assert capsys.readouterr().err.startswith("kernelscope: ")
    assert (pristine / "closed.kscope" / "run.db").read_bytes() == before
