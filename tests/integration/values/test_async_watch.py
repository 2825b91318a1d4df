"""A watch that does not wait, its kernel played by the host: which call is named, and what is planned."""

from __future__ import annotations

import ctypes
import math
from fnmatch import fnmatchcase

import pytest
import torch

import kernelscope
from kernelscope.config import Config, ValueSettings
from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.fingerprint.cuda import nan_scan as scan
from kernelscope.probes.bus import BUS
from kernelscope.recording import Recording
from kernelscope.values import WatchHit, watch
from kernelscope.values.session import ValueSession

launches: list[int] = []


def play(device: int, programs: int, stream: int, args: tuple[int, ...]) -> None:
    """What the kernel does, of float32 tensors."""
    rows, flag, wanted, *pieces = args
    launches.append(sum(1 for about in pieces[1::2] if about & 0xFFFFFFFF or about >> 48 & 7))
    for which, (address, about) in enumerate(zip(pieces[::2], pieces[1::2], strict=True)):
        nbytes = 8 * (about & 0xFFFFFFFF) + (about >> 48 & 7)
        if not nbytes:
            continue
        assert about >> 51 == scan.F32
        values = list((ctypes.c_float * (nbytes // 4)).from_address(address))
        counts = [sum(map(math.isnan, values)), values.count(math.inf), values.count(-math.inf)]
        row = (ctypes.c_int64 * 3).from_address(rows + 8 * scan.ROW * which)
        for i, count in enumerate(counts):
            row[i] += count
        if any(count and wanted >> i & 1 for i, count in enumerate(counts)):
            ctypes.c_int32.from_address(flag).value = 1


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "DEVICE", "cpu")
    monkeypatch.setattr(scan, "launch", play)
    monkeypatch.setattr(scan, "_compiled", lambda device: None)
    monkeypatch.setattr(scan, "prepared", lambda *given, early: None)  # not through C++ either
    monkeypatch.setattr(cuda, "is_hopper", lambda device: False)
    monkeypatch.setattr(scan, "prepare", lambda device: "")
    monkeypatch.setattr(scan, "wait_for", lambda device: None)
    monkeypatch.setattr(scan, "current_stream", lambda device: 0)
    monkeypatch.setattr(scan, "_host_memory", lambda: torch.zeros(1, dtype=torch.int32))
    monkeypatch.setattr("kernelscope.values.session.has_gpu", lambda: True)
    launches.clear()


W = torch.eye(8)


def body(x: torch.Tensor) -> torch.Tensor:
    y = (x.mm(W) - 3).relu().mm(W)
    z = torch.log(y - 1).mm(W)
    return z.relu().mm(W)


@pytest.fixture
def function() -> object:
    torch._dynamo.reset()
    return torch.compile(body)


def test_the_first_producer_is_named_at_the_next_graph(function) -> None:  # type: ignore[no-untyped-def]
    good, bad = torch.full((4, 8), 9.0), torch.zeros(4, 8)
    with watch("nan"):
        bare = function(good)
    ran: list[torch.Tensor] = []

    def program() -> None:
        for x in (good, good, bad, good, good):
            ran.append(function(x))

    with pytest.raises(WatchHit) as stopped, watch("nan"):
        program()
    hit = stopped.value.hit
    assert len(ran) == 3  # it is not told before the next graph begins
    assert torch.equal(ran[1], bare)
    assert fnmatchcase(hit.kernel, "cpp_fused*log*")
    assert "32 NaN of 32 elements" in str(hit)
    with kernelscope.record() as run:
        function(good)
    position = [call.kernel_name for call in run].index(hit.kernel)
    assert hit.call == 2 * len(run) + position


def test_the_last_graph_is_told_at_the_end(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WatchHit), watch("nan"):
        function(torch.zeros(4, 8))


def test_an_execution_as_planned_looks_at_every_output_once_and_in_few_launches() -> None:
    torch._dynamo.reset()
    function = torch.compile(lambda x: [x.mm(W), (x + 1).mm(W), (x * 2).mm(W), x.mm(x.t()), x.sum()])
    x = torch.full((4, 8), 9.0)
    with kernelscope.record() as run:
        function(x)
    outputs = sum(len([a for a in call.arguments if a.role in ("out", "inout")]) for call in run)
    with watch("nan", "inf") as hits:
        function(x)
        first = list(launches)
        launches.clear()
        function(x)
        planned = list(launches)
    assert not hits
    assert sum(first) == sum(planned) == outputs
    assert len(planned) < len(first)  # several together


def test_all_hits_are_noted_and_masks_are_none(function) -> None:  # type: ignore[no-untyped-def]
    mask = torch.ones(4, 8).triu(1).bool()
    torch._dynamo.reset()
    attention = torch.compile(lambda x: torch.softmax(x.mm(W).masked_fill(mask, -math.inf), -1).mm(W))
    with watch("nan", "inf", on_hit="note") as hits:
        for _ in range(3):
            attention(torch.ones(4, 8))
    assert not hits
    with watch("nan@cpp_*", on_hit="note") as hits:
        for _ in range(3):
            function(torch.zeros(4, 8))
    assert len({(hit.kernel, hit.arg) for hit in hits}) == len(hits) >= 1
    assert all(hit.kind == "cpp" for hit in hits)


def test_conditions_that_need_the_host_look_at_once(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WatchHit) as stopped, watch("max>8", "nan"):
        function(torch.full((4, 8), 12.0))
    assert stopped.value.hit.inputs
    assert not launches


def test_exact_is_exact(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WatchHit) as stopped, watch("nan", exact=True):
        function(torch.zeros(4, 8))
    assert stopped.value.hit.inputs
    assert not launches


def test_eager_operators_and_a_device_that_is_not_watched_from_the_host(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WatchHit) as stopped, watch("nan", ops="all"):
        torch.tensor([-1.0]).log().add(1).mul(2)
    assert stopped.value.hit.kernel == "aten.log.default"


def test_a_session_says_that_it_was_late(function) -> None:  # type: ignore[no-untyped-def]
    recording = Recording(Config(values="stats"))
    told = []
    settings = ValueSettings(watches=("nan",))
    session = ValueSession(recording, settings, on_hit=told.append, saves_hits=False)
    recording.open()
    function(torch.zeros(4, 8))
    session.settle()
    session.close()
    recording.close()
    assert len(told) >= 1
    assert {finding.kind for finding in recording.run.findings} == {"watch-late"}


def test_a_watch_keeps_no_calls(function) -> None:  # type: ignore[no-untyped-def]
    """It may last for days."""
    with watch("nan"):
        for _ in range(20):
            function(torch.full((4, 8), 9.0))
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        assert len(recording.run) == 0
        assert recording.sink.last_position > 60
