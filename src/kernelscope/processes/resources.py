"""How much of the machine this process may use."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def usable_cores() -> int:
    """Not all that the machine has: `taskset` and containers give a process fewer."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def usable_memory() -> int:
    """Bytes: the least of what the machine has, what its container may use, and what `ulimit -v` leaves."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max", or not this kind of cgroup
            limits.append(int(file.read_bytes()))
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        limits.append(address_space)
    return min(limits)
