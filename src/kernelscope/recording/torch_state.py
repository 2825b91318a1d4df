"""Torch's settings, flags and process groups, noted in a run whenever they have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernelscope.probes.compilation.compile_settings import changed_settings
from kernelscope.probes.distributed.generator_states import GENERATORS, generator_states
from kernelscope.probes.distributed.process_groups import GROUP, group_count, place, process_groups
from kernelscope.probes.torch_flags import TorchFlags

from .sinks import Sink


class TorchState:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._flags = TorchFlags()
        self._settings: dict[str, dict[str, Any]] = {}
        self._groups: set[str] = set()  # texts of the process groups that were noted
        self._group_count = 0

    def note_settings(self) -> None:
        found = changed_settings()
        if found != self._settings:
            self._settings = found
            self._sink.settings(found)

    def note_flags(self) -> None:
        if (flags := self._flags.changed()) is not None:
            self._sink.mark("switches", flags)

    @property
    def has_met_others(self) -> bool:
        """Whether the program has made a process group."""
        return bool(self._groups)

    def note_generators(self, step: int) -> None:
        """Where there are other ranks: their random number generators may have to agree."""
        if self._sink.run.info.world_size > 1:
            self._sink.mark(GENERATORS, generator_states(step))

    def note_place(self) -> None:
        """Which rank this is, and its process groups: known once the program has made them."""
        if (count := group_count()) == self._group_count:
            return
        self._group_count = count
        here = place()
        info = self._sink.run.info
        if (info.rank, info.world_size) != (here.rank, here.world_size) and count:
            known = {"rank": here.rank, "local_rank": here.local_rank, "world_size": here.world_size}
            self._sink.run.info = replace(
                info, rank=here.rank, local_rank=here.local_rank, world_size=here.world_size
            )
            for key, value in known.items():
                self._sink.set_metadata(key, value)
        for text in (group.text() for group in process_groups()):
            if text not in self._groups:
                self._groups.add(text)
                self._sink.mark(GROUP, text)
