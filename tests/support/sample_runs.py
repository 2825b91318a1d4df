"""Runs on disk, made of plain records: for tests that need no torch."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

from kernelscope.events import (
    COMPACT_CALL,
    Arg,
    Call,
    CompactCall,
    Finding,
    Frame,
    Graph,
    GraphCall,
    Kernel,
    RunInfo,
    Site,
    SteadySite,
    TensorSpec,
)
from kernelscope.fingerprint import Stats
from kernelscope.stages.records import (
    FRAME,
    Compilation,
    FxOrigin,
    Incident,
    Provenance,
    Record,
    Refusal,
    Stage,
    TimedConfig,
)
from kernelscope.store.run_db.schema import OBJECTS, SCHEMA_VERSION, VIEWS
from kernelscope.store.writer_thread import Writer

SPEC = TensorSpec("float32", (8, 64), (64, 1), "cpu")
GRAPH = Graph(0, "forward", "0_forward", "0/0", "key", "def call(args): ...", "/wrapper.py")
ARGS = (
    Arg("in_ptr0", "in", SPEC, "arg0_1"),
    Arg("out_ptr0", "out", SPEC, "buf0"),
    Arg("xnumel", "scalar", None, "512", 512),
    Arg("scale", "scalar", None, "", varies=True),
)


def info(**changes: object) -> RunInfo:
    given = {
        "uuid": "00000000-0000-0000-0000-000000000000", "group": "", "rank": 0, "local_rank": 0,
        "world_size": 1, "host": "here", "pid": 1, "parent_pid": 0, "monotonic_ns": time.monotonic_ns(),
        "realtime_ns": time.time_ns(), "devices": (), "versions": {"torch": "2.13.0", "python": "3.11"},
        "settings": {"values": "hash"},
    }  # fmt: skip
    return RunInfo(**(given | changes))  # type: ignore[arg-type]


def site(number: int, name: str = "cpp_fused_relu_0", args: tuple[Arg, ...] = ARGS) -> Site:
    kernel = Kernel(number, name, "cpp", "inductor", f"void {name}() {{}}", "abc")
    frames = (Frame("/model.py", 10 + number, "forward"), Frame("/train.py", 3, "main"))
    return Site(number, kernel, args, "/wrapper.py", 50 + number, (1, 2, 3), {"num_warps": 4}, frames, "cpu")


class Hashes:
    """Stands where a fingerprinter would: the value of a slot follows from its number."""

    has_stats = True

    def ready(self, log: int) -> int:
        return 1 << 40

    def stats(self, slot: int) -> Stats | None:
        return Stats(slot, None, None, None, None, 0.0, slot, 0, 0, 0) if slot % 2 else None

    def read(self, slot: int) -> object:
        return slot * 0x9E3779B97F4A7C15 % (1 << 64)


def full_call(index: int, at: Site, fingerprinter: Hashes | None = None) -> Call:
    call = Call(
        index, at, 0, 1, -1, 7, 0, "forward", time.monotonic_ns(), scalars=(0.5 + index,),
        storages=(2 * index, 2 * index + 1), epochs=(0, index), offsets=(0, 0), uninitialised=(1,),
        duration_ns=1500 + index,
    )  # fmt: skip
    if fingerprinter is not None:
        call.pre, call.post, call.fingerprinter = (
            {0: 2 * index},
            {0: 2 * index, 1: 2 * index + 1},
            fingerprinter,
        )
    return call


def compact_call(writer: Writer, at: Site, graph_call: int = 0) -> CompactCall:
    """A note of a launch at this site, which the writer can look up."""
    steady = SteadySite(at, (1,))
    writer.flight.steady = {at.id: steady}.get
    return COMPACT_CALL.pack(at.id, graph_call, time.monotonic_ns())


CODE = """\
cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C"  void  kernel(float* out_ptr0)
{
}
''')
def call(args):
    # [Provenance debug handles] cpp_fused_relu_0:1
    cpp_fused_relu_0(buf0)
"""


def compiling(text: str = "") -> list[Record]:
    """A frame and a graph of it, with a record of each kind."""
    frames = (Frame("/model.py", 11, "forward"),)
    node = FxOrigin("relu", "aten.relu.default", ("y",), frames)
    dag = {"inputs": [], "outputs": [], "buffers": [], "edges": [], "groups": [["op0"]], "nodes": [
        {"name": "op0", "inputs": [], "outputs": ["buf0"], "metadata": {"fx": ["relu"]}, "type": "Pointwise"}
    ]}  # fmt: skip
    return [
        Compilation(0, "0/0", FRAME, name="forward", made="compiled", duration_ns=10, origin=frames),
        Compilation(1, "0/0", "forward", 0, "0_forward"),
        Stage(0, "dynamo", "python", "class GraphModule: ..."),
        Stage(1, "pass post_grad_passes/x", "diff", "-a\n+b", 1, 2),
        Stage(1, "dag", "json", json.dumps(dag)),
        Stage(1, "output_code", "python", text + CODE),
        Stage(1, "times", "json", '{"phases": {"GraphLowering.run": 0.5}}'),
        Provenance(1, "cpp_fused_relu_0", 1, ("buf0",), (node,)),
        Refusal(1, "op0", "op1", "no shared data", 2),
        TimedConfig(1, "cpp_fused_relu_0", "XBLOCK=4", 12, True),
        Incident("graph-break", 0, "0/0", "because", frames, "at length"),
        Compilation(1, "0/0", "forward", 0, "0_forward", "key", "compiled", 1, 20),
    ]


def write_sample(
    folder: Path,
    *,
    close: bool = True,
    executing: bool = False,
    kernel: str = "cpp_fused_relu_0",
    text: str = "",
    mounts: str | None = None,
) -> Writer:
    """Two sites, noted and full calls, hashes, an error, a mark, a finding; `text` in the generated code."""
    folder.mkdir(parents=True, exist_ok=True)
    writer, fingerprinter = Writer(folder, info(), mounts=mounts), Hashes()
    sites = [site(1, kernel), site(2, "extern_kernels.mm")]
    noted = site(3, "cpp_fused_noted_1", ARGS[:3])  # what varies cannot be noted
    writer.graph_call(GraphCall(0, GRAPH, 7, 0, "forward", 1))
    for number in range(20):
        call = full_call(next(writer.flight), sites[number % 2], fingerprinter)
        call.error = "RuntimeError: no" if number == 7 else ""
        writer.enter(call)
        writer.leave(call)
        writer.note(compact_call(writer, noted))()
    writer.compiled += compiling(text)
    writer.mark("step", "1")
    writer.finding(Finding("undeclared-write", "something", 3, "cpp_fused_relu_0", "in_ptr0"))
    if executing:
        writer.note(compact_call(writer, noted))
    writer.flush()
    if close:
        writer.close()
    return writer


def make_older(db: sqlite3.Connection, version: int) -> None:
    """A run.db as that version of the schema would have written it."""
    older, newest = OBJECTS[version], OBJECTS[SCHEMA_VERSION]
    for view in VIEWS:
        db.execute(f"DROP VIEW {view}")
    for name in [name for name in newest if name not in VIEWS]:
        if name not in older:
            db.execute(f"DROP TABLE {name}")
        elif older[name] != newest[name]:
            rows = db.execute(f"SELECT * FROM {name}").fetchall()
            db.execute(f"DROP TABLE {name}")
            db.execute(older[name])
            width = len(db.execute(f"PRAGMA table_info({name})").fetchall())
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * width)})", [r[:width] for r in rows])
    for view in VIEWS:
        db.execute(older[view])
    db.execute(f"PRAGMA user_version={version}")
