"""Which memory a tensor lies in, how often it was written, and whether its contents mean anything yet.

A storage is known by a weak reference, never by its address: the allocator hands the same address out
again, but a StorageImpl whose weak count we hold keeps its own. Compiled kernels write without bumping
`_version`, so writes are counted here, from what the probes see.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable
from threading import Lock
from typing import Any

import torch

# Its weak references carry no annotations.
_Memory: Any = torch.UntypedStorage
SWEEP_AT_LEAST = 4096
_UNDER_WAY = -1  # a version that no tensor has
_FEW = 4096  # bytes of views that are compared byte by byte
_View = tuple[int, tuple[int, ...], tuple[int, ...], int]


class Storage:
    """One storage: `epoch` counts the writes seen."""

    __slots__ = ("born_in", "epoch", "id", "left_uninitialised", "uninitialised", "version", "written")

    def __init__(self, id: int) -> None:
        self.id = id
        self.epoch = 0
        self.uninitialised = False  # born under our eyes, and not known to be wholly written since
        self.version = 0  # autograd's counter at birth: a bump betrays a write that no probe saw
        self.written: list[_View] = []
        self.born_in = -1  # the graph call whose wrapper allocated it
        self.left_uninitialised = False  # by an operator that returned it, and does so each time


class Storages:
    """Every storage that a probe came across while a recording was open."""

    def __init__(self, foreign: Callable[[int], None] = lambda id: None) -> None:
        """`foreign` is told of memory that torch did not allocate: an array of NumPy, a mapped file."""
        self._foreign = foreign
        self._known: dict[int, Storage] = {}
        self.known = self._known.get  # by address of the StorageImpl
        self._born: set[int] = set()  # addresses of those that may be uninitialised
        self._ids = itertools.count()
        self._sweep_at = SWEEP_AT_LEAST
        self._lock = Lock()

    @property
    def count(self) -> int:
        """How many are known, those of freed memory included until they are swept."""
        return len(self._known)

    def of(self, tensor: torch.Tensor) -> Storage:
        memory = tensor.untyped_storage()
        return self.known(memory._cdata) or self._add(memory)

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
        if not memory.resizable() and memory.device.type == "cpu":
            self._foreign(storage.id)
        return storage

    def _sweep(self) -> None:
        for key in [k for k in self._known if _Memory._expired(k)]:
            del self._known[key]
            _Memory._free_weak_ref(key)
        self._born.intersection_update(self._known)
        self._sweep_at = max(SWEEP_AT_LEAST, 2 * len(self._known))

    def lasting(self, ids: Container[int]) -> list[Storage]:
        """Those of these storages whose memory is still there."""
        with self._lock:
            return [s for key, s in self._known.items() if s.id in ids and not _Memory._expired(key)]

    def clear(self) -> None:
        with self._lock:
            for key in self._known:
                _Memory._free_weak_ref(key)
            self._known.clear()
            self._born.clear()

    def born(
        self,
        tensor: torch.Tensor,
        graph_call: int = -1,
        *,
        under_way: bool = False,
        left_uninitialised: bool = False,
    ) -> None:
        """Fresh memory; with `under_way` a collective is going to write it, and its wait is the write."""
        storage = self.of(tensor)
        storage.born_in = graph_call
        storage.left_uninitialised = left_uninitialised
        self._is_born(storage, tensor)
        storage.version = _UNDER_WAY if under_way else _version(tensor)
        storage.written.clear()

    def born_in_pool(self, tensor: torch.Tensor) -> None:
        """A piece of a pool was allocated anew: earlier writes in its range do not count."""
        storage = self.of(tensor)
        known = (
            storage.written if storage.uninitialised else [_interval(0, tensor.untyped_storage().nbytes())]
        )
        start, end = byte_range(view_of(tensor))
        storage.written = [piece for view in known for piece in _without(view, start, end)]
        self._is_born(storage, tensor)
        storage.version = _version(tensor)

    def _is_born(self, storage: Storage, tensor: torch.Tensor) -> None:
        address = tensor.untyped_storage()._cdata
        with self._lock:
            storage.uninitialised = True
            self._born.add(address)

    def wrote(self, tensor: torch.Tensor, storage: Storage) -> None:
        storage.epoch += 1
        if not storage.uninitialised:
            return
        if tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes():
            storage.uninitialised = False
            storage.written.clear()
            return
        view = _normal(view_of(tensor))
        if 0 in view[1]:
            return
        # Slices that were written one by one make a whole.
        while (joined := next(((w, j) for w in storage.written if (j := _join(view, w))), None)) is not None:
            storage.written.remove(joined[0])
            view = _normal(joined[1])
        storage.written.append(view)
        if view == _interval(0, tensor.untyped_storage().nbytes()):
            storage.uninitialised = False
            storage.written.clear()

    def touch(self, addresses: Iterable[int]) -> None:
        """What is known of the storages with these addresses may have been written to."""
        for storage in map(self.known, addresses):
            if storage is not None:
                storage.epoch += 1
                storage.uninitialised = False

    def any_uninitialised(self, addresses: Iterable[int]) -> bool:
        """Whether one of these storages is; those that an operator leaves so each time do not count.

        It is asked at each call of a graph: only storages that were allocated under our eyes are looked at.
        """
        for address in self._born.intersection(addresses):
            storage = self.known(address)
            if storage is not None and storage.uninitialised and not storage.left_uninitialised:
                return True
            with self._lock:  # another thread may have met new memory at this address meanwhile
                storage = self.known(address)
                if storage is None or not storage.uninitialised:
                    self._born.discard(address)
        return False

    def is_untouched(self, tensor: torch.Tensor) -> bool:
        """Whether no byte between its first and its last was written since its birth."""
        storage, place = self.of(tensor), byte_range(view_of(tensor))
        return (
            storage.uninitialised
            and storage.version == _version(tensor)
            and all(_disjoint(byte_range(written), place) for written in storage.written)
        )

    def is_live(self, tensor: torch.Tensor, storage: Storage, *, reading: bool = False) -> bool:
        """Whether the contents were written; for memory that is only read, enough bytes of it are enough."""
        if not storage.uninitialised or storage.version not in (_version(tensor), _UNDER_WAY):
            return True
        if not storage.written:
            return False
        view = view_of(tensor)
        if any(_contains(written, view) for written in storage.written):
            return True
        return reading and sum(map(_nbytes, storage.written)) >= _nbytes(view) > 0


def _version(tensor: torch.Tensor) -> int:
    # Inference tensors have no version counter, and asking for it raises.
    return 0 if tensor.is_inference() else tensor._version


def view_of(tensor: torch.Tensor) -> _View:
    size = tensor.element_size()
    return int(tensor.storage_offset()) * size, tuple(tensor.shape), tensor.stride(), size


def byte_range(view: _View) -> tuple[int, int]:
    start, shape, stride, size = view
    if 0 in shape:
        return start, start
    return start, start + (1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))) * size


def _nbytes(view: _View) -> int:
    return math.prod(view[1]) * view[3]


def is_dense(view: _View) -> bool:
    """Whether it fills its byte range, each element in a place of its own."""
    _, shape, stride, _ = view
    expected = 1
    for step, count in sorted((s, n) for s, n in zip(stride, shape, strict=True) if n != 1):
        if step != expected:
            return False
        expected *= count
    return True


def _interval(start: int, end: int) -> _View:
    return start, (end - start,), (1,), 1


def _normal(view: _View) -> _View:
    """What fills its byte range is an interval of bytes, whatever its shape and type."""
    return _interval(*byte_range(view)) if is_dense(view) else view


def _without(view: _View, start: int, end: int) -> list[_View]:
    first, last = byte_range(view)
    if _disjoint((first, last), (start, end)):
        return [view]
    if not is_dense(view):
        return []  # what is left of it has no simple shape: in doubt it is not known to be written
    return [_interval(*piece) for piece in ((first, start), (end, last)) if piece[0] < piece[1]]


def _contains(outer: _View, inner: _View) -> bool:
    first, last = byte_range(outer)
    start, end = byte_range(inner)
    if not (first <= start and end <= last):
        return False
    if outer == inner or is_dense(outer) or _join(outer, inner) == outer:
        return True
    outer, inner = _by_bytes(outer), _by_bytes(inner)
    if outer == inner or _join(outer, inner) == outer:
        return True
    # Dimensions that overlap can be written down in many ways: then each byte is looked at, if they are few.
    return _overlaps(outer) and max(_nbytes(outer), _nbytes(inner)) <= _FEW and _bytes(inner) <= _bytes(outer)


def _overlaps(view: _View) -> bool:
    """Whether a byte may have several places in it."""
    reached = 1
    for step, count in sorted(zip(view[2], view[1], strict=True)):
        if step < reached:
            return True
        reached = step * count
    return False


def _bytes(view: _View) -> set[int]:
    start, shape, stride, _ = view
    found = {start}
    for step, count in zip(stride, shape, strict=True):
        found = {place + step * n for place in found for n in range(count)}
    return found


def _by_bytes(view: _View) -> _View:
    """The same for all views of the same bytes: split and joined dimensions, any order, another dtype."""
    start, shape, stride, size = view
    steps = [(s * size, n) for s, n in zip(stride, shape, strict=True) if n != 1 and s]
    dims: list[tuple[int, int]] = []  # from the innermost
    for step, count in sorted([*steps, (1, size)]):
        if dims and step == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0], dims[-1][1] * count)
        else:
            dims.append((step, count))
    dims.reverse()
    return start, tuple(count for _, count in dims), tuple(step for step, _ in dims), 1


def _join(a: _View, b: _View) -> _View | None:
    """The two as one, where they touch or overlap along one dimension and agree in all others."""
    if a[2:] != b[2:]:
        return None
    if a[0] > b[0]:
        a, b = b, a
    (start, shape, stride, size), (other_start, other_shape, _, _) = a, b
    differing = [d for d, (n, m) in enumerate(zip(shape, other_shape, strict=True)) if n != m]
    if len(differing) > 1:
        return None
    for d in differing or range(len(shape)):
        steps, rest = divmod(other_start - start, max(stride[d], 1) * size)
        if rest == 0 and steps <= shape[d] and (stride[d] > 0 or other_start == start):
            length = max(shape[d], steps + other_shape[d])
            return start, (*shape[:d], length, *shape[d + 1 :]), stride, size
    return a if a == b else None


def _disjoint(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[1] <= b[0] or b[1] <= a[0]
