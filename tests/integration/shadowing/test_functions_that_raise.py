"""A compiled function that raises where the uncompiled one does not is wrong, also if the program goes on."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import kernelscope


@torch.library.custom_op("functions_that_raise::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() + 1


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)  # wrong: its strides are others


def of_wrong_strides(x: torch.Tensor) -> torch.Tensor:
    return turned(x.sin()) * 2  # type: ignore[no-any-return]


def test_only_compiled_it_raises() -> None:
    torch._dynamo.reset()
    x = torch.randn(3, 4)
    with kernelscope.shadow() as result:
        torch.compile(lambda x: x.cos() + 1)(x)
        with pytest.raises(AssertionError):
            torch.compile(of_wrong_strides)(x)
    assert result.status == 1, str(result)
    assert result.culprit is not None
    assert result.culprit.verdict == "wrong-function"
    assert str(result).splitlines()[0].endswith("does: it raises AssertionError")
    assert "in of_wrong_strides" in str(result).splitlines()[0]
    assert "and uncompiled it does not" in result.culprit.reason


@torch.library.custom_op("functions_that_raise::refused", mutates_args=())
def refused(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("not this one")


@refused.register_fake
def _of_refused(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_second_forward_pass_that_checkpointing_ends() -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 4, requires_grad=True)
    with kernelscope.shadow(every=True) as result:
        compiled = torch.compile(lambda x: x.sin().cos() * 2)
        checkpoint(compiled, x, use_reentrant=False).sum().backward()  # type: ignore[union-attr]
    assert result.status == 0, str(result)
    assert result.counts.shares["functions"] == 1


def test_in_both_it_raises() -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(lambda x: x.cos() + 1)(torch.randn(3, 4))
        with pytest.raises(ValueError, match="not this one"):
            torch.compile(lambda x: refused(x.sin()) * 2)(torch.randn(3, 4))
    assert not result.culprits, str(result)
    assert not result.failures, str(result)
    assert result.counts.regions == 2
