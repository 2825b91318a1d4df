"""A rank of a training program that records several runs; in some, one bit of one output is flipped."""

from __future__ import annotations

import itertools
import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import kernelscope
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import Listener

STEPS = 3


class Flip(Listener):
    """Flips one bit of what one launch left, before the recording reads it."""

    def __init__(self, wanted: int, bit: random.Random, only: str = "") -> None:
        self.launches = 0
        self.wanted, self.bit, self.only = wanted, bit, only
        self.done: dict[str, Any] = {}
        self.steps = 0

    def before(self, launch: Launch) -> Any:
        return self

    def step(self) -> None:
        self.steps += 1

    def after(self, launch: Launch, call: Any) -> None:
        made = [launch.flat[i] for i in launch.point.written] + list(launch.returned)
        made = [t for t in made if t.numel() and t.dtype == torch.float32 and t.is_contiguous()]
        is_own = not (launch.site.collective or launch.point.is_opaque)
        if not (is_own or self.only) or not made or self.done:
            return
        if self.only not in launch.site.kernel.name:
            return
        self.launches += 1
        if self.launches == self.wanted:
            with BUS.mute(), torch.no_grad():
                words = made[0].detach().view(torch.int32).view(-1)
                at, bit = self.bit.randrange(words.numel()), 1 << self.bit.randrange(31)
                words[at] ^= bit
            self.done = {"kernel": launch.site.kernel.name, "step": self.steps}


def train(how: str, rank: int, seed: int) -> None:
    """Dropout, gradient accumulation, and batches whose sizes differ between the ranks."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4)
    )
    trained: Any = model
    if how == "fsdp":
        fully_shard(model[0])
        fully_shard(model)
    else:
        trained = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    torch.manual_seed(seed * 100 + rank)
    for step in range(STEPS):
        for size in (4, 2 + (step + rank) % 2):
            trained(torch.randn(size, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def _sent() -> int:
    """Collectives until now, as the process group itself counts them."""
    group: Any = dist.group.WORLD
    return int(group._get_sequence_number_for_group())


def compared(rank: int, size: int, folder: Path, trials: int) -> list[dict[str, Any]]:
    """A clean run and so many with a flipped bit, of DDP and of FSDP2."""
    told = []
    for how in ("ddp", "fsdp"):
        sent = [_sent()]
        train(how, rank, 0)
        sent.append(_sent())
        count = Flip(-1, random.Random(0))
        BUS.attach(count)
        with kernelscope.record(path=folder / f"clean-{how}", values="hash", ops="all", recheck=1):
            train(how, rank, 0)
        BUS.detach(count)
        sent.append(_sent())
        alone, recorded = (after - before for before, after in itertools.pairwise(sent))
        told.append({"clean": how, "alone": alone, "recorded": recorded})
        for trial in range(trials):
            chance = random.Random(f"{how} {trial}")
            victim = chance.randrange(size)
            flip = Flip(chance.randrange(count.launches) + 1 if rank == victim else -1, chance)
            BUS.attach(flip)
            with kernelscope.record(path=folder / f"{how}-{trial}", values="hash", ops="all", recheck=1):
                train(how, rank, trial + 1)
            BUS.detach(flip)
            told.append({"trial": f"{how}-{trial}", "victim": victim, **flip.done})
    return told


# A bit flipped on rank 1: inside of the update of a parameter in step 1, of six; after it, which the
# recording sees as memory that changed; in what an all-reduce of that step gave.
PLANTED = {"inside": (8, "addcdiv_"), "later": (8, "addcdiv_"), "given": (4, "c10d.allreduce_")}


def planted(when: str, rank: int, folder: Path) -> dict[str, Any]:
    wanted, only = PLANTED[when]
    flip = Flip(wanted if rank == 1 else -1, random.Random(when), only)
    if when != "later":
        BUS.attach(flip)
    with kernelscope.record(path=folder / when, values="hash", ops="all"):
        if when == "later":
            BUS.attach(flip)
        train("ddp", rank, 7)
    BUS.detach(flip)
    return {"when": when, **flip.done}


def main() -> None:
    rank, size, folder, trials = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=size)
    torch.set_num_threads(1)
    told = compared(rank, size, folder, trials) if trials else []
    told += [planted(when, rank, folder) for when in sys.argv[5:] or PLANTED]
    (folder / f"told-{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
