"""A small model, compiled, trained by one process and tensor parallel by two ranks; some ways are wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import kernelscope

DIM, WORDS = 16, 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(DIM), nn.Linear(DIM, 32), nn.Linear(32, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(DIM, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Claimed(RowwiseParallel):
    """Says of the terms of a sum that each is the sum."""

    @staticmethod
    def _prepare_output_fn(
        output_layouts: Any, use_local_output: bool, mod: Any, outputs: Any, mesh: Any
    ) -> Any:
        return DTensor.from_local(outputs.to_local(), mesh, [Replicate()], run_check=False).to_local()


class Placed(RowwiseParallel):
    """Says of a part of each sequence that it is some of the sequences."""

    @staticmethod
    def _prepare_output_fn(
        output_layouts: Any, use_local_output: bool, mod: Any, outputs: Any, mesh: Any
    ) -> Any:
        part = outputs.redistribute(placements=[Shard(1)]).to_local()
        claimed = DTensor.from_local(part, mesh, [Shard(0)], run_check=False)
        return claimed.redistribute(placements=[Replicate()]).to_local().view(outputs.shape)


STYLES = {
    "tp": RowwiseParallel,
    "unreduced": lambda: RowwiseParallel(output_layouts=Partial()),
    "claimed": Claimed,
    "placed": Placed,
}


def train(way: str, folder: Path, mesh: DeviceMesh | None) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Model()
    tokens, expected = torch.randint(WORDS, (2, 4, 4)), torch.randint(WORDS, (2, 4, 4))
    if mesh is not None:
        for number, block in enumerate(model.blocks):
            style = STYLES[way] if number else RowwiseParallel
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": style()})
    called = model if way == "eager" else torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with kernelscope.record(path=folder / way, values="save", ops="all"):
        for step in range(2 if way in ("tp", "one", "eager") else 1):
            F.cross_entropy(called(tokens[step]).flatten(0, 1), expected[step].flatten()).backward()
            if way in ("tp", "one", "eager"):
                optimizer.step()
                optimizer.zero_grad()


def main() -> None:
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    mesh = None
    if size > 1:
        meeting = f"file://{folder / 'store'}"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    for way in sys.argv[4:]:
        train(way, folder, mesh)
    if mesh is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
