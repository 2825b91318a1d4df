"""Which kernels a recording records."""

from __future__ import annotations

from fnmatch import fnmatchcase

from kernelscope.config import Config
from kernelscope.events import Finding, Kernel
from kernelscope.text.amounts import counted


class CallFilters:
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

    def nothing_matched(self, last_step: int, *, ran_in_others: bool) -> Finding | None:
        """The finding for a run without calls, if its filters are the reason.

        `ran_in_others`: whether compiled code ran in steps that were not to be recorded.
        """
        config = self._config
        if config.steps is not None:
            first, end = config.steps
            if last_step < first:
                why = f"the program ended in step {last_step}"
                how = "a step ends when an optimizer has stepped, or with kernelscope.step()"
                return Finding(
                    "nothing-matched", f"steps {first}:{end} were to be recorded, and {why}; {how}"
                )
            if ran_in_others:
                text = f"no compiled code ran in steps {first}:{end}; it ran in other steps"
                return Finding("nothing-matched", text)
        if not (config.kernel or config.kind) or not self._known:
            return None
        return Finding(
            "nothing-matched",
            f"{counted(len(self._known), 'kernel')} ran and none matched kernel={list(config.kernel)}, kind="
            f"{list(config.kind)}; kernel takes globs of names, kind triton, cpp, extern, op or gcu",
        )
