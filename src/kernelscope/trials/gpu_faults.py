"""Faults of kernels on a GPU: a failed assertion, an illegal address.

They show up later, and make the GPU unusable for the process: whatever it runs afterwards fails, too.
"""

from __future__ import annotations

import torch


class GpuLost(RuntimeError):
    """No more trials can run in this process."""

    def __init__(self) -> None:
        super().__init__(
            "a GPU fault made the device unusable in this process, so no more trials can run in it; "
            "`kernelscope reduce script.py` continues in a new process"
        )


def wait_for_gpu() -> None:
    """Wait until the GPU has finished; its faults are raised here."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def gpu_is_lost() -> bool:
    """Whether a fault made the GPU unusable in this process."""
    try:
        wait_for_gpu()
    except RuntimeError:
        return True
    return False
