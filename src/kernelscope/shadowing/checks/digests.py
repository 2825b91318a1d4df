"""Numbers that change with any bit of a tensor: of all tensors that are asked for at once, in one go.

On a GPU one kernel digests many of them, and the host waits once for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelscope.fingerprint.cpu import bits as cpu_bits
from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.fingerprint.definition import MASK64
from kernelscope.fingerprint.torch_bits import sum_into


def digest(tensor: torch.Tensor) -> int:
    return digests([tensor])[0]


def digests(tensors: Sequence[torch.Tensor]) -> list[int]:
    """One for each, of its elements in their logical order."""
    tensors = [torch.zeros_like(t) if t._is_zerotensor() else t for t in tensors]  # these have no memory
    found = [cpu_bits.accumulate(t) if t.device.type == "cpu" else None for t in tensors]
    left: dict[torch.device, list[int]] = {}
    for i, known in enumerate(found):
        if known is None:
            left.setdefault(tensors[i].device, []).append(i)
    for device, places in left.items():
        numbers = _on_device([tensors[i] for i in places], device)
        for i, number in zip(places, numbers, strict=True):
            found[i] = number & MASK64
    return [number for number in found if number is not None]


def _on_device(tensors: Sequence[torch.Tensor], device: torch.device) -> list[int]:
    log = torch.zeros(len(tensors), dtype=torch.int64, device=device)
    done = [False] * len(tensors)
    if device.type == "cuda" and not cuda.unavailable():
        done = cuda.accumulate(tensors, log.data_ptr(), device.index or 0)
    for i, tensor in enumerate(tensors):
        if not done[i]:
            sum_into(tensor, log[i : i + 1])
    numbers: list[int] = log.tolist()
    return numbers
