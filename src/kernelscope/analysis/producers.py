"""Which call wrote what a call reads: followed call by call, so that a run of any length is read once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from kernelscope.model.call import KernelCall

_REMEMBERED = 200_000  # pieces of memory; what was written longer ago has no producer any more


@dataclass(frozen=True, slots=True)
class Flow:
    """One argument of a call, and the call that wrote what it holds."""

    producer: int
    written: int  # the producer's argument
    read: int  # the consumer's argument
    tag: Any = None  # given with the producer when it was followed


class Flows:
    """Follows memory from call to call, in order of execution.

    By storage where that is known. A launch that was only noted does not know its storages: then by the
    names of the buffers in the generated code, which tell within one graph call.
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._remembered = remembered
        self._writers: OrderedDict[Hashable, tuple[int, int, Any]] = OrderedDict()

    def follow(self, call: KernelCall, tag: Any = None) -> list[Flow]:
        """Where each of its inputs came from, as far as a call before it wrote that."""
        storages, roles, uninitialised = call.storages, call.roles, set(call.uninitialised)
        found, written = [], []
        for i, arg in enumerate(call.arguments):
            if arg.tensor is None:
                continue
            keys: list[Hashable] = []
            if i in storages:
                keys.append(storages[i][0])
            if call.graph_call is not None and arg.wrapper_name:
                keys.append((call.graph_call, arg.wrapper_name))
            if roles[i] in ("in", "inout") and i not in uninitialised:
                producer = self._writer(keys)
                if producer is not None and producer[0] != call.index:
                    found.append(Flow(producer[0], producer[1], i, producer[2]))
            if roles[i] in ("out", "inout"):
                written.append((keys, i))
        for keys, i in written:
            for key in keys:
                self._writers[key] = call.index, i, tag
                self._writers.move_to_end(key)
        while len(self._writers) > self._remembered:
            self._writers.popitem(last=False)
        return found

    def _writer(self, keys: list[Hashable]) -> tuple[int, int, Any] | None:
        return next((self._writers[key] for key in keys if key in self._writers), None)
