"""What is known to be written, against a model that keeps a set of bytes."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelscope.probes import storages as module
from kernelscope.probes.storages import Storages

SIZE = 48  # bytes of the memory that views are drawn from
View = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


def bytes_of(tensor: torch.Tensor) -> set[int]:
    size, start = tensor.element_size(), tensor.storage_offset()
    places = product(*(range(n) for n in tensor.shape))
    elements = {start + sum(i * s for i, s in zip(place, tensor.stride(), strict=True)) for place in places}
    return {e * size + byte for e in elements for byte in range(size)}


@st.composite
def views(draw: st.DrawFn, size: int = SIZE) -> View:
    """Any view that fits, also an overlapping or an empty one."""
    dtype = draw(st.sampled_from([torch.uint8, torch.int16, torch.float32]))
    room = size // dtype.itemsize
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    stride = draw(st.lists(st.integers(0, 12), min_size=len(shape), max_size=len(shape)))
    reach = sum(max(n - 1, 0) * s for n, s in zip(shape, stride, strict=True))
    if reach >= room:
        return 0, (room,), (1,), dtype
    return draw(st.integers(0, room - reach - 1)), tuple(shape), tuple(stride), dtype


def at(memory: torch.Tensor, view: View) -> torch.Tensor:
    offset, shape, stride, dtype = view
    return torch.as_strided(memory.view(dtype), shape, stride, offset)


class Checked:
    """The storages and the model side by side."""

    def __init__(self) -> None:
        self.memory = torch.empty(SIZE, dtype=torch.uint8)
        self.storages = Storages()
        self.storages.born(self.memory)
        self.written: set[int] = set()

    def write(self, tensor: torch.Tensor) -> None:
        self.storages.wrote(tensor, self.storages.of(tensor))
        self.written |= bytes_of(tensor)

    def hand_out(self, tensor: torch.Tensor) -> None:
        self.storages.born_in_pool(tensor)
        taken = bytes_of(tensor)
        if taken:
            self.written -= set(range(min(taken), max(taken) + 1))

    def is_live(self, tensor: torch.Tensor, **how: Any) -> bool:
        return self.storages.is_live(tensor, self.storages.of(tensor), **how)


@given(st.lists(st.tuples(st.sampled_from(["write", "hand_out"]), views()), max_size=8), views())
def test_live_contents_were_written_in_every_byte(steps: list[tuple[str, View]], asked: View) -> None:
    checked = Checked()
    for name, view in steps:
        getattr(checked, name)(at(checked.memory, view))
    tensor = at(checked.memory, asked)
    if checked.is_live(tensor):
        assert bytes_of(tensor) <= checked.written
    for place in range(SIZE):
        if checked.is_live(checked.memory[place : place + 1]):
            assert place in checked.written
    if bytes_of(tensor) and not bytes_of(tensor) & checked.written:
        assert not checked.is_live(tensor)


@given(st.lists(views(), min_size=1, max_size=8))
def test_what_was_just_written_is_live(written: list[View]) -> None:
    checked = Checked()
    for view in written:
        checked.write(at(checked.memory, view))
        tensor = at(checked.memory, view)
        assert checked.is_live(tensor) or not tensor.numel()


@given(views(), st.data())
def test_the_same_bytes_in_another_shape_are_live(written: View, data: st.DataObject) -> None:
    """A padded matrix is written as rows and columns, and read as a batch of them."""
    checked = Checked()
    tensor = at(checked.memory, written)
    checked.write(tensor)
    other = tensor.permute(data.draw(st.permutations(range(tensor.dim()))))
    for dim in reversed(range(other.dim())):
        parts = data.draw(st.sampled_from([n for n in range(1, 5) if other.shape[dim] % n == 0]))
        if other.numel():
            other = other.unflatten(dim, (parts, -1))
    assert not other.numel() or checked.storages.is_live(other, checked.storages.of(other))


@given(st.lists(views(), max_size=4), views())
def test_untouched_memory_has_no_written_byte(written: list[View], asked: View) -> None:
    checked = Checked()
    for view in written:
        checked.write(at(checked.memory, view))
    tensor = at(checked.memory, asked)
    if checked.storages.is_untouched(tensor):
        assert not bytes_of(tensor) & checked.written


@given(st.data())
def test_slices_along_one_dimension_make_a_whole_in_any_order(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3), "shape")
    buffer = torch.empty(shape)
    dim = data.draw(st.integers(0, len(shape) - 1), "dim")
    cuts = sorted(data.draw(st.sets(st.integers(1, shape[dim]), max_size=3), "cuts") | {0, shape[dim]})
    pieces = [buffer.narrow(dim, start, end - start) for start, end in pairwise(cuts)]
    storages = Storages()
    storages.born(buffer)
    storage = storages.of(buffer)
    for position, piece in enumerate(data.draw(st.permutations(pieces), "order")):
        assert position == 0 or not storages.is_live(buffer, storage)
        assert not storages.is_live(piece, storage)
        storages.wrote(piece, storage)
        assert storages.is_live(piece, storage)
        assert storages.is_live(piece.narrow(dim, 0, 1), storage)
    assert storages.is_live(buffer, storage)
    assert storages.is_live(buffer.flatten(), storage)


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 6)), max_size=6), st.data())
def test_a_pool_of_intervals_is_known_exactly(pieces: list[tuple[int, int]], data: st.DataObject) -> None:
    """What Inductor's memory planning makes: every piece is dense."""
    checked = Checked()
    floats = checked.memory.view(torch.float32)
    for start, length in pieces:
        piece = floats[start : start + length]
        checked.hand_out(piece)
        if data.draw(st.booleans(), "is it written?"):
            checked.write(piece)
    for start, length in product(range(12), range(1, 7)):
        asked = floats[start : start + length]
        assert checked.is_live(asked) == (bytes_of(asked) <= checked.written)


@given(st.lists(views(), max_size=6), views())
def test_reading_tolerates_doubt_but_not_too_few_bytes(written: list[View], asked: View) -> None:
    checked = Checked()
    for view in written:
        checked.write(at(checked.memory, view))
    tensor = at(checked.memory, asked)
    if tensor.numel() and bytes_of(tensor) <= checked.written and is_plain(tensor):
        assert checked.is_live(tensor, reading=True)
    if not checked.written:
        assert not checked.is_live(tensor, reading=True)


def is_plain(tensor: torch.Tensor) -> bool:
    return len(bytes_of(tensor)) == tensor.nbytes


@given(views())
def test_byte_ranges(view: View) -> None:
    tensor = at(torch.empty(SIZE, dtype=torch.uint8), view)
    places = bytes_of(tensor)
    start, end = module.byte_range(module.view_of(tensor))
    if not places:
        assert start == end
        return
    assert (start, end) == (min(places), max(places) + 1)
    if module.is_dense(module.view_of(tensor)):
        assert places == set(range(start, end))
        assert len(places) == tensor.nbytes
    elif len(places) == tensor.nbytes:
        assert places != set(range(start, end))


# -- one storage after another ---------------------------------------------------------------------------


def test_memory_of_others_is_live() -> None:
    storages, tensor = Storages(), torch.ones(4)
    assert storages.is_live(tensor, storages.of(tensor))


def test_views_share_a_storage_and_its_epoch() -> None:
    storages, tensor = Storages(), torch.ones(4, 4)
    storage = storages.of(tensor)
    assert storages.of(tensor[1:].t()) is storage
    storages.wrote(tensor[0], storage)
    storages.wrote(tensor, storage)
    assert storage.epoch == 2
    assert storages.of(torch.ones(4)) is not storage


def test_an_address_that_is_reused_is_another_storage() -> None:
    storages = Storages()
    seen = set()
    for _ in range(50):
        tensor = torch.empty(64)
        storages.born(tensor)
        storage = storages.of(tensor)
        assert storage.id not in seen
        assert not storages.is_live(tensor, storage)
        seen.add(storage.id)
        storages.wrote(tensor, storage)
        del tensor


def test_old_storages_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_AT_LEAST", 8)
    storages = Storages()
    kept = torch.ones(1)
    first = storages.of(kept)
    for _ in range(5000):
        storages.of(torch.ones(1))
    assert storages.of(kept) is first
    assert storages.count < 5000


def test_an_eager_write_that_no_probe_saw_makes_it_live() -> None:
    storages, tensor = Storages(), torch.empty(4)
    storages.born(tensor)
    assert not storages.is_live(tensor, storages.of(tensor))
    tensor.fill_(1.0)
    assert storages.is_live(tensor, storages.of(tensor))


def test_inference_tensors_have_no_version() -> None:
    with torch.inference_mode():
        storages, tensor = Storages(), torch.empty(4)
        storages.born(tensor)
        assert not storages.is_live(tensor, storages.of(tensor))
        storages.wrote(tensor, storages.of(tensor))
        assert storages.is_live(tensor, storages.of(tensor))


def test_what_a_collective_writes_means_nothing_before_its_wait() -> None:
    """Its thread bumps the version whenever it gets there."""
    storages, tensor = Storages(), torch.empty(4)
    storages.born(tensor, under_way=True)
    tensor.fill_(1)
    assert not storages.is_live(tensor, storages.of(tensor))
    storages.wrote(tensor, storages.of(tensor))
    assert storages.is_live(tensor, storages.of(tensor))
    storages.clear()


def test_whether_one_of_several_is_uninitialised() -> None:
    storages = Storages()
    written, fresh, given = (torch.empty(4) for _ in range(3))
    addresses = [t.untyped_storage()._cdata for t in (written, fresh, given)]
    assert not storages.any_uninitialised(addresses), "none was allocated under our eyes"
    for tensor in (written, fresh):
        storages.born(tensor)
    assert storages.any_uninitialised(addresses)
    storages.wrote(written, storages.of(written))
    assert not storages.any_uninitialised([addresses[0], addresses[2], -1])
    assert storages.any_uninitialised(addresses)
    storages.touch(addresses)
    assert not storages.any_uninitialised(addresses)
    storages.born(written)
    assert storages.any_uninitialised(addresses), "the memory of one that was written is allocated again"
    storages.born(written, left_uninitialised=True)
    assert not storages.any_uninitialised(addresses), "it is so each time"
    storages.born(written)
    assert storages.any_uninitialised(addresses)
