"""Recorded calls in the trace of torch.profiler, and the trace joined to the run."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

import kernelscope
from kernelscope.analysis.profiler_join import read_profile
from kernelscope.cli import main
from kernelscope.errors import RunError
from kernelscope.events import range_name
from kernelscope.probes.eager import profilers
from kernelscope.probes.python_wrappers.compiled_graphs import CompiledGraphs
from kernelscope.recording.times import profiler_ranges

Compiled = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    function = torch.compile(lambda x: ((x @ x).relu() @ x).sin())
    function(torch.ones(8, 8))
    return function


def profiler() -> profile:
    return profile(activities=[ProfilerActivity.CPU])


def ranges(trace: Any, path: Path) -> list[tuple[int, str]]:
    """Index and kernel of every range of ours in a trace, in order of time."""
    trace.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    ours = [e for e in events if e.get("ph") == "X" and str(e["name"]).startswith("kernelscope#")]
    words = [
        e["name"].removeprefix("kernelscope#").partition(" ") for e in sorted(ours, key=lambda e: e["ts"])
    ]
    return [(int(index), name) for index, _, name in words]


@pytest.mark.parametrize("settings", [{}, {"values": "hash"}, {"time": True}, {"path": "run"}], ids=str)
def test_only_while_a_profiler_runs(
    settings: dict[str, Any], compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts when the graph's launches are only noted, or their hashes planned, already."""
    monkeypatch.chdir(tmp_path)
    x = torch.rand(8, 8)
    with kernelscope.record(**settings) as run:
        before = [compiled(x) for _ in range(3)]
        count = len(run)
        with profiler() as trace:
            profiled = [compiled(x) for _ in range(2)]
        end = len(run)
        after = [compiled(x) for _ in range(3)]
    found = ranges(trace, tmp_path / "trace.json")
    assert [index for index, _ in found] == list(range(count, end))
    assert [run.calls[i].kernel_name for i, _ in found] == [name for _, name in found]
    assert len(run) == 4 * end - 4 * count  # eight executions, of which two were profiled
    assert all(torch.equal(result, before[0]) for result in [*before, *profiled, *after])


def test_a_profiler_that_was_there_first(compiled: Compiled, tmp_path: Path) -> None:
    with profiler() as trace:
        with kernelscope.record() as run:
            compiled(torch.rand(8, 8))
        compiled(torch.rand(8, 8))
    assert [i for i, _ in ranges(trace, tmp_path / "t.json")] == list(range(len(run)))


def test_a_schedule(compiled: Compiled, tmp_path: Path) -> None:
    traces = []
    with (
        kernelscope.record() as run,
        profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=1, active=1),
            on_trace_ready=lambda p: traces.append(ranges(p, tmp_path / f"{len(traces)}.json")),
        ) as trace,
    ):
        for _ in range(6):
            kernelscope.step()
            compiled(torch.rand(8, 8))
            trace.step()
    assert [[i for i, _ in found] for found in traces] == [
        [c.index for c in run.select(step=step + 1)] for step in (2, 5)
    ]


def test_notes_are_back_when_it_stops(compiled: Compiled) -> None:
    """No launch pays for a profiler that does not run: the wrapper's code is that of before."""
    from kernelscope.probes.bus import BUS
    from kernelscope.probes.probe_list import PROBES

    def code_in_use() -> Any:
        [wrapper] = PROBES.compiled_graphs._hooked.values()
        return wrapper._in_use

    x = torch.rand(8, 8)
    with kernelscope.record():
        compiled(x)
        compiled(x)
        noted = code_in_use()
        assert BUS.accepts_compact
        with profiler():
            compiled(x)
            assert code_in_use() is not noted  # notes with ends
            assert BUS.accepts_compact
        compiled(x)
        assert code_in_use() is noted
        assert BUS.accepts_compact


def test_the_first_of_two_recordings_is_in_the_trace(compiled: Compiled, tmp_path: Path) -> None:
    with kernelscope.record() as first:
        compiled(torch.rand(8, 8))
        with kernelscope.record(kind="extern"), profiler() as trace:
            compiled(torch.rand(8, 8))
    assert [i for i, _ in ranges(trace, tmp_path / "t.json")] == list(range(len(first) // 2, len(first)))


def test_other_threads(compiled: Compiled, tmp_path: Path) -> None:
    with kernelscope.record() as run, profile(activities=[ProfilerActivity.CPU]) as trace:
        worker = threading.Thread(target=compiled, args=(torch.rand(8, 8),))
        compiled(torch.rand(8, 8))
        worker.start()
        worker.join()
    found = ranges(trace, tmp_path / "t.json")
    # torch's profiler sees the thread that started it and autograd's, so the other one is in the run alone.
    assert [run.calls[i].kernel_name for i, _ in found] == [name for _, name in found]
    assert len(found) >= len(run) // 2


def test_an_exception_closes_the_range(compiled: Compiled, tmp_path: Path) -> None:
    @torch.library.custom_op("kernelscope_profiled::fails", mutates_args=())
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("as it should")

    fails.register_fake(torch.empty_like)
    function = torch.compile(lambda x: fails(x))
    with kernelscope.record() as run, profiler() as trace:
        with pytest.raises(ValueError, match="as it should"):
            function(torch.rand(4))
        compiled(torch.rand(8, 8))
    found = ranges(trace, tmp_path / "t.json")
    assert [i for i, _ in found] == list(range(len(run)))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    spans = [
        (e["ts"], e["ts"] + e["dur"]) for e in events if str(e.get("name", "")).startswith("kernelscope#")
    ]
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_noted_launch_that_raises_closes_its_range(tmp_path: Path) -> None:
    """Whoever comes after it is not inside of its range."""

    @torch.compile
    def function(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x) @ torch.index_select(x, 0, at)

    good, bad = torch.tensor([0, 1]), torch.tensor([0, 99])
    x = torch.eye(2)
    with kernelscope.record() as run:
        function(x, good)
        function(x, good)
        with profiler() as trace:
            with pytest.raises((RuntimeError, IndexError)):
                function(x, bad)
            function(x, good)
    found = ranges(trace, tmp_path / "t.json")
    [failed] = [c.index for c in run.calls if c.error]
    assert failed in [index for index, _ in found]
    profiled = read_profile(tmp_path / "t.json", run).calls
    assert [c.index for c in profiled] == list(range(profiled[0].index, len(run)))
    assert all(a.end <= b.start for a, b in pairwise(sorted(profiled, key=lambda c: c.start)))


@pytest.mark.parametrize("settings", [{}, {"values": "hash"}, {"path": "run"}], ids=str)
def test_a_profiler_that_another_thread_starts_in_the_middle(
    settings: dict[str, Any], compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph's code is chosen, and does not report the ends of launches: a range would stay open."""
    monkeypatch.chdir(tmp_path)
    begins, stops, has_begun = threading.Event(), threading.Event(), threading.Event()
    opened: list[Any] = []

    def opens(name: str) -> Any:
        opened.append(profilers.open_range(name))
        return opened[-1]

    def profile_once() -> None:
        begins.wait(60)
        with profiler():
            has_begun.set()
            stops.wait(60)

    def held_up(*args: Any) -> None:
        begins.set()
        assert has_begun.wait(60)
        begin(*args)

    monkeypatch.setattr(profiler_ranges, "open_range", opens)
    monkeypatch.setattr(
        profiler_ranges, "close_range", lambda each: (opened.remove(each), profilers.close_range(each))
    )
    begin, other = CompiledGraphs._begin, threading.Thread(target=profile_once)
    x = torch.rand(8, 8)
    with kernelscope.record(**settings) as run:
        for _ in range(3):
            compiled(x)
        other.start()
        try:
            with monkeypatch.context() as patched:
                patched.setattr(CompiledGraphs, "_begin", staticmethod(held_up))
                compiled(x)
            assert not opened
            compiled(x)
            assert not opened
        finally:
            stops.set()
            other.join(60)
        compiled(x)
    executed = Counter(call.graph_call for call in run.calls)
    assert len(executed) == 6
    assert len(set(executed.values())) == 1, "each launch is in the run"


# -- the join --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joined(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("joined")
    with kernelscope.record(path=home / "run") as run:
        compiled(torch.rand(8, 8))
        with profiler() as trace:
            compiled(torch.rand(8, 8))
    trace.export_chrome_trace(str(home / "trace.json"))
    (home / "trace.json.gz").write_bytes(gzip.compress((home / "trace.json").read_bytes()))
    return run.path, home  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_is_joined(joined: tuple[Path, Path], name: str, capsys: Any) -> None:
    run, home = joined
    assert main(["show", str(run), "--profile", str(home / name)]) == 0
    out = capsys.readouterr().out
    count = len(kernelscope.load(run))
    assert f"{count // 2} of {count} calls are in" in out
    assert main(["show", str(run), "--profile", str(home / name), "--json"]) == 0
    calls = json.loads(capsys.readouterr().out)["calls"]
    assert [c["index"] for c in calls] == list(range(count // 2, count))
    assert all(c["host"] > 0 and c["device"] is None for c in calls)
    assert main(["show", str(run), "--profile", str(home / name), "--call", "0"]) == 2
    assert "the profiler was not running then" in capsys.readouterr().err


def test_traces_that_do_not_fit(joined: tuple[Path, Path], tmp_path: Path, compiled: Compiled) -> None:
    path, home = joined
    run = kernelscope.load(path)
    with kernelscope.record() as other:
        compiled(torch.rand(8, 8))
    with pytest.raises(RunError, match="belongs to another run"):
        read_profile(home / "trace.json", other)
    document = json.loads((home / "trace.json").read_text())
    nameless = {k: v for k, v in document.items() if not k.startswith("kernelscope ")}

    def tried(events: list[Any], what: str) -> None:
        (tmp_path / "t.json").write_text(json.dumps({**nameless, "traceEvents": events}))
        with pytest.raises(RunError, match=what):
            read_profile(tmp_path / "t.json", run)

    event = {"ph": "X", "cat": "user_annotation", "tid": 1, "ts": 1, "dur": 1}
    tried([{**event, "name": "kernelscope#0 another"}], "another run: its call 0 is another")
    tried([{**event, "name": f"kernelscope#999 {'x' * 9}"}], "it has a call 999")
    tried([{**event, "name": "kernelscope#0 x", "ts": "soon"}], "not a trace of torch.profiler")
    tried([event | {"name": "aten::mm"}], "has no calls of kernelscope")
    tried([3], "not a trace of torch.profiler")
    for text, what in (("{", "not JSON"), ("[]", "has no traceEvents"), ("\x00", "not JSON")):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(RunError, match=what):
            read_profile(tmp_path / "t.json", run)
    with pytest.raises(RunError, match="cannot be read"):
        read_profile(tmp_path / "none.json", run)


def test_what_ran_on_a_device(joined: tuple[Path, Path], tmp_path: Path) -> None:
    """By correlation: the kernel on the device, its launch on the host, the range around that."""
    run = kernelscope.load(joined[0])
    name = run.calls[0].kernel_name
    around = {"ph": "X", "cat": "user_annotation", "tid": 5, "pid": 1}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 5, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "tid": 7, "pid": 0}
    events = [
        {**around, "name": range_name(0, name), "ts": 100.0, "dur": 50.0},
        {**around, "cat": "gpu_user_annotation", "tid": 7, "name": range_name(0, name), "ts": 300, "dur": 9},
        {**launch, "ts": 110.0, "args": {"correlation": 1}},
        {**launch, "ts": 120.0, "args": {"correlation": 2}},
        {**launch, "ts": 170.0, "args": {"correlation": 3}},
        {**kernel, "name": "gemm", "ts": 300.0, "dur": 4.0, "args": {"correlation": 1}},
        {
            **kernel,
            "name": "memset",
            "cat": "gpu_memset",
            "ts": 304.0,
            "dur": 2.0,
            "args": {"correlation": 2},
        },
        {**kernel, "name": "stranger", "ts": 310.0, "dur": 8.0, "args": {"correlation": 3}},
    ]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    profile = read_profile(tmp_path / "t.json", run)
    [call] = profile.calls
    assert call.on_device == [("gemm", pytest.approx(4e-6)), ("memset", pytest.approx(2e-6))]
    assert call.device == pytest.approx(6e-6)
    assert profile.unclaimed == 1
