"""MultiKernels: they benchmark their kernels and then run the one that they picked, which is the launch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any


class _ThreadState(threading.local):
    launches: Mapping[int, Callable[..., Any]] = {}  # of the MultiKernel call that is running


_here = _ThreadState()


def hook_kernel(kernel: Any) -> None:
    """Its `run`, on the object itself, makes the launch of the call that is running."""
    kernel.run = partial(_run, kernel)


def unhook_kernel(kernel: Any) -> None:
    vars(kernel).pop("run", None)


def _run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    launch = _here.launches.get(id(kernel)) or partial(type(kernel).run, kernel)
    return launch(*args, **kwargs)


def launching(multi_kernel: Any, launches: Mapping[int, Callable[..., Any]]) -> Callable[..., Any]:
    """Runs a MultiKernel; `launches` has, by id of each of its kernels, what makes the launch."""

    def launch(*args: Any, **kwargs: Any) -> Any:
        outer, _here.launches = _here.launches, launches
        try:
            return multi_kernel.run(*args, **kwargs)
        finally:
            _here.launches = outer

    return launch
