"""Wrappers that launch on several streams, as torch 2.15 writes them: which launches a note is enough for."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

import kernelscope
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.probes.probe_list import PROBES
from kernelscope.probes.python_wrappers.precompiled import ArtifactGraph

# Of `torch.compile` on torch 2.15, of a function with `with torch.cuda.stream(side)`; shortened.
ON_A_GPU = """
def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        default_stream = torch.cuda.current_stream()
        stream1 = _get_stream_by_index(1)
        with default_stream:
            buf2 = empty_strided_cuda((64, 64), (64, 1), torch.float32)
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_0.run(arg0_1, buf2, 4096, stream=raw_stream0)
            torch.ops.streams.record_event.default(3, 0)
        with stream1:
            torch.ops.streams.wait_event.default(3, 1)
            buf3 = empty_strided_cuda((64, 64), (64, 1), torch.float32)
            raw_stream = get_raw_stream(0)
            triton_poi_fused_1.run(buf2, buf3, 4096, stream=raw_stream)
            with torch.cuda.use_mem_pool(get_external_object_by_index(2), device=0):
                extern_kernels.mm(buf3, arg1_1, out=buf4)
        with torch.cuda.use_mem_pool(get_external_object_by_index(2), device=0):
            triton_poi_fused_2.run(buf7, buf4, 4096, stream=raw_stream0)
        return (buf7, )
"""

ON_A_CPU = """
import torch
async_compile = None
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        default_stream = torch_cuda.current_stream()
        stream1 = _get_stream_by_index(1)
        with default_stream:
            buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
            torch.ops.aten.mm.out(arg0_1, arg1_1, out=buf0)
        with stream1:
            buf1 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
            torch.ops.aten.add.out(buf0, arg0_1, out=buf1)
        with default_stream:
            torch.ops.aten.mul.out(buf1, arg0_1, out=buf0)
        return (buf0, )

runner = Runner(partitions=[])
call = runner.call
"""


def test_which_launches_are_on_another_stream() -> None:
    launches = (
        "triton_poi_fused_0.run",
        "triton_poi_fused_1.run",
        "extern_kernels.mm",
        "triton_poi_fused_2.run",
    )
    wrapper = Wrapper(ON_A_GPU, choose=lambda path, kernels: path in launches)
    assert [(c.path, c.elsewhere) for c in wrapper.callsites] == [
        ("triton_poi_fused_0.run", False),
        ("triton_poi_fused_1.run", True),
        ("extern_kernels.mm", True),
        ("triton_poi_fused_2.run", False),
    ]


def test_a_launch_on_another_stream_is_not_only_noted() -> None:
    streams = SimpleNamespace(current_stream=nullcontext)
    namespace: dict[str, Any] = {"__name__": "generated", "torch_cuda": streams}
    namespace["_get_stream_by_index"] = lambda index: nullcontext()
    exec(compile(ON_A_CPU, "<generated>", "exec"), namespace)
    graph = ArtifactGraph(namespace, ON_A_CPU, namespace["call"])
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    with kernelscope.record() as run:
        call = PROBES.compiled_graphs.calling(lambda graph, inputs: graph.call(inputs))
        for _ in range(3):
            (result,) = call(graph, [x, y])
        hooked = PROBES.compiled_graphs._hooked[id(namespace)]
        noted = {seen.steady.site.kernel.name for seen in hooked._launches.notable().values()}  # type: ignore[union-attr]
        assert not hooked.is_on_one_stream  # type: ignore[union-attr]
    assert torch.equal(result, (x @ y + x) * x)
    assert noted == {"aten.mm.out", "aten.mul.out"}
    assert [c.kernel_name for c in run.calls] == ["aten.mm.out", "aten.add.out", "aten.mul.out"] * 3
    assert not run.findings
