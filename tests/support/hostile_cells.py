"""More runs as a stranger would send them: cells of another kind, files that stand for others, damaged heads.

Files that a run names as source are a pipe, a device or a folder. Columns of numbers hold bytes and texts,
columns of choices hold paths and code. Heads of run.db, of the flight recorder and of tensors lie.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

from tests.support.hostile_corpus import Scene, sql, tensor

LINKS = "\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\\x1b]52;c;ZXZpbA==\x07\x1b]1337;File=:AA\x07\x1bP$q\x1b\\\x1b_G\x1b\\"
TAGS = "a\U000e0041\U000e0042\u2061\u180e\ufe0f\u034f\u2800\u3000b"
HTML = "<img src=x onerror=alert(1)>\"'&{{x}}.kscope"
SHELL = "%2e%2e%2f%00$(touch canary)`touch canary`.kscope"
CODE = "float32)\nimport os; os.system('touch canary')#"


def _cell(table: str, column: str, value: Any) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))

    return attack


def _source(path: str | Callable[[Scene], str], line: Any = 2) -> Callable[[Scene], None]:
    """The file in which every call began."""

    def attack(scene: Scene) -> None:
        scene.sample()
        name = path if isinstance(path, str) else path(scene)
        frames = [[name, line, "f"]]
        with scene.database() as db:
            for table in ("sites", "compilations", "incidents"):
                db.execute(f"UPDATE {table} SET origin = ?", (json.dumps(frames),))
            nodes = json.dumps([["relu", "aten.relu", [], frames]])
            db.execute("UPDATE provenance SET nodes = ?", (nodes,))
            quote = f"# File: {name}:{line} in f, code: x = 1"
            db.execute("UPDATE stages SET text = ? WHERE language = 'python'", (quote,))

    return attack


def _pipe(scene: Scene) -> str:
    os.mkfifo(scene.home / "real")  # one of the names that may be there
    return str(scene.home / "real")


def _links_in_a_circle(scene: Scene) -> None:
    scene.sample()
    for name, target in (("rank-1", "."), ("rank-2", "rank-3"), ("rank-3", "rank-2"), ("tensors", "tensors")):
        (scene.run / name).symlink_to(target)


def _large_value(scene: Scene) -> None:
    scene.sample()
    file = scene.run / "values" / "1" / "x.pt"
    file.parent.mkdir(parents=True)
    file.touch()
    os.truncate(file, 1 << 42)


def _bytes_at(name: str, offset: int, data: bytes) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample(close=name != "flight")
        path = scene.run / name
        found = bytearray(path.read_bytes())
        found[offset : offset + len(data)] = data
        path.write_bytes(found)

    return attack


def _damaged_pages(scene: Scene) -> None:
    scene.sample()
    path = scene.run / "run.db"
    data = bytearray(path.read_bytes())
    for place in range(3 * 4096, len(data), 1777):
        data[place] ^= 0xFF
    path.write_bytes(data)


def _schema(statement: str) -> Callable[[Scene], None]:
    return sql("PRAGMA writable_schema = ON", statement)


def _tensor(**head: Any) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            for position in range(2):
                for moment in ("before", "after"):
                    row = (position, moment, "abcd.safetensors")
                    db.execute("INSERT INTO tensors VALUES (0, ?, ?, ?)", row)
        (scene.run / "tensors").mkdir(exist_ok=True)
        about = {"tensor": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]} | head}
        (scene.run / "tensors" / "abcd.safetensors").write_bytes(tensor([1] * 64, about))

    return attack


def _named(name: str) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        scene.run = scene.run.rename(scene.run.with_name(name))

    return attack


CELLS: dict[str, Callable[[Scene], None]] = {
    "links, clipboard and files of terminals": _cell("kernels", "name", LINKS),
    "tags and selectors": _cell("kernels", "name", TAGS),
    "a long name of control characters": _cell("kernels", "name", "\x00\x1b\x9b" * 5000),
    **{f"source is {name[:20]}": _source(name) for name in (
        "/dev/zero", "/dev/stdin", "/proc/self/environ", "/", "file:///etc/passwd", "a\0b",
    )},
    "source is a pipe": _source(_pipe),
    "a line far away": _source("/etc/passwd", 2**70),
    "a line that is a text": _source("/etc/passwd", "x"),
    "links in a circle": _links_in_a_circle,
    "a value of 4 TB": _large_value,
    "damaged pages": _damaged_pages,
    **{f"run.db: {what}": _bytes_at("run.db", place, data) for what, place, data in (
        ("pages of one byte", 16, b"\0\1"), ("pages of 512 bytes", 16, b"\2\0"), ("reserved", 20, b"\xff"),
        ("another format", 18, b"\xff\xff"), ("many pages", 28, b"\xff" * 4), ("free pages", 32, b"\xff" * 8),
        ("another encoding", 56, b"\0\0\0\t"),
    )},
    **{f"flight: {what}": _bytes_at("flight", place, data) for what, place, data in (
        ("large numbers", 8, b"\xff" * 56), ("zeros", 0, bytes(4096)), ("ones", 64, b"\1" * 8192),
        ("numbers below zero", 16, struct.pack("<6q", *[-1] * 6)),
    )},
    "a root page in a circle": _schema("UPDATE sqlite_master SET rootpage = 1"),
    "a root page far away": _schema("UPDATE sqlite_master SET rootpage = 99999999"),
    "a table with a comment": _schema("UPDATE sqlite_master SET sql = sql || '/**/' WHERE name = 'kernels'"),
    **{f"{table}.{column} is {value[:12]!r}": _cell(table, column, value) for table, column, value in (
        ("stages", "language", "../../elsewhere/canary"), ("arguments", "dtype", CODE),
        ("arguments", "device", "cpu');open('canary','w')#"), ("arguments", "device", "cuda:" + "9" * 30),
        ("arguments", "role", "evil\x1b[2J"), ("kernels", "kind", "../../elsewhere/canary\x1b[2J"),
        ("sites", "collective", '{"name": "x", "ranks": [1e999]}'), ("sites", "collective", "[" * 100_000),
        ("fingerprints", "stats", "[NaN, Infinity, -Infinity]"), ("details", "pre", '{"0": 1, "0": null}'),
        ("details", "scalars", '[NaN, {"$int": "' + "9" * 5000 + '"}, {"$kind": "eval"}]'),
    )},
    "bytes for numbers": sql("UPDATE calls SET start_ns = x'1b5b324a', step = x'00'"),
    "texts for numbers": sql("UPDATE calls SET start_ns = 'x', step = 'y'", "UPDATE sites SET bytes = 'z'"),
    "numbers of another kind": sql("UPDATE calls SET start_ns = 1e300, duration_ns = -1e300"),
    "empty tables": sql(*(f"DELETE FROM {table}" for table in (
        "kernels", "sites", "arguments", "graphs", "calls", "graph_calls", "info", "stages", "compilations",
    ))),
    "a tensor that ends before it begins": _tensor(data_offsets=[64, 0]),
    "a tensor of a negative shape": _tensor(shape=[-4, -4]),
    "a tensor of nothing times much": _tensor(shape=[0, 1 << 62, 1 << 62], data_offsets=[0, 0]),
    "a tensor of many dimensions": _tensor(shape=[1] * 5000 + [16]),
    "a tensor whose shape is no numbers": _tensor(shape=[True, 16.0]),
    "a name that is HTML": _named(HTML),
    "a name that is a command": _named(SHELL),
    "a name of dots": _named("... .kscope"),
    "a name that is long": _named("x" * 240 + ".kscope"),
}  # fmt: skip
