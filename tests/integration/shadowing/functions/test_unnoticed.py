"""Programs that would notice if shadow ran their functions a second time."""

from __future__ import annotations

import functools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import kernelscope

BACKEND = "aot_eager_decomp_partition"
PROGRAMS: list[Callable[[], Any]] = []


def program(fn: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS.append(fn)
    return fn


def trained(kind: Any, **options: Any) -> Any:
    model = torch.nn.Linear(3, 3)
    optimizer = kind(model.parameters(), lr=0.1, **options)
    step = torch.compile(optimizer.step, backend=BACKEND)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().sum().backward()
        step()
    return list(model.parameters()), [list(state.values()) for state in optimizer.state.values()]


@program
def adam() -> Any:
    return trained(torch.optim.Adam)


@program
def sgd() -> Any:
    return trained(torch.optim.SGD)


@program
def rmsprop_one_by_one() -> Any:
    return trained(torch.optim.RMSprop, foreach=False)


@program
def gradients_by_torch_func() -> Any:
    """A traced graph of torch.func switches hooks on saved tensors off, and on again at its end."""
    per_row = torch.compile(
        torch.func.vmap(torch.func.grad(lambda w, x: (x @ w).tanh().sum()), (None, 0)), backend=BACKEND
    )
    made = per_row(torch.ones(4, 3), torch.ones(2, 4))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        x = torch.ones(3, requires_grad=True)
        x.square().sum().backward()
    return made, x.grad


@program
def hooks_on_saved_tensors() -> Any:
    """Ours are not counted, and the program's are back in force."""
    seen: list[torch.Size] = []

    def pack(saved: torch.Tensor) -> torch.Tensor:
        seen.append(saved.shape)
        return saved

    fn = torch.compile(lambda x: (x.sin() * x).sum(), backend=BACKEND)
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        fn(x).backward()
        (x * x).sum().backward()
    return x.grad, len(seen)


@program
def gradients_written() -> Any:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.full((3,), 2.0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            weight.grad.mul_(0.5)  # type: ignore[union-attr]
            weight.sub_(weight.grad)  # type: ignore[arg-type]
        return x * weight

    return torch.compile(fn, backend=BACKEND)(torch.ones(3)), weight, weight.grad


def waves(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.cos()).exp()


@program
def saved_tensors() -> Any:
    packed: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.numel())
        return tensor

    x = torch.randn(4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = torch.compile(waves, backend=BACKEND)(x)
    made.sum().backward()
    return x.grad, packed


@program
def checkpointed() -> Any:
    x = torch.randn(4, requires_grad=True)
    checkpoint(torch.compile(waves, backend=BACKEND), x, use_reentrant=False).sum().backward()
    return x.grad


@program
def refusals_are_caught() -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            x.add_(1)
        except:  # noqa: E722
            return x * 0
        return x * 2

    x = torch.ones(3)
    return torch.compile(fn, backend=BACKEND)(x), x


@program
def numbers_of_numpy() -> Any:
    fn = torch.compile(lambda x: x * torch.from_numpy(np.random.rand(3)), backend=BACKEND)
    fn(torch.ones(3))
    return np.random.rand(), random.random()


@program
def functions_that_log() -> Any:
    logged: list[str] = []
    left_out: list[str] = []

    def log(text: str) -> None:
        logged.append(text)

    def leave_out(text: str) -> None:
        left_out.append(text)

    def fn(x: torch.Tensor) -> torch.Tensor:
        log("one")
        leave_out("two")
        return x * 2

    with torch._dynamo.config.patch(
        reorderable_logging_functions={log}, ignore_logging_functions={leave_out}
    ):
        torch.compile(fn, backend=BACKEND)(torch.ones(3))
    return logged, left_out


@program
def prints_in_the_graph() -> Any:
    if not hasattr(torch._higher_order_ops, "print"):
        return None

    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._higher_order_ops.print("made {n}", n=1)
        return x * 2

    return torch.compile(fn, backend=BACKEND)(torch.ones(3))


@program
def threads() -> Any:
    made: dict[int, torch.Tensor] = {}
    functions = [torch.compile(lambda x, i=i: (x * i).sin(), backend=BACKEND) for i in range(4)]

    def call(i: int) -> None:
        made[i] = functions[i](torch.ones(3))

    def write() -> None:
        for i in range(100):
            print(i)
            time.sleep(0.005)

    workers = [threading.Thread(target=call, args=(i,)) for i in range(4)] + [threading.Thread(target=write)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("end")
    return [made[i] for i in range(4)]


@program
def fills_no_cache() -> Any:
    """Dynamo looks past a cache, so the compiled program leaves it empty."""

    @functools.lru_cache
    def factor(n: int) -> float:
        return n * 2.0

    made = torch.compile(lambda x: x.sin() * factor(3), backend=BACKEND)(torch.arange(4.0))
    return [made, factor.cache_info().currsize]


def run(fn: Callable[[], Any]) -> list[Any]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    return [leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(fn())]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_the_program_does_the_same(fn: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    bare, printed = run(fn), capsys.readouterr().out
    with kernelscope.shadow() as result:
        shadowed = run(fn)
    assert capsys.readouterr().out == printed
    assert shadowed == bare
    assert not result.culprits, str(result)
    assert not result.failures


def test_gradients_that_are_not_compared_are_named() -> None:
    torch._dynamo.reset()
    x = torch.ones(3, requires_grad=True)
    with kernelscope.shadow() as result:
        torch.compile(waves, backend="eager")(x).sum().backward()
    assert any("Gradients of waves were not compared" in note for note in result.notes)
