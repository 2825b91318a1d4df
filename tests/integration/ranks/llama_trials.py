"""A small model like Llama, trained by one process and by several ranks in many ways; some are wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import kernelscope

DIM, HEADS, GROUPS, HIDDEN, WORDS, BATCH, LENGTH = 32, 4, 2, 64, 48, 4, 8


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM) + 0.1 * torch.randn(DIM))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    """Two heads share a key and a value."""

    def __init__(self) -> None:
        super().__init__()
        few = DIM * GROUPS // HEADS
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, width, bias=False) for width in (DIM, few, few, DIM))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, DIM // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (each.repeat_interleave(HEADS // GROUPS, 1) for each in (k, v))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2) / (DIM // HEADS) ** 0.5).masked_fill(later, float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(DIM, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = Norm(), Attention(), Norm(), Gated()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, is_tied: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = Norm(), nn.Linear(DIM, WORDS, bias=False)
        if is_tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# -- the ways to split it ------------------------------------------------------------------------------------


def tensor_parallel(model: Any, mesh: DeviceMesh) -> None:
    columns: dict[str, Any] = {
        name: ColwiseParallel()
        for name in ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")
    }
    for block in model.blocks:
        parallelize_module(
            block, mesh, columns | {"attention.o": RowwiseParallel(), "mlp.down": RowwiseParallel()}
        )


def vocabulary_parallel(model: Any, mesh: DeviceMesh) -> None:
    """Each rank has some of the words; DTensor looks for the others at place 0, and masks what it finds."""
    tensor_parallel(model, mesh)
    parallelize_module(model, mesh, {
        "words": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    })  # fmt: skip


def loss_split(model: Any, mesh: DeviceMesh) -> None:
    """Also the logits are split by words."""
    tensor_parallel(model, mesh)
    parallelize_module(model, mesh, {
        "words": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    })  # fmt: skip


def sequence_parallel(model: Any, mesh: DeviceMesh) -> None:
    parallelize_module(model, mesh, {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    })  # fmt: skip
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "norm1": SequenceParallel(use_local_output=True),
            "norm2": SequenceParallel(use_local_output=True),
            "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
            **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
            "attention.o": RowwiseParallel(output_layouts=Shard(1)),
            "mlp": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
            "mlp.gate": ColwiseParallel(),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
        })  # fmt: skip


def fully_sharded(model: Any, mesh: DeviceMesh) -> None:
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def fully_sharded_sums(model: Any, mesh: DeviceMesh) -> None:
    """Wrong: gradients are added, not averaged."""
    fully_sharded(model, mesh)
    for each in (model, *model.blocks):
        each.set_force_sum_reduction_for_comms(True)
        each.set_gradient_divide_factor(1.0)


def shifted_words(model: Any, mesh: DeviceMesh) -> None:
    """Wrong: each rank looks for its words one row too far."""
    vocabulary_parallel(model, mesh)
    local = model.words.weight.to_local()
    with torch.no_grad():
        local.copy_(local.roll(1, 0))


def replicated(model: Any, mesh: DeviceMesh) -> None:
    """Each rank has all parameters, and a part of the batch; gradients are reduced by DDP."""


SPLITS: dict[str, Callable[[Any, DeviceMesh], None]] = {
    "tp": tensor_parallel,
    "vocabulary": vocabulary_parallel,
    "loss": loss_split,
    "sp": sequence_parallel,
    "fsdp": fully_sharded,
    "fsdp-sums": fully_sharded_sums,
    "shifted-words": shifted_words,
    "ddp": replicated,
    "ddp-views": replicated,
    "ddp-forgets": replicated,
}
BY_BATCH = ("fsdp", "fsdp-sums", "ddp", "ddp-views", "ddp-forgets")


# -- optimizers ----------------------------------------------------------------------------------------------


class Lion(torch.optim.Optimizer):
    def __init__(self, params: Iterable[Any], lr: float, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                update = state["mean"] * group["beta"] + p.grad * (1 - group["beta"])
                p.add_(update.sign(), alpha=-group["lr"])
                state["mean"].mul_(0.99).add_(p.grad, alpha=0.01)


class Factored(torch.optim.Optimizer):
    """As Adafactor: of the squares of a matrix it keeps the means of rows and columns."""

    def __init__(self, params: Iterable[Any], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                square = p.grad.square() + 1e-30
                if p.ndim == 2:
                    rows, columns = square.mean(1, keepdim=True), square.mean(0, keepdim=True)
                    square = rows * columns / rows.mean()
                update = p.grad * square.rsqrt()
                p.add_(update, alpha=-group["lr"])


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "foreach": lambda params, **how: torch.optim.AdamW(params, foreach=True, **how),
    "fused": lambda params, **how: torch.optim.AdamW(params, fused=True, **how),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "sgd": lambda params, lr: torch.optim.SGD(params, lr=10 * lr, momentum=0.9),
    "lion": Lion,
    "factored": Factored,
}


def train(way: str, folder: Path, mesh: DeviceMesh | None, values: str) -> None:
    """A way has words: how it is split, the optimizer, what else it does, and what is wrong."""
    split, name, *words = way.split("+")
    torch.manual_seed(11)
    model: Any = Model("tied" in words or "untied" in words)
    tokens = torch.randint(WORDS, (2, BATCH, LENGTH + 1))
    net, rank = model, mesh.get_local_rank() if mesh is not None else 0
    if mesh is not None:
        SPLITS[split](model, mesh)
        if "tied" in words:
            model.head.weight = model.words.weight
        if split == "ddp-forgets":
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
                model, ["blocks.1.norm2.weight"]
            )
        if split.startswith("ddp"):
            net = DistributedDataParallel(
                model, gradient_as_bucket_view=split == "ddp-views", bucket_cap_mb=0.02
            )
        if split in BY_BATCH:
            tokens = tokens.unflatten(1, (-1, 2)) if "accumulated" in words else tokens
            tokens = tokens.chunk(mesh.size(), 2 if "accumulated" in words else 1)[rank]
            tokens = tokens.flatten(1, 2) if "accumulated" in words else tokens
    if rank and "other-token" in words:
        tokens[0, 0, 0] += 1
    lr, how = 1e-2, dict[str, Any]()
    if rank and "other-lr" in words:
        lr = 2e-2
    if mesh is not None and "other-beta" in words:
        how = {"betas": (0.9, 0.99)}
    groups = [{"params": [parameter]} for parameter in model.parameters()]
    optimizer = OPTIMIZERS[name](groups, lr=lr, **how)
    with kernelscope.record(path=folder / way, values=values, ops="all"):
        for step in range(2):
            for part in tokens[step].chunk(2 if "accumulated" in words else 1):
                logits = net(part[:, :-1]).flatten(0, 1)
                count = 2 if "accumulated" in words else 1
                if split == "loss" and mesh is not None:
                    with loss_parallel():
                        (F.cross_entropy(logits, part[:, 1:].flatten()) / count).backward()
                else:
                    (F.cross_entropy(logits, part[:, 1:].flatten()) / count).backward()
            if "clip" in words:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            if "clip-by-hand" in words or "clip-alone" in words:
                _clip_by_hand(model.parameters(), "clip-by-hand" in words)
            if step and rank and "stale" in words:  # wrong: the state of the optimizer is one step old
                for state in optimizer.state.values():
                    _local(state["exp_avg"]).zero_()
            if step and rank and "late-lr" in words:  # wrong, where AdamW has made more of rounding before
                for group in optimizer.param_groups:
                    group["lr"] *= 1.5 if group["params"][0] is model.blocks[0].mlp.up.weight else 1.0
            optimizer.step()
            optimizer.zero_grad()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _clip_by_hand(parameters: Iterable[Any], reduces: bool) -> None:
    """Wrong where it is split and does not reduce: each rank has the norm of its own part."""
    grads = [_local(p.grad) for p in parameters]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    if reduces:
        square = norm**2
        if dist.is_initialized():
            dist.all_reduce(square)
        norm = square.sqrt()
    for grad in grads:
        grad.mul_(0.1 / (norm + 1e-6))


def main() -> None:
    rank, size, folder, values = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    if size == 1:
        for way in sys.argv[5:]:
            train(way, folder, None, values)
        return
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    for way in sys.argv[5:]:
        train(way, folder, mesh, values)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
