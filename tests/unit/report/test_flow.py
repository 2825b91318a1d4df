"""Who produced what a call read, on hand-built calls."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.events import Arg, Call, Kernel, Site, TensorSpec
from kernelscope.report.content.flow import consumers, producers

SPEC = TensorSpec("float32", (4,), (1,), "cpu")


class Values:
    """A slot holds the value that it is numbered by."""

    def read(self, slot: int) -> int:
        return slot


def call(index: int, *args: tuple[str, int, int], uninitialised: tuple[int, ...] = (), **slots: Any) -> Call:
    """Each argument is its role, storage and offset."""
    named = tuple(Arg(f"arg{i}", role, SPEC) for i, (role, _, _) in enumerate(args))  # type: ignore[arg-type]
    site = Site(index, Kernel(index, f"k{index}", "cpp", "inductor"), named)
    storages, offsets = tuple(s for _, s, _ in args), tuple(o for _, _, o in args)
    return Call(
        index,
        site,
        storages=storages,
        offsets=offsets,
        uninitialised=uninitialised,
        fingerprinter=Values(),
        **slots,
    )


def test_by_memory() -> None:
    calls = [call(0, ("out", 1, 0)), call(1, ("out", 1, 0)), call(2, ("in", 1, 0), ("in", 9, 0))]
    assert producers(calls) == {2: {0: (1, 0, False)}}


def test_the_same_offset_before_a_later_write_elsewhere() -> None:
    """As cat fills slices one by one."""
    calls = [call(0, ("out", 1, 0)), call(1, ("out", 1, 64)), call(2, ("in", 1, 0)), call(3, ("in", 1, 32))]
    assert producers(calls) == {2: {0: (0, 0, False)}, 3: {0: (1, 0, False)}}


def test_by_value_where_memory_is_not_known() -> None:
    calls = [call(0, ("out", 1, 0), post={0: 77}), call(1, ("in", 2, 0), pre={0: 77})]
    assert producers(calls) == {1: {0: (0, 0, True)}}


def test_uninitialised_contents_come_from_nobody() -> None:
    calls = [call(0, ("out", 1, 0)), call(1, ("inout", 1, 0), uninitialised=(0,)), call(2, ("inout", 1, 0))]
    assert producers(calls) == {2: {0: (1, 0, False)}}


def test_an_undeclared_write_is_a_write() -> None:
    calls = [call(0, ("in", 1, 0), pre={0: 5}, post={0: 6}), call(1, ("in", 1, 0), pre={0: 6})]
    assert producers(calls) == {1: {0: (0, 0, False)}}


def test_a_call_does_not_produce_its_own_input() -> None:
    assert producers([call(0, ("in", 1, 0), ("out", 1, 0))]) == {}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["in", "out", "inout"]), st.integers(0, 3)), max_size=30))
def test_as_a_plain_search_finds_it(made: list[tuple[str, int]]) -> None:
    calls = [call(i, (role, storage, 0)) for i, (role, storage) in enumerate(made)]
    links = producers(calls)
    for i, (role, storage) in enumerate(made):
        writers = [j for j, (other, at) in enumerate(made[:i]) if at == storage and other != "in"]
        expected = {0: (writers[-1], 0, False)} if writers and role != "out" else {}
        assert links.get(i, {}) == expected
    backwards = {(w, i) for w, users in consumers(links).items() for _, i, _, _ in users}
    assert backwards == {(link[0], i) for i, args in links.items() for link in args.values()}
