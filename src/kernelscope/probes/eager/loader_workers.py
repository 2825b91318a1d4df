"""Whether this process was started to load data: it then hears so before anything else is done in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from kernelscope.probes.patching import Patch, PatchSet


class LoaderWorkers(PatchSet):
    """The probe; `begins` is called in a worker of a `DataLoader` that is not forked from a recording."""

    def __init__(self, begins: Callable[[], None]) -> None:
        self._begins = begins
        super().__init__(Patch("torch.utils.data._utils.worker:_worker_loop", self._around))

    def _around(self, original: Any) -> Any:
        @wraps(original)  # it is handed to other processes by this name
        def loop(*args: Any, **kwargs: Any) -> Any:
            self._begins()
            return original(*args, **kwargs)

        return loop
