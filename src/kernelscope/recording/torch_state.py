"""Torch's settings and global flags, noted in a run whenever they have changed."""

from __future__ import annotations

from typing import Any

from kernelscope.probes.compilation.compile_settings import changed_settings
from kernelscope.probes.torch_flags import TorchFlags

from .sinks import Sink


class TorchState:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._flags = TorchFlags()
        self._settings: dict[str, dict[str, Any]] = {}

    def note_settings(self) -> None:
        found = changed_settings()
        if found != self._settings:
            self._settings = found
            self._sink.settings(found)

    def note_flags(self) -> None:
        if (flags := self._flags.changed()) is not None:
            self._sink.mark("switches", flags)
