"""One rank of a training program, for rank_trials.py: `python _rank_program.py RANK PLAN`.

The plan is a JSON file: the number of ranks, the combinations, and which trials each has.
Every trial is a run of its own; what a rank did in it is a line of told-RANK.jsonl.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import kernelscope
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import Listener

WIDTH, WORDS, LENGTH = 16, 24, 6


class Flip(Listener):
    """Flips one bit of what one launch left, before the recording reads it."""

    def __init__(self, wanted: int, chance: random.Random, only_graphs: bool = False) -> None:
        self.launches = 0
        self.in_graphs = 0
        self.done: dict[str, Any] = {}
        self._wanted, self._chance, self._only_graphs = wanted, chance, only_graphs
        self._steps = 0

    def before(self, launch: Launch) -> Any:
        return self

    def step(self) -> None:
        self._steps += 1

    def after(self, launch: Launch, call: Any) -> None:
        made = [launch.flat[i] for i in launch.point.written] + list(launch.returned)
        made = [t for t in made if t.numel() and t.dtype == torch.float32 and t.is_contiguous()]
        if launch.site.collective or launch.point.is_opaque or not made or self.done:
            return
        is_compiled = launch.graph_call >= 0
        self.launches += 1
        self.in_graphs += is_compiled
        if self._wanted == (self.in_graphs if self._only_graphs else self.launches):
            if self._only_graphs and not is_compiled:
                return
            with BUS.mute(), torch.no_grad():
                words = made[0].detach().view(torch.int32).view(-1)
                words[self._chance.randrange(words.numel())] ^= 1 << self._chance.randrange(31)
            kernel = launch.site.kernel.name
            self.done = {"kernel": kernel, "step": self._steps, "in_graph": is_compiled}


class Block(torch.nn.Module):
    """One layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(torch.nn.functional.gelu(self.up(self.between(x)))))


class Transformer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class Layer(torch.nn.Module):
    """A class of its own: Dynamo does not compile torch.nn.Sequential by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.dropout(torch.tanh(self.norm(self.linear(x))))
        return result


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Layer(), Layer()])
        self.head = torch.nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(x)
        return result


class Training:
    """A model under DDP or FSDP2, eager or compiled, that can be trained from the start again and again."""

    def __init__(self, combination: str, rank: int) -> None:
        how, model, mode = combination.split()
        self._rank, self._is_transformer = rank, model == "transformer"
        self._model: Any = Transformer() if self._is_transformer else Layers()
        self._trained: Any = self._model
        is_compiled = mode == "compiled"
        if how == "fsdp":
            for block in self._model.blocks:
                if is_compiled:
                    block.compile(dynamic=True)
                fully_shard(block)
            fully_shard(self._model)
        else:
            self._trained = DistributedDataParallel(
                torch.compile(self._model, dynamic=True) if is_compiled else self._model
            )

    def run(self, seed: int, steps: int) -> None:
        """Dropout, gradient accumulation, and batches whose sizes differ between the ranks."""
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in self._model.parameters():
                own = parameter.to_local() if isinstance(parameter, DTensor) else parameter
                own.normal_(0, 0.2)
        optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-2, foreach=False)
        torch.manual_seed(seed * 100 + self._rank)
        for step in range(steps):
            for size in (4, 2 + (step + self._rank) % 2):
                self._loss(size).backward()
            optimizer.step()
            optimizer.zero_grad()

    def _loss(self, size: int) -> torch.Tensor:
        if not self._is_transformer:
            loss: torch.Tensor = self._trained(torch.randn(size, WIDTH)).square().mean()
            return loss
        words = torch.randint(0, WORDS, (size, LENGTH + 1))
        logits = self._trained(words[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


class Trials:
    """What one rank records, trial after trial."""

    def __init__(self, rank: int, folder: Path, plan: dict[str, Any]) -> None:
        self._rank, self._folder, self._plan = rank, folder, plan
        self._size = int(plan["ranks"])
        self._told = open(folder / f"told-{rank}.jsonl", "a", encoding="utf-8")  # noqa: SIM115

    def all(self) -> None:
        """Of each combination: a clean run, further ones, and runs with a flip."""
        for name in self._plan["combinations"]:
            if not self._has_time():
                return
            training = Training(name, self._rank)
            training.run(0, 2)  # compiles what is to be compiled
            if self._plan["only_compiles"]:
                continue
            count = self._recorded(name, "clean", training, 0, Flip(-1, random.Random(0)))
            for trial in [trial for each, trial in self._plan["clean"] if each == name]:
                if not self._has_time():
                    return
                self._recorded(name, f"clean-{trial}", training, trial, Flip(-1, random.Random(0)))
            for trial in [trial for each, trial in self._plan["flips"] if each == name]:
                if not self._has_time():
                    return
                self._recorded(name, f"flip-{trial}", training, trial + 1, self._flip(name, trial, count))

    def _flip(self, name: str, trial: int, count: Flip) -> Flip:
        """At a random launch of a random rank; half of those in compiled programs are in compiled graphs."""
        chance = random.Random(f"{name} {trial} {self._size} {self._plan['seed']}")
        victim = chance.randrange(self._size)
        only_graphs = bool(count.in_graphs) and trial % 2 == 0
        wanted = chance.randrange(count.in_graphs if only_graphs else count.launches) + 1
        return Flip(wanted if self._rank == victim else -1, chance, only_graphs)

    def _recorded(self, name: str, trial: str, training: Training, seed: int, flip: Flip) -> Flip:
        start = time.perf_counter()
        path = f"{name.replace(' ', '-')}-{trial}"
        steps = int(self._plan["steps"])
        BUS.attach(flip)
        try:
            with kernelscope.record(path=self._folder / path, values="hash", ops="all", recheck=1):
                training.run(seed, steps)
        finally:
            BUS.detach(flip)
        done = {"path": path, "combination": name, "steps": steps, "is_clean": "clean" in trial}
        done |= {"launches": flip.launches, "in_graphs": flip.in_graphs, "flip": flip.done}
        self._told.write(json.dumps(done | {"seconds": time.perf_counter() - start}) + "\n")
        self._told.flush()
        return flip

    def _has_time(self) -> bool:
        """All ranks decide alike: the first one says so."""
        left = torch.tensor([float(self._plan["until"]) - time.time()], dtype=torch.float64)
        dist.broadcast(left, 0)
        return bool(left > 0)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # prints where each thread is
    rank, plan = int(sys.argv[1]), Path(sys.argv[2])
    given = json.loads(plan.read_text(encoding="utf-8"))
    store = f"file://{plan.parent / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=int(given["ranks"]))
    torch.set_num_threads(1)
    Trials(rank, plan.parent, given).all()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
