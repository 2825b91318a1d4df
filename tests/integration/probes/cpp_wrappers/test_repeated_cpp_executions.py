"""Executions of a C++ wrapper that repeat an earlier one are noted, and their calls say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor_config

import kernelscope
from kernelscope.events import CompactCall
from kernelscope.model.run import Run
from kernelscope.store.columns import columns_of

EXECUTIONS = 4


def model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.addmm(torch.relu(x), x, weight, beta=2, alpha=3).sin()


@pytest.fixture(scope="module")
def compiled() -> Iterator[Callable[..., Any]]:
    """Compiled inside a recording, for any number of rows."""
    torch._dynamo.reset()
    function = torch.compile(model, dynamic=True)
    with inductor_config.patch(cpp_wrapper=True), kernelscope.record():
        function(torch.ones(4, 8), torch.ones(8, 8))
    yield function
    torch._dynamo.reset()


def test_calls_of_repeated_executions(compiled: Callable[..., Any]) -> None:
    with kernelscope.record() as run:
        for _ in range(EXECUTIONS):
            compiled(torch.randn(4, 8), torch.randn(8, 8))
    assert _noted(run) == len(run) * (EXECUTIONS - 1) // EXECUTIONS > 0
    first, *others = _executions(run)
    assert any(type(value) is int for call in first for value in call["args"]), "no numbers were passed"
    assert others == [first] * (EXECUTIONS - 1)
    times = [call.recorded.start_ns for call in run.calls]
    assert times == sorted(times)
    assert not run.findings


def test_each_size_is_recorded_as_itself(compiled: Callable[..., Any]) -> None:
    sizes = [4, 5, 4, 6, 5, 4]
    with kernelscope.record() as run:
        for rows in sizes:
            compiled(torch.randn(rows, 8), torch.randn(8, 8))
    assert _noted(run) == len(run) // 2
    found = _executions(run)
    assert [{shape for call in each for shape in call["shapes"]} for each in found] == [
        {(rows, 8), (8, 8)} for rows in sizes
    ]


def test_on_disk_they_are_the_same(compiled: Callable[..., Any], tmp_path: Path) -> None:
    runs = []
    for path in (None, tmp_path / "run"):
        with kernelscope.record(path=path) as run:
            for _ in range(EXECUTIONS):
                compiled(torch.ones(4, 8), torch.ones(8, 8))
        runs.append(run)
    in_memory, on_disk = runs[0], kernelscope.load(tmp_path / "run.kscope")
    assert _executions(on_disk) == _executions(in_memory)
    assert columns_of(on_disk).left.tolist() == columns_of(in_memory).left.tolist(), "their numbers differ"


def test_a_recording_that_opens_in_between_has_its_own(compiled: Callable[..., Any]) -> None:
    x, weight = torch.ones(4, 8), torch.ones(8, 8)
    with kernelscope.record() as outer:
        compiled(x, weight)
        compiled(x, weight)
        with kernelscope.record(values="hash") as inner:
            compiled(x, weight)
            compiled(x, weight)
        compiled(x, weight)
    assert len(_executions(outer)) == 5
    assert len(_executions(inner)) == 2
    assert all(call.post_hashes for call in inner.calls)


@pytest.mark.slow
def test_repeated_executions_of_a_package(tmp_path: Path) -> None:
    exported = torch.export.export(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (torch.ones(4, 8),))
    path = kernelscope.aoti_compile_and_package(exported, package_path=str(tmp_path / "m.pt2"))
    package = torch._inductor.aoti_load_package(path)
    with kernelscope.record() as run:
        for _ in range(EXECUTIONS):
            package(torch.ones(4, 8))
    assert _noted(run) > 0
    first, *others = _executions(run)
    assert others == [first] * (EXECUTIONS - 1)
    assert len({call.graph_call for call in run.calls}) == EXECUTIONS
    assert all(call.graph is not None for call in run.calls)


def _noted(run: Run) -> int:
    """Calls that are kept as notes, before they are read."""
    entries: Any = run.entries  # type: ignore[attr-defined]
    return sum(isinstance(entry, CompactCall) for entry in entries)


def _executions(run: Run) -> list[list[dict[str, Any]]]:
    """What the calls of each graph call say."""
    found: dict[int | None, list[dict[str, Any]]] = {}
    for call in run.calls:
        found.setdefault(call.graph_call, []).append(
            {
                "name": call.kernel_name,
                "names": call.arg_names,
                "roles": call.roles,
                "args": [each for each in call.args if isinstance(each, int | float)],
                "shapes": [a.tensor.shape for a in call.arguments if a.tensor is not None],
                "uninitialised": call.uninitialised,
                "phase": call.phase,
                "step": call.step,
            }
        )
    return list(found.values())
