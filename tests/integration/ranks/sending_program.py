"""Two ranks that broadcast and gather; in some runs a bit is flipped on the way, or before it is sent."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.fsdp import fully_shard

import kernelscope
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import Listener


class FlipOutput(Listener):
    """Flips one bit of what the first such collective gave, or a later one, before the recording reads it."""

    def __init__(self, kernel: str, number: int = 1) -> None:
        self._kernel, self._left = kernel, number

    def before(self, launch: Launch) -> Any:
        return self

    def after(self, launch: Launch, call: Any) -> None:
        if self._kernel in launch.site.kernel.name:
            self._left -= 1
            if self._left == 0:
                _flip(launch.flat[min(launch.point.written)])


class FlipInput(Listener):
    """Flips one bit of what a collective is given, after the recording has read it."""

    def before(self, launch: Launch) -> Any:
        if "allgather" in launch.site.kernel.name:
            given = next(t for t in launch.flat if isinstance(t, torch.Tensor) and t.abs().sum() > 0)
            _flip(given)


def _flip(tensor: torch.Tensor) -> None:
    """One bit, behind torch's back."""
    ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_uint32))[1] ^= 1 << 12


def send(rank: int) -> None:
    torch.manual_seed(rank)
    for _ in range(2):
        own = torch.randn(6)
        dist.broadcast(torch.randn(6), 1)
        dist.all_gather([torch.zeros(6), torch.zeros(6)], own)
        dist.all_gather_into_tensor(torch.zeros(12), own)
        dist.all_gather_into_tensor(torch.zeros(12), own, async_op=True).wait()
        functional.all_gather_tensor(own, 0, dist.group.WORLD).add(1)
        many = functional.all_gather_into_tensor_coalesced([own, own * 2], dist.group.WORLD)
        many[0].add(many[1])
        functional.broadcast(own, 0, dist.group.WORLD).add(1)
        dist.all_gather([torch.zeros(6, 2)[:, 0] for _ in range(2)], own)  # read in another way


def shard() -> None:
    """FSDP2 gathers parameters into one tensor that holds its own part already."""
    model = torch.nn.Linear(8, 8)
    fully_shard(model)
    for _ in range(2):
        model(torch.randn(2, 8)).square().mean().backward()


def draw(rank: int, more: int) -> None:
    """Both ranks begin with the same generator; in step 1, rank 1 draws so many numbers more."""
    torch.manual_seed(3)
    for step in range(4):
        dist.all_reduce(torch.randn(6))
        if rank == 1 and step == 1:
            torch.rand(more)
        kernelscope.step()


WAYS: dict[str, Callable[[], Listener | None]] = {
    "clean": lambda: None,
    "gathered": lambda: FlipOutput("c10d.allgather_"),
    "in-one": lambda: FlipOutput("c10d._allgather_base_"),
    "functional": lambda: FlipOutput("_c10d_functional.wait_tensor", 2),
    "broadcast": lambda: FlipOutput("c10d.broadcast_"),
    "given": FlipInput,
}


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    for way, make in WAYS.items():
        listener = make() if rank == (1 if way != "broadcast" else 0) else None
        if listener is not None and way != "given":
            BUS.attach(listener)
        with kernelscope.record(path=folder / way, values="hash", ops="all"):
            if listener is not None and way == "given":
                BUS.attach(listener)
            send(rank)
        if listener is not None:
            BUS.detach(listener)
    for way, more in {"alike": 0, "parted": 5}.items():
        with kernelscope.record(path=folder / way, values="hash", ops="all"):
            draw(rank, more)
    with kernelscope.record(path=folder / "sharded", values="hash", ops="all"):
        shard()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
