"""One process of the comparison: its calls that make values, and the values themselves."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from kernelscope.analysis.ranks.rank import communicates
from kernelscope.errors import RunError
from kernelscope.fingerprint.stats import Stats
from kernelscope.model.call import KernelCall
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.tensors import is_tensor_file, read_tensor

from .declared import DTensors
from .values.layouts import rms
from .values.summaries import rms_of

_READ_ONLY = ("_local_scalar_dense", "_wrap_tensor_autograd", "wait_tensor")
_KEPT_ARRAYS = 512


class Part:
    """What one process recorded."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        self.all_calls = run.calls
        self._arrays = lru_cache(_KEPT_ARRAYS)(self._read)

    @property
    def rank(self) -> int:
        return self.run.info.rank

    @cached_property
    def dtensors(self) -> DTensors:
        return DTensors(self.run.marks)

    @cached_property
    def calls(self) -> list[KernelCall]:
        """Those that compute values: no collectives, and nothing that only moves shards for an operator."""
        return [
            call
            for call in self.all_calls
            if outputs(call)
            and not communicates(call.site)
            and not any(word in call.kernel_name for word in _READ_ONLY)
            and not self.dtensors.is_redistribution(call)
            and not call.error
        ]

    @cached_property
    def _writers(self) -> dict[int, list[KernelCall]]:
        """By storage, in order."""
        found: dict[int, list[KernelCall]] = defaultdict(list)
        for call in self.all_calls:
            places = call.storages
            begun = {position: place[0] for position, place in call.begun_storages.items()}
            for position in outputs(call):
                storage = places[position][0] if position in places else begun.get(position)
                if storage is not None:
                    found[storage].append(call)
        return found

    def writer(self, call: KernelCall, position: int) -> KernelCall | None:
        """The last recorded call that wrote to the memory of an argument before this call."""
        place = call.storages.get(position)
        writers = self._writers.get(place[0], []) if place else []
        at = bisect_left([each.index for each in writers], call.index)
        return writers[at - 1] if at else None

    def value(self, call: KernelCall, position: int, moment: str) -> Any:
        """A saved tensor as float64; None if it was not saved or has no numbers."""
        file, spec = self._files.get((call.index, position, moment)), call.arguments[position].tensor
        if file is None or spec is None:
            return None
        held, shape = self._arrays(file), spec.shape
        if held is not None and held.size == 2 * spec.numel and spec.dtype.startswith("complex"):
            shape = (*shape, 2)
        # Views with the same contents share a file, so its own shape is that of one of them.
        return None if held is None or held.size != math.prod(shape) else held.reshape(shape)

    def raw(self, call: KernelCall, position: int) -> Any:
        """A saved result in its own dtype, for hashing; None if it was not saved."""
        data, spec = self.saved_bytes(call, position, "after"), call.arguments[position].tensor
        if data is None or spec is None:
            return None
        return np.frombuffer(data, f"V{spec.item_size}").reshape(spec.shape)

    def saved_bytes(self, call: KernelCall, position: int, moment: str) -> bytes | None:
        """The elements of a saved tensor in row-major order; None if it was not saved."""
        file, spec = self._files.get((call.index, position, moment)), call.arguments[position].tensor
        if file is None or spec is None:
            return None
        held = read_tensor(self.run.path / folder.TENSORS / file)
        return held.data if len(held.data) == spec.numel * spec.item_size else None

    def stats(self, call: KernelCall, position: int, moment: str) -> Stats | None:
        return (call.pre_stats if moment == "before" else call.post_stats).get(position)

    def size(self, call: KernelCall, position: int, moment: str) -> float | None:
        """The rms of a value, if it is known."""
        stats, held = self.stats(call, position, moment), self.value(call, position, moment)
        if stats is not None:
            return rms_of(stats)
        return None if held is None else rms(held)

    def bits(self, call: KernelCall, position: int, moment: str) -> int | None:
        found = (call.pre_hashes if moment == "before" else call.post_hashes).get(position)
        return found if isinstance(found, int) else None

    @cached_property
    def _files(self) -> dict[tuple[int, int, str], str]:
        """Of each saved tensor, by call, argument and moment."""
        found: dict[tuple[int, int, str], str] = {}
        with self.run.database.understood():
            for call, position, moment, file in self.run.rows(
                "SELECT call, position, moment, file FROM tensors"
            ):
                found[int(call), int(position), str(moment)] = str(file)
        if unknown := next((file for file in found.values() if not is_tensor_file(file)), ""):
            raise RunError(f"{self.run.path} is damaged: {unknown!r:.80} is not the name of a saved tensor")
        return found

    def _read(self, file: str) -> Any:
        held = read_tensor(self.run.path / folder.TENSORS / file)
        array = held.numpy()
        if array.dtype == np.uint8 and held.dtype != "U8":
            return None
        if array.dtype.kind == "c":
            array = np.stack([array.real, array.imag], axis=-1)
        return array.astype(np.float64)


def outputs(call: KernelCall) -> list[int]:
    """The positions of what it writes or returns."""
    return [
        i
        for i, arg in enumerate(call.arguments)
        if arg.tensor is not None and (arg.returned or arg.role in ("out", "inout"))
    ]


def inputs(call: KernelCall) -> list[int]:
    return [
        i
        for i, arg in enumerate(call.arguments)
        if arg.tensor is not None
        and not arg.returned
        and arg.role in ("in", "inout")
        and i not in call.uninitialised
    ]
