"""What leaves the machine with a packed run, and a copy of run.db without some of it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.store.run_db import codec
from kernelscope.store.run_db.row_reader import DAMAGES, DatabaseReader
from kernelscope.store.run_db.schema import TABLES
from kernelscope.text.amounts import counted

from .origin import ORIGIN

# What can be left out of a packed run.
PARTS = {
    "paths": "folders of your machine; names of files stay",
    "host": "name of the machine and of the user",
    "command": "the recorded command and its folder",
    "environment": "variables of torch, its compiler and CUDA",
    "source": "code of kernels, graphs and stages",
    "tensors": "saved tensors",
    "values": "files that --save and --stop-on wrote",
}
SHORTENED = frozenset(("paths", "source"))  # of which the flight recorder has a part too
_FILES = {"graphs": ("path",), "sites": ("file",)}  # columns with the path of a file
_FRAMES = {"sites": "origin", "compilations": "origin", "incidents": "origin", "provenance": "nodes"}
_CODE = {"kernels": ("source",), "graphs": ("source",), "incidents": ("source", "detail")}
_NO_FOLDERS = frozenset(("", "/"))
_PATHS = re.compile(r"(?<![\w.])/[\w.@+-]+(?:/[\w.@+-]+)+")


def leave_out(path: Path, database: DatabaseReader, without: Collection[str]) -> None:
    """Take these parts out of a copy of run.db; nothing of them stays in its free pages."""
    wanted = set(without) & {"paths", "host", "environment", "source", "tensors"}
    if not wanted:
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        try:
            db.execute("PRAGMA trusted_schema=OFF")
            db.execute("BEGIN")
            db.execute("DELETE FROM info WHERE key = ?", (ORIGIN,))  # it is another run now
            if "host" in wanted:
                db.execute("UPDATE info SET value = ? WHERE key = 'host'", (json.dumps(""),))
            if "environment" in wanted:
                _drop_environment(db)
            if "tensors" in wanted:
                db.execute("DELETE FROM tensors")
            if "source" in wanted:
                _drop_source(db, database.version)
            if "paths" in wanted:
                _shorten_paths(db)
            db.execute("COMMIT")
            db.execute("VACUUM")
        except DAMAGES as error:
            raise RunError(
                f"{database.path} is damaged, and nothing can be left out of it: {error}"
            ) from None


def _drop_environment(db: sqlite3.Connection) -> None:
    for (text,) in db.execute("SELECT value FROM info WHERE key = 'compiler_settings'").fetchall():
        kept = {name: value for name, value in json.loads(text).items() if name != "environment"}
        db.execute("UPDATE info SET value = ? WHERE key = 'compiler_settings'", (json.dumps(kept),))


def _drop_source(db: sqlite3.Connection, version: int) -> None:
    for table, columns in _CODE.items():
        for column in columns:
            if _has(db, table):
                db.execute(f"UPDATE {table} SET {column} = ''")
    if _has(db, "stages"):
        db.execute("DELETE FROM stages")


def _has(db: sqlite3.Connection, table: str) -> bool:
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall())


def _shorten_paths(db: sqlite3.Connection) -> None:
    """Every folder that the run knows, in every text: as "…/"."""
    folders = sorted(set(_folders(db)), key=len, reverse=True)
    known = re.compile("|".join(re.escape(each) for each in folders)) if folders else None

    def shortened(text: Any) -> Any:
        if not isinstance(text, str) or "/" not in text:
            return text
        text = known.sub("…/", text) if known else text
        return _PATHS.sub(_without_folder, text)

    db.create_function("shortened", 1, shortened, deterministic=True)
    for table, sql in TABLES.items():
        if not _has(db, table):
            continue
        columns = [name for name in re.findall(r"(\w+) TEXT", sql) if name != "key"]
        if columns:
            db.execute(f"UPDATE {table} SET {', '.join(f'{c} = shortened({c})' for c in columns)}")


_ROOTS = frozenset(
    [
        "data",
        "home",
        "media",
        "mnt",
        "opt",
        "root",
        "scratch",
        "srv",
        "tmp",
        "usr",
        "Users",
        "var",
        "workspace",
    ]
)


def _without_folder(found: re.Match[str]) -> str:
    """If it begins as paths do, and not as a quotient or an address."""
    path = found[0]
    return f"…/{os.path.basename(path)}" if path.split("/")[1] in _ROOTS else path


def _folders(db: sqlite3.Connection) -> Iterator[str]:
    """Of the files that the run names, with a slash at the end."""
    for file in _files(db):
        name = os.path.dirname(file)
        if os.path.isabs(file) and name not in _NO_FOLDERS:
            yield f"{name}/"


def _files(db: sqlite3.Connection) -> Iterator[str]:
    for table, columns in _FILES.items():
        for column in columns:
            yield from (str(file) for (file,) in db.execute(f"SELECT DISTINCT {column} FROM {table}"))
    for table, column in _FRAMES.items():
        if _has(db, table):
            for (text,) in db.execute(f"SELECT DISTINCT {column} FROM {table}"):
                yield from _strings(codec.from_json(text))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)


def what_leaves(path: Path) -> dict[str, list[str]]:
    """What one recorded process tells of this machine, by part; some examples of each."""
    found: dict[str, list[str]] = {name: [] for name in PARTS}
    with closing(DatabaseReader(path)) as database, database.understood():
        info = {key: codec.from_json(value) for key, value in database.table("info")}
        origin = info.get(ORIGIN)
        found["host"] = [
            str(info.get("host", "")),
            *([str(origin.get("user"))] if isinstance(origin, dict) else []),
        ]
        settings = info.get("compiler_settings")
        variables = settings.get("environment", {}) if isinstance(settings, dict) else {}
        found["environment"] = sorted(f"{name}={value}" for name, value in dict(variables).items())
        db = database.rows
        files = {
            str(f)
            for (f,) in [*db("SELECT DISTINCT path FROM graphs"), *db("SELECT DISTINCT file FROM sites")]
        }
        for (text,) in db("SELECT DISTINCT origin FROM sites"):
            files |= {each for each in _strings(codec.from_json(text)) if os.path.isabs(each)}
        found["paths"] = sorted({os.path.dirname(file) for file in files if os.path.isabs(file)})
        [(kernels, size)] = db("SELECT count(*), sum(length(source)) FROM kernels WHERE source <> ''")
        [(graphs, more)] = db("SELECT count(*), sum(length(source)) FROM graphs WHERE source <> ''")
        stages = database.table("stages")
        total = (size or 0) + (more or 0) + sum(len(row[4]) for row in stages)
        if total:
            found["source"] = [
                f"{counted(kernels, 'kernel')}, {counted(graphs, 'graph')}, {counted(len(stages), 'stage')}: "
                f"{counted(total, 'character')}"
            ]
        [(tensors,)] = db("SELECT count(DISTINCT file) FROM tensors")
        found["tensors"] = [counted(tensors, "file")] if tensors else []
    return found
