"""Torch's global flags that change what a kernel computes without being an argument of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch._inductor.config

# Straight from C++: torch.backends' properties take ten times as long, and some of them warn.
_GETTERS = {
    "deterministic algorithms": "_get_deterministic_algorithms",
    "float32 matmul precision": "_get_float32_matmul_precision",
    "matmul TF32": "_get_cublas_allow_tf32",
    "matmul bf16 reduction": "_get_cublas_allow_bf16_reduced_precision_reduction",
    "matmul f16 reduction": "_get_cublas_allow_fp16_reduced_precision_reduction",
    "cudnn TF32": "_get_cudnn_allow_tf32",
    "cudnn deterministic": "_get_cudnn_deterministic",
    "cudnn benchmark": "_get_cudnn_benchmark",
    "threads": "get_num_threads",
}


class TorchFlags:
    """Notices when a flag has changed."""

    def __init__(self) -> None:
        # A flag that this torch does not have is not compared.
        self._getters: dict[str, Callable[[], Any]] = {
            name: getattr(torch._C, getter) for name, getter in _GETTERS.items() if hasattr(torch._C, getter)
        }
        self._last: list[Any] = []

    def changed(self) -> str | None:
        """All of them as JSON, if one differs from the last time."""
        try:
            now = [getter() for getter in self._getters.values()]
        except RuntimeError:
            now = [_read(getter) for getter in self._getters.values()]
        if now == self._last:
            return None
        self._last = now
        return json.dumps(dict(zip(self._getters, now, strict=True)), default=str)


def _read(getter: Callable[[], Any]) -> Any:
    try:
        return getter()
    except RuntimeError:  # the old and the new names of TF32 were mixed
        return "mixed"


def inductor_may_pad(device_types: Iterable[str]) -> bool:
    """Whether Inductor pads rows in a program on these devices: on a CPU alone only if it is told to."""
    config: Any = torch._inductor.config
    return any(kind != "cpu" for kind in device_types) or not getattr(config, "disable_padding_cpu", False)
