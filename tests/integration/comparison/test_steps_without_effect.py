"""A step that only one program takes, and that what follows takes out again, is a note and no error."""

from __future__ import annotations

import torch

import kernelscope


def _updated(factor: float) -> torch.Tensor:
    """A step of Adam, whose gradients are multiplied first."""
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(8, 24, generator=drawn)
    weight = torch.randn(24, 16, generator=drawn).requires_grad_()
    (x @ weight).square().mean().backward()
    grad, m, v = weight.grad, torch.zeros(24, 16), torch.zeros(24, 16)
    assert grad is not None
    if factor != 1:
        grad.mul_(factor)
    m.mul_(0.9).add_(grad, alpha=0.1)
    v.mul_(0.999).addcmul_(grad, grad, value=0.001)
    with torch.no_grad():
        return weight.sub_(1e-2 * (m / 0.1) / (v / 0.001).sqrt())


def test_a_step_that_only_the_reference_takes_is_noted() -> None:
    result = kernelscope.compare(lambda: _updated(0.5), lambda: _updated(1.0))
    assert result.first is None, result.details()
    assert any("of the reference changes an input" in note for note in result.notes), result.details()


def test_a_step_that_only_the_other_program_takes_is_noted() -> None:
    result = kernelscope.compare(lambda: _updated(1.0), lambda: _updated(0.5))
    assert result.first is None, result.details()
    assert any("that the reference leaves unchanged" in note for note in result.notes), result.details()
