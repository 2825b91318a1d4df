"""A rank that communicates in each way: in place, coalesced, async, between two, functional and compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import kernelscope


def in_place() -> None:
    dist.all_reduce(torch.ones(4))
    dist.all_gather([torch.zeros(4), torch.zeros(4), torch.zeros(4)], torch.ones(4))
    dist.all_gather_into_tensor(torch.zeros(12), torch.ones(4))
    dist.reduce_scatter_tensor(torch.zeros(4), torch.ones(12))
    dist.broadcast(torch.ones(4), 1)


def asynchronous() -> None:
    works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(2)]
    torch.ones(4).sin()
    for work in works:
        work.wait()


def coalesced() -> None:
    with dist._coalescing_manager():
        for _ in range(2):
            dist.all_reduce(torch.ones(4))
    dist.barrier()


def in_a_part() -> None:
    """Ranks 0 and 2 have a group of their own."""
    part = dist.new_group([0, 2])
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(4), group=part)
        dist.all_reduce(torch.ones(4), group=part)
    dist.all_reduce(torch.ones(4))


def between_two() -> None:
    rank = dist.get_rank()
    if rank == 1:
        dist.send(torch.ones(4), 2)
        dist.recv(torch.zeros(4), 2)
    if rank == 2:
        dist.recv(torch.zeros(4), 1)
        dist.send(torch.ones(4), 1)
    dist.barrier()
    later, earlier = (rank + 1) % 3, (rank - 1) % 3
    sent = dist.P2POp(dist.isend, torch.ones(4), later)
    for work in dist.batch_isend_irecv([sent, dist.P2POp(dist.irecv, torch.zeros(4), earlier)]):
        work.wait()


def _functional(x: torch.Tensor) -> Any:
    world: Any = dist.group.WORLD
    summed = functional.all_reduce(x * 2, "sum", world)
    gathered = functional.all_gather_tensor(x + 1, 0, world)
    return summed + 1, gathered * 3


def _functional_coalesced(x: torch.Tensor) -> Any:
    world: Any = dist.group.WORLD
    first, second = functional.all_reduce_coalesced([x * 2, x * 3], "sum", world)
    return first + second


def run_functional() -> None:
    _functional(torch.ones(3))
    _functional_coalesced(torch.ones(3))


def run_compiled() -> None:
    torch.compile(_functional)(torch.ones(3))
    torch.compile(_functional_coalesced)(torch.ones(3))


WAYS: dict[str, Callable[[], None]] = {
    "in-place": in_place,
    "async": asynchronous,
    "coalesced": coalesced,
    "part": in_a_part,
    "between-two": between_two,
    "functional": run_functional,
    "compiled": run_compiled,
}


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=3)
    for way, run in WAYS.items():
        with kernelscope.record(path=folder / way, values="hash", ops="all"):
            run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
