"""Which kernels a recording records."""

from __future__ import annotations

from fnmatch import fnmatchcase

from kernelscope.config import Config
from kernelscope.events import Finding, Kernel


class KernelChoice:
    """Remembers for each kernel whether the recording's settings choose it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._known: dict[int, bool] = {}

    def wants(self, kernel: Kernel) -> bool:
        wanted = self._known.get(kernel.id)
        if wanted is None:
            config = self._config
            wanted = self._known[kernel.id] = (
                (config.ops == "all" or kernel.kind != "op")
                and (not config.kind or kernel.kind in config.kind)
                and (not config.kernel or any(fnmatchcase(kernel.name, glob) for glob in config.kernel))
            )
        return wanted

    def nothing_matched(self) -> Finding | None:
        """The finding for a run without calls, if its filters are the reason."""
        config = self._config
        if not (config.kernel or config.kind) or not self._known:
            return None
        return Finding(
            "nothing-matched",
            f"{len(self._known)} kernels ran and none matched kernel={list(config.kernel)}, kind="
            f"{list(config.kind)}; kernel takes globs of names, kind triton, cpp, extern, op or gcu",
        )
