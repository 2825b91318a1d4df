"""Puts eager's result in the place of what chosen kernels write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kernelscope.values.kernel_filter import KernelFilter

from .api import listening
from .eager_launches import EagerLaunches
from .result import ShadowResult
from .session import Session


@contextmanager
def eager_outputs(wanted: KernelFilter) -> Iterator[EagerLaunches]:
    """Inside the block; what was compiled before is compiled again, because only lowering knows the nodes."""
    result = ShadowResult()
    launches = EagerLaunches(
        result, lambda launch, _: wanted.wants(launch.site.kernel, launch.site.device), judges=False
    )
    with listening(Session(result, launches=launches)):
        yield launches
    for message in [*wanted.complaints(), *result.unshadowed]:
        print(f"kernelscope: {message}", file=sys.stderr)
    if launches.failures:
        raise RuntimeError(f"not replaced by eager's result: {launches.failures[0]}")
