"""A profiler's trace and a run, joined: the ranges in the trace bear the indices of the run's calls."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.events import RANGE_PREFIX, Call, Frame, range_name
from kernelscope.model.run import Run
from kernelscope.store.packing import LEAST_LARGE, MOST_TIMES
from kernelscope.store.stored_run import StoredRun

_RANGE = re.compile(rf"{RANGE_PREFIX}(\d{{1,18}}) (.*)", re.DOTALL)
_RUN = "kernelscope "  # then its uuid: a key beside the trace's events
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")


@dataclass(slots=True)
class ProfiledCall:
    """What a profiler tells of one call; times in seconds, the trace's own clock."""

    index: int
    kernel_name: str
    thread: Any
    start: float
    host: float
    device: float = 0.0
    on_device: list[tuple[str, float]] = field(default_factory=list)  # what ran there, and how long
    origin: tuple[Frame, ...] = ()

    @property
    def end(self) -> float:
        return self.start + self.host


@dataclass(frozen=True, slots=True)
class Profile:
    """The calls of a run that a trace has, in the order of the run."""

    path: Path
    calls: tuple[ProfiledCall, ...]
    unclaimed: int  # kernels on the device that no call launched

    @property
    def has_device(self) -> bool:
        return any(call.on_device for call in self.calls)


def read_profile(path: Path, run: Run) -> Profile:
    """The trace's ranges, checked against the run that they must belong to."""
    document = _read(path)
    told = [key.removeprefix(_RUN) for key in document if key.startswith(_RUN)]
    if told and run.info.uuid not in told:
        raise RunError(f"{path} belongs to another run ({told[0]:.40}), not to {run.info.uuid}")
    try:
        calls = sorted(_ranges(document["traceEvents"]), key=lambda c: (c.index, c.start))
        unclaimed = _add_device(calls, document["traceEvents"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{path} is not a trace of torch.profiler ({type(error).__name__}: {error})") from None
    if not calls:
        raise RunError(
            f"{path} has no calls of kernelscope: run the profiler while a recording is open in the same "
            "process"
        )
    _check_names(path, calls, run)
    return Profile(path, tuple(calls), unclaimed)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        document = json.loads(_unpacked(path, data) if data.startswith(b"\x1f\x8b") else data)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, RecursionError, zlib.error) as error:
        raise RunError(f"{path} is not a trace: it is not JSON ({error!s:.80})") from None
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise RunError(f"{path} is not a trace of torch.profiler: it has no traceEvents")
    return document


def _unpacked(path: Path, data: bytes) -> bytes:
    """A file from another person may unpack to more than the memory."""
    most = max(LEAST_LARGE, MOST_TIMES * len(data))
    with gzip.open(BytesIO(data)) as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise RunError(
            f"{path} unpacks to more than {MOST_TIMES} times its size, which no trace does; if you trust it, "
            "unpack it with gunzip"
        )
    return text


def _ranges(events: list[Any]) -> Iterator[ProfiledCall]:
    for event in events:
        # The device's copy of a range (gpu_user_annotation) has the same name.
        if event.get("ph") == "X" and event.get("cat") in ("user_annotation", "cpu_op"):
            found = _RANGE.fullmatch(str(event.get("name", "")))
            if found:
                start, length = float(event["ts"]) / 1e6, float(event["dur"]) / 1e6
                yield ProfiledCall(int(found[1]), found[2], event.get("tid"), start, length)


def _add_device(calls: list[ProfiledCall], events: list[Any]) -> int:
    """Each kernel on the device to the innermost call around the host's launch of it, by correlation."""
    launches = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in _LAUNCHES and "correlation" in event.get("args", {})
    }
    by_thread: dict[Any, list[ProfiledCall]] = {}
    for call in sorted(calls, key=lambda c: c.start):
        by_thread.setdefault(call.thread, []).append(call)
    unclaimed = 0
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in _ON_DEVICE:
            continue
        launch = launches.get(event.get("args", {}).get("correlation"))
        around = launch and _innermost(by_thread.get(launch.get("tid"), []), float(launch["ts"]) / 1e6)
        if not around:
            unclaimed += 1
            continue
        seconds = float(event["dur"]) / 1e6
        around.on_device.append((str(event["name"]), seconds))
        around.device += seconds
    return unclaimed


def _innermost(calls: list[ProfiledCall], moment: float) -> ProfiledCall | None:
    """Of the calls around a moment, the one that began last."""
    place = bisect_right(calls, moment, key=lambda c: c.start) - 1
    while place >= 0 and calls[place].end < moment:
        place -= 1
    return calls[place] if place >= 0 else None


def _check_names(path: Path, calls: list[ProfiledCall], run: Run) -> None:
    """A trace of another run would give these calls the times of others."""
    recorded = _recorded(run, sorted({call.index for call in calls}))
    for call in calls:
        record = recorded.get(call.index)
        if record is None:
            raise RunError(
                f"{path} is the trace of another run: it has a call {call.index}, and this one has {len(run)}"
            )
        name = range_name(call.index, record.site.kernel.name)
        if name != range_name(call.index, call.kernel_name):
            raise RunError(
                f"{path} is the trace of another run: its call {call.index} is {call.kernel_name:.80}, "
                f"here it is {record.site.kernel.name:.80}"
            )
        call.kernel_name, call.origin = record.site.kernel.name, record.site.origin[:1]


def _recorded(run: Run, indices: list[int]) -> dict[int, Call]:
    if isinstance(run, StoredRun):
        return {call.index: call for call in run.read_calls(indices)}
    records = run.records_of_calls
    return {index: records[index] for index in indices if index < len(records)}
