"""Modes of two threads that are left in the order in which they were entered."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.utils import _python_dispatch

import kernelscope
from kernelscope.probes.thread_mode import ThreadMode


class Passing(ThreadMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def interleaved(kind: type[ThreadMode]) -> None:
    both_inside = threading.Event()

    def first(inside: threading.Event) -> None:
        with kind():
            inside.set()
            assert both_inside.wait(30)

    inside = threading.Event()
    thread = threading.Thread(target=first, args=(inside,))
    thread.start()
    assert inside.wait(30)
    with kind():
        both_inside.set()
        thread.join()


def test_no_mode_is_noted_when_both_are_left() -> None:
    interleaved(Passing)
    # Older versions of torch note nothing of the kind.
    assert not getattr(_python_dispatch, "_is_in_any_mode_without_ignore_compile_internals", False)
    assert torch._C._len_torch_dispatch_stack() == 0
    compiled = torch.compile(lambda x: x.sin() + 8, backend="eager")
    compiled(torch.ones(3))
    graphs = counters["stats"]["unique_graphs"]
    for _ in range(3):
        with kernelscope.record(ops="all"):
            compiled(torch.ones(3))
    assert counters["stats"]["unique_graphs"] == graphs
