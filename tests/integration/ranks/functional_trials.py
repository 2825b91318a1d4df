"""A rank of a program with functional collectives, eager and compiled; some give rank 1 other values."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import kernelscope
from kernelscope.probes.bus import BUS

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.integration.ranks.trials import Flip


def exchanged(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y, world = x * 2, dist.group.WORLD
    assert world is not None
    summed = funcol.all_reduce(y, "sum", world)
    gathered = funcol.all_gather_tensor(y, 0, world)
    scattered = funcol.reduce_scatter_tensor(y, "sum", 0, world)
    return summed + 1, gathered * 3, scattered - 1


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    x = torch.arange(16.0).reshape(4, 4) + rank
    for how, run in (("eager", exchanged), ("compiled", torch.compile(exchanged))):
        run(x)
        with kernelscope.record(path=folder / f"{how}-clean", values="hash", ops="all"):
            for _ in range(5):
                run(x)
        for name, wanted in (("reduced", 4), ("gathered", 5)):  # three waits in each call: of the second
            flip = Flip(wanted if rank == 1 else -1, random.Random(name), "wait_tensor")
            BUS.attach(flip)
            with kernelscope.record(path=folder / f"{how}-{name}", values="hash", ops="all"):
                for _ in range(3):
                    run(x)
            BUS.detach(flip)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
