"""Shadow reads symbolic sizes, and never asks the compiler's shape environment about them.

The answer to such a question is a guard: it would make a size constant that varies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch._guards import TracingContext
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional as F

import kernelscope


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """The questions that are asked while nothing is compiled."""
    found: list[str] = []
    original = ShapeEnv.evaluate_sym_node

    def evaluate(self: Any, sym_node: Any, *args: Any, **kwargs: Any) -> Any:
        if TracingContext.try_get() is None:
            found.append(str(sym_node))
        return original(self, sym_node, *args, **kwargs)

    with mock.patch.object(ShapeEnv, "evaluate_sym_node", evaluate):
        yield found


def _normalized(x: torch.Tensor) -> torch.Tensor:
    """Inductor's graph has `as_strided`, whose result depends on how its argument lies in memory."""
    return F.group_norm(x, 4, torch.ones(16), torch.zeros(16)).mean((-1, -2)).sum(0)


def _written(x: torch.Tensor) -> torch.Tensor:
    made = x.flip(0) + 1
    made.view(-1)[::2].mul_(x.shape[0])
    made.as_strided((x.shape[0],), (1,)).add_(1)
    return F.pad(made.t().unfold(1, 2, 1), (1, x.shape[0]))


@pytest.mark.parametrize(("fn", "shape"), [(_normalized, (16, 5, 5)), (_written, (6,))])
def test_no_size_becomes_a_constant(fn: Any, shape: tuple[int, ...], asked: list[str]) -> None:
    compiled = torch.compile(fn, dynamic=True)
    with kernelscope.shadow() as result:
        for size in (3, 7, 5):
            x = torch.randn(size, *shape, requires_grad=True)
            compiled(x).sum().backward()
        with torch.no_grad():
            for size in (3, 7):
                compiled(torch.randn(size, *shape))
    assert not asked
    assert not result
    assert not result.unchecked
    assert (result.status, result.counts.unjudged_launches) == (0, 0)
