"""Whether a write to one view of a memory changes another; checked element by element."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.shadowing.reference.places import Holdings, Memories, Place, overlap

DTYPES = [torch.uint8, torch.int16, torch.float32, torch.complex64]


@st.composite
def places(draw: st.DrawFn) -> Place:
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    stride = tuple(draw(st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12])) for _ in range(rank))
    return Place(7, draw(st.sampled_from(DTYPES)), shape, stride, draw(st.integers(0, 12)))


def bytes_of(place: Place) -> set[int]:
    size, found = place.dtype.itemsize, set[int]()
    for index in itertools.product(*map(range, place.shape)):
        element = place.offset + sum(i * step for i, step in zip(index, place.stride, strict=True))
        found |= set(range(element * size, (element + 1) * size))
    return found


@settings(max_examples=400, derandomize=True, deadline=None)
@given(places(), places())
def test_what_is_said_to_be_apart_is_apart(a: Place, b: Place) -> None:
    assert overlap(a, b) or not bytes_of(a) & bytes_of(b)
    assert overlap(a, b) == overlap(b, a)


def test_columns_of_one_buffer_are_apart() -> None:
    left = Place(1, torch.float32, (2, 3), (7, 1), 0)
    right = Place(1, torch.float32, (2, 4), (7, 1), 3)
    assert not overlap(left, right)
    assert overlap(left, Place(1, torch.float32, (14,), (1,), 0))
    assert not overlap(left, Place(2, torch.float32, (14,), (1,), 0))


def test_steps_of_which_none_divides_the_other() -> None:
    """9 = 6 + 3: the rest that no step divides counts too."""
    a, b = Place(1, torch.int8, (2,), (3,), 6), Place(1, torch.int8, (2, 3), (4, 8), 9)
    assert bytes_of(a) & bytes_of(b) == {9}
    assert overlap(a, b)
    assert overlap(b, a)


def test_a_value_is_read_as_it_was_written() -> None:
    memory = torch.arange(6.0)
    place = Place(0, torch.float32, (2, 3), (1, 2), 0)
    assert place.view(memory).tolist() == [[0, 2, 4], [1, 3, 5]]
    bits = Place(0, torch.int32, (2,), (3,), 1).view(memory)
    assert bits.tolist() == memory.view(torch.int32)[[1, 4]].tolist()


def test_what_is_written_over_is_gone() -> None:
    node = torch.fx.Graph().placeholder("x")
    held = Holdings()
    held.put("buf0", node, Place(1, torch.float32, (4,), (1,), 0))
    held.put("buf1", node, Place(1, torch.float32, (4,), (1,), 4))
    held.overwrite(Place(1, torch.int8, (3,), (1,), 1))
    assert [*held] == ["buf1"]
    assert held.read("buf1", Memories({}, [])) is None
