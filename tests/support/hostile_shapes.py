"""More runs as a stranger would send them: not what a text says, but its form, its size, its place.

Circles, numbers at the end of their range, files with holes, code that breaks a parser, names that are
queries, half characters, letters that need no room or twice as much.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable

from tests.support.hostile_corpus import Scene, sql

FAR = (1 << 63) - 41
MARKS = "e" + "\u0301\u20dd\u0489" * 4000  # signs that stand on one letter
WIDE = "漢字\uff21\U0001f469\u200d\U0001f4bb" * 300  # two columns each, and a sign of several characters
QUERIES = "'); DROP TABLE calls; --", '" OR 1=1 /*', "%s%n%(x)s", "{0.__class__}", "*[!a", "a" * 40 + "*" * 40
HALVES = r'[["\ud800.py", 1, "\udfff"], ["\udc1b[2J", 2, "f\udc9b"]]'
CODE = {
    "nested calls": "f(" * 33_000 + ")" * 33_000,
    "nested lists": "x = " + "[" * 150 + "]" * 150,
    "a chain of attributes": "x" + ".a" * 100_000,
    "a chain of sums": "1" + "+1" * 100_000,
    "a chain of not": "not " * 100_000 + "x",
    "a chain of minus": "-" * 100_000 + "1",
    "a chain of lambdas": "lambda: " * 33_000 + "0",
    "nested blocks": "\n".join(" " * i + "if x:" for i in range(99)),
    "a large number": "x = 1" + "0" * 33_000,
    "comments of files": "# File: " * 33_000,
    "comments of lines": "# File: a:1 in f" * 16_000,
    "a long word": "a" * 166_000,
    "words that begin": "class <" * 23_000 + 'extern "C" ' * 16_000,
    "functions that begin": "def f(\n" * 20_000 + 'extern "C" void\n' * 10_000,
    "functions after spaces": 'extern "C"' + " " * 100_000 + "\n__co__ a(){" * 10_000,
    "choreo": "__co__ f() {\n" * 13_000 + "__co__ " + "a" * 100_000,
    "assignments": "    x: " * 33_000 + "\n" * 33_000,
    "lines of files": "buf0 = f(x)  # File: a:1 in f, code: \n" * 10_000,
    "spaces": "x =" + " " * 166_000 + "\n" + "\t" * 166_000,
    "open quotes": "'''" + '"' * 66_000,
    "an end of text": "x = 1\0y = 2",
    "a byte order": "\ufeff# coding: utf-7\n+AGE-",
}


def _code(text: str) -> Callable[[Scene], None]:
    """As the code of kernels and graphs, and in every stage."""

    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            for table, column in (("kernels", "source"), ("graphs", "source"), ("stages", "text")):
                db.execute(f"UPDATE {table} SET {column} = ?", (text,))

    return attack


def _names(*texts: str) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            for number, text in enumerate(texts):
                for table, column in (
                    ("kernels", "name"), ("graphs", "name"), ("graphs", "compile_id"), ("stages", "name"),
                    ("compilations", "name"), ("compilations", "compile_id"), ("provenance", "kernel"),
                    ("arguments", "name"), ("findings", "message"), ("findings", "kernel"), ("marks", "text"),
                ):  # fmt: skip
                    which = f"WHERE {'rowid' if table != 'arguments' else 'site'} % {len(texts)} = {number}"
                    db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? {which}", (text,))

    return attack


def _halves(scene: Scene) -> None:
    """Half of a character that JSON can write, and UTF-8 cannot."""
    scene.sample()
    half = json.dumps("\ud800\udc1b\udc9b2J")
    with scene.database() as db:
        db.execute("UPDATE sites SET origin = ?, config = ?", (HALVES, f"{{{half}: {half}}}"))
        db.execute("UPDATE compilations SET origin = ?", (HALVES,))
        db.execute("UPDATE incidents SET origin = ?", (HALVES,))
        nodes = rf'[["\ud800", "\udfff", ["\udc1b"], {HALVES}]]'
        db.execute("UPDATE provenance SET nodes = ?, buffers = ?", (nodes, f"[{half}]"))
        db.execute("UPDATE arguments SET value = ? WHERE value IS NOT NULL", (half,))
        db.execute("UPDATE info SET value = ? WHERE key IN ('host', 'user')", (half,))
        db.execute("UPDATE info SET value = ? WHERE key = 'versions'", (f'{{"torch": {half}}}',))
        db.execute("INSERT OR REPLACE INTO info VALUES ('compiler_settings', ?)",
                   (f'{{{half}: {{{half}: {half}}}}}',))  # fmt: skip
    command = (
        rf'{{"command": ["python", {half}], "cwd": {half}, "started_ns": 1, "ended_ns": 2, "status": 0}}'
    )
    (scene.run / "command.json").write_text(command, encoding="utf-8")


def _with_holes(name: str, size: int) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample(close=not name.endswith("-wal"))
        path = scene.run / name
        path.touch()
        os.truncate(path, size)

    return attack


def _parts(how_many: int) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        for number in range(how_many):
            (scene.run / f"rank-{number}").mkdir()
            (scene.run / f"child-{number}").mkdir()
            if number % 100 == 0:
                shutil.copy(scene.run / "run.db", scene.run / f"rank-{number}" / "run.db")
        for name in ("rank-99999999999999999999", "rank--1", "rank-\u0661", "child-1-1-1", "rank-1\n"):
            (scene.run / name).mkdir()

    return attack


def _link_to_a_run(scene: Scene) -> None:
    scene.sample()
    scene.run.rename(scene.run.with_name("real"))
    scene.run.symlink_to("real")


def _another_name(name: str) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        scene.run = scene.run.rename(scene.run.with_name(name))
        (scene.run / "tensors").mkdir(exist_ok=True)
        for each in ("tensors", "."):
            (scene.run / each / "\x1b[2J\u202e\n.safetensors").touch()
            (scene.run / each / os.fsdecode(b"\xff\x9b2J")).touch()

    return attack


def _as_utf_16(scene: Scene) -> None:
    scene.sample()
    path = scene.run / "run.db"
    with sqlite3.connect(path) as db:
        script = list(db.iterdump())
        [application], [version] = db.execute("PRAGMA application_id"), db.execute("PRAGMA user_version")
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA encoding = 'UTF-16be'")
        db.executescript("\n".join(script))
        db.execute(f"PRAGMA application_id = {application[0]}")
        db.execute(f"PRAGMA user_version = {version[0]}")
    db.close()


def _dates(text: str) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            keys = "('started', 'started_ns', 'clock', 'pid', 'rank', 'world_size')"
            db.execute(f"UPDATE info SET value = ? WHERE key IN {keys}", (text,))
            db.execute("UPDATE calls SET start_ns = -9223372036854775807, duration_ns = 9223372036854775807")
            db.execute("UPDATE compilations SET start_ns = -9223372036854775807, duration_ns = -1")
            db.execute("UPDATE stages SET start_ns = 9223372036854775807, duration_ns = 9223372036854775807")

    return attack


def _dag(form: object) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            text = form if isinstance(form, str) else json.dumps(form)
            db.execute("UPDATE stages SET text = ?, language = 'json'", (text,))
            db.execute("UPDATE stages SET name = 'dag' WHERE id = (SELECT min(id) FROM stages)")

    return attack


def _node(name: object, *inputs: object) -> dict[str, object]:
    return {"name": name, "inputs": list(inputs), "outputs": [name], "metadata": {"fx": [name]}, "type": "x"}


def _graph(nodes: list[dict[str, object]], edges: list[list[object]], groups: object) -> dict[str, object]:
    return {"inputs": [], "outputs": [], "buffers": [], "edges": edges, "groups": groups, "nodes": nodes}


_MANY = [f"n{i}" for i in range(3000)]
SHAPES: dict[str, Callable[[Scene], None]] = {
    "calls that are their own parents": sql(
        "UPDATE calls SET parent = id", "UPDATE graph_calls SET parent = id"
    ),
    "parents in a circle": sql(
        "UPDATE calls SET parent = (id + 1) % 40", "UPDATE graph_calls SET parent = (id + 1) % 40",
        "UPDATE compilations SET frame = id",
    ),
    **{
        f"{table} far away": sql(f"UPDATE {table} SET {column} = {column} + {FAR - 1000}")
        for table, column in (
            ("calls", "id"), ("kernels", "id"), ("sites", "id"), ("graphs", "id"), ("graph_calls", "id"),
            ("fingerprints", "slot"), ("first_slots", "slot"), ("marks", "call"), ("findings", "call"),
            ("compilations", "id"), ("stages", "id"), ("provenance", "handle"), ("details", "call"),
        )
    },
    "one call far away": sql(f"UPDATE calls SET id = {FAR} WHERE id = 39"),
    "one step far away": sql(f"UPDATE calls SET step = {FAR}", f"UPDATE graph_calls SET step = -{FAR}"),
    "calls that are missing": sql("DELETE FROM calls WHERE id % 2 = 1", "DELETE FROM kernels WHERE id = 1"),
    "slots far away": sql(f"""UPDATE details SET pre = '{{"0": {FAR}}}', post = '{{"-9": -{FAR}}}'"""),
    "half characters": _halves,
    **{f"{name} with a hole": _with_holes(name, 1 << 42) for name in ("run.db", "run.db-wal", "flight",
                                                                      "command.json")},
    "a thousand parts": _parts(1000),
    "the run is a link to a run": _link_to_a_run,
    "a name with escapes": _another_name("x\x1b]0;owned\x07\x1b[2J\u202e\n.kscope"),
    "a name that is an option": _another_name("--trust.kscope"),
    "a name that is a query": _another_name("x?mode=rwc&vfs=unix#.kscope"),
    "UTF-16": _as_utf_16,
    **{f"a date of {text:.10}": _dates(text) for text in ("1e300", "-1e300", "NaN", "9" * 300, '"x"', "[]")},
    "names that are queries": _names(*QUERIES),
    "marks on a letter": _names(MARKS, MARKS[:-1]),
    "wide letters": _names(WIDE, WIDE + "\u3000"),
    "names of nothing": _names("", " ", "\u3164", "\u00a0"),
    "a graph in a circle": _dag(_graph(
        [_node("a", "b"), _node("b", "a"), _node("a", "a")], [["a", "b"], ["b", "a"], ["a", "a"]],
        [["a", "b"], ["a"]],
    )),
    "a graph of nothing": _dag(_graph([{}, _node(None), _node([])], [[], [None, 1], ["x"] * 9], {"a": 1})),
    "a graph of all with all": _dag(_graph(
        [_node(n) for n in _MANY], [[a, b] for a in _MANY[:150] for b in _MANY[:150]], [_MANY] * 3
    )),
    "a graph of numbers": _dag("[1e999, -0, 123456789012345678901234567890]"),
    **{f"code: {name}": _code(text) for name, text in CODE.items()},
}  # fmt: skip
