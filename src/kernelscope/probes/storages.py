"""Which memory a tensor lies in, how often it was written, and whether its contents mean anything yet.

A storage is known by a weak reference, never by its address: the allocator hands the same address out
again, but a StorageImpl whose weak count we hold keeps its own. Compiled kernels write without bumping
`_version`, so writes are counted here, from what the probes see.
"""

from __future__ import annotations

import itertools
from threading import Lock
from typing import Any

import torch

# Its weak references carry no annotations.
_Memory: Any = torch.UntypedStorage
_SWEEP_AT_LEAST = 4096
_View = tuple[int, tuple[int, ...], tuple[int, ...], int]


class Storage:
    """One storage: `epoch` counts the writes seen."""

    __slots__ = ("epoch", "id", "unwritten", "version", "written")

    def __init__(self, id: int) -> None:
        self.id = id
        self.epoch = 0
        self.unwritten = False  # born under our eyes, and not known to be wholly written since
        self.version = 0  # autograd's counter at birth: a bump betrays a write that no probe saw
        self.written: list[_View] = []


class Storages:
    """Every storage that a probe came across while a recording was open."""

    def __init__(self) -> None:
        self._known: dict[int, Storage] = {}
        self._ids = itertools.count()
        self._sweep_at = _SWEEP_AT_LEAST
        self._lock = Lock()

    def of(self, tensor: torch.Tensor) -> Storage:
        memory = tensor.untyped_storage()
        storage = self._known.get(memory._cdata)
        return storage if storage is not None else self._add(memory)

    def _add(self, memory: Any) -> Storage:
        with self._lock:
            if len(self._known) >= self._sweep_at:
                self._sweep()
            key: int = memory._weak_ref()
            known = self._known.get(key)
            if known is not None:
                _Memory._free_weak_ref(key)
                return known
            storage = self._known[key] = Storage(next(self._ids))
            return storage

    def _sweep(self) -> None:
        for key in [k for k in self._known if _Memory._expired(k)]:
            del self._known[key]
            _Memory._free_weak_ref(key)
        self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._known))

    def clear(self) -> None:
        with self._lock:
            for key in self._known:
                _Memory._free_weak_ref(key)
            self._known.clear()

    def born(self, tensor: torch.Tensor) -> None:
        """Fresh memory: its contents mean nothing until somebody writes them."""
        storage = self.of(tensor)
        storage.unwritten = True
        storage.version = _version(tensor)
        storage.written.clear()

    def born_in_pool(self, tensor: torch.Tensor) -> None:
        """A piece of a pool was handed out anew: earlier writes in its range belong to somebody else."""
        storage = self.of(tensor)
        storage.unwritten = True
        storage.version = _version(tensor)
        start, end = _byte_range(_view(tensor))
        storage.written = [w for w in storage.written if _disjoint(_byte_range(w), (start, end))]

    def wrote(self, tensor: torch.Tensor, storage: Storage) -> None:
        storage.epoch += 1
        if not storage.unwritten:
            return
        if tensor.nbytes >= tensor.untyped_storage().nbytes():
            storage.unwritten = False
            storage.written.clear()
            return
        view = _view(tensor)
        if view not in storage.written:
            storage.written.append(view)

    def is_live(self, tensor: torch.Tensor, storage: Storage, *, reading: bool = False) -> bool:
        """Whether the contents are known to be somebody's values and not leftovers of the allocator.

        For memory that a kernel only reads, any write will do: the kernel knows which part it needs.
        """
        if not storage.unwritten or _version(tensor) != storage.version:
            return True
        if reading or not storage.written:
            return bool(storage.written)
        view = _view(tensor)
        if view in storage.written:
            return True
        start, end = _byte_range(view)
        for written in storage.written:
            first, last = _byte_range(written)
            if first <= start and end <= last and _is_dense(written, last - first):
                return True
        return False


def _version(tensor: torch.Tensor) -> int:
    # Inference tensors have no version counter, and asking for it raises.
    return 0 if tensor.is_inference() else tensor._version


def _view(tensor: torch.Tensor) -> _View:
    size = tensor.element_size()
    return int(tensor.storage_offset()) * size, tuple(tensor.shape), tensor.stride(), size


def _byte_range(view: _View) -> tuple[int, int]:
    start, shape, stride, size = view
    if 0 in shape:
        return start, start
    return start, start + (1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))) * size


def _is_dense(view: _View, extent: int) -> bool:
    _, shape, _, size = view
    count = size
    for n in shape:
        count *= n
    return count == extent


def _disjoint(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[1] <= b[0] or b[1] <= a[0]
