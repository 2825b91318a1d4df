"""Faults of kernels on a GPU: a failed assertion, an illegal address.

They are noticed later, and take the GPU away from their process for good: whatever that runs afterwards fails
as well, and tells nothing.
"""

from __future__ import annotations

import torch


class GpuLost(RuntimeError):
    """Nothing can be tried in this process any more."""

    def __init__(self) -> None:
        super().__init__(
            "a fault has taken the GPU from this process, and nothing can be tried in it any more; "
            "`kernelscope reduce script.py` takes another process then"
        )


def wait_for_gpu() -> None:
    """What was left to it has ended, or fails here."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def gpu_is_lost() -> bool:
    """Whether this process had a GPU and cannot use it any more."""
    try:
        wait_for_gpu()
    except RuntimeError:
        return True
    return False
