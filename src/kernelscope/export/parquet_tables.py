"""Rows of calls and arguments, and files of rows: what the tables of one run and of many ranks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from kernelscope.errors import RunError
from kernelscope.fingerprint.stats import Stats
from kernelscope.model.call import KernelCall
from kernelscope.private_files import open_private
from kernelscope.store.run_db.codec import storable, to_json
from kernelscope.text.hashes import full_hash

_INTEGERS, _TEXT, _NUMBER = "list<int64>", "string", "int64"

CALLS = {
    "index": _NUMBER, "kernel_name": _TEXT, "kind": _TEXT, "producer": _TEXT, "kernel": _NUMBER,
    "site": _NUMBER, "grid": _INTEGERS, "config": _TEXT, "device": _TEXT, "stream": _NUMBER, "graph": _NUMBER,
    "graph_call": _NUMBER, "step": _NUMBER, "phase": _TEXT, "thread": _NUMBER, "start_ns": _NUMBER,
    "duration_ns": _NUMBER, "replay": _NUMBER, "parent": _NUMBER, "file": _TEXT, "line": _NUMBER,
    "function": _TEXT, "graph_name": _TEXT, "error": _TEXT,
}  # fmt: skip
ARGUMENTS = {
    "call": _NUMBER, "position": _NUMBER, "name": _TEXT, "role": _TEXT, "wrapper_name": _TEXT, "dtype": _TEXT,
    "shape": _INTEGERS, "stride": _INTEGERS, "device": _TEXT, "storage": _NUMBER, "epoch": _NUMBER,
    "offset": _NUMBER, "value": _TEXT, "before": _TEXT, "after": _TEXT, "stats_before": "stats",
    "stats_after": "stats",
}  # fmt: skip
KERNELS = {
    "id": _NUMBER, "name": _TEXT, "kind": _TEXT, "producer": _TEXT, "source": _TEXT, "source_hash": _TEXT,
}  # fmt: skip
GRAPHS = {
    "id": _NUMBER, "direction": _TEXT, "name": _TEXT, "compile_id": _TEXT, "cache_key": _TEXT,
    "source": _TEXT, "path": _TEXT,
}  # fmt: skip
FINDINGS = {"kind": _TEXT, "message": _TEXT, "call": _NUMBER, "kernel": _TEXT, "arg": _TEXT}

Row = dict[str, Any]


def call_row(call: KernelCall) -> Row:
    record, graph, origin = call.recorded, call.graph, call.origin
    return {
        "index": call.index, "kernel_name": call.kernel_name, "kind": call.kind, "producer": call.producer,
        "kernel": record.site.kernel.id, "site": record.site.id,
        "grid": None if call.grid is None else list(call.grid), "config": to_json(call.config),
        "device": call.device, "stream": call.stream, "graph": None if graph is None else graph.id,
        "graph_call": call.graph_call, "step": call.step, "phase": call.phase, "thread": call.thread,
        "start_ns": record.start_ns, "duration_ns": record.duration_ns if record.duration_ns >= 0 else None,
        "replay": call.replay, "parent": call.parent, "file": None if origin is None else origin.file,
        "line": None if origin is None else origin.line,
        "function": None if origin is None else origin.function or None,
        "graph_name": None if graph is None else graph.name, "error": call.error or None,
    }  # fmt: skip


def argument_rows(call: KernelCall) -> Iterator[Row]:
    roles, values, storages = call.roles, call.args, call.storages
    pre, post, pre_stats, post_stats = call.pre_hashes, call.post_hashes, call.pre_stats, call.post_stats
    for i, arg in enumerate(call.arguments):
        row: Row = {
            "call": call.index, "position": i, "name": arg.name, "role": roles[i],
            "wrapper_name": arg.wrapper_name,
        }  # fmt: skip
        if arg.tensor is None:
            row["value"] = to_json(values[i]) if i < len(values) else None
        else:
            spec = arg.tensor
            storage, epoch, offset = storages.get(i, (None, None, None))
            row |= {
                "dtype": spec.dtype, "shape": list(spec.shape), "stride": list(spec.stride),
                "device": spec.device, "storage": storage, "epoch": epoch, "offset": offset,
                "before": _hash(pre.get(i)), "after": _hash(post.get(i)),
                "stats_before": asdict(pre_stats[i]) if i in pre_stats else None,
                "stats_after": asdict(post_stats[i]) if i in post_stats else None,
            }  # fmt: skip
        yield row


def _hash(value: Any) -> str | None:
    found = full_hash(value)
    return found if found is None or isinstance(found, str) else to_json(found)


class Tables:
    """Writes tables with pyarrow, which is loaded here and nowhere else."""

    def __init__(self) -> None:
        try:
            self._arrow: Any = import_module("pyarrow")
            self._parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            raise RunError(
                "--parquet needs pyarrow, which is not installed: pip install 'kernelscope[parquet]'"
            ) from None
        arrow = self._arrow
        numbers = {"int": arrow.int64(), "float": arrow.float64(), "float | None": arrow.float64()}
        self._types = {
            _NUMBER: arrow.int64(),
            _TEXT: arrow.string(),
            _INTEGERS: arrow.list_(arrow.int64()),
            "list<string>": arrow.list_(arrow.string()),
            "word": arrow.uint64(),
            "flag": arrow.bool_(),
            "stats": arrow.struct([(f.name, numbers[str(f.type)]) for f in fields(Stats)]),
        }

    def write(self, path: Path, columns: dict[str, str], rows: Iterable[Row]) -> None:
        with self.open(path, columns) as put:
            put(list(rows))

    def open(self, path: Path, columns: dict[str, str]) -> Table:
        schema = self._arrow.schema([(name, self._types[kind]) for name, kind in columns.items()])
        file = open_private(path, "wb")  # not by its name, which pyarrow takes for UTF-8
        return Table(self._arrow, schema, self._parquet.ParquetWriter(file, schema, compression="zstd"), file)


class Table:
    def __init__(self, arrow: Any, schema: Any, writer: Any, file: IO[bytes]) -> None:
        self._arrow, self._schema, self._writer, self._file = arrow, schema, writer, file

    def __enter__(self) -> Callable[[list[Row]], None]:
        return self._put

    def __exit__(self, *error: object) -> None:
        with self._file:
            self._writer.close()

    def _put(self, rows: list[Row]) -> None:
        clean = [{k: storable(v) if type(v) is str else v for k, v in row.items()} for row in rows]
        self._writer.write_table(self._arrow.Table.from_pylist(clean, schema=self._schema))
