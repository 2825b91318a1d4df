"""An error of ours never reaches the program: each function that it makes us call is made to raise, in turn.

The program runs once to see which of our functions it calls, from hooks, planned code, notes, operators and
ends of graph calls. Then it runs again for each of them, and that function raises.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.model.run import Run
from kernelscope.values import watch

OURS = str(Path(kernelscope.__file__).parent)
# These contain the errors of others; what they do themselves is nothing that fails.
GUARDS = {
    *("contained", "own_fault", "report", "Bus.run", "Notifier.finding", "Notifier.note_raised"),
    "quiet.__exit__",  # three assignments, which give torch's state back
}
# The boundaries between the program and us.
ALWAYS = {
    "HostPlan.begin", "PlannedGraph.begin", "PlannedGraph.ended", "ReservedRows.reserve_on_host",
    "ReservedRows.written_on_host", "MemorySink.planned", "Writer.planned", "Recording.graph_call",
    "Recording.graph_call_ended", "RecordingPlanner.plan", "HookedWrapper.look_at", "CompiledGraphs._enter",
    "CompiledGraphs._leave", "Storages.born", "Bus._begin", "Bus._end", "LaunchRecorder.before",
    "LaunchRecorder.after", "Recording.mark", "Recording.step", "RecentCalls.note", "HostScanPlan.begin",
    "flatten", "_seen",
}  # fmt: skip
WAYS: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {
    "names": lambda folder: kernelscope.record(),
    "hash": lambda folder: kernelscope.record(values="hash"),
    "hash to disk": lambda folder: kernelscope.record(values="hash", path=folder / "run"),
    "all operators": lambda folder: kernelscope.record(values="stats", ops="all"),
    "times": lambda folder: kernelscope.record(time=True),
    "watch": lambda folder: watch("nan"),
}


class Injected(RuntimeError):
    """It must not reach the program."""


@torch.library.custom_op("kernelscope_errors::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@double.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Program:
    """Graphs that are planned, that are not, and of dynamic shapes; a backward pass and an optimizer."""

    def __init__(self) -> None:
        torch._dynamo.reset()
        self.start = torch.linspace(-1, 1, 64).view(8, 8)
        self.w = self.start.clone().requires_grad_()
        self.seen = torch.zeros(8)
        self.x = torch.linspace(-1, 1, 32).view(4, 8)
        self._opaque, self._trained = torch.compile(self._count), torch.compile(self._loss)
        self._dynamic = torch.compile(lambda x: x.cos().sum(0), dynamic=True)
        for _ in range(2):
            self.expected = self.run()

    def _count(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x[0])
        return double(torch.cat([x.sin(), x], 1))

    def _loss(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.mm(self.w).relu().mm(self.w), x.sin().mm(self.w)], 1).square().sum()

    def run(self) -> list[torch.Tensor]:
        self.seen.zero_()
        with torch.no_grad():
            self.w.copy_(self.start)
        optimizer, results = torch.optim.SGD([self.w], lr=0.1), []
        for number in range(4):
            optimizer.zero_grad()
            loss = self._trained(self.x)
            loss.backward()
            optimizer.step()
            kernelscope.step()
            results += [self._opaque(self.x), self._dynamic(self.x[: 2 + number % 2]), loss.detach()]
        return [*results, self.w.detach().clone(), self.seen.clone()]


@pytest.fixture(scope="module")
def program() -> Program:
    return Program()


@contextmanager
def called_by(look: Callable[[FrameType], None]) -> Iterator[None]:
    """Look at each call of a function of ours by another one of ours."""

    def trace(frame: FrameType, event: str, arg: Any) -> None:
        above = frame.f_back
        is_inner = above is not None and above.f_code.co_filename.startswith(OURS)
        if event == "call" and is_inner and frame.f_code.co_filename.startswith(OURS):
            look(frame)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def functions_called(program: Program, way: str) -> Counter[CodeType]:
    counts: Counter[CodeType] = Counter()
    looking = called_by(lambda frame: counts.update([frame.f_code]))
    with tempfile.TemporaryDirectory() as folder, WAYS[way](Path(folder)), looking:
        program.run()
    return Counter({code: count for code, count in counts.items() if code.co_qualname not in GUARDS})


def torch_state() -> list[Any]:
    """What torch does with the next operator of this thread."""
    keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    modes = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    return [torch._C._is_torch_function_enabled(), torch.is_grad_enabled(), *map(str, keys), *modes]


def leaks(program: Program, way: str, code: CodeType, at: int) -> str:
    """What the program notices when the function raises at this call of it."""
    calls, state = 0, torch_state()

    def fail(frame: FrameType) -> None:
        nonlocal calls
        calls += frame.f_code is code
        if frame.f_code is code and calls == at:
            raise Injected(code.co_qualname)

    with tempfile.TemporaryDirectory() as folder:
        try:
            with WAYS[way](Path(folder)) as run:
                with called_by(fail):
                    results = program.run()
                findings = [str(finding) for finding in getattr(run, "findings", ())]
        except Exception as error:
            return f"{code.co_qualname} at call {at}: {type(error).__name__}: {error}"
    if not all(map(torch.equal, results, program.expected)):
        return f"{code.co_qualname} at call {at}: the results are other ones"
    if torch_state() != state:
        return f"{code.co_qualname} at call {at}: torch's state is another one: {state}, now {torch_state()}"
    is_generator = code.co_name.startswith("<")  # resumed to be closed: Python itself reports that
    if (
        calls >= at
        and isinstance(run, Run)
        and not is_generator
        and not any("Injected" in f for f in findings)
    ):
        return f"{code.co_qualname} at call {at}: no finding says so"
    return ""


def check(
    program: Program, way: str, choose: Callable[[int, str], bool], moments: Callable[[int], set[int]]
) -> None:
    counts = functions_called(program, way)
    assert len(counts) > 50
    chosen = [code for number, code in enumerate(counts) if choose(number, code.co_qualname)]
    found = [leaks(program, way, code, at) for code in chosen for at in moments(counts[code])]
    assert not list(filter(None, found))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_what_fails_inside_of_us_does_not_reach_the_program(program: Program, way: str) -> None:
    """A quarter of those that matter most, and a few others; below, all of them."""
    turn = list(WAYS).index(way)
    check(
        program,
        way,
        lambda number, name: (name in ALWAYS and number % 4 == turn % 4) or number % 100 == turn,
        lambda calls: {calls // 2 + 1},
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", WAYS)
def test_wherever_it_fails(program: Program, way: str) -> None:
    check(program, way, lambda number, name: True, lambda calls: {1, calls // 2 + 1, calls})
