"""A run whose every text is an attack: on markup, on quoting, on terminals, on encodings."""

from __future__ import annotations

from pathlib import Path

from tests.support.sample_runs import Hashes, info

from kernelscope.events import Arg, Call, Finding, Frame, Graph, GraphCall, Kernel, Site, TensorSpec
from kernelscope.stages.records import FRAME, Compilation, FxOrigin, Incident, Provenance, Stage
from kernelscope.store.writer_thread import Writer

EVIL = (
    "<script>alert(1)</script></style><img src=x onerror=alert(2)>\"'`\\ ${x} {{y}} "
    "javascript:alert(3) \x1b[31mred\x07\x00 \u202egnp.exe\u200b\u2028 [bold]markup[/bold] [/] \\n %s ]]>"
)
KERNEL, ARGUMENT, SOURCE = f"k{EVIL}", f"a{EVIL}", f"void {EVIL}\n-- {EVIL}"


def write_hostile(folder: Path, calls: int = 3) -> Path:
    """Each call reads what the one before it wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    writer, fingerprinter = Writer(folder, info(host=EVIL, versions={"torch": EVIL})), Hashes()
    spec = TensorSpec("float32", (8, 64), (64, 1), "cpu")
    args = (
        Arg(ARGUMENT, "in", spec, EVIL),
        Arg("out", "out", spec, EVIL),
        Arg(EVIL, "scalar", None, EVIL, EVIL),
        Arg("v", "scalar", None, "", varies=True),
    )
    frames = (Frame(f"/{EVIL}.py", 3, EVIL),)
    site = Site(
        1, Kernel(1, KERNEL, "cpp", "inductor", SOURCE, EVIL), args, f"/{EVIL}", 7, (1,), {EVIL: EVIL},
        frames, "cpu",
    )  # fmt: skip
    graph = Graph(0, "forward", EVIL, EVIL, EVIL, EVIL, EVIL)
    writer.graph_call(GraphCall(0, graph, 7, 0, "forward", 0))
    for number in range(calls):
        call = Call(
            next(writer.flight), site, 0, 0, -1, 7, 0, "forward", 1000 + 1000 * number, scalars=(EVIL,),
            storages=(number, number + 1), epochs=(1, 0), offsets=(0, 0), uninitialised=(1,), duration_ns=500,
        )  # fmt: skip
        call.pre, call.post = {0: 2 * number}, {0: 2 * number, 1: 2 * number + 1}
        call.fingerprinter, call.error = fingerprinter, EVIL
        writer.enter(call)
        writer.leave(call)
    writer.compiled += [
        Compilation(0, EVIL, FRAME, name=EVIL, made="compiled", start_ns=10, duration_ns=100, origin=frames),
        Compilation(1, EVIL, "forward", 0, EVIL, EVIL, "compiled", 20, 50),
        Stage(1, EVIL, "python", EVIL, 30),
        Stage(1, "output_code", "python", EVIL, 40),
        Provenance(1, KERNEL, 1, (EVIL,), (FxOrigin(EVIL, EVIL, (EVIL,), frames),)),
        Incident("graph-break", 0, EVIL, EVIL, frames, EVIL),
    ]
    writer.finding(Finding("undeclared-write", EVIL, 1, KERNEL, ARGUMENT))
    writer.close()
    return folder
