"""Faults of kernels on a GPU: a failed assertion, an illegal address.

They are noticed later, and take the GPU away from their process for good: whatever that runs afterwards fails
as well, and tells nothing.
"""

from __future__ import annotations

import torch


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
