"""Runs as a stranger would send them. Each attack is a function that makes a folder hostile.

Attacks aim at a secret beside the run, which no command may print, pack or delete, and at a canary, which
exists only if something out of the run was executed.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.hostile_texts import write_hostile
from tests.support.sample_runs import write_sample

SECRET_TEXT = "TOP-SECRET-a8f1c2"
TERMINAL = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b2J\u202egnp\u2066\u200b\x00\x08\x7f\r"
MARKDOWN = (
    "`</details>```\n\n# owned\n![x](http://evil/x.png) [y](javascript:1) @everyone <script>z</script> | a"
)
EVIL = f"{TERMINAL}\nkernelscope: forged line{MARKDOWN}"
KEPT_VALUES = {  # columns whose values are kept, because a reader checks them: numbers, JSON, choices
    ("graphs", "direction"), ("arguments", "role"), ("arguments", "dtype"), ("graph_calls", "phase"),
    ("calls", "phase"), ("compilations", "direction"), ("compilations", "made"), ("incidents", "kind"),
    ("tensors", "moment"), ("tensors", "file"), ("stages", "language"), ("info", "key"),
    ("arguments", "device"),
}  # fmt: skip
CODE = {("kernels", "source"), ("graphs", "source"), ("stages", "text"), ("incidents", "source")}


class Scene:
    """A hostile run, and what it aims at."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.run = home / "evil.kscope"
        self.secret = home / "elsewhere" / "secret.py"
        self.canary = home / "elsewhere" / "canary"
        self.secret.parent.mkdir(parents=True)
        self.secret.write_text(f"first = 1\npassword = '{SECRET_TEXT}'\n", encoding="utf-8")
        self.secret_tensor = home / "elsewhere" / "x.safetensors"
        self.secret_tensor.write_bytes(tensor(list(SECRET_TEXT.encode())))

    def sample(self, **how: Any) -> None:
        self.writer = write_sample(self.run, **how)  # its database stays open as long as this scene
        self.writer.forget()

    def database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.run / "run.db", isolation_level=None)

    def is_untouched(self) -> bool:
        return (
            SECRET_TEXT in self.secret.read_text(encoding="utf-8")
            and self.secret_tensor.exists()
            and not self.canary.exists()
        )


def tensor(values: list[int], head: dict[str, Any] | None = None, length: int | None = None) -> bytes:
    about = {"tensor": {"dtype": "U8", "shape": [len(values)], "data_offsets": [0, len(values)]}}
    text = json.dumps(head or about).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(values)


def _command(scene: Scene, **changes: Any) -> None:
    form = {"command": ["touch", str(scene.canary)], "cwd": str(scene.home), "started_ns": 1, "ended_ns": 2,
            "status": 0}  # fmt: skip
    (scene.run / "command.json").write_text(json.dumps(form | changes), encoding="utf-8")


# -- what they do ------------------------------------------------------------------------------------------


def every_text(scene: Scene) -> None:
    """Every text in every table is an attack, and so are the command and the end of the recording."""
    write_hostile(scene.run)
    with scene.database() as db:
        for table, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in [part.split()[0] for part in sql.partition("(")[2].split(",") if " TEXT" in part]:
                if (table, column) in KEPT_VALUES:
                    continue
                for (value,) in db.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall():
                    if isinstance(value, str):
                        new = evil(value).replace("forged", "quoted" if (table, column) in CODE else "forged")
                        where = f"WHERE {column} = ?"
                        db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? {where}", (new, value))
    _command(scene, command=["touch", str(scene.canary), EVIL], cwd=f"/tmp/{EVIL}")


def evil(value: str) -> str:
    """The value with each text in it replaced, if it is JSON; numbers and keys stay."""
    try:
        form = json.loads(value)
    except ValueError:
        return EVIL
    if isinstance(form, int | float) or form is None:
        return value
    return json.dumps(_evil(form)) if not isinstance(form, str) else json.dumps(EVIL)


def _evil(form: Any) -> Any:
    if isinstance(form, str):
        return EVIL
    if isinstance(form, list):
        return [_evil(each) for each in form]
    if isinstance(form, dict):
        return {key: each if key.startswith("$") else _evil(each) for key, each in form.items()}
    return form


def _instead(name: str, make: Callable[[Scene, Path], None]) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample(close=not name.endswith(("-wal", "-journal")))
        path = scene.run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(scene, path)

    return attack


def _link(scene: Scene, path: Path) -> None:
    target = scene.secret.parent if path.name in ("tensors", "values", "rank-1") else scene.secret
    path.symlink_to(target)


def _pipe(scene: Scene, path: Path) -> None:
    os.mkfifo(path)


def _same_file(scene: Scene, path: Path) -> None:
    os.link(scene.secret, path)


def _database_elsewhere(scene: Scene, path: Path) -> None:
    shutil.copy(scene.run / "run.db", scene.home / "elsewhere" / "run.db") if path.name != "run.db" else None
    path.symlink_to(scene.home / "elsewhere")


def _tensor_file(name: Callable[[Scene], str]) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            for position in range(2):
                for moment in ("before", "after"):
                    db.execute("INSERT INTO tensors VALUES (0, ?, ?, ?)", (position, moment, name(scene)))

    return attack


def _tensor_bytes(data: bytes, size: int = 0) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        _tensor_file(lambda scene: "abcd.safetensors")(scene)
        (scene.run / "tensors").mkdir(exist_ok=True)
        path = scene.run / "tensors" / "abcd.safetensors"
        path.write_bytes(data)
        if size:
            os.truncate(path, size)

    return attack


def _origin_names_secret(scene: Scene) -> None:
    scene.sample()
    frames = json.dumps([[str(scene.secret), 2, "f"]])
    with scene.database() as db:
        db.execute("UPDATE sites SET origin = ?", (frames,))
        db.execute("UPDATE compilations SET origin = ?", (frames,))
        db.execute(
            "UPDATE provenance SET nodes = ?", (json.dumps([["relu", "aten.relu", [], json.loads(frames)]]),)
        )
        quote = f"# File: {scene.secret}:1 in f, code: first = 1"
        db.execute("UPDATE stages SET text = ? WHERE language = 'python'", (quote,))


def sql(*statements: str) -> Callable[[Scene], None]:
    """An attack with SQL on the database of a run."""

    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            for statement in statements:
                db.execute(statement)

    return attack


def _super_journal(scene: Scene) -> None:
    """A journal that is hot, and names the secret as its super-journal: SQLite would delete it."""
    scene.sample()
    database = scene.run / "run.db"
    pages = database.stat().st_size // 4096
    magic = bytes.fromhex("d9d505f920a163d7")
    name = str(scene.secret).encode()
    head = (magic + struct.pack(">IIIII", 0, 1, pages, 512, 4096)).ljust(512, b"\0")
    checksum = sum(name) & 0xFFFFFFFF
    tail = struct.pack(">I", pages + 1) + name + struct.pack(">II", len(name), checksum) + magic
    (scene.run / "run.db-journal").write_bytes(head + tail)


def _command_json(text: str | bytes) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        data = text if isinstance(text, bytes) else text.encode()
        (scene.run / "command.json").write_bytes(data)

    return attack


def _command_numbers(scene: Scene) -> None:
    scene.sample()
    _command(scene, started_ns=10**40, ended_ns=-(10**40), status=10**30)


def _cells(table: str, column: str, value: Any) -> Callable[[Scene], None]:
    def attack(scene: Scene) -> None:
        scene.sample()
        with scene.database() as db:
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))

    return attack


def _executed(scene: Scene) -> None:
    """What commands execute: the command, the variables of its environment, the code of a kernel."""
    write_sample(scene.run)
    _command(scene)
    settings = {"environment": {"LD_PRELOAD": str(scene.secret), "PATH": str(scene.home), "TORCH_LOGS": "x"}}
    with scene.database() as db:
        db.execute("INSERT OR REPLACE INTO info VALUES ('compiler_settings', ?)", (json.dumps(settings),))
        source = f"import os; os.system('touch {scene.canary}')"
        db.execute("UPDATE kernels SET source = ?", (source,))
        db.execute("UPDATE graphs SET source = ?", (source,))
        db.execute("DELETE FROM info WHERE key = 'origin'")


def _names_of_files(scene: Scene) -> None:
    scene.sample()
    with scene.database() as db:
        db.execute("UPDATE kernels SET name = '../../../elsewhere/canary'")
        db.execute("UPDATE graphs SET name = '..', compile_id = '..'")
        db.execute("UPDATE compilations SET name = '..', compile_id = '../..'")
        db.execute("UPDATE stages SET name = 'pass ../../../elsewhere/canary' WHERE language = 'diff'")
        db.execute("UPDATE provenance SET kernel = '../../../elsewhere/canary'")


def _bytes_for_texts(scene: Scene) -> None:
    scene.sample()
    with scene.database() as db:
        for table, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in [part.split()[0] for part in sql.partition("(")[2].split(",") if " TEXT" in part]:
                if (table, column) not in KEPT_VALUES:
                    db.execute(
                        f"UPDATE OR IGNORE {table} SET {column} = ?", (TERMINAL.encode() + b"\xff\xfe",)
                    )


DEEP = "[" * 100_000 + "]" * 100_000
WRONG_JSON = {"deep JSON": DEEP, "not JSON": "{", "a large number": "[1e999, 99999999999999999999]"}
_OUTSIDE = ("run.db", "flight", "command.json", "story.json", "run.db-wal", "run.db-journal", "run.db-shm")
ATTACKS: dict[str, Callable[[Scene], None]] = {
    "every text is hostile": every_text,
    **{f"{name} is a link": _instead(name, _link) for name in (*_OUTSIDE, "tensors", "values", "rank-1")},
    **{f"{name} is a pipe": _instead(name, _pipe) for name in (*_OUTSIDE, "tensors", "values", "rank-1")},
    **{f"{name} is another's file": _instead(name, _same_file) for name in ("flight", "command.json")},
    **{f"{name} is a link": _instead(name, _link) for name in ("tensors/ab.safetensors", "values/1/x.pt")},
    **{f"{name} is a pipe": _instead(name, _pipe) for name in ("tensors/ab.safetensors", "values/1/x.pt")},
    "rank-1 is a link to a run": _instead("rank-1", _database_elsewhere),
    "a tensor above the run": _tensor_file(lambda scene: "../../elsewhere/x.safetensors"),
    "a tensor by its whole path": _tensor_file(lambda scene: str(scene.secret_tensor)),
    "a tensor without a name": _tensor_file(lambda scene: ""),
    "a tensor whose name has an end": _tensor_file(lambda scene: "ab.safetensors\0/../x"),
    "a tensor with a long header": _tensor_bytes(tensor([1], length=1 << 62)),
    "a tensor with a large shape": _tensor_bytes(
        tensor([1], {"tensor": {"dtype": "F64", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 1]}})
    ),
    "a tensor of another length": _tensor_bytes(
        tensor([1] * 8, {"tensor": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})
    ),
    "a tensor of another kind": _tensor_bytes(
        tensor([1] * 8, {"tensor": {"dtype": "EVIL\x1b", "shape": [8], "data_offsets": [0, 8]}})
    ),
    "a tensor that fills the memory": _tensor_bytes(b"x", 1 << 42),
    "a tensor with a deep header": _tensor_bytes(struct.pack("<Q", len(DEEP)) + DEEP.encode()),
    "lines of a secret file": _origin_names_secret,
    "a view of its own": sql("CREATE VIEW extra AS SELECT 1"),
    "a trigger": sql("CREATE TRIGGER t AFTER INSERT ON info BEGIN SELECT 1; END"),
    "a table turned into a view": sql(
        "ALTER TABLE kernels RENAME TO old", "CREATE VIEW kernels AS SELECT * FROM old"
    ),
    "a generated column": sql("ALTER TABLE findings ADD COLUMN extra AS (printf('%1000000s', 'x'))"),
    "an index of its own": sql("CREATE INDEX extra ON calls (abs(id))"),
    "statistics of its own": sql("ANALYZE", "UPDATE sqlite_stat1 SET stat = '1 1 unordered'"),
    "a virtual table": sql("CREATE VIRTUAL TABLE extra USING fts5(x)"),
    "bytes instead of texts": _bytes_for_texts,
    "a long text of control characters": _cells("kernels", "source", TERMINAL * (1 << 14)),
    "a journal that names another file": _super_journal,
    "a deep command.json": _command_json(DEEP),
    "a long command.json": _command_json(b'{"command": ["' + b"x" * (17 << 20) + b'"]}'),
    "command.json is a list": _command_json("[1, 2]"),
    "command.json with large numbers": _command_numbers,
    "command.json with a number of digits": _command_json('{"status": ' + "9" * 10_000 + "}"),
    "command and code that are executed": _executed,
    "names that are paths": _names_of_files,
    **{
        f"{table}.{column} is {kind}": _cells(table, column, value)
        for kind, value in WRONG_JSON.items()
        for table, column in (
            ("sites", "origin"), ("sites", "grid"), ("sites", "config"), ("arguments", "shape"),
            ("arguments", "value"), ("details", "scalars"), ("details", "pre"), ("fingerprints", "stats"),
            ("compilations", "origin"), ("provenance", "nodes"), ("info", "value"),
        )
    },
    "calls at the end of numbers": _cells("calls", "start_ns", (1 << 63) - 1),
    "negative lines": _cells("sites", "line", -(1 << 62)),
    "sizes that overflow": _cells("arguments", "shape", "[9223372036854775807, 9223372036854775807]"),
    "a kind of stage that is JSON": _cells("stages", "text", DEEP),
}  # fmt: skip
