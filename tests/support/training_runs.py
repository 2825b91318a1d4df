"""A run of a training script with long names, written by hand: for what a terminal shows of it. No torch."""

from __future__ import annotations

from pathlib import Path

from tests.support.sample_runs import ARGS, compiling, full_call, info

from kernelscope.events import Arg, Finding, Frame, Graph, GraphCall, Kernel, Site, TensorSpec
from kernelscope.stages.records import FxOrigin, Incident, Provenance
from kernelscope.store.writer_thread import Writer

LONG = "cpp_fused_add_native_layer_norm_native_layer_norm_backward_gelu_sum_view_"
LAYERS, STEPS = 6, 5
SPEC = TensorSpec("float32", (128, 1024), (1024, 1), "cpu")
MANY_ARGS = (
    *(Arg(f"in_ptr{i}", "in", SPEC, f"primals_{i}") for i in range(20)),
    Arg("out_ptr0", "out", SPEC, "buf0"),
    Arg("out_ptr1", "out", SPEC, "buf1"),
)
FORWARD = Graph(0, "forward", "0_forward", "0/0", "key", "def call(args): ...", "/wrapper.py")
BACKWARD = Graph(1, "backward", "0_backward", "0/0", "key2", "def call(args): ...", "/wrapper2.py")


def _site(number: int, name: str, kind: str) -> Site:
    kernel = Kernel(number, name, kind, "inductor", f"void {name}() {{}}", "abc")
    file = "/home/someone/projects/a_folder_with_a_long_name/transformer/encoder_layers.py"
    frames = (Frame(file, 100 + number, "forward"), Frame("/home/someone/train.py", 3, "main"))
    args = MANY_ARGS if kind == "cpp" else ARGS[:3]
    return Site(number, kernel, args, "/wrapper.py", 50 + number, None, {}, frames, "cpu")


def write_training(folder: Path, *, odd_step: int = -1, findings: bool = True) -> Path:
    """Layers of four kernels in each of a few steps; in `odd_step` a kernel raised an exception."""
    folder.mkdir(parents=True)
    writer = Writer(folder, info(settings={"values": "hash", "stages": True, "time": True}))
    layer = [
        _site(0, LONG + "0", "cpp"), _site(1, "extern_kernels.addmm", "extern"),
        _site(2, LONG + "1", "cpp"), _site(3, "extern_kernels.mm", "extern"),
    ]  # fmt: skip
    alone = _site(4, "cpp_fused_sum_2", "cpp")
    graph_calls = 0
    for step in range(STEPS):
        for graph, phase in ((FORWARD, "forward"), (BACKWARD, "backward")):
            writer.graph_call(GraphCall(graph_calls, graph, 7, step, phase, 1))
            sites = layer * LAYERS if phase == "forward" else [alone] + [layer[3]] * 4
            for place, site in enumerate(sites):
                call = full_call(next(writer.flight), site)
                call.step, call.phase, call.graph_call, call.scalars = step, phase, graph_calls, ()
                call.error = "RuntimeError: no" if step == odd_step and place == 2 else ""
                writer.enter(call)
                writer.leave(call)
            graph_calls += 1
    writer.compiled += compiling()
    frames = tuple(Frame("/home/someone/train.py", line, "forward") for line in range(200))
    nodes = tuple(
        FxOrigin(f"add_{i}", "aten.add.Tensor", ("input_1",), frames[i : i + 1]) for i in range(200)
    )
    writer.compiled.append(Provenance(1, LONG + "0", 2, ("buf1",), nodes))
    reason = "because of " + "a value that depends on the data, " * 10
    writer.compiled.append(Incident("graph-break", 0, "0/0", reason, frames[:1], "at length"))
    if findings:
        writer.finding(Finding("undeclared-write", "a long message " * 10, 24, LONG + "0", "in_ptr0"))
    writer.close()
    return folder
