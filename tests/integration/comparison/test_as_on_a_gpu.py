"""Programs that differ as one program does on two devices: rounding raises no alarm, an error is named."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
from tests.programs import training_programs
from tests.programs.training_programs import PLANTED, Setup
from torch import nn
from torch.nn import functional as F

import kernelscope
from kernelscope.comparison.result import ComparisonResult

_SLOW = sorted(set(PLANTED) - {"gradient", "dropout", "cast"})  # "cast" is an error in half precision only


def _dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    return torch.native_dropout(x, p, True)[0]


@contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """Optimizers take all weights at once, and dropout is one operator."""
    choice = "_default_to_fused_or_foreach"
    with (
        patch(f"torch.optim.sgd.{choice}", lambda *args, **kwargs: (False, True)),
        patch("torch.nn.functional.dropout", _dropout),
    ):
        yield


def _other(name: str, bug: bool) -> Any:
    with _as_on_a_gpu():
        return PLANTED[name](Setup(), bug)


def _names_an_error_of(name: str, result: ComparisonResult) -> bool:
    first = result.first
    assert first is not None, result.details()
    named = [call for call in (first.call, first.reads, first.missing, first.reference) if call is not None]
    with open(str(training_programs.__file__), encoding="utf-8") as text:
        planted = {number for number, line in enumerate(text, start=1) if f"# planted: {name}" in line}
    return bool({call.origin[0].line for call in named if call.origin} & planted)


@pytest.mark.parametrize(
    "name", ["gradient", "dropout", *(pytest.param(name, marks=pytest.mark.slow) for name in _SLOW)]
)
def test_another_optimizer_and_another_dropout(name: str) -> None:
    def reference(bug: bool = False) -> Any:
        return PLANTED[name](Setup(), bug)

    for one, two in [(reference, lambda: _other(name, False)), (lambda: _other(name, False), reference)]:
        result = kernelscope.compare(one, two)
        assert result.status == 0, result.details()
        assert result.values["matched"] >= result.values["reference"] - 2, result.details()
    result = kernelscope.compare(reference, lambda: _other(name, True))
    assert _names_an_error_of(name, result), result.details()


class _Steps(nn.Module):
    """A recurrence with its batch first, or second."""

    def __init__(self, batch_first: bool, scale: float = 1.0) -> None:
        super().__init__()
        self.batch_first, self.scale = batch_first, scale
        self.inner, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.batch_first:
            hidden = torch.tanh(self.inner(x)) * self.scale
        else:
            hidden = (torch.tanh(self.inner(x.transpose(0, 1).contiguous())) * self.scale).transpose(0, 1)
        return self.last(hidden[:, -1])


def test_dimensions_in_another_order() -> None:
    def program(batch_first: bool, scale: float = 1.0) -> None:
        torch.manual_seed(0)
        model, x = _Steps(batch_first, scale), torch.randn(3, 6, 8)
        model(x).square().mean().backward()

    for first in (True, False):
        result = kernelscope.compare(
            lambda first=first: program(first), lambda first=first: program(not first)
        )
        assert result.status == 0, result.details()
        assert result.values["matched"] > 0.8 * result.values["reference"], result.details()
    result = kernelscope.compare(lambda: program(True), lambda: program(False, 1.5))
    assert result.first is not None
    assert result.first.call.name == "aten.mul.Tensor", result.details()


def test_what_an_operator_rounds_inside() -> None:
    """Of a confident prediction the gradient is a small difference of two numbers, which one ulp changes."""
    torch.manual_seed(0)
    logits = torch.randn(24, 30) * 0.3
    logits[torch.arange(24), torch.arange(24)] += 14 + 4 * torch.rand(24)
    library = torch.library.Library("aten", "IMPL")

    def gradient(given: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
        chances = torch.nextafter(output.exp(), torch.zeros(()))
        return given - chances * given.sum(dim, keepdim=True) * factor

    def program() -> None:
        F.cross_entropy(logits.clone().requires_grad_(), torch.arange(24)).backward()

    def other() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the operator is registered already
            library.impl("_log_softmax_backward_data", gradient, "CPU")
        try:
            program()
        finally:
            library._destroy()  # type: ignore[no-untyped-call]

    factor = 1.0
    result = kernelscope.compare(program, other)
    assert result.status == 0, result.details()
    factor, library = 0.999, torch.library.Library("aten", "IMPL")
    result = kernelscope.compare(program, other)
    assert result.first is not None
    assert result.first.call.name == "aten._log_softmax_backward_data.default", result.details()


@torch.library.custom_op("as_on_a_gpu::with_rest", mutates_args=())
def _with_rest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, torch.empty(64)


def test_a_result_that_an_operator_does_not_write() -> None:
    def program() -> None:
        torch.full((64,), torch.rand(()).item())  # memory that is then free again
        made, _ = _with_rest(torch.linspace(0, 1, 64))
        (made + 1).exp()

    def other() -> None:
        with patch.object(torch, "empty", lambda size: torch.full((size,), 7.0)):
            program()

    result = kernelscope.compare(program, other)
    assert result.status == 0, result.details()


def test_weights_that_lie_in_one_memory() -> None:
    """Each is a value of its own: those that others were written to are not read with it."""

    def program(flat: bool, rate: float = 0.1) -> None:
        torch.manual_seed(0)
        weights = [torch.randn(8, 8), torch.randn(8), torch.randn(8, 4)]
        if flat:
            sizes = [weight.numel() for weight in weights]
            pieces = torch.cat([weight.reshape(-1) for weight in weights]).split(sizes)
            weights = [piece.view(weight.shape) for piece, weight in zip(pieces, weights, strict=True)]
        x = torch.randn(5, 8)
        for _ in range(2):
            leaves = [weight.detach().requires_grad_() for weight in weights]
            ((x @ leaves[0] + leaves[1]).tanh() @ leaves[2]).square().mean().backward()
            for weight, leaf in zip(weights, leaves, strict=True):
                weight.sub_(leaf.grad, alpha=rate)

    for flat in (True, False):
        result = kernelscope.compare(lambda flat=flat: program(flat), lambda flat=flat: program(not flat))
        assert result.status == 0, result.details()
        assert result.values["matched"] > 0.9 * result.values["reference"], result.details()
    result = kernelscope.compare(lambda: program(False), lambda: program(True, rate=0.2))
    assert result.first is not None
    assert result.first.call.name == "aten.sub_.Tensor", result.details()


def test_a_fused_optimizer_in_half_precision() -> None:
    """Its steps, which the reference takes one by one, are smaller than a rounding of the weights."""

    def program(dtype: torch.dtype = torch.float32, fused: bool = False, rate: float = 1e-2) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 6)).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, foreach=False, fused=fused)
        for _ in range(2):
            F.cross_entropy(model(torch.randn(10, 12).to(dtype)), torch.randint(0, 6, (10,))).backward()
            optimizer.step()
            optimizer.zero_grad()

    result = kernelscope.compare(program, lambda: program(torch.bfloat16, fused=True))
    assert result.status == 0, result.details()
    result = kernelscope.compare(program, lambda: program(torch.bfloat16, fused=True, rate=4e-2))
    assert result.first is not None
    assert result.first.call.name == "aten._fused_adamw_.default", result.details()
