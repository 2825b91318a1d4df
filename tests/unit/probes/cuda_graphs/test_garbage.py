"""When Python's garbage collector waits for the capture of CUDA graphs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kernelscope.probes.cuda_graphs.garbage import GarbageWaits


@pytest.fixture(autouse=True)
def collects() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_waits_for_the_last_of_several_captures() -> None:
    garbage = GarbageWaits()
    garbage.begin("one")
    garbage.begin("another")
    garbage.end("one")
    assert not gc.isenabled()
    garbage.end("one of before the recording")
    assert not gc.isenabled()
    garbage.end("another")
    assert gc.isenabled()


def test_a_recording_that_closes_within_a_capture_lets_it_go() -> None:
    garbage = GarbageWaits()
    garbage.begin("one")
    garbage.end_all()
    assert gc.isenabled()
    gc.disable()
    garbage.end("one")
    assert not gc.isenabled(), "what the program did meanwhile stays"


def test_a_program_that_collects_nothing_goes_on_so() -> None:
    gc.disable()
    garbage = GarbageWaits()
    garbage.begin("one")
    garbage.end("one")
    garbage.end_all()
    assert not gc.isenabled()
