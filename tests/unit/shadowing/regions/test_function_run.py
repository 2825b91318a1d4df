"""A function's result is taken when it returns, in several threads at once."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from kernelscope.shadowing.regions.function_run import when_returned


def returned_in(threads: int, times: int) -> list[Any]:
    seen: list[Any] = []

    def call(number: int) -> int:
        assert when_returned(sys._getframe(), seen.append)
        return number

    def work(start: int) -> None:
        for i in range(times):
            call(start + i)

    workers = [threading.Thread(target=work, args=(i * times,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sorted(seen)


def test_several_threads_at_once() -> None:
    assert returned_in(4, 500) == list(range(2000))


def test_another_thread_that_is_at_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python refuses for a moment; that must not reach the program."""
    original, refusals = sys.setprofile, iter([True, False, True, False] * 3)

    def refuses(function: Any) -> None:
        if next(refusals):
            raise RuntimeError("Cannot install a profile function while another one is being installed")
        original(function)

    monkeypatch.setattr(sys, "setprofile", refuses)
    assert returned_in(1, 3) == [0, 1, 2]
