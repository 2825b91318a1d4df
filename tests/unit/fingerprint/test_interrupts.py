"""Ctrl-C at any moment of a reservation: later fingerprints are where they should be, and come to disk."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import Any

import pytest
import torch

from kernelscope.events import TensorSpec
from kernelscope.fingerprint import log as log_module
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.fingerprint.log import CHUNK_ROWS, DeviceLog
from kernelscope.fingerprint.plans import plan

# After these Python looks whether a signal has come.
LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD")


def interrupted_at(moment: int, do: Callable[[], None]) -> bool:
    """Do something, with Ctrl-C at this moment of it; whether it lasted so long."""
    last: dict[FrameType, str] = {}
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "kernelscope" not in frame.f_code.co_filename or "test_" in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before = last.get(frame, "RESUME")
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before.startswith(LOOKS):
                count += 1
                if count == moment:
                    raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        last.clear()  # frames, which hold what they were doing
    return False


@pytest.mark.parametrize("level", ["hash", "stats"])
def test_the_rows_of_an_interrupted_graph_call_are_not_waited_for(level: Any) -> None:
    taken = Fingerprinter(level=level)
    tensor = torch.arange(6.0)
    spec = TensorSpec(dtype="float32", shape=(6,), stride=(1,), device="cpu")
    made = plan(taken, [spec, spec], [(0, 1)], {}, lambda: None)
    [expected] = taken.take([tensor])

    def execution() -> None:
        begun, _ = made.begin()
        try:
            made.flushes[0](begun, tensor, tensor)
        finally:
            made.ended(begun, broken_off=False)

    moment = 1
    while interrupted_at(moment, execution):
        begun, first = made.begin()
        made.flushes[0](begun, tensor, tensor)
        made.ended(begun, broken_off=False)
        del begun
        assert taken.ready(0) == taken.host_log.rows, f"moment {moment}: something is still waited for"
        for slot in (first, first + 1):
            assert taken.read(slot) == taken.read(expected), f"moment {moment}"
            if level == "stats":
                assert taken.stats(slot) == taken.stats(expected), f"moment {moment}"
        moment += 1
    assert moment > 20, "it was interrupted"


def test_a_log_of_a_device_stays_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "during_captures", nullcontext)
    taken = Fingerprinter(level="stats")
    log = DeviceLog(torch.device("cpu"), stats=True)
    taken._devices.append(log)
    moment, rows = 1, CHUNK_ROWS // 3  # every third begins a new piece of memory

    def reserve() -> None:
        reservation = taken.reservation()
        first = taken.reserve_on_device(log, [moment] * rows, None, [moment] * rows, reservation)
        taken.enqueued(log, first, rows, reservation)

    for _ in range(2000):
        was_interrupted = interrupted_at(moment, reserve)
        taken.ready(1)
        assert log._unfinished == 0, f"moment {moment}: rows are still waited for"
        first = log.reserve([7], [3])
        log.sum_entry(first).fill_(1)
        log.written(first)
        assert log._salts[first // CHUNK_ROWS][first % CHUNK_ROWS] == 7
        assert log._numels[first // CHUNK_ROWS][first % CHUNK_ROWS] == 3
        assert len(log._sums) == len(log._salts) == -(-log.rows // CHUNK_ROWS)
        log.forget(log.rows)
        if not was_interrupted:
            break
        moment += 1
    assert 20 < moment < 2000
