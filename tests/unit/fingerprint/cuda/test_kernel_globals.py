"""Triton compares the globals of kernels with `!=` when it compiles: a NaN always seems to have changed."""

from __future__ import annotations

import importlib
import math
import pkgutil
from types import ModuleType

import pytest

pytest.importorskip("triton")
from kernelscope.fingerprint.cuda import kernels
from kernelscope.shadowing.checks import measure_on_gpu

MODULES = [
    measure_on_gpu.__name__,
    *(found.name for found in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}.")),
]


def nans(module: ModuleType) -> list[str]:
    """The globals that are a NaN, plain or as `tl.constexpr`."""
    values = {name: getattr(value, "value", value) for name, value in vars(module).items()}
    return [name for name, value in values.items() if isinstance(value, float) and math.isnan(value)]


@pytest.mark.parametrize("name", MODULES)
def test_no_global_is_a_nan(name: str) -> None:
    assert nans(importlib.import_module(name)) == []


def test_a_nan_is_noticed() -> None:
    from triton import language

    module = ModuleType("kernels")
    vars(module).update(
        PLAIN=math.nan, WRAPPED=language.constexpr(math.nan), FINE=language.constexpr(math.inf)
    )
    assert nans(module) == ["PLAIN", "WRAPPED"]
