"""Without values, all but the first launch at a place are noted in few words; it must not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.runtime.benchmarking import benchmarker

import kernelscope
from kernelscope.model.call import KernelCall

FAIL = False


@torch.library.custom_op("kernelscope_brief::touchy", mutates_args=())
def touchy(x: torch.Tensor) -> torch.Tensor:
    if FAIL:
        raise ValueError("touched")
    return x + 1


@touchy.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.linear(self.norm(x)).relu(), x.sin()], 1).softmax(1)


@pytest.fixture(scope="module")
def step() -> Callable[[], None]:
    model, x = Net(), torch.randn(4, 16)
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        compiled(x).sum().backward()

    step()
    return step


def facts(call: KernelCall) -> tuple[Any, ...]:
    """Everything that every execution of a graph has in common."""
    return (
        call.kernel_name, call.kind, call.roles, call.uninitialised, call.phase, call.arguments, call.origin,
        call.graph and call.graph.name, call.stream, call.thread, call.args, call.wrapper_line,
    )  # fmt: skip


def test_a_noted_call_tells_what_the_first_told(step: Callable[[], None]) -> None:
    with kernelscope.record() as run:
        for _ in range(3):
            step()
        count = len(run) // 3
        assert isinstance(run.entries[-1], bytes), "it was noted"
    first, second, third = ([facts(c) for c in run.calls[i * count : (i + 1) * count]] for i in range(3))
    assert first == second == third
    assert [c.index for c in run.calls] == list(range(3 * count))
    assert len({c.graph_call for c in run.calls}) == 6
    times = [run.records_of_calls[i].start_ns for i in range(len(run))]
    assert times == sorted(times)


def test_the_same_calls_as_when_looked_at_in_full(step: Callable[[], None]) -> None:
    with kernelscope.record(values="hash") as full:
        step()
        step()
    with kernelscope.record() as brief:
        step()
        step()
    assert [facts(c) for c in brief.calls] == [facts(c) for c in full.calls]


def test_steps_and_reading_in_between(step: Callable[[], None]) -> None:
    with kernelscope.record() as run:
        for done in range(4):
            step()
            assert [c.index for c in run.calls] == list(range(len(run)))
            assert {c.step for c in run.calls} == set(range(done + 1))
            kernelscope.step()


def test_hashes_begin_when_a_recording_that_wants_them_opens(step: Callable[[], None]) -> None:
    with kernelscope.record() as outer:
        step()
        step()
        with kernelscope.record(values="hash") as inner:
            step()
        step()
        step()
    assert not inner.findings
    assert all(c.post_hashes for c in inner.calls)
    assert [c.uninitialised for c in inner.calls] == [c.uninitialised for c in outer.calls[: len(inner)]]
    assert len(outer) == 5 * len(inner)
    with kernelscope.record(values="hash") as again:
        step()
    assert [c.pre_hashes for c in again.calls] == [c.pre_hashes for c in inner.calls]


def test_two_recordings_that_both_want_notes(step: Callable[[], None]) -> None:
    with kernelscope.record() as outer:
        step()
        with kernelscope.record() as inner:
            step()
            step()
    assert len(outer) == 3 * len(inner) // 2
    assert [facts(c) for c in outer.calls[len(inner) // 2 :]] == [facts(c) for c in inner.calls]


def test_a_failing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return touchy(x.sin()).cos()

    x = torch.randn(8)
    with kernelscope.record() as run:
        f(x)
        f(x)
        monkeypatch.setitem(globals(), "FAIL", True)
        with pytest.raises(ValueError, match="touched"):
            f(x)
        monkeypatch.setitem(globals(), "FAIL", False)
        f(x)
    assert [c.kernel_name for c in run.calls if c.error] == ["kernelscope_brief.touchy.default"]
    assert [c.index for c in run.calls] == list(range(3 + 3 + 2 + 3))


def test_a_failing_kernel_that_was_noted() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    x = torch.randn(8, 8)
    with kernelscope.record() as run:
        f(x)
        f(x)
        bad = torch.randn(8, 8)
        bad.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError):
            f(bad)
    assert [bool(c.error) for c in run.calls] == [False, False, True]


def test_what_is_timed_is_not_noted(step: Callable[[], None]) -> None:
    with kernelscope.record() as run:
        step()
        step()
        before = len(run)
        benchmarker.benchmark_cpu(step, warmup=1, rep=1)
        assert len(run) == before
        step()
    assert len(run) == before * 3 // 2


def test_a_branch_that_comes_late() -> None:
    @torch.compile
    def f(flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: x.sin().sum(0), lambda x: x.cos().softmax(0).sum(0), (x,))

    x = torch.randn(4, 4)
    with kernelscope.record() as run:
        for flag in (True, True, True, False, False, True):
            f(torch.tensor(flag), x)
    by_flag = [
        [facts(c) for c in run.calls if c.graph_call == graph_call]
        for graph_call in sorted({c.graph_call for c in run.calls if c.graph_call is not None})
    ]
    assert by_flag[0] == by_flag[1] == by_flag[2] == by_flag[5]
    assert by_flag[3] == by_flag[4] != by_flag[0]


def test_a_literal_none_is_a_constant_like_any_other() -> None:
    torch._dynamo.reset()  # or another convolution of these tests would make this one's shapes dynamic
    conv = torch.nn.Conv2d(2, 3, 3, bias=False)
    compiled = torch.compile(conv)
    x = torch.randn(1, 2, 8, 8)
    with kernelscope.record() as run, torch.no_grad():
        compiled(x)
        compiled(x)
        assert isinstance(run.entries[-1], bytes), "it was noted"
    [first, second] = run.select(kernel="extern_kernels.convolution")
    assert facts(first) == facts(second)
    given = dict(zip(second.arg_names, second.args, strict=True))
    assert given["bias"] is None
    assert given["stride"] == (1, 1)


OPEN_IN_THE_MIDDLE: dict[str, Any] = {}


@torch.library.custom_op("kernelscope_brief::opens", mutates_args=())
def opens(x: torch.Tensor) -> torch.Tensor:
    for values in OPEN_IN_THE_MIDDLE:
        recording = kernelscope.record(values=values, kind="extern" if values == "hash" else ())
        OPEN_IN_THE_MIDDLE[values] = recording, recording.__enter__()
    return x + 1


@opens.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_recording_that_opens_while_a_graph_makes_notes() -> None:
    @torch.compile
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (opens(x.sin()).cos() @ w).softmax(1)

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    with kernelscope.record() as run:
        f(x, w)
        f(x, w)
        OPEN_IN_THE_MIDDLE.update(off=None, hash=None)
        try:
            f(x, w)
        finally:
            (first, notes), (second, hashes) = OPEN_IN_THE_MIDDLE.values()
            OPEN_IN_THE_MIDDLE.clear()
        f(x, w)
        second.__exit__(None, None, None)
        first.__exit__(None, None, None)
    once = len(run) // 4
    names = [c.kernel_name for c in run.calls]
    opened = names.index("kernelscope_brief.opens.default")
    assert [c.kernel_name for c in notes.calls] == names[opened + 1 : once] + names[:once]
    whole = [c for c in hashes.calls if c.post_hashes]
    assert {c.kind for c in hashes.calls} == {"extern"}
    assert [c.kernel_name for c in whole] == [c.kernel_name for c in run.select(kind="extern")][: len(whole)]
    assert len(hashes) == len(whole) + 1, "the matrix product of the execution that it came into"
