"""The memory of a recorded program, made again from its saved values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

import torch

from kernelscope.analysis.sharding.part import Part, inputs, outputs
from kernelscope.errors import RunError
from kernelscope.events import TensorSpec
from kernelscope.model.call import KernelCall
from kernelscope.model.call_facts import same_hash

_Place = tuple[KernelCall, int]


class SavedMemory:
    """By storage of the run. A storage that no recorded call has written comes as the calls found it."""

    def __init__(self, part: Part, calls: Collection[KernelCall]) -> None:
        self._part = part
        self._live: dict[int, Any] = {}
        self._sizes: dict[int, int] = defaultdict(int)  # bytes, as far as calls have seen
        self._given: dict[int, list[_Place]] = defaultdict(list)  # reads before the first write
        self._last_use: dict[int, int] = {}
        self._left: dict[int, tuple[object, Any]] = {}  # what the last call that wrote to it left, and where
        self.devices: set[str] = set()  # that are not on this machine
        written: set[int] = set()
        for call in calls:
            for i, (storage, _, offset) in call.storages.items():
                spec = _spec(call, i)
                self._sizes[storage] = max(self._sizes[storage], (offset + _extent(spec)) * spec.item_size)
                self._last_use[storage] = call.index
            for i in inputs(call):
                if i in call.storages and call.storages[i][0] not in written:
                    self._given[call.storages[i][0]].append((call, i))
            written.update(call.storages[i][0] for i in outputs(call) if i in call.storages)

    def tensor(self, call: KernelCall, position: int) -> torch.Tensor:
        """An argument, as it lies in memory; what no recorded call wrote is read from the run."""
        storage, spec = call.storages[position][0], _spec(call, position)
        if storage not in self._live:
            size = max(self._sizes[storage], 1)
            memory = torch.zeros(size, dtype=torch.uint8, device=self.device(spec.device))
            self._live[storage] = memory.untyped_storage()
            for each in self._given[storage]:
                self._load(*each)
        elif position in inputs(call) and self._was_written_since(call, position):
            self._live[storage] = self._live[storage].clone()
            self._load(call, position)
        return self._view(call, position)

    def device(self, name: str) -> torch.device:
        """The recorded one, or the CPU where this machine does not have it."""
        found = torch.device(name)
        if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
            self.devices.add(name)
            return torch.device("cpu")
        return found

    def write(self, call: KernelCall, position: int) -> torch.Tensor:
        """What the call left, as it was saved."""
        view = self._view(call, position) if self._is_live(call, position) else self.tensor(call, position)
        _put(view, self._saved(call, position, "after"))
        return view

    def adopt(self, call: KernelCall, position: int, tensor: torch.Tensor) -> None:
        """A result that was computed again: its memory is from now on that of the recorded one."""
        if not self._is_live(call, position):
            self._live[call.storages[position][0]] = tensor.untyped_storage()

    def is_over(self, call: KernelCall) -> None:
        """What it left is what later calls find; memory that none of them uses is freed."""
        hashes = call.post_hashes
        for i in outputs(call):
            if i in call.storages and i in hashes:
                self._left[call.storages[i][0]] = self._place(call, i), hashes[i]
        for storage, _, _ in call.storages.values():
            if self._last_use[storage] <= call.index:
                self._live.pop(storage, None)

    def _is_live(self, call: KernelCall, position: int) -> bool:
        return call.storages[position][0] in self._live

    def _was_written_since(self, call: KernelCall, position: int) -> bool:
        """By what was not recorded: the last call that wrote to this place left something else there."""
        place, left = self._left.get(call.storages[position][0], (None, None))
        found = call.pre_hashes.get(position)
        return found is not None and place == self._place(call, position) and not same_hash(found, left)

    @staticmethod
    def _place(call: KernelCall, position: int) -> object:
        return call.storages[position][2], _spec(call, position).reading

    def _load(self, call: KernelCall, position: int) -> None:
        _put(self._view(call, position), self._saved(call, position, "before"))

    def _view(self, call: KernelCall, position: int) -> torch.Tensor:
        storage, _, offset = call.storages[position]
        spec, memory = _spec(call, position), self._live[storage]
        made = torch.empty(0, dtype=getattr(torch, spec.dtype), device=memory.device)
        return made.set_(memory, offset, spec.shape, spec.stride)

    def _saved(self, call: KernelCall, position: int, moment: str) -> torch.Tensor:
        spec = _spec(call, position)
        dtype: torch.dtype = getattr(torch, spec.dtype)
        if not spec.numel:
            return torch.empty(spec.shape, dtype=dtype)
        data = self._part.saved_bytes(call, position, moment)
        if data is None:
            raise RunError(
                f"{self._part.run.path}: the values of {call.arg_names[position]} of call {call.index}, "
                f"{call.kernel_name}, were not saved; record with --values save and a larger --max-tensors"
            )
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(spec.shape)


def _put(view: torch.Tensor, value: torch.Tensor) -> None:
    if not _overlaps(view):
        view.copy_(value)
        return
    memory = torch.empty(0, dtype=view.dtype, device=view.device)
    count = view.untyped_storage().nbytes() // view.element_size()
    memory.set_(view.untyped_storage(), 0, (count,), (1,))
    places = torch.arange(count).as_strided(view.shape, view.stride(), view.storage_offset())
    memory[places.reshape(-1).to(view.device)] = value.reshape(-1).to(view.device)


def _overlaps(view: torch.Tensor) -> bool:
    """Whether elements may share memory, as those of an expanded tensor do."""
    reach = 0
    for stride, size in sorted(zip(view.stride(), view.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _spec(call: KernelCall, position: int) -> TensorSpec:
    spec = call.arguments[position].tensor
    assert spec is not None
    return spec


def _extent(spec: TensorSpec) -> int:
    """Elements from the first to the last, both included."""
    if not spec.numel:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.stride, strict=True))
