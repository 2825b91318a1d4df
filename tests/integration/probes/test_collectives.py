"""Asynchronous collectives: their results come into being at the wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from tests.support.warm_python import WarmPython

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


RANK = """
import datetime, json, sys
import torch, torch.distributed as dist
import kernelscope
from kernelscope.fingerprint import fingerprint
rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
limit = datetime.timedelta(seconds=120)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=limit)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
x = torch.full((3, 4), 1.0 + rank)
told = []
with kernelscope.record(ops="all", values="hash") as run:
    model(x).sum().backward()
    summed = torch.full((5,), 1.0 + rank)
    work = dist.all_reduce(summed, async_op=True)
    unrelated = x.sin()
    work.wait()
    doubled = summed * 2
    pieces = [torch.zeros(5), torch.zeros(5)]
    dist.all_gather(pieces, doubled + rank)
    got = torch.zeros(3)
    if rank:
        dist.send(x[:, 0].contiguous(), 0)
    else:
        dist.recv(got, 1)
        got + 1
    mine = torch.zeros(2)
    dist.reduce_scatter_tensor(mine, torch.full((4,), 1.0 + rank))
    kept = torch.zeros(2)
    dist.reduce_scatter(kept, [torch.full((2,), 3.0 + rank), torch.full((2,), 5.0 + rank)])
    late = torch.zeros(4)
    if not rank:
        never = dist.irecv(late, 1)
for call in run.calls:
    told.append([call.kernel_name, call.arg_names, list(call.roles), str(call),
                 {call.arg_names[i]: str(h) for i, h in call.pre_hashes.items()},
                 {call.arg_names[i]: str(h) for i, h in call.post_hashes.items()}, call.error])
left = [str(fingerprint(t).bits) for t in (mine, kept)]
with open(out, "w") as file:
    json.dump({"calls": told, "left": left, "findings": [str(f) for f in run.findings]}, file)
if rank:
    dist.send(torch.ones(4), 0)
else:
    never.wait()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    script = folder / "rank.py"
    script.write_text(RANK)
    words = [[script, str(r), folder / "store", folder / f"{r}.json"] for r in (0, 1)]
    for done in warm_python.run_together(*words):
        assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{r}.json").read_text()) for r in (0, 1)]


def calls_of(rank: dict[str, Any], name: str) -> list[Any]:
    return [call for call in rank["calls"] if call[0].startswith(name)]


def test_gradients_of_all_ranks_are_the_same_after_their_all_reduce(ranks: list[dict[str, Any]]) -> None:
    (one, _), (other, _) = (calls_of(rank, "c10d.allreduce_") for rank in ranks)
    for call in (one, other):
        assert call[2][0] == "inout", "it reads and writes"
        assert "of 2" in call[3]
        assert "reduce_op=sum" in call[3]
    assert one[4]["tensors[0]"] != other[4]["tensors[0]"], "each rank had its own gradient"
    assert one[5]["tensors[0]"] == other[5]["tensors[0]"]
    assert one[5]["tensors[0]"] not in (one[4]["tensors[0]"], other[4]["tensors[0]"])


def test_what_a_collective_left_is_what_the_next_call_finds(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert not rank["findings"]
        _, summed = calls_of(rank, "c10d.allreduce_")
        doubled = calls_of(rank, "aten.mul.Tensor")[-1]
        assert doubled[4]["self"] == summed[5]["tensors[0]"]
        (gathered,) = calls_of(rank, "c10d.allgather_")
        assert gathered[2][:3] == ["out", "out", "in"]
        assert gathered[4]["input_tensors[0]"] in gathered[5].values()
    (mine,), (theirs,) = (calls_of(rank, "c10d.allgather_") for rank in ranks)
    assert (
        mine[5]["output_tensors[0][1]"] == theirs[5]["output_tensors[0][1]"] == theirs[4]["input_tensors[0]"]
    )


def test_what_was_sent_is_what_was_received(ranks: list[dict[str, Any]]) -> None:
    (sent,), (received, late) = calls_of(ranks[1], "c10d.send"), calls_of(ranks[0], "c10d.recv_")
    assert sent[2][0] == "in"
    assert received[2][0] == "out"
    assert received[5]["tensors[0]"] == sent[4]["tensors[0]"]
    assert "had not ended when the recording closed" in late[6]
    assert late[5] == {}


def test_what_a_collective_left_is_known_after_its_wait_also_where_nothing_uses_it(
    ranks: list[dict[str, Any]],
) -> None:
    for rank in ranks:
        (mine,) = calls_of(rank, "c10d._reduce_scatter_base_")
        (kept,) = calls_of(rank, "c10d.reduce_scatter_")
        assert [mine[5].get("output_tensor"), kept[5].get("output_tensors[0]")] == rank["left"]
        assert [mine[6], kept[6]] == ["", ""]
