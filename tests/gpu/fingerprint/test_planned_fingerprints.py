"""After a graph's first execution its fingerprints are taken as planned; they must be those of looking."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import (
    DeviceType,
    ProfilerActivity,
    _disable_profiler,
    _enable_profiler,
    _prepare_profiler,
)

import kernelscope
from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.store.stored_run import StoredRun

WIDTH, HEADS = 64, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).split(width, dim=2)
        q, k, v = (p.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for p in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(attended.transpose(1, 2).reshape(batch, length, width)))


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def step(request: pytest.FixtureRequest) -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to("cuda", request.param)
    x = torch.randn(2, 32, WIDTH, device="cuda", dtype=request.param)
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        compiled(x).square().mean().backward()

    step()
    return step


def values(calls: list[KernelCall]) -> list[Any]:
    return [
        (c.kernel_name, c.pre_hashes, c.post_hashes, c.pre_stats, c.post_stats, c.uninitialised)
        for c in calls
    ]


def recorded(
    step: Callable[[], None], times: int, level: str = "hash", **how: str
) -> tuple[Run, list[list[Any]]]:
    with kernelscope.record(values=level, **how) as run:
        for _ in range(times):
            step()
        planned = sum(isinstance(entry, bytes) for entry in run.entries)
    once = len(run) // times
    assert planned == once * (times - 1)
    return run, [values(run.calls[i * once : (i + 1) * once]) for i in range(times)]


@pytest.mark.parametrize("level", ["hash", "stats"])
def test_as_if_everything_had_been_read(step: Callable[[], None], level: str) -> None:
    run, planned = recorded(step, 4, level)
    _, [looked_at] = recorded(step, 1, level, verify="reread")
    assert planned == [looked_at] * 4
    _, reread = recorded(step, 3, level, verify="reread")
    assert reread == [looked_at] * 3
    if level == "stats":
        assert looked_at[0][4]
        return
    assert not run.findings


@pytest.mark.parametrize("level", ["hash", "stats"])
def test_on_disk_as_in_memory(step: Callable[[], None], level: str, tmp_path: Path) -> None:
    _, planned = recorded(step, 4, level)
    path = tmp_path / "run.kscope"
    with kernelscope.record(values=level, path=path):
        for _ in range(4):
            step()
    run = kernelscope.load(path)
    once = len(run) // 4
    assert run.rows("SELECT count(layout) FROM calls") == [(3 * once,)]
    assert [values(run.calls[i * once : (i + 1) * once]) for i in range(4)] == planned
    assert not [f for f in run.findings if f.kind != "slow-values"]


def test_hashes_are_on_disk_while_the_program_runs(step: Callable[[], None], tmp_path: Path) -> None:
    path = tmp_path / "run.kscope"
    with kernelscope.record(values="hash", path=path):
        for _ in range(6):
            step()
            torch.cuda.synchronize()
            time.sleep(0.3)
        time.sleep(0.3)
        written = StoredRun(path)  # as another process reads it
        firsts = [slot for (slot,) in written.rows("SELECT slot FROM first_slots ORDER BY 1")]
        assert len(firsts) == 5 * 2, "planned, forward and backward"
        [(newest,)] = written.rows("SELECT max(slot) FROM fingerprints")
        assert newest >= firsts[-4], "those of the fourth step are there"


@pytest.mark.parametrize("level", ["hash", "stats"])
def test_they_reach_the_host_while_the_program_runs(step: Callable[[], None], level: str) -> None:
    _, [expected] = recorded(step, 1, level)
    with kernelscope.record(values=level) as run:
        for _ in range(6):
            step()
            torch.cuda.synchronize()
            time.sleep(0.3)
        first_slots = sorted(run.first_slots.values())
        assert len(first_slots) == 5 * 2, "planned, forward and backward"
        assert run.fingerprinter.ready(1) >= first_slots[-4], "those of the fourth step are there"
    once = len(run) // 6
    assert values(run.calls[-once:]) == expected


@pytest.mark.parametrize("level", ["hash", "stats"])
def test_dynamic_shapes(level: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to("cuda", torch.bfloat16)
    compiled = torch.compile(model, dynamic=True)
    inputs = [torch.randn(2, n, WIDTH, device="cuda", dtype=torch.bfloat16) for n in (32, 48, 24)]

    def step(i: int) -> None:
        model.zero_grad()
        compiled(inputs[i]).square().mean().backward()

    looked_at = []
    for i in (0, 1, 2):
        step(i)
        with kernelscope.record(values=level, verify="reread") as run:
            step(i)
        looked_at.append(values(run.calls))
    order = [0, 1, 2, 0, 1, 1, 2, 0]
    with kernelscope.record(values=level) as run:
        for i in order:
            step(i)
        planned = sum(isinstance(entry, bytes) for entry in run.entries)
    assert planned == 5 * len(looked_at[0])
    assert values(run.calls) == [call for i in order for call in looked_at[i]]


def test_while_the_allocator_hands_out_other_memory(step: Callable[[], None]) -> None:
    kept = []

    def stirred() -> None:
        kept.append(torch.empty(1000 * len(kept) + 1, device="cuda"))
        step()

    _, planned = recorded(stirred, 4)
    assert planned == planned[:1] * 4


def test_on_another_stream(step: Callable[[], None]) -> None:
    _, [expected] = recorded(step, 1)
    other = torch.cuda.Stream()
    with kernelscope.record(values="hash") as run:
        step()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(other)
    once = len(run) // 4
    assert [values(run.calls[i * once : (i + 1) * once]) for i in range(4)] == [expected] * 4


def test_inputs_at_odd_addresses() -> None:
    @torch.compile
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).softmax(-1)

    base = torch.randn(40 * 40 + 16, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(40, 40, device="cuda", dtype=torch.bfloat16).t()
    f(base[:1600].view(40, 40), w)
    with kernelscope.record(values="hash") as run:
        for offset in (0, 1, 3, 8, 5):
            f(base[offset : offset + 1600].view(40, 40), w)
    looked_at = []
    for offset in (0, 1, 3, 8, 5):
        with kernelscope.record(values="hash") as once:
            f(base[offset : offset + 1600].view(40, 40), w)
        looked_at += values(once.calls)
    assert values(run.calls) == looked_at


def unheard_kernels(work: Callable[[], None]) -> list[str]:
    """What the GPU ran. A recording that hears of a profiler plans nothing; it is not told of this one."""
    activities = {ProfilerActivity.CUDA}
    config = torch.autograd.profiler.profile().config(create_trace_id=True)
    _prepare_profiler(config, activities)
    _enable_profiler(config, activities)
    work()
    torch.cuda.synchronize()
    events = _disable_profiler().events()
    return [e.name() for e in events if e.device_type() == DeviceType.CUDA]


def test_what_is_small_is_read_together(step: Callable[[], None]) -> None:
    """A launch of ours reads several tensors, of several of the program's launches."""

    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated()
    with kernelscope.record(values="hash") as run:
        step()
        step()
        torch.cuda.reset_peak_memory_stats()
        step()
        more = torch.cuda.max_memory_allocated() - peak
        ours = unheard_kernels(step)
    once = len(run) // 4
    read = sum(len(c.pre_hashes) + len(c.post_hashes) for c in run.calls[-once:])
    ours = [name for name in ours if name.startswith("planned")]
    assert 0 < len(ours) < once < read
    assert more < 24 << 20, "what waits is kept for a while"


class Convolution(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def test_convolutions_take_few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of many small launches wait for each other, unless the next layer reuses their memory."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    torch.manual_seed(0)
    model = nn.Sequential(*(Convolution(64) for _ in range(6)))
    model = model.to("cuda", memory_format=torch.channels_last)
    x = torch.randn(8, 64, 28, 28, device="cuda").to(memory_format=torch.channels_last)
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        with torch.no_grad():
            for statistic in model.buffers():
                statistic.zero_()
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(x).float().square().mean()
        loss.backward()

    step()
    _, planned = recorded(step, 4)
    _, [looked_at] = recorded(step, 1, verify="reread")
    assert planned == [looked_at] * 4
    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated()
    with kernelscope.record(values="hash") as run:
        step()
        step()
        torch.cuda.reset_peak_memory_stats()
        step()
        more = torch.cuda.max_memory_allocated() - peak
        ours = [name for name in unheard_kernels(step) if name.startswith("planned")]
    assert 0 < 3 * len(ours) < len(run) // 4, ours
    assert more < 48 << 20
