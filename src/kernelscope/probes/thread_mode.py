"""Dispatch modes that are in force on one thread and noted nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Self

from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode


class ThreadMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its __init_subclass__
    """A mode of the thread that enters it.

    TorchDispatchMode also notes for the whole process that a mode is in force, and puts back what it found
    when it is left. If another thread entered one meanwhile, that thread's mode puts back that there is one:
    for good, so that Dynamo's guards then fail at every call under a mode, and each call compiles again.
    """

    def __enter__(self) -> Self:
        _python_dispatch._push_mode(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _python_dispatch._pop_mode(self.__dict__.get("_dispatch_key"))


def leave_soon(leave: Callable[[], bool]) -> None:
    """Call this on the current thread as soon as it succeeds, after the operator that is being dispatched.

    Only the thread itself can take a mode off its stack, and torch puts a mode back when its handler has
    returned. A thread with a Python profiler keeps its idle mode.
    """
    if sys.getprofile() is not None:
        return

    def after(frame: Any, event: str, argument: Any) -> None:
        if leave():
            sys.setprofile(None)

    sys.setprofile(after)
