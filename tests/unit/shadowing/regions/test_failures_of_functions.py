"""Compiled code that raises is wrong only if the same function, uncompiled, certainly does not."""

from __future__ import annotations

import pytest
import torch

from kernelscope.shadowing.regions.region import Unjudged
from kernelscope.shadowing.regions.region_culprit import failure_of_compiled_code


def raises(error: Exception) -> None:
    raise error


def test_it_raises_where_eager_does_not() -> None:
    [found] = failure_of_compiled_code(AssertionError("wrong strides\nand more"), lambda: None)
    assert found.what == "it raises AssertionError"
    assert found.reason == "compiled, it raises AssertionError: wrong strides, and uncompiled it does not"


def test_it_raises_as_eager_does() -> None:
    assert failure_of_compiled_code(ValueError("a"), lambda: raises(ValueError("b"))) == []


def test_it_raises_something_else() -> None:
    with pytest.raises(Unjudged, match="it raised ValueError, and eager OSError"):
        failure_of_compiled_code(ValueError("a"), lambda: raises(OSError("b")))


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError()], ids=lambda each: type(each).__name__
)
def test_too_little_memory_may_be_our_fault(error: Exception) -> None:
    with pytest.raises(Unjudged, match="it raised "):
        failure_of_compiled_code(error, lambda: None)
