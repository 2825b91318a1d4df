"""What the open recordings of this process have recorded so far, read while the program runs.

All of it is in memory anyway. It is read by the thread that wants it, so that a program that hangs can be
looked at too; nothing is computed before.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

from kernelscope.events import COMPACT_CALL, Call, Finding, Replay, Site
from kernelscope.probes.bus import BUS
from kernelscope.probes.distributed.process_groups import place
from kernelscope.store.flight.reader import read_doing
from kernelscope.store.flight.ring import RecentCall, newest_calls

from .open_recordings import OPEN
from .recording import Recording
from .run_info import host_name
from .sinks import DiskSink, MemorySink

_MOST_FINDINGS = 3  # in full
_MOST_TEXT = 300


def process_state() -> dict[str, Any]:
    """This process and its recordings, as JSON can hold it; a recording that keeps no calls is left out."""
    here = place()
    recordings = [each for each in list(OPEN) if isinstance(each, Recording) and each.keeps_values]
    return {
        "rank": here.rank,
        "world_size": here.world_size,
        "host": host_name(),
        "pid": os.getpid(),
        "recordings": [_state(recording) for recording in recordings],
    }


def _state(recording: Recording) -> dict[str, Any]:
    sink, config = recording.sink, recording.config
    state = {
        "values": config.values,
        "ops": config.ops,
        "step": recording.steps,
        "is_paused": recording.is_paused,
        "findings": _findings(list(recording.noted)),
        "graphs": recording.graph_count,
    }
    return state | (_on_disk(sink) if isinstance(sink, DiskSink) else _in_memory(sink))


def _on_disk(sink: DiskSink) -> dict[str, Any]:
    writer = sink.writer
    recent = newest_calls(writer.flight)
    compiling, _ = read_doing(writer.folder / "flight")
    return {
        "path": str(writer.folder),
        "calls": writer.flight.next_call,
        "kernels": len({site.kernel.name for site in list(writer.flight.sites.values())}),
        "last": _told(recent[0]) if recent else None,
        "executing": [_told(call) for call in reversed(recent) if call.is_executing],
        "compiling": compiling,
        "stopped": writer.failure,
    }


def _in_memory(sink: MemorySink) -> dict[str, Any]:
    entries, calls = sink.run.entries, len(sink.run)
    site = _site(entries[-1]) if entries else None
    last = {"index": calls - 1, **_place(site)} if calls else None
    return {
        "path": "", "calls": calls, "kernels": None, "last": last, "executing": [], "compiling": "",
        "stopped": "",
    }  # fmt: skip


def _site(entry: Any) -> Site | None:
    if isinstance(entry, Call):
        return entry.site
    if isinstance(entry, Replay):
        return entry.graph.launches[-1].site
    steady = BUS.steady_sites.get(COMPACT_CALL.unpack(entry)[0]) if isinstance(entry, bytes) else None
    return steady.site if steady is not None else None


def _told(call: RecentCall) -> dict[str, Any]:
    seconds = max(time.monotonic_ns() - call.start_ns, 0) / 1e9
    return {"index": call.index, **_place(call.site), "seconds": round(seconds, 3)}


def _place(site: Site | None) -> dict[str, Any]:
    if site is None:
        return {"kernel_name": "", "origin": "", "collective": ""}
    origin = str(site.origin[0]) if site.origin else ""
    return {"kernel_name": site.kernel.name, "origin": origin, "collective": site.collective}


def _findings(noted: list[Finding]) -> dict[str, Any]:
    kinds = Counter(finding.kind for finding in noted)
    first = [str(finding).splitlines()[0][:_MOST_TEXT] for finding in noted[:_MOST_FINDINGS]]
    return {"count": len(noted), "kinds": dict(kinds), "first": first}
