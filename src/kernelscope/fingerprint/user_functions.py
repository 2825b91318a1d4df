"""Fingerprints that a function of the user computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, repr=False)
class HashFailure:
    """What `Fingerprinter.read` returns in place of a value that could not be computed."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"<{self.kind} failed: {self.message}>"

    __repr__ = __str__


def name_of(function: Callable[[torch.Tensor], object]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def call(function: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> object:
    name = name_of(function)
    try:
        value = function(tensor)
        if not isinstance(value, torch.Tensor):
            return value
        if value.numel() == 1:
            # A clone, because the function may have returned a view of what is about to be overwritten.
            return value.detach().clone()
    except Exception as error:
        return HashFailure(name, f"{type(error).__name__}: {error}")
    shape = tuple(value.shape)
    return HashFailure(name, f"returned a tensor of shape {shape}; return a number or a string")
