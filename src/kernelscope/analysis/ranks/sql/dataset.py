"""The tables of many ranks on disk, opened with DuckDB."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError

FORMAT, VERSION = "kernelscope.ranks", 1
ABOUT = "dataset.json"
BY_STEPS = ("calls", "arguments", "hashes")  # TABLE/rank=0/steps=0-41/TABLE.parquet
BY_RANK = ("collectives", "deviations", "constants", "updates", "generators")  # TABLE/rank=0/TABLE.parquet
_LATER = {  # tables, and columns of collectives, hashes and updates
    "constants": "constants of compiled graphs", "updates": "tensors that the optimizer updates",
    "generators": "states of random number generators",
    "sent": "results of broadcasts and all-gathers with the values that were sent",
    "pieces": "results of all-gathers into one tensor with the values that were sent",
    "alignment": "calls with the same inputs but different settings",
    "numbers": "numbers passed to the optimizer",
}  # fmt: skip
_MEMORY = 6.0  # GB that DuckDB may take before it writes to disk
_PATTERNS = "*?[]{}"


def is_dataset(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / ABOUT).is_file()


class Dataset:
    """SQL over the tables: each of them is a view with the columns `rank` and, of calls, `steps`."""

    def __init__(
        self,
        root: Path,
        connection: Any,
        error: type[Exception],
        only: Sequence[int] | None,
        memory: float,
    ) -> None:
        self.root, self.memory = root, memory  # GB
        self._connection, self._error = connection, error
        self.world_size, self.notes = _about(root)
        chosen = "" if only is None else f" WHERE rank IN ({', '.join(map(str, map(int, only)))})"
        files = {name: f"{name}/*/*/*.parquet" for name in BY_STEPS}
        files |= {name: f"{name}/*/*.parquet" for name in BY_RANK}
        self.missing = {name for name in BY_RANK[2:] if not any(root.glob(files[name]))}
        for name in sorted(self.missing):
            del files[name]
        for name, pattern in files.items():
            types = "{'rank': BIGINT, 'steps': VARCHAR}" if name in BY_STEPS else "{'rank': BIGINT}"
            options = f"hive_partitioning = true, hive_types = {types}"
            source = f"read_parquet({_quoted(root / pattern)}, {options})"
            self.execute(f"CREATE VIEW {name} AS SELECT * FROM {source}{chosen}")
        for table, columns in (
            ("collectives", {"sent", "pieces"}),
            ("hashes", {"alignment"}),
            ("updates", {"numbers"}),
        ):
            if table not in self.missing:
                self.missing |= columns - {row[0] for row in self.rows(f"DESCRIBE {table}")}
        for name in sorted(self.missing):  # an earlier version wrote the tables
            self.notes.append(
                f"an earlier version wrote the tables: {_LATER[name]} were not compared; export the run again"
            )
        self.execute(f"CREATE VIEW ranks AS SELECT * FROM read_parquet({_quoted(root / 'ranks.parquet')})")

    def execute(self, sql: str, values: Any = None) -> None:
        try:
            self._connection.execute(sql, values)
        except self._error as error:
            raise RunError(f"DuckDB cannot read the tables in {self.root}: {error!s:.300}") from None

    def rows(self, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        self.execute(sql, values)
        try:
            found: list[tuple[Any, ...]] = self._connection.fetchall()
        except self._error as error:
            raise RunError(f"DuckDB cannot read the tables in {self.root}: {error!s:.300}") from None
        return found

    def dictionaries(self, sql: str, values: Any = None) -> Iterator[dict[str, Any]]:
        found = self.rows(sql, values)
        names = [column[0] for column in self._connection.description]
        return (dict(zip(names, row, strict=True)) for row in found)

    def keep(self, name: str, columns: Mapping[str, tuple[str, Iterable[Any]]]) -> None:
        """Columns of values as a table; each has its SQL type."""
        values = {column: list(of) for column, (_, of) in columns.items()}
        picked = ", ".join(
            f"unnest(${column}::{kind}[]) AS {column}" for column, (kind, _) in columns.items()
        )
        self.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {picked}", values)


@contextmanager
def opened(
    path: str | os.PathLike[str], only: Sequence[int] | None = None, *, threads: int = 0, memory: float = 0
) -> Iterator[Dataset]:
    """`memory` is in GB; what needs more is written to a temporary folder, which `TMPDIR` moves."""
    duckdb = load_duckdb()
    root = Path(path).absolute()
    if any(letter in str(root) for letter in _PATTERNS):
        raise RunError(
            f"DuckDB takes {root} for a pattern; rename the folder so that it has none of {_PATTERNS}"
        )
    with tempfile.TemporaryDirectory(prefix="kernelscope-duckdb-") as spilled:
        settings = {
            "threads": threads or len(os.sched_getaffinity(0)),
            "memory_limit": f"{memory or _MEMORY}GB", "temp_directory": spilled,
            "preserve_insertion_order": False, "autoinstall_known_extensions": False,
        }  # fmt: skip
        connection = duckdb.connect(":memory:", config=settings)
        try:
            connection.execute("SET enable_progress_bar = false")
            yield Dataset(root, connection, duckdb.Error, only, memory or _MEMORY)
        finally:
            connection.close()


def load_duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ImportError:
        raise RunError(
            "tables of ranks are read with DuckDB, which is not installed: pip install 'kernelscope[duckdb]'"
        ) from None


def _about(root: Path) -> tuple[int, list[str]]:
    """The world size, and notes on the ranks that were exported."""
    try:
        given = json.loads((root / ABOUT).read_text(encoding="utf-8"))
        if given["format"] != FORMAT or given["version"] > VERSION:
            raise RunError(f"{root} was written by another version of kernelscope; export it again")
        return int(given["world_size"]), [str(note) for note in given["notes"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise RunError(f"{root / ABOUT} is damaged; export the run again") from None


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
