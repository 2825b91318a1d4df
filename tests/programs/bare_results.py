"""What torch alone makes of a random program: tells a bug of Inductor from a false alarm."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from tests.programs.random_views import RandomProgram

from kernelscope import ShadowResult


def is_true_alarm(result: ShadowResult, program: RandomProgram, device: str = "cpu") -> bool:
    """Whether torch alone has what the result accuses: other strides, or other values."""
    about_strides = [c.verdict == "wrong-function" and "strides are" in c.reason for c in result.culprits]
    if all(about_strides):
        return _has_other_strides(program, device)
    return is_wrong_without_kernelscope(program, device)


def fails_alone(program: RandomProgram, device: str = "cpu") -> bool:
    torch._dynamo.reset()
    try:
        program.run(torch.compile(program.function(), dynamic=program.dynamic), device)
    except Exception:
        return True
    return False


def _has_other_strides(program: RandomProgram, device: str) -> bool:
    torch._dynamo.reset()
    compiled, eager = torch.compile(program.function(), dynamic=program.dynamic), program.function()
    inputs = program.copied_inputs
    pairs = zip(compiled(*inputs(device)), eager(*inputs(device)), strict=True)
    return any(_strides(one) != _strides(other) for one, other in pairs)


def _strides(tensor: torch.Tensor) -> list[int]:
    """But for sizes of one, whose strides mean nothing."""
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]


def is_wrong_without_kernelscope(program: RandomProgram, device: str = "cpu") -> bool:
    """Whether compiled code computes something entirely else, or its results share memory and eager's do not.

    Inductor writes what is joined (cat, stack) right into its slice of the whole; a view of such a part
    that is returned beside a view of the whole then lies in the same memory.
    """
    torch._dynamo.reset()
    compiled, eager = torch.compile(program.function(), dynamic=program.dynamic), program.function()
    if _shared(program, compiled, device) != _shared(program, eager, device):
        return True
    return any(map(_far_apart, program.run(compiled, device), program.run(eager, device)))


def _shared(program: RandomProgram, function: Callable[..., Any], device: str) -> list[tuple[int, int]]:
    inputs = program.copied_inputs(device)
    tensors = [*function(*inputs), *inputs]
    addresses = [t.untyped_storage().data_ptr() for t in tensors]
    pairs = itertools.combinations(range(len(tensors)), 2)
    return [(i, j) for i, j in pairs if addresses[i] == addresses[j]]


def _far_apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = one.double().nan_to_num(), other.double().nan_to_num()
    size = float(other.abs().median()) if other.numel() else 0.0
    return not torch.allclose(one, other, rtol=0.2, atol=0.2 * size)
