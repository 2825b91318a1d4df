"""From a graph's second execution on, its hashes are taken as planned; they must be those of looking."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.integration.fingerprint.planned_steps import each_in_its_own, in_one_recording, planned, values
from torch import nn
from torch._inductor.codecache import PyCodeCache

import kernelscope
from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (p.view(2, 8, 2, 8).transpose(1, 2) for p in self.qkv(self.norm(x)).split(16, dim=2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(attended.transpose(1, 2).reshape(2, 8, 16)))


def test_a_training_step(tmp_path: Path) -> None:
    model, x = Attention(), torch.randn(2, 8, 16)
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        compiled(x).square().mean().backward()

    step()
    once = each_in_its_own([step])
    count, seen = in_one_recording([step] * 4)
    assert count == 3 * len(once)
    assert seen == once * 4
    assert in_one_recording([step] * 4, tmp_path / "disk.kscope") == (count, seen)
    with kernelscope.record(values="hash", verify="reread") as reread:
        for _ in range(3):
            step()
        assert planned(reread) == 2 * len(once)
    assert values(reread.calls) == once * 3
    assert not reread.findings


def test_statistics(tmp_path: Path) -> None:
    """Also of tensors that are not flat, empty, or have no numbers."""

    @torch.compile
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x @ w.t()).softmax(-1)
        return y, y.argmax(-1), (y > 0.1), y[:0] * 2, y.sum(), y @ w

    torch.manual_seed(0)
    inputs = torch.randn(12, 20)[:, ::2], torch.randn(300, 10)
    f(*inputs)

    def seen(run: Run) -> list[Any]:
        return [(v, c.pre_stats, c.post_stats) for v, c in zip(values(run.calls), run.calls, strict=True)]

    with kernelscope.record(values="stats") as alone:
        f(*inputs)
    assert any(call.post_stats for call in alone.calls)
    for path in (None, tmp_path / "disk.kscope"):
        with kernelscope.record(values="stats", path=path) as run:
            for _ in range(3):
                f(*inputs)
            assert planned(run) == 2 * len(alone)
        run = run if path is None else kernelscope.load(path)
        assert seen(run) == seen(alone) * 3


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_graph_that_is_broken_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_disk: bool) -> None:
    """What its last launch left would have been read before the next, which never came."""
    known = set(map(id, PyCodeCache.modules))

    @torch.compile
    def step(x: torch.Tensor) -> torch.Tensor:
        x = x * (2.0 + on_disk)  # a wrapper of its own
        return ((x.sin().softmax(-1) @ x).cos().softmax(-1) @ x).exp().softmax(-1)

    def interrupt(*args: Any) -> torch.Tensor:
        nonlocal left
        left -= 1
        if not left:
            raise MemoryError
        return allocate(*args)

    x, left, missing = torch.randn(16, 16), 0, 0
    with kernelscope.record(values="hash", path=tmp_path / "run.kscope" if on_disk else None) as run:
        for _ in range(3):
            step(x)
        assert planned(run)
        count = len(run.calls)
        whole = values(run.calls)[-count // 3 :]
        [wrapper] = [m for m in PyCodeCache.modules if id(m) not in known and hasattr(m, "Runner")]
        allocate = wrapper.empty_strided_cpu
        monkeypatch.setattr(wrapper, "empty_strided_cpu", interrupt)
        for left in range(1, 9):  # noqa: B007  # counted down
            seen = len(run.calls)
            with suppress(MemoryError):
                step(x)
            for now, before in zip(values(run.calls)[seen:], whole, strict=False):
                for found, wanted in zip(now[1:3], before[1:3], strict=True):
                    lost = {i for i, value in found.items() if not isinstance(value, int)}
                    missing += len(lost)
                    assert {**found, **{i: wanted[i] for i in lost}} == wanted
    assert missing, "no execution was broken off between two launches"


@pytest.mark.parametrize("on_disk", [False, True])
def test_two_threads_in_one_graph(tmp_path: Path, on_disk: bool) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).softmax(1).cos() @ x

    inputs = [torch.randn(32, 32) for _ in range(2)]
    expected = [each_in_its_own([lambda x=x: f(x)]) for x in inputs]
    expected = [each_in_its_own([lambda x=x: f(x)]) for x in inputs]
    with kernelscope.record(values="hash", path=tmp_path / "run.kscope" if on_disk else None) as run:
        f(inputs[0])

        def work(x: torch.Tensor) -> None:
            for _ in range(20):
                f(x)

        threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_call: dict[int | None, list[KernelCall]] = {}
    for call in run.calls:
        by_call.setdefault(call.graph_call, []).append(call)
    seen = [values(calls) for calls in by_call.values()]
    assert len(seen) == 41
    assert all(one in expected for one in seen)
    assert sorted(expected.index(one) for one in seen) == [0] * 21 + [1] * 20


def test_when_another_recording_joins_and_leaves() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).softmax(1)

    x = torch.randn(8, 8)
    f(x)
    [expected] = [each_in_its_own([lambda: f(x)])]
    with kernelscope.record(values="hash") as outer:
        f(x)
        f(x)
        with kernelscope.record(values="hash") as inner:
            f(x)
            f(x)
        with kernelscope.record() as notes:
            f(x)
        f(x)
        f(x)
        f(x)
    assert values(outer.calls) == expected * 8
    assert values(inner.calls) == expected * 2
    assert len(notes) == len(expected)


def of_sizes(run: Run) -> list[Any]:
    """With everything that dynamic shapes change."""
    of_calls = zip(values(run.calls), run.calls, strict=True)
    return [(seen, call.args[-2:], [arg.tensor for arg in call.arguments]) for seen, call in of_calls]


def test_dynamic_shapes(tmp_path: Path) -> None:
    """Each set of sizes has a plan of its own, and compact calls, also on two threads."""
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16))
    compiled = torch.compile(model, dynamic=True)
    inputs = [torch.randn(2, length, 16) for length in (8, 12, 6)]
    with torch.no_grad():
        for x in inputs:
            compiled(x)
        looked_at = []
        for x in inputs:
            with kernelscope.record(values="hash") as run:
                compiled(x)
            looked_at.append(of_sizes(run))
        order = [0, 1, 2, 0, 1, 1, 2, 0]
        once = len(looked_at[0])
        for path in (None, tmp_path / "disk.kscope"):
            with kernelscope.record(values="hash", path=path) as run:
                for i in order:
                    compiled(inputs[i])
                assert planned(run) == (len(order) - len(inputs)) * once
            run = run if path is None else kernelscope.load(path)
            assert of_sizes(run) == [call for i in order for call in looked_at[i]]
        with kernelscope.record() as names:
            for i in order:
                compiled(inputs[i])
            assert planned(names) == (len(order) - len(inputs)) * once
        with kernelscope.record(values="hash") as run:

            def work(i: int) -> None:
                with torch.no_grad():
                    for _ in range(15):
                        compiled(inputs[i])

            threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        by_call: dict[int | None, list[Any]] = {}
        for seen, call in zip(of_sizes(run), run.calls, strict=True):
            by_call.setdefault(call.graph_call, []).append(seen)
        assert sorted(looked_at.index(one) for one in by_call.values()) == [0] * 15 + [1] * 15
