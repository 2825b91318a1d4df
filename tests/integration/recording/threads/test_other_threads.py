"""Eager operators on threads that did not open the recording: recorded, or reported."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.probes.eager.unseen_operators import LIBRARY


def on_thread(work: Callable[[], Any]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Early:
    """A thread that runs already when the recording opens; it works on demand."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._go, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="early")
        self._thread.start()

    def _run(self) -> None:
        assert self._go.wait(60)
        self._work()
        self._done.set()

    def works(self) -> None:
        self._go.set()
        assert self._done.wait(60)
        self._thread.join()


def operators(run: kernelscope.Run) -> list[str]:
    return [call.kernel_name for call in run if call.kernel_name != "aten.ones.default"]


def test_a_thread_that_is_started_inside(leftovers: Callable[[], list[str]]) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1)
    compiled(torch.ones(8))
    with kernelscope.record(ops="all", values="hash") as run:
        torch.ones(3).sin()
        on_thread(lambda: compiled(torch.ones(8)).cos())
    (kernel,) = run.select(kind="cpp")
    assert operators(run) == ["aten.sin.default", kernel.kernel_name, "aten.cos.default"]
    assert len({call.thread for call in run}) == 2
    assert run.calls[-1].post_hashes
    assert not run.findings
    assert not leftovers()


class Subclass(threading.Thread):
    def run(self) -> None:
        torch.ones(3).tan()


def test_a_thread_of_a_class_of_its_own() -> None:
    with kernelscope.record(ops="all") as run:
        thread = Subclass()
        thread.start()
        thread.join()
    assert operators(run) == ["aten.tan.default"]


def test_work_of_a_pool_whose_threads_ran_before() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.ones, 1).result()
        with kernelscope.record(ops="all") as run:
            pool.submit(torch.ones(3).cos).result()
        assert pool.submit(torch._C._len_torch_dispatch_stack).result() == 0
    assert operators(run) == ["aten.cos.default"]
    assert run.calls[-1].origin is None  # a method of torch's, called by the pool
    assert not run.findings


@pytest.mark.parametrize("how", ["then", "add_done_callback"])
def test_the_callback_of_a_future(how: str) -> None:
    """It has the phase and the line of the code that asked for it."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    ready = Early(lambda: future.set_result(0))
    x = torch.ones(3)
    with kernelscope.record(ops="all") as run, torch.no_grad():
        getattr(future, how)(lambda _: x.tan())
        ready.works()
    (call,) = run
    assert (call.kernel_name, call.phase) == ("aten.tan.default", "other")
    assert call.origin is not None
    assert call.origin.file == __file__
    assert call.thread != threading.get_ident()
    assert not run.findings


def test_a_thread_that_outlives_the_recording_has_no_mode_afterwards() -> None:
    closed, begun, left = threading.Event(), threading.Event(), []

    def work() -> None:
        torch.ones(3).sin()
        begun.set()
        assert closed.wait(60)
        left.append(torch._C._len_torch_dispatch_stack())
        torch.ones(3).cos()
        left.append(torch._C._len_torch_dispatch_stack())
        left.append(sys.getprofile() is not None)

    thread = threading.Thread(target=work)
    with kernelscope.record(ops="all") as run:
        thread.start()
        assert begun.wait(60)
    with kernelscope.record() as graphs_only:
        closed.set()
        thread.join()
    assert left == [1, 0, False]
    assert operators(run) == ["aten.sin.default"]
    assert not len(graphs_only)


def test_a_thread_that_ran_before_is_a_finding() -> None:
    assert LIBRARY.get() is not None, LIBRARY.unavailable()
    x = torch.ones(4)
    early = Early(lambda: [x.mul(2).view(2, 2), torch.empty(3), x.mul(3), torch.nn.functional.gelu(x)])
    with kernelscope.record(ops="all") as run:
        early.works()
        x.sin()
    assert operators(run) == ["aten.sin.default"]
    (finding,) = run.findings
    assert finding.kind == "unseen-operators"
    assert "3 on thread early (aten::mul 2×, aten::gelu 1×)" in finding.message  # no view, no allocation
    assert "open the recording before the thread is started" in finding.message


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_what_follows_a_compilation_on_such_a_thread_is_counted(backend: str) -> None:
    """The compiler sets modes of its own on that thread."""
    assert LIBRARY.get() is not None, LIBRARY.unavailable()
    torch._dynamo.reset()
    compiled = torch.compile(torch.tan, backend=backend)
    x = torch.ones(4, requires_grad=backend == "inductor")

    def work() -> None:
        y = compiled(x)
        y.cumsum(0)
        if y.requires_grad:
            y.backward(torch.ones(4))  # compiled then
            y.detach().cosh()

    early = Early(work)
    with kernelscope.record(ops="all") as run:
        early.works()
    assert not run.select(kind="op")
    (finding,) = run.findings
    assert finding.kind == "unseen-operators"
    assert "aten::cumsum 1×" in finding.message
    assert "autograd::" not in finding.message
    assert ("aten::cosh 1×" in finding.message) == (backend == "inductor")


def test_a_thread_that_ran_before_and_ran_nothing_is_no_finding() -> None:
    early = Early(lambda: sum(range(10)))
    with kernelscope.record(ops="all") as run:
        early.works()
        torch.ones(3).sin()  # a run without any operator says so
    assert not run.findings


def test_what_a_recording_of_graphs_does_not_want_is_no_finding() -> None:
    early = Early(lambda: torch.ones(3).sin())
    with kernelscope.record() as run:
        early.works()
    assert not [finding for finding in run.findings if finding.kind == "unseen-operators"]


def test_each_recording_has_the_operators_of_its_own_time() -> None:
    first, second = Early(lambda: torch.ones(3).sin()), Early(lambda: torch.ones(3).cos())
    with kernelscope.record(ops="all") as outer:
        first.works()
        with kernelscope.record(ops="all") as inner:
            second.works()
    assert "aten::sin" in outer.findings[0].message
    assert "aten::cos" in outer.findings[0].message
    assert "aten::sin" not in inner.findings[0].message


WITHOUT_A_COMPILER = """
import threading, torch, kernelscope

go = threading.Event()
early = threading.Thread(target=lambda: go.wait(60) and torch.ones(3).sin(), name="early")
early.start()
with kernelscope.record(ops="all") as run:
    go.set()
    early.join()
with kernelscope.record(ops="all") as alone:
    torch.ones(3).sin()
print([finding.message for finding in run.findings], [finding.message for finding in alone.findings])
"""


def test_without_a_compiler_threads_that_ran_before_are_a_finding(tmp_path: Path) -> None:
    environ = {"PATH": "/nonexistent", "CXX": "/nonexistent/g++", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_COMPILER], capture_output=True, text=True, env=os.environ | environ
    )
    assert done.returncode == 0, done.stderr
    found = done.stdout.strip()
    assert "(early) are not recorded, and could not be counted: there is no C++ compiler" in found
    assert found.endswith(" []"), found
