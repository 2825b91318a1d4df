"""Graphs put together at random, forward and backward, against eager in double precision."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from tests.gcu.looking import compile_and_look
from torch.fx.experimental.proxy_tensor import make_fx

Tensors = list[torch.Tensor]


def random_program(seed: int) -> tuple[Callable[..., Tensors], Tensors]:
    """A function of three tensors that does the same each time it is called, and its arguments."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([1, 2, 3, 5, 8, 16]) for _ in range(rng.randint(1, 4)))
    generator = torch.Generator().manual_seed(seed)

    def tensor(given: tuple[int, ...]) -> torch.Tensor:
        made = torch.randn(given, generator=generator, dtype=torch.float64)
        if len(given) > 1 and rng.random() < 0.4:
            order = rng.sample(range(len(given)), len(given))
            back = [order.index(i) for i in range(len(given))]
            made = made.permute(order).contiguous().permute(back)
        return made

    reduced = tuple(1 if rng.random() < 0.4 else s for s in shape)
    arguments = [tensor(shape), tensor(reduced), tensor(shape[-1:])]
    length = rng.randint(4, 10)

    def program(*given: torch.Tensor) -> Tensors:
        again = random.Random(seed + 1)
        pool = list(given)
        for _ in range(length):
            pool.append(_one_step(again, pool))
        return [pool[-1], *again.sample(pool[3:], 2)]

    return program, arguments


def _one_step(rng: random.Random, pool: Tensors) -> torch.Tensor:
    x = rng.choice(pool[-4:])
    kind = rng.choice(["unary", "binary", "binary", "reduce", "keep", "normal", "view", "cat", "matmul"])
    if kind == "unary":
        return rng.choice([torch.tanh, torch.sigmoid, torch.sin, torch.abs, torch.neg, torch.exp])(
            x.clamp(-3, 3)
        )
    if kind == "binary":
        y = rng.choice(pool)
        try:
            torch.broadcast_shapes(x.shape, y.shape)
        except RuntimeError:
            return x * 2 + 1
        return rng.choice([torch.add, torch.mul, torch.sub, torch.maximum])(x, y)
    if x.dim() == 0:
        return x + 1
    dim = rng.randrange(x.dim())
    if kind == "reduce":
        return rng.choice([torch.sum, torch.mean, torch.amax])(x, dim)
    if kind == "keep":
        return x - rng.choice([torch.sum, torch.mean, torch.amax])(x, dim, keepdim=True)
    if kind == "normal":
        return torch.softmax(x.clamp(-9, 9), dim)
    if kind == "cat":
        return torch.cat([x, x * 2], dim)
    if kind == "matmul" and x.dim() >= 2:
        return torch.tanh(x) @ torch.tanh(x).transpose(-1, -2)
    if x.dim() >= 2 and rng.random() < 0.5:
        return x.transpose(dim, rng.randrange(x.dim()))
    choices = [
        lambda: x.flatten(),
        lambda: x.narrow(dim, 0, max(1, x.shape[dim] // 2)),
        lambda: x.unsqueeze(dim),
    ]
    return rng.choice(choices)() if x.dim() < 5 else x.flatten()


def check(seed: int) -> None:
    written, arguments = random_program(seed)
    program = make_fx(written)(*arguments)  # Dynamo does not trace a random generator
    compiled, _ = compile_and_look(program)
    runs = []
    for run in (compiled, program):
        given = [a.clone(memory_format=torch.preserve_format).requires_grad_() for a in arguments]
        results = run(*given)
        total = sum((r * r).sum() for r in results)
        assert isinstance(total, torch.Tensor)
        gradients = torch.autograd.grad(total, given, allow_unused=True)
        runs.append(([r.detach() for r in results], gradients))
    (got, got_gradients), (expected, expected_gradients) = runs
    for a, b in zip((*got, *got_gradients), (*expected, *expected_gradients), strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_random_graph(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_graphs(seed: int) -> None:
    check(seed)
