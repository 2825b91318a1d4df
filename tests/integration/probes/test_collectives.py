"""Asynchronous collectives: their results come into being at the wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import kernelscope
from kernelscope.fingerprint import fingerprint


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dist.ProcessGroup]:
    store: Path = tmp_path_factory.mktemp("collectives") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("reduce", [True, False], ids=["all_reduce", "all_gather"])
def test_results_are_hashed_at_the_wait(group: dist.ProcessGroup, reduce: bool) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if reduce:
            return funcol.all_reduce(y, "sum", group) + 1
        return funcol.all_gather_tensor(y, 0, group) + 1

    x = torch.randn(4, 4)
    compiled = torch.compile(f)
    compiled(x)
    with kernelscope.record(values="hash") as run:
        compiled(x)
    assert not run.findings
    [begins] = run.select(kernel="_c10d_functional.all_*")
    [waits] = run.select(kernel="_c10d_functional.wait_tensor*")
    after = run.calls[waits.index + 1]
    doubled = fingerprint(x * 2).bits
    assert doubled in begins.pre_hashes.values(), "its input"
    assert not any(i in begins.post_hashes for i in begins.modified_args), "nothing has been written yet"
    assert waits.roles[0] == "out"
    assert waits.pre_hashes == {}
    assert waits.post_hashes[0] == doubled, "of one rank the result is the input"
    assert doubled in after.pre_hashes.values()
