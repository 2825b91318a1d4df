"""Planned hashes of inputs: written to by the graph, with shared memory, or with memory that is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integration.fingerprint.planned_steps import each_in_its_own, in_one_recording, values
from torch import nn

import kernelscope
from kernelscope.model.call import KernelCall


def test_a_graph_that_writes_to_its_inputs(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    compiled = torch.compile(model, dynamic=False)  # Sequential's code may have seen other shapes
    batches = [torch.randn(2, 2, 6, 6) for _ in range(4)]
    compiled(batches[0]).sum().backward()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    steps = [lambda x=x: compiled(x).sum().backward() for x in batches]
    alone = each_in_its_own(steps)
    model.load_state_dict(start)
    model.zero_grad()
    count, together = in_one_recording(steps)
    assert count
    assert together == alone
    model.load_state_dict(start)
    model.zero_grad()
    assert in_one_recording(steps, tmp_path / "disk.kscope") == (count, together)


def test_inputs_that_come_to_share_memory(tmp_path: Path) -> None:
    @torch.compile
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        first = (b @ b).relu()
        a.add_(1)
        return first + (b @ b)

    def steps() -> list[Callable[[], Any]]:
        torch.manual_seed(0)
        base = torch.randn(3, 8, 8)
        apart, shared = (base[0].clone(), base[1].clone()), (base[2], base[2])
        overlapping = (base.view(-1)[:64].view(8, 8), base.view(-1)[32:96].view(8, 8))
        return [lambda p=p: f(*p) for p in (apart, apart, apart, shared, apart, overlapping, shared, apart)]

    for step in steps():
        step()
    alone = each_in_its_own(steps())
    for path in (None, tmp_path / "disk.kscope"):
        _, together = in_one_recording(steps(), path)
        assert together == alone


def test_inputs_that_cease_to_share_memory() -> None:
    @torch.compile
    def f(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a @ w, b @ w

    torch.manual_seed(0)
    base, w = torch.randn(3, 8, 8), torch.randn(8, 8)
    one, apart = (base[0], base[0].detach()), (base[0].clone(), base[1].clone())
    beside, elsewhere = (base[0], base[1]), (base[2], base[2].detach())
    pairs = [one, one, apart, one, beside, elsewhere]
    for order in (pairs, pairs[::-1]):
        steps = [lambda p=p: f(*p, w) for p in order]
        for step in steps:
            step()
        _, together = in_one_recording(steps)
        assert together == each_in_its_own(steps)
    count, _ = in_one_recording([lambda: f(*one, w)] * 3)
    assert count == 4, "as long as nothing changes it is planned"


@pytest.mark.parametrize("on_disk", [False, True])
def test_an_input_whose_memory_is_gone(tmp_path: Path, on_disk: bool) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu() @ x

    x = torch.randn(8, 8)
    f(x)
    with kernelscope.record(values="hash", path=tmp_path / "run.kscope" if on_disk else None) as run:
        f(x)
        f(x)
        once = len(run) // 2
        bad = torch.randn(8, 8)
        bad.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError):
            f(bad)
        f(x)
    failed = [c for c in run.calls if c.error]
    assert [c.index for c in failed] == [2 * once]
    assert failed[0].post_hashes == {}
    assert "memory" in str(failed[0].pre_hashes[0])
    assert values(run.calls[:once]) == values(run.calls[once : 2 * once]) == values(run.calls[-once:])


def test_storages_are_told_apart() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).softmax(1)

    x = torch.randn(8, 8)
    with kernelscope.record(values="hash") as run:
        f(x)
        f(x)
        f(x)
    once = len(run) // 3

    def shape(calls: list[KernelCall]) -> list[Any]:
        numbers: dict[int, int] = {}
        return [{i: numbers.setdefault(s[0], len(numbers)) for i, s in c.storages.items()} for c in calls]

    first, second, third = (run.calls[i * once : (i + 1) * once] for i in range(3))
    assert shape(first) == shape(second) == shape(third)
    ids = [{s[0] for c in calls for s in c.storages.values()} for calls in (second, third)]
    assert not ids[0] & ids[1]
