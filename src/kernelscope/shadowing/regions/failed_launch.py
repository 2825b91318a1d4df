"""The launch that raised last: what to name if the uncompiled function does not raise."""

from __future__ import annotations

from kernelscope.probes.launch import Launch
from kernelscope.shadowing.culprit import Culprit, culprit_of


class FailedLaunch:
    """Keeps no exception: with its traceback it would keep the arguments of the launch."""

    def __init__(self) -> None:
        self._raised: tuple[int, str] | None = None
        self._culprit: Culprit | None = None

    def note(self, launch: Launch, index: int, graph: str) -> None:
        error = launch.error
        if isinstance(error, Exception):
            self._raised = id(error), str(error)
            name = type(error).__name__
            words = f"it raises {name}"
            self._culprit = culprit_of(launch, index, "wrong-kernel", words, argument=words, graph=graph)

    def that_raised(self, error: Exception) -> Culprit | None:
        """With nothing known against what it was given, that launch is to blame."""
        is_same = self._raised == (id(error), str(error))
        return self._culprit if is_same else None
