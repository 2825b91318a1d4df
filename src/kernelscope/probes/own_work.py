"""Work of the recorder itself: unseen by the program, and its failures never reach the program."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from kernelscope.events import Finding

torch_function_modes = torch._C._len_torch_function_stack
_Result = TypeVar("_Result")


def unseen(do: Callable[..., _Result], *args: Any) -> _Result:
    """Do something where the user's torch-function modes do not see what it asks of tensors."""
    if not torch_function_modes():
        return do(*args)
    with torch._C.DisableTorchFunction():
        return do(*args)


def own_fault(where: str) -> Finding:
    """An error of the recorder itself, which is being handled; the program goes on."""
    trace = traceback.format_exc(limit=-3).strip()
    return Finding("recorder-error", f"kernelscope failed while {where}; the program continued.\n{trace}")
