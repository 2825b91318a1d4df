"""A watch on a CPU: executions after the first are scanned as planned, and a hit tells as much as before."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from kernelscope.values import WatchHit, host_watch, watch

pytestmark = pytest.mark.skipif(torch.cuda.device_count() > 0, reason="a GPU's watch is another one")
W = torch.eye(8)


def body(x: torch.Tensor, buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = (x.mm(W) - 3).relu().mm(W)
    buffer.copy_(buffer * 2 - y[0])
    return torch.log(y - 1).mm(W), (y * 1e36).mm(W)


GOOD, BAD, LARGE = torch.full((4, 8), 5.0), torch.zeros(4, 8), torch.full((4, 8), 9000.0)


@pytest.fixture(scope="module")
def function() -> Callable[..., object]:
    torch._dynamo.reset()
    made = torch.compile(body)
    made(BAD, torch.zeros(8))
    return made


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The graph calls that were executed as planned."""
    executed: list[int] = []
    begin = host_watch.HostScanPlan.begin
    monkeypatch.setattr(
        host_watch.HostScanPlan, "begin", lambda self, call: (executed.append(call), begin(self, call))[1]
    )
    return executed


def first_hit(function: Callable[..., object], inputs: list[torch.Tensor], *conditions: str) -> WatchHit:
    def program() -> None:
        buffer = torch.zeros(8)
        for x in inputs:
            function(x, buffer)

    with pytest.raises(WatchHit) as stopped, watch(*conditions):
        program()
    return stopped.value


def test_a_planned_execution_stops_at_the_producer_with_its_inputs(
    function: Callable[..., object], planned: list[int]
) -> None:
    """What it tells is what looking at everything tells."""
    at_first = first_hit(function, [BAD], "nan").hit
    assert not planned
    later = first_hit(function, [GOOD, GOOD, BAD], "nan").hit
    assert len(planned) == 2
    assert (later.kernel, later.arg, later.found) == (at_first.kernel, at_first.arg, at_first.found)
    assert later.is_producer
    assert later.remarks == at_first.remarks
    assert later.inputs.keys() == at_first.inputs.keys()
    for name, tensor in later.inputs.items():
        before = at_first.inputs[name]
        if before.dim() == 1:  # the buffer, as two executions have left it: not as this launch leaves it
            before = torch.full((8,), -6.0)
        assert torch.equal(tensor, before)


def test_the_call_is_numbered_as_a_recording_numbers_it(function: Callable[..., object]) -> None:
    import kernelscope

    with kernelscope.record() as run:
        function(GOOD, torch.zeros(8))
    names = [call.kernel_name for call in run]
    hit = first_hit(function, [GOOD, GOOD, BAD], "nan").hit
    assert hit.call == 2 * len(run) + names.index(hit.kernel)


def test_an_infinity_is_followed_through_planned_executions(
    function: Callable[..., object], planned: list[int]
) -> None:
    hit = first_hit(function, [GOOD, GOOD, LARGE], "inf").hit
    assert len(planned) == 2
    assert "+inf" in hit.found
    assert hit.is_producer


def test_what_came_in_is_not_blamed_on_the_call(function: Callable[..., object], planned: list[int]) -> None:
    came = GOOD.clone()
    came[0, 0] = math.nan
    hit = first_hit(function, [GOOD, GOOD, came], "nan").hit
    assert len(planned) == 2
    assert not hit.is_producer
    assert "already in input" in str(hit)


def test_no_calls_are_kept(function: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelscope.recording import Recording

    opened: list[Recording] = []
    inner = Recording.open
    monkeypatch.setattr(Recording, "open", lambda self: (opened.append(self), inner(self))[1])
    with watch("nan"):
        for _ in range(20):
            function(GOOD, torch.zeros(8))
    [recording] = opened
    assert len(recording.run) == 0
    assert recording.fingerprinter is not None
    assert recording.fingerprinter.host_log.rows < 100


def test_parts_of_a_larger_tensor_are_watched_as_planned(planned: list[int]) -> None:
    """What `cat` is made of is written part by part, with gaps between the rows of a part."""
    torch._dynamo.reset()
    w = torch.eye(8)

    @torch.compile
    def parts(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer[:, 2:6].mul_(2)  # written over in place, also with gaps
        return torch.cat([(x - 3).mm(w), torch.log(x).mm(w), buffer.sin()], dim=1)

    bad = GOOD.clone()
    bad[2, 3] = -1.0

    parts(GOOD, torch.zeros(4, 8))
    at_first = first_hit(lambda x, _: parts(x, torch.ones(4, 8)), [bad], "nan").hit
    later = first_hit(lambda x, _: parts(x, torch.ones(4, 8)), [GOOD, GOOD, bad], "nan").hit
    assert len(planned) == 2
    assert (later.kernel, later.arg, later.found) == (at_first.kernel, at_first.arg, at_first.found)
    assert later.remarks == at_first.remarks
    assert {n: t.shape for n, t in later.inputs.items()} == {n: t.shape for n, t in at_first.inputs.items()}
    assert all(torch.equal(t, bad) for t in later.inputs.values() if t.shape == bad.shape and (t < 0).any())
