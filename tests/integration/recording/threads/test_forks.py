"""Processes that fork while they are recorded."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.integration.recording.threads.forked_child import in_child

import kernelscope
from kernelscope.probes.bus import BUS

Program = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("ops", ["graph", "all"])
def test_a_forked_child_records_nothing_and_is_restored(
    tiny: Program, ops: str, leftovers: Callable[[], list[str]]
) -> None:
    with kernelscope.record(values="hash", ops=ops) as run:
        expected = tiny(torch.ones(8))
        count = len(run)

        def check() -> None:
            [watch] = leftovers()  # for the first compiled graph, of which the parent is told
            assert "CompiledFxGraph.__call__" in watch
            assert not BUS.listeners
            assert torch.equal(tiny(torch.ones(8)), expected)
            assert not leftovers()
            torch.ones(3).sin()
            assert len(run) == count
            with kernelscope.record() as own:
                tiny(torch.ones(8))
            assert [c.kind for c in own] == ["cpp"]
            assert own.info.pid == os.getpid() != run.info.pid
            assert not leftovers()

        in_child(check)
        tiny(torch.ones(8))
    assert len(run.select(kind="cpp")) == 2
    (finding,) = run.findings
    assert finding.kind == "unseen-graph"
    assert "a process that this one forked ran compiled code" in finding.message
    assert not leftovers()


def test_a_forked_child_that_runs_no_graph_or_records_its_own_is_no_finding(
    tiny: Program, leftovers: Callable[[], list[str]]
) -> None:
    def eager() -> None:
        torch.ones(3).sin()

    def recorded() -> None:
        with kernelscope.record() as own:
            for _ in range(3):
                tiny(torch.ones(8))
        assert len(own) == 3
        assert not own.findings
        assert not leftovers()

    with kernelscope.record() as run:
        tiny(torch.ones(8))
        in_child(eager)
        in_child(recorded)
    assert not run.findings


def test_leaving_the_block_in_the_child(tiny: Program, leftovers: Callable[[], list[str]]) -> None:
    manager = kernelscope.record(ops="all")
    run = manager.__enter__()

    def check() -> None:
        manager.__exit__(None, None, None)
        assert not leftovers()

    try:
        in_child(check)
        tiny(torch.ones(8))
    finally:
        manager.__exit__(None, None, None)
    assert run.select(kind="cpp")


class Squares(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int, int]:
        return torch.tensor(float(i)).square(), len(BUS.listeners), torch._C._len_torch_dispatch_stack()


def test_dataloader_workers_record_nothing(tiny: Program) -> None:
    loader = torch.utils.data.DataLoader(Squares(), num_workers=1, multiprocessing_context="fork")
    with kernelscope.record(ops="all") as run:
        items = list(loader)
        tiny(torch.ones(8))
    assert [float(value) for value, _, _ in items] == [0, 1, 4, 9]
    assert {(int(a), int(b)) for _, a, b in items} == {(0, 0)}
    assert not run.select(kernel="*square*")
    assert not run.select(kernel="*pow*")
    assert len(run.select(kind="cpp")) == 1
    (finding,) = run.findings
    assert finding.kind == "unseen-operators"
    assert "a process that this one forked" in finding.message


def test_a_child_that_only_allocates_or_records_its_operators_is_no_finding() -> None:
    def allocates() -> None:
        torch.empty(8).view(2, 4).detach()

    def records() -> None:
        with kernelscope.record(ops="all") as own:
            torch.ones(3).sin()
        assert len(own)

    with kernelscope.record(ops="all") as run:
        torch.ones(3).sin()
        in_child(allocates)
        in_child(records)
    assert not run.findings
