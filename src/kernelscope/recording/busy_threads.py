"""A recording that closes waits for threads that are recording a launch, and not for the launches."""

from __future__ import annotations

import threading
import time

from kernelscope.events import Finding

PATIENCE = 10.0  # seconds; a function of the user's may run there, too, and not return
STILL_BUSY = Finding(
    "closed-while-busy",
    f"the recording closed while another thread was still recording a launch after {PATIENCE:.0f} s; that "
    "call is incomplete. Check whether an observer or a condition of yours blocks",
)


def wait_for_others(busy: list[int]) -> bool:
    """Whether no other thread is in this list any more.

    Each thread puts itself there before it reads whether the recording is open, so one that comes now finds
    it closed. Appending and removing take no lock: threads record at the same time.
    """
    own, end = threading.get_ident(), time.monotonic() + PATIENCE
    while any(thread != own for thread in list(busy)):
        if time.monotonic() >= end:
            return False
        time.sleep(0.0002)
    return True
