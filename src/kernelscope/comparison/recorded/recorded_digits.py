"""With how many digits the libraries of a recorded program may have computed, by the flags that it had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelscope.events import TensorSpec
from kernelscope.shadowing.reference.small_errors.library_digits import DIGITS, library_of
from kernelscope.shadowing.reference.small_errors.rounding import eps_of

_ON_CPU = {"high": "tf32", "medium": "bf16"}  # of float32 matmul precision


def digits_of(name: str, specs: list[TensorSpec], flags: Mapping[str, Any]) -> float:
    """One rounding that a library may do inside, where it is coarser than the dtype's; else 0."""
    operator = name.split(".")[1] if "." in name else name
    found = (library_of(operator, _dtype(spec), torch.device(spec.device)) for spec in specs)
    return max((DIGITS.get(_setting(*each, flags), 0.0) for each in found if each is not None), default=0.0)


def rounding_of_dtypes(specs: list[TensorSpec]) -> float:
    return max((eps_of(_dtype(spec)) for spec in specs), default=0.0)


def _setting(device: str, kind: str, flags: Mapping[str, Any]) -> str:
    if device == "cpu":
        return _ON_CPU.get(str(flags.get("float32 matmul precision")), "") if kind == "matmul" else ""
    return "tf32" if flags.get("matmul TF32" if kind == "matmul" else "cudnn TF32") is True else ""


def _dtype(spec: TensorSpec) -> torch.dtype:
    found: torch.dtype = getattr(torch, spec.dtype)
    return found
