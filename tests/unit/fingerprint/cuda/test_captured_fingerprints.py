"""What of CUDA graphs can be looked at without a GPU; tests/gpu has the rest."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.fingerprint.captured import ROWS_AT_MOST, CannotCapture, CapturedRows
from kernelscope.fingerprint.log import CHUNK_ROWS, SCRATCH_WORDS, DeviceLog
from kernelscope.fingerprint.stats import ROW_LENGTH
from kernelscope.probes.bus import BUS
from kernelscope.probes.cuda_graphs import captured_graphs as cuda_graphs
from kernelscope.probes.cuda_graphs.captured_graphs import CudaGraphs


@pytest.fixture
def log() -> DeviceLog:
    return DeviceLog(torch.device("cpu"), stats=True)


def test_rows_come_to_the_log_in_their_order(log: DeviceLog) -> None:
    rows = CapturedRows(log, stats=True)
    for row in range(ROWS_AT_MOST):
        rows.sum_entry(row).fill_(row)
    rows.stats_entry(CHUNK_ROWS + 1).copy_(torch.arange(ROW_LENGTH))
    log.reserve([0] * 7, [1] * 7)
    count = CHUNK_ROWS + 5
    first = log.reserve([0] * count, [1] * count)
    rows.copy_to(log, first, count)
    log.written(first, count)
    assert [log.sum_entry(first + row).item() for row in range(count)] == list(range(count))
    assert log.stats_entry(first + CHUNK_ROWS + 1).tolist() == list(range(ROW_LENGTH))
    assert [chunk.writes for chunk in log._sums] == [0, 1, 1]
    rows.clear()
    assert not rows.sum_entry(3).any()
    assert log.sum_entry(first + 3).item() == 3, "what is in the log stays"


def test_the_scratch_is_one_streams_and_does_not_grow(log: DeviceLog) -> None:
    rows = CapturedRows(log, stats=True)
    place = rows.scratch(1, 4)
    assert rows.scratch(1, 100) == place
    with pytest.raises(CannotCapture, match="one stream"):
        rows.scratch(2, 4)
    with pytest.raises(CannotCapture, match="too large"):
        rows.scratch(1, SCRATCH_WORDS)


class Graph:
    """Stands for a CUDA graph of the user's own: what is asked of it needs no device."""


def test_a_graph_keeps_its_rows_and_not_the_recording(log: DeviceLog) -> None:
    with kernelscope.record() as run:
        [recording] = BUS.listeners
        probe, graph, rows = CudaGraphs(), Graph(), CapturedRows(log, stats=False)
        probe._around_begin(lambda graph: None)(graph)
        capture = probe._captures[graph]
        template = SimpleNamespace(calls={recording: "its rows"})
        capture.templates.append(template)  # type: ignore[arg-type]
        capture.kept[recording] = SimpleNamespace(memory=rows, nbytes=rows.nbytes, end=lambda: None)
        weakref.finalize(graph, cuda_graphs._free, capture.kept, capture.left)
        probe._around_end(lambda graph: None)(graph)
        probe._drop_graphs_of(recording)
    assert [finding.kind for finding in run.findings] == ["fingerprints-stay"]
    assert capture.left == [rows]
    seen = weakref.ref(recording)
    memory = weakref.ref(rows)
    del recording, run, rows
    gc.collect()
    assert seen() is None
    assert memory() is not None
    del capture, graph
    gc.collect()
    assert memory() is None


@pytest.fixture
def _broken_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(*args: Any) -> Any:
        raise AttributeError("no attribute 'get_roots'")

    monkeypatch.setattr(cuda_graphs, "tree_graphs", moved)


@pytest.mark.usefixtures("_broken_trees")
def test_a_replay_that_cannot_be_looked_up_still_replays() -> None:
    with kernelscope.record() as run:
        assert CudaGraphs()._around_replay(lambda graph: "replayed")(torch.zeros(1)) == "replayed"
    [finding] = run.findings
    assert finding.kind == "recorder-error"
    assert "get_roots" in finding.message


@pytest.mark.usefixtures("_broken_trees")
def test_a_recording_closes_even_if_graphs_cannot_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaGraphs, "_drop_graphs_of", lambda self, listener: cuda_graphs.tree_graphs())
    with kernelscope.record() as run:
        pass
    assert [finding.kind for finding in run.findings] == ["recorder-error"]
    with kernelscope.record() as again:
        pass
    assert again.findings, "everything was put back, and installed anew"
