"""A program listed by a DebugMode, ours or stock's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Program = Callable[[Any], None]  # it is given the module whose DebugMode lists it


def listed(debug_mode: Any, program: Program, hashing: dict[str, Any] | None = None, **flags: Any) -> Any:
    torch.manual_seed(0)
    with debug_mode.DebugMode(**flags) as mode:
        if hashing is None:
            program(debug_mode)
        else:
            with debug_mode.DebugMode.log_tensor_hashes(**hashing), debug_mode.DebugMode.record_outputs():
                program(debug_mode)
    return mode
