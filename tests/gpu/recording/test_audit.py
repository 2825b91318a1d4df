"""Every kernel, copy and fill that the GPU executed is inside a recorded call, or listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from tests.gpu.models import Attention
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

import kernelscope


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) * 2, i < n)


def twice(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    doubled[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), 256)
    return y


def training(**how: Any) -> Callable[[], None]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(Attention(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=how.pop("fused", False))
    compiled = torch.compile(model, **how)

    def steps() -> None:
        for _ in range(4):
            loss = compiled(torch.randn(2, 16, 64, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return steps


def inference_in_graphs() -> Callable[[], None]:
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")

    def steps() -> None:
        with torch.no_grad():
            for _ in range(8):
                compiled(torch.randn(8, 64, device="cuda"))

    return steps


def graph_of_the_program() -> Callable[[], None]:
    def steps() -> None:
        x = torch.randn(64, 64, device="cuda")
        (x @ x).sin()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            twice((x @ x).sin())
        for _ in range(5):
            graph.replay()

    return steps


def user_kernels() -> Callable[[], None]:
    compiled = torch.compile(lambda x: twice(x.sin()) + 1)

    def steps() -> None:
        for _ in range(3):
            twice(compiled(torch.randn(1000, device="cuda")))

    return steps


def flex() -> Callable[[], None]:
    compiled = torch.compile(lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + (i - j)))

    def steps() -> None:
        given = [torch.randn(1, 2, 256, 64, device="cuda", requires_grad=True) for _ in range(3)]
        for _ in range(2):
            compiled(*given).sum().backward()

    return steps


def autotuned() -> Callable[[], None]:
    compiled = torch.compile(lambda x, w: F.gelu(x @ w), mode="max-autotune-no-cudagraphs")

    def steps() -> None:
        x, w = torch.randn(256, 256, device="cuda"), torch.randn(256, 256, device="cuda")
        for _ in range(3):
            compiled(x, w)

    return steps


def two_streams() -> Callable[[], None]:
    compiled = torch.compile(lambda x: x.cumsum(0).softmax(-1))

    def steps() -> None:
        side = torch.cuda.Stream()
        for _ in range(3):
            x = torch.randn(64, 64, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = compiled(x)
            torch.cuda.current_stream().wait_stream(side)
            y.sum().item()

    return steps


PROGRAMS = {
    "training": training,
    "fused optimizer": lambda: training(fused=True),
    "training in graphs": lambda: training(mode="reduce-overhead"),
    "inference in graphs": inference_in_graphs,
    "graph of the program": graph_of_the_program,
    "user kernels": user_kernels,
    "flex": flex,
    "autotuned": autotuned,
    "streams": two_streams,
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("ops", ["all", "graph"])
def test_everything_is_inside_a_call(program: str, ops: str) -> None:
    torch._dynamo.reset()
    with kernelscope.record(audit=True, ops=ops) as run:
        PROGRAMS[program]()()
    audit = run.audit
    assert audit is not None
    told = "\n".join(audit.lines(limit=40))
    assert audit.device == "cuda"
    assert not audit.incomplete, told
    assert audit.missing == 0, told
    assert not [each for each in audit.outside if each.in_compiled_code], told
    if ops == "all":
        assert audit.share_of_launches >= 0.99, told
        assert audit.share_of_time >= 0.99, told


def test_a_graph_of_before_is_listed() -> None:
    x = torch.randn(64, 64, device="cuda")
    (x @ x).sin()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (x @ x).sin()
    with kernelscope.record(audit=True, ops="all") as run:
        graph.replay()
    audit = run.audit
    assert audit is not None
    listed = {each.launcher for each in audit.outside}
    assert "replay of a CUDA graph that was captured before the recording" in listed, audit.lines()


def test_a_kept_graph_of_before_is_inside_calls() -> None:
    pytest.importorskip("cuda.bindings")
    x = torch.randn(64, 64, device="cuda")
    (x @ x).sin()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        twice((x @ x).sin())
    graph.replay()
    with kernelscope.record(audit=True, ops="all") as run:
        for _ in range(3):
            graph.replay()
    audit = run.audit
    assert audit is not None
    told = "\n".join(audit.lines(limit=40))
    assert len(run) == audit.launches > 0, told
    assert audit.outside == (), told
    assert audit.missing == 0, told
    assert audit.share_of_launches == audit.share_of_time == 1, told
