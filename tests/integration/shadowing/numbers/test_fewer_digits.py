"""A library that may use TF32, and does so for some layouts only: no alarm; a larger error is named.

A CPU has no TF32, so convolutions are given inputs with as few digits, where these lie in the order that
Inductor chooses for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import kernelscope
from kernelscope import ShadowResult

aten = torch.ops.aten
_ORIGINAL = torch._C.DispatchKey.CompositeExplicitAutograd


def with_few_digits(value: torch.Tensor) -> torch.Tensor:
    """TF32: ten bits after the leading one."""
    if value.dtype != torch.float32:
        return value
    return ((value.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class Convolutions:
    """Of the CPU, in place of torch's own."""

    def __init__(self) -> None:
        self._library = torch.library.Library("aten", "IMPL")
        self.factor = 1.0  # of results with few digits
        self.count = 0  # of these
        self._library.impl("convolution", self.forward, "CPU")
        self._library.impl("convolution_backward", self.backward, "CPU")

    def forward(self, x: Any, weight: Any, *more: Any) -> Any:
        few = self._has_few(x)
        if few:
            x, weight = with_few_digits(x), with_few_digits(weight)
        made = aten.convolution.default._op_dk(_ORIGINAL, x, weight, *more)
        return made * self.factor if few else made

    def backward(self, *given: Any) -> Any:
        tensors, more = given[:3], given[3:]
        if self._has_few(tensors[1]):
            tensors = tuple(map(with_few_digits, tensors))
        return aten.convolution_backward.default._op_dk(_ORIGINAL, *tensors, *more)

    def _has_few(self, x: torch.Tensor) -> bool:
        is_chosen = x.dtype == torch.float32 and not x.is_contiguous()
        self.count += is_chosen
        return is_chosen

    def close(self) -> None:
        self._library._destroy()


@pytest.fixture
def convolutions() -> Iterator[Convolutions]:
    setting = torch.backends.mkldnn.conv
    before = setting.fp32_precision
    setting.fp32_precision = "tf32"
    found = Convolutions()
    yield found
    found.close()
    setting.fp32_precision = before


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(3):
        layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, bias=False)]
    return nn.Sequential(*layers)


def shadowed() -> ShadowResult:
    torch._dynamo.reset()
    model, x = network(), torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with kernelscope.shadow() as result:
        torch.compile(model)(x).square().mean().backward()
    return result


def test_fewer_digits_are_no_alarm(convolutions: Convolutions) -> None:
    result = shadowed()
    assert convolutions.count > 5, "the convolutions were not replaced"
    assert not result, str(result)
    assert result.status == 0, str(result)


def test_a_larger_error_is_named(convolutions: Convolutions) -> None:
    convolutions.factor = 1.01
    result = shadowed()
    assert result.culprit is not None
    assert "convolution" in result.culprit.kernel_name, str(result)
