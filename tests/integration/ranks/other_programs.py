"""A rank of programs that write to memory in ways that a recording does not see, or that are wrong."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import kernelscope


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
        self.register_buffer("table", torch.linspace(0.1, 1, 8))

    def forward(self, x: Tensor, is_long: bool = True) -> Any:
        x = self.norm(self.first(x))
        return self.last(x * self.table.cos()) if is_long else x


def _flip(tensor: Tensor) -> None:
    """One bit, behind torch's back."""
    words = ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_uint32))
    words[1] ^= 1 << 12


def _train(
    called: Any,
    model: nn.Module,
    batch: Callable[[int], Any],
    after: Callable[[int], Any],
    rate: float = 1e-2,
) -> None:
    # With a small epsilon the first step moves each number by the rate, whatever its gradient is.
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, eps=1e-3, foreach=False)
    torch.manual_seed(100 + dist.get_rank())  # each rank has its own data
    for step in range(4):
        called(*batch(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        after(step)


def unused(rank: int) -> None:
    """Batch norm, and parameters that a rank uses only in every other step."""
    model = Model()
    called = DistributedDataParallel(model, find_unused_parameters=True)
    _train(called, model, lambda step: (torch.randn(4, 8), (step + rank) % 2 == 0), lambda step: None)


def numpy(rank: int, wrong: bool = False) -> None:
    """A buffer for batches that NumPy fills, and a weight that NumPy clips."""
    model = Model()
    memory, random = np.zeros((4, 8), np.float32), np.random.default_rng(rank)

    def batch(step: int) -> tuple[Tensor]:
        memory[:] = random.standard_normal((4, 8))
        return (torch.from_numpy(memory),)

    def clip(step: int) -> None:
        weight = model.first.weight.detach().numpy()
        np.clip(weight, -0.1, 0.1, out=weight)
        if wrong and rank == 1 and step == 1:
            _flip(model.last.weight)

    _train(DistributedDataParallel(model), model, batch, clip)


class Writer:
    """A thread that runs before the recording opens, and so is not observed."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._done = threading.Event()
        threading.Thread(target=self._run, name="writer", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._work.get()()
            self._done.set()

    def writes(self, work: Callable[[], Any]) -> None:
        self._done.clear()
        self._work.put(work)
        assert self._done.wait(60)


def _on_new_thread(work: Callable[[], Any]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def thread(rank: int, elsewhere: Callable[[Callable[[], Any]], None]) -> None:
    """Another thread writes the batch; on rank 1 once this one, as may be with a callback of torch's."""
    model, memory = Model(), torch.zeros(4, 8)

    def batch(step: int) -> tuple[Tensor]:
        new = torch.randn(4, 8)
        if rank == 1 and step == 2:
            memory.copy_(new)
        else:
            elsewhere(lambda: memory.copy_(new))
        return (memory,)

    _train(DistributedDataParallel(model), model, batch, lambda step: None)


def hook(rank: int) -> None:
    """The callback of a communication hook unpacks gradients, mostly on a thread of gloo's."""
    model = Model()
    called = DistributedDataParallel(model)
    called.register_comm_hook(None, default_hooks.fp16_compress_hook)
    _train(called, model, lambda step: (torch.randn(4, 8),), lambda step: None)


def by_hand(rank: int, begin: int, reduced: str | tuple[str, ...]) -> None:
    """Data parallel without a wrapper: gradients are averaged, of those parameters whose names begin so."""
    torch.manual_seed(begin)
    model = Model()

    def called(x: Tensor) -> Any:
        return model(x)

    for name, parameter in model.named_parameters():
        if name.startswith(reduced):
            parameter.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
    _train(called, model, lambda step: (torch.randn(4, 8),), lambda step: None)


def compiled(rank: int, wrong: bool = False) -> None:
    """A table that only compiled code reads."""
    model = Model()
    called = DistributedDataParallel(model, broadcast_buffers=False)
    model.compile()

    def after(step: int) -> None:
        if wrong and step == 1 and rank == 1:
            _flip(model.table)

    _train(called, model, lambda step: (torch.randn(4, 8),), after)


def other_rate(rank: int) -> None:
    model = Model()
    called = DistributedDataParallel(model)
    _train(called, model, lambda step: (torch.randn(4, 8),), lambda step: None, rate=1e-2 * (1 + rank))


def numpy_on_one(rank: int) -> None:
    """A history of losses, which only rank 0 keeps, in an array of NumPy."""
    model = Model()
    history = np.zeros(4, np.float32)
    tensor = torch.from_numpy(history)

    def after(step: int) -> None:
        if rank == 0:
            history[step] = step + 1
            assert float(tensor.sum()) > step

    _train(DistributedDataParallel(model), model, lambda step: (torch.randn(4, 8),), after)


@torch.library.custom_op("other_programs::own_part", mutates_args=())
def own_part(whole: Tensor) -> Tensor:
    return whole.chunk(dist.get_world_size())[dist.get_rank()].clone()


def custom(rank: int) -> None:
    """An operator whose result depends on the rank; a broadcast into memory that holds nothing yet."""
    whole = torch.arange(8.0) if rank == 0 else torch.empty(8)
    dist.broadcast(whole, 0)
    total = own_part(whole).sum()
    dist.all_reduce(total)
    assert float(total) == 28


def other_threads(rank: int) -> None:
    """Sums whose order depends on the number of threads, which rank 1 has changed."""
    torch.set_num_threads(1 + rank)
    try:
        torch.manual_seed(3)
        for each in [torch.randn(1 << 20) for _ in range(8)]:
            dist.all_reduce(each.sum())
    finally:
        torch.set_num_threads(1)


def killed(rank: int) -> None:
    """Rank 1 is gone after the last step; what it did in the first two had time to be written."""
    model = Model()

    def after(step: int) -> None:
        if step == 1:
            time.sleep(1)
        if step == 3 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    _train(DistributedDataParallel(model), model, lambda step: (torch.randn(4, 8),), after)


WRITER = Writer()
WAYS: dict[str, Callable[[int], None]] = {
    "unused": unused,
    "numpy": numpy,
    "thread": lambda rank: thread(rank, WRITER.writes),
    "new-thread": lambda rank: thread(rank, _on_new_thread),
    "hook": hook,
    "numpy-flipped": lambda rank: numpy(rank, wrong=True),
    "by-hand": lambda rank: by_hand(rank, 0, ""),
    "other-beginnings": lambda rank: by_hand(rank, rank, ""),
    "one-unreduced": lambda rank: by_hand(rank, 0, ("first", "norm", "last.weight")),
    "compiled": compiled,
    "compiled-flipped": lambda rank: compiled(rank, wrong=True),
    "other-rate": other_rate,
    "numpy-on-one": numpy_on_one,
    "custom": custom,
    "other-threads": other_threads,
    "killed": killed,
}


def main() -> None:
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=size)
    for way in sys.argv[4:]:
        torch.manual_seed(7)
        torch._dynamo.reset()
        with kernelscope.record(path=folder / way, values="hash", ops="all"):
            WAYS[way](rank)
    if "killed" not in sys.argv:  # the other rank is not there any more
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
