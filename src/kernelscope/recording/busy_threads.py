"""A recording that closes waits for threads that are looking at a launch, and not for the launches."""

from __future__ import annotations

import threading
import time

_PATIENCE = 10.0  # seconds; a function of the user's may look, too, and not come back


def wait_for_others(looking: list[int]) -> None:
    """Until no other thread is in this list.

    Each thread puts itself there before it asks whether the recording is open, so one that comes now finds
    it closed. Appending and removing take no lock: threads look at the same time.
    """
    own, end = threading.get_ident(), time.monotonic() + _PATIENCE
    while any(thread != own for thread in list(looking)) and time.monotonic() < end:
        time.sleep(0.0002)
