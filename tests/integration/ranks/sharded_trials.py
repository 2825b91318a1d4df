"""A tiny transformer, trained by one process and by several ranks in several ways; some are wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import kernelscope

DIM, HEADS, BATCH, LENGTH, WORDS = 16, 4, 4, 4, 12


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            w(x).unflatten(-1, (-1, DIM // HEADS)).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        scores = (q @ k.transpose(-1, -2) / 2).softmax(-1)
        return self.wo((scores @ v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(DIM, 32), nn.Linear(32, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def blocks(model: nn.Module) -> list[Any]:
    return list(model.blocks)  # type: ignore[arg-type]


def tensor_parallel(model: nn.Module, mesh: DeviceMesh) -> None:
    for block in blocks(model):
        plan: dict[str, Any] = {f"attention.w{name}": ColwiseParallel() for name in "qkv"}
        plan |= {
            "attention.wo": RowwiseParallel(),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(),
        }
        parallelize_module(block, mesh, plan)


def sequence_parallel(model: nn.Module, mesh: DeviceMesh, wrong: str = "") -> None:
    """Between attention and MLP, each rank has a part of the sequence."""
    parallelize_module(model, mesh, {
        "words": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": PrepareModuleInput(
            input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=True
        ),
    })  # fmt: skip
    for number, block in enumerate(blocks(model)):
        given = {part: Shard(0) if wrong == f"{part}-{number}" else Shard(1) for part in ("attention", "mlp")}
        parallelize_module(block, mesh, {
            "norm1": SequenceParallel(use_local_output=True),
            "norm2": SequenceParallel(use_local_output=True),
            "attention": PrepareModuleInput(
                input_layouts=given["attention"], desired_input_layouts=Replicate()
            ),
            **{f"attention.w{name}": ColwiseParallel() for name in "qkv"},
            "attention.wo": RowwiseParallel(output_layouts=given["attention"]),
            "mlp": PrepareModuleInput(input_layouts=given["mlp"], desired_input_layouts=Replicate()),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=given["mlp"]),
        })  # fmt: skip


def fully_sharded(model: nn.Module, mesh: DeviceMesh) -> None:
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


class _Unreduced(RowwiseParallel):
    """Forgets the all-reduce: its result goes on as it is."""

    def __init__(self) -> None:
        super().__init__(output_layouts=Partial())


class _Claimed(RowwiseParallel):
    """Says of the terms of a sum that each is the sum."""

    @staticmethod
    def _prepare_output_fn(
        output_layouts: Any, use_local_output: bool, mod: Any, outputs: Any, mesh: Any
    ) -> Any:
        claimed = DTensor.from_local(outputs.to_local(), mesh, [Replicate()], run_check=False)
        return (claimed * 1).to_local()


class LocalMlp(nn.Module):
    """The same by hand, as Megatron does it; the input's gradient may lack its all-reduce."""

    def __init__(self, mlp: Any, mesh: DeviceMesh, reduces: bool) -> None:
        super().__init__()
        rank, size = mesh.get_local_rank(), mesh.size()
        self.mesh, self.reduces = mesh, reduces
        self.up = nn.Parameter(mlp.up.weight.detach().chunk(size, 0)[rank].clone())
        self.up_bias = nn.Parameter(mlp.up.bias.detach().chunk(size, 0)[rank].clone())
        self.down = nn.Parameter(mlp.down.weight.detach().chunk(size, 1)[rank].clone())
        self.down_bias = nn.Parameter(mlp.down.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        if self.reduces:
            x = _Copied.apply(x, self.mesh)
        x = F.linear(F.gelu(F.linear(x, self.up, self.up_bias)), self.down)
        return _Summed.apply(x, self.mesh) + self.down_bias


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: DeviceMesh) -> Tensor:
        ctx.mesh = mesh
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return funcol.all_reduce(grad, "sum", ctx.mesh.get_group()).wait(), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: DeviceMesh) -> Tensor:
        return funcol.all_reduce(x, "sum", mesh.get_group()).wait()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad, None


class _MovedMlp(nn.Module):
    """With DTensors that the program lays out anew itself: parts of the sequence, all of it, parts again."""

    def __init__(self, mlp: Any, mesh: DeviceMesh, wrong: str) -> None:
        super().__init__()
        self.mesh, self.wrong = mesh, wrong
        rows, columns = ([Shard(0)], [Shard(1)])
        self.up = nn.Parameter(distribute_tensor(mlp.up.weight.detach(), mesh, rows))
        self.up_bias = nn.Parameter(distribute_tensor(mlp.up.bias.detach(), mesh, rows))
        self.down = nn.Parameter(distribute_tensor(mlp.down.weight.detach(), mesh, columns))
        self.down_bias = nn.Parameter(distribute_tensor(mlp.down.bias.detach(), mesh, [Replicate()]))

    def forward(self, x: Tensor) -> Tensor:
        part = DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)
        part = part.redistribute(placements=[Shard(1)])
        if self.wrong == "placement":  # what is a part of each sequence is said to be some of the sequences
            part = DTensor.from_local(part.to_local(), self.mesh, [Shard(0)], run_check=False)
        whole = part.redistribute(placements=[Replicate()]).view(x.shape)
        terms = F.gelu(whole @ self.up.t() + self.up_bias) @ self.down.t()
        if self.wrong == "sum":  # the terms of a sum are said to be the sum
            terms = DTensor.from_local(terms.to_local(), self.mesh, [Replicate()], run_check=False)
        parts = terms.redistribute(placements=[Shard(1)]) + self.down_bias
        return parts.redistribute(placements=[Shard(2)]).full_tensor()


class _PlainMlp(nn.Module):
    """The same operators in one process."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.up, self.up_bias = mlp.up.weight, mlp.up.bias
        self.down, self.down_bias = mlp.down.weight, mlp.down.bias

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x @ self.up.t() + self.up_bias) @ self.down.t() + self.down_bias


def moved_by_hand(wrong: str = "") -> Callable[[nn.Module, DeviceMesh], None]:
    def replace(model: nn.Module, mesh: DeviceMesh) -> None:
        for number, block in enumerate(blocks(model)):
            block.mlp = _MovedMlp(block.mlp, mesh, wrong if number else "")

    return replace


def with_style(number: int, where: str, style: Any) -> Callable[[nn.Module, DeviceMesh], None]:
    def parallelize(model: nn.Module, mesh: DeviceMesh) -> None:
        for at, block in enumerate(blocks(model)):
            plan: dict[str, Any] = {f"attention.w{name}": ColwiseParallel() for name in "qkv"}
            plan |= {
                "attention.wo": RowwiseParallel(),
                "mlp.up": ColwiseParallel(),
                "mlp.down": RowwiseParallel(),
            }
            if at == number:
                plan[where] = style
            parallelize_module(block, mesh, plan)

    return parallelize


def by_hand(reduces: bool) -> Callable[[nn.Module, DeviceMesh], None]:
    def replace(model: nn.Module, mesh: DeviceMesh) -> None:
        for block in blocks(model):
            block.mlp = LocalMlp(block.mlp, mesh, reduces)

    return replace


def norms_by_hand(model: nn.Module, mesh: DeviceMesh) -> None:
    """Sequence parallel, but the norms are plain: each rank has the gradient of its part of the sequence."""
    sequence_parallel(model, mesh)
    for block in blocks(model):
        norm = block.norm1
        plain = nn.LayerNorm(DIM)
        block.norm1 = plain
        plain.load_state_dict({name: value.full_tensor() for name, value in norm.state_dict().items()})


def nothing(model: nn.Module, mesh: DeviceMesh) -> None:
    """Each rank trains alone on its part of the batch: the gradients are not reduced."""


def wrong_head(model: nn.Module, mesh: DeviceMesh) -> None:
    """Each rank has other rows of the last weight than its placement says."""
    weight = model.head.weight  # type: ignore[union-attr]
    local = weight.detach().view(2, 2, -1, DIM).transpose(0, 1).reshape(2, -1, DIM)[mesh.get_local_rank()]
    claimed = DTensor.from_local(local.contiguous(), mesh, [Shard(0)], run_check=False)
    model.head.weight = nn.Parameter(claimed)  # type: ignore[union-attr]
    model.head.register_forward_pre_hook(
        lambda module, args: (DTensor.from_local(args[0], mesh, [Replicate()], run_check=False),)
    )
    model.head.register_forward_hook(lambda module, args, output: output.full_tensor())


WAYS: dict[str, Callable[[nn.Module, DeviceMesh], None]] = {
    "tp": tensor_parallel,
    "sp": sequence_parallel,
    "fsdp": fully_sharded,
    "hand": by_hand(True),
    "unreduced-mlp": with_style(0, "mlp.down", _Unreduced()),
    "unreduced-attention": with_style(1, "attention.wo", _Unreduced()),
    "claimed": with_style(1, "mlp.down", _Claimed()),
    "attention-0": lambda model, mesh: sequence_parallel(model, mesh, "attention-0"),
    "mlp-1": lambda model, mesh: sequence_parallel(model, mesh, "mlp-1"),
    "head": wrong_head,
    "hand-unreduced": by_hand(False),
    "norms": norms_by_hand,
    "dp-unreduced": nothing,
    "moved": moved_by_hand(),
    "moved-sum": moved_by_hand("sum"),
    "moved-placement": moved_by_hand("placement"),
}
SPLITS_BATCH = ("fsdp", "dp-unreduced")


CLEAN = ("tp", "sp", "fsdp", "hand", "moved", "one", "one-moved")
STEPS = (*CLEAN, "norms", "dp-unreduced")  # the others are wrong before the optimizer comes


def train(way: str, folder: Path, mesh: DeviceMesh | None, values: str) -> None:
    torch.manual_seed(0)
    model = Model()
    tokens, expected = torch.randint(WORDS, (2, BATCH, LENGTH)), torch.randint(WORDS, (2, BATCH, LENGTH))
    if way == "one-moved":
        for block in blocks(model):
            block.mlp = _PlainMlp(block.mlp)
    if mesh is not None:
        WAYS[way](model, mesh)
        if way in SPLITS_BATCH:
            tokens, expected = (t.chunk(mesh.size(), 1)[mesh.get_local_rank()] for t in (tokens, expected))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with kernelscope.record(path=folder / way, values=values, ops="all"):
        for step in range(2 if way in CLEAN else 1):
            loss = F.cross_entropy(model(tokens[step]).flatten(0, 1), expected[step].flatten())
            loss.backward()
            if way in STEPS:
                optimizer.step()
                optimizer.zero_grad()


def main() -> None:
    rank, size, folder, values = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    if size == 1:
        for way in sys.argv[5:] or ("one",):
            train(way, folder, None, values)
        return
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    for way in sys.argv[5:]:
        train(way, folder, mesh, values)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
