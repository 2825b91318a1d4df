"""A run as a trace of Chrome's JSON format, which Perfetto opens: written call by call.

A track for each thread and each stream of a device, with a slice for each call; above it the executions of
graphs and the steps; beside it the compiler, a track for each frame and graph, with its stages. Arrows lead
from the call that wrote something to the calls that read it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from kernelscope.analysis.producers import Flows
from kernelscope.events import Finding, Site
from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.store.run_db.codec import storable, to_json
from kernelscope.store.stored_run import StoredRun
from kernelscope.views import plain
from kernelscope.views.call_filter import CallFilter

from .compile_slices import compile_slices
from .output import new_file
from .spans import Spans

CALLS, COMPILER = 1, 2  # the two processes of the trace
_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_SHORTEST = 1  # ns; a slice without a length is not drawn, and no arrow could end at it


def write(run: Run, path: Path, wanted: CallFilter, *, flows: bool = True) -> int:
    with new_file(path) as file:
        return _Trace(run, file, flows=flows).write(wanted)


@dataclass(slots=True)
class _Place:
    """Where in the trace a call stands; known once it is known what it reads."""

    tid: int
    start: int = 0
    end: int = 0


class _Trace:
    def __init__(self, run: Run, file: TextIO, *, flows: bool) -> None:
        self._run = run
        self._file = file
        self._compiled = list(compile_slices(run.stages, run.compiled))
        starts = [run.info.monotonic_ns, *_starts(run), *(each.start for each in self._compiled)]
        self._zero = min(starts)
        self._flows = Flows() if flows else None
        self._flow_ids = 0
        self._tracks: dict[tuple[str, str, int], int] = {}  # tid by what it shows, device, stream or thread
        self._free: dict[int, int] = {}  # by tid: when a stream is done with what came before
        self._graphs = Spans(self._graph_slice)
        self._steps = Spans(self._step_slice, by_step=True)
        self._static: dict[int, dict[str, Any]] = {}  # by site
        self._names: dict[str, str] = {}  # of arguments, as JSON
        self._separator = "\n"

    def write(self, wanted: CallFilter) -> int:
        about = plain.run_form(self._run, getattr(self._run, "path", None))
        self._file.write('{"displayTimeUnit":"ns","otherData":' + to_json(about) + ',"traceEvents":[')
        name = f"kernelscope: rank {self._run.info.rank}, pid {self._run.info.pid}"
        self._put({"ph": "M", "name": "process_name", "pid": CALLS, "args": {"name": name}})
        count = 0
        noted = self._noted()
        for call in wanted.calls(self._run):
            count += 1
            self._call(call, noted.pop(call.index, []))
        self._graphs.close()
        self._steps.close()
        self._compiler()
        self._file.write("\n]}\n")
        return count

    # -- calls -----------------------------------------------------------------------------------------

    def _call(self, call: KernelCall, findings: list[Finding]) -> None:
        tid = self._track(call)
        record = call.recorded
        start, measured = record.start_ns, record.duration_ns >= 0
        length = max(record.duration_ns, _SHORTEST)
        place = _Place(tid)
        flows = [] if self._flows is None else self._flows.follow(call, place)
        if _is_on_device(call):
            # When it began was not measured. A stream does one thing after the other, and nothing is read
            # before it is written.
            start = max(start, self._free.get(tid, 0), *(flow.tag.end for flow in flows))
            self._free[tid] = start + length
        place.start, place.end = start, start + length
        args = {"call": call.index, "step": call.step, "phase": call.phase, **self._about(call)}
        if start != record.start_ns:
            args["launched"] = _microseconds(record.start_ns - self._zero)
        if not measured:
            args["time"] = "not measured"
        for key, value in (("graph_call", call.graph_call), ("parent", call.parent), ("replay", call.replay)):
            if value is not None:
                args[key] = value
        if call.error:
            args["error"] = storable(call.error)
        self._slice(call.kernel_name, call.kind, CALLS, tid, start, length, args)
        for finding in findings:
            # On a track of their own: a mark where an arrow begins would be what Perfetto binds it to.
            self._put(
                {
                    "ph": "i", "s": "t", "name": f"{finding.kind}: {storable(finding.message)}",
                    "cat": "finding", "pid": CALLS, "tid": self._tid("findings", "", 0),
                    "ts": self._moment(start), "args": {"call": call.index},
                }
            )  # fmt: skip
        for flow in flows:
            if flow.tag.start <= start:  # what the host saw before the device's turn came has no arrow
                self._flow(flow.tag, place, record.site.args[flow.read].name)
        self._graphs.see(tid, call, start, start + length)
        self._steps.see(0, call, start, start + length)

    def _about(self, call: KernelCall) -> dict[str, Any]:
        """What is the same at each call of a site."""
        site = call.site
        if site.id not in self._static:
            self._static[site.id] = {k: v for k, v in _site_args(site, call).items() if v}
        return self._static[site.id]

    def _track(self, call: KernelCall) -> int:
        if _is_on_device(call):
            return self._tid("stream", call.device, call.stream)
        return self._tid("thread", "", call.thread)

    def _tid(self, what: str, device: str, number: int) -> int:
        """Numbers from 1 on: those of threads and streams are longer than the format's."""
        key = (what, device, number)
        if key not in self._tracks:
            self._tracks[key] = tid = len(self._tracks) + 1
            if what == "thread":
                name = f"thread {number}"
            elif what == "stream":
                name = f"{device} stream {number:#x}"
            else:
                name = f"{what} {device}".rstrip()
            order = {"findings": 0, "steps": 1, "graphs": 10 * number + 9}.get(what, 10 * tid + 10)
            for kind, args in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": order})):
                self._put({"ph": "M", "name": kind, "pid": CALLS, "tid": tid, "args": args})
        return self._tracks[key]

    def _graph_slice(self, owner: int, call: KernelCall, start: int, end: int) -> None:
        graph = call.graph
        if call.graph_call is None or graph is None:
            return
        name = f"graph {graph.name or graph.id} ({graph.direction})"
        args = {"graph": graph.id, "graph_call": call.graph_call, "step": call.step}
        self._slice(
            name, "graph", CALLS, self._tid("graphs", f"of track {owner}", owner), start, end - start, args
        )

    def _step_slice(self, owner: int, call: KernelCall, start: int, end: int) -> None:
        self._slice(
            f"step {call.step}", "step", CALLS, self._tid("steps", "", 0), start, end - start,
            {"step": call.step},
        )  # fmt: skip

    # -- the rest --------------------------------------------------------------------------------------

    def _noted(self) -> dict[int, list[Finding]]:
        run = self._run
        found: dict[int, list[Finding]] = {}
        for finding in run.noted_findings():
            if finding.call >= 0:
                found.setdefault(finding.call, []).append(finding)
        return found

    def _compiler(self) -> None:
        if not self._compiled:
            return
        self._put({"ph": "M", "name": "process_name", "pid": COMPILER, "args": {"name": "compiler"}})
        tids: dict[str, int] = {}
        for each in self._compiled:
            if each.track not in tids:
                tids[each.track] = len(tids) + 1
                args = {"name": storable(each.track)}
                self._put(
                    {"ph": "M", "name": "thread_name", "pid": COMPILER, "tid": tids[each.track], "args": args}
                )
            self._slice(
                each.name, each.category, COMPILER, tids[each.track], each.start, each.length, each.args
            )

    def _flow(self, source: _Place, target: _Place, name: str) -> None:
        """Most of a trace are these two, so they are spelled out."""
        self._flow_ids += 1
        if name not in self._names:
            self._names[name] = _ENCODE(storable(name))
        rest = f'"id":{self._flow_ids},"name":{self._names[name]},"cat":"data","pid":{CALLS}'
        self._file.write(
            f'{self._separator}{{"ph":"s",{rest},"tid":{source.tid},"ts":{self._moment(source.start)!r}}},\n'
            f'{{"ph":"f","bp":"e",{rest},"tid":{target.tid},"ts":{self._moment(target.start)!r}}}'
        )

    def _slice(
        self, name: str, category: str, pid: int, tid: int, start: int, length: int, args: dict[str, Any]
    ) -> None:
        self._put(
            {
                "ph": "X", "name": storable(name), "cat": storable(category), "pid": pid, "tid": tid,
                "ts": self._moment(start), "dur": _microseconds(max(length, _SHORTEST)), "args": args,
            }
        )  # fmt: skip

    def _moment(self, nanoseconds: int) -> float:
        return _microseconds(nanoseconds - self._zero)

    def _put(self, event: dict[str, Any]) -> None:
        self._file.write(self._separator + _ENCODE(event))
        self._separator = ",\n"


def _microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1000  # exact to the nanosecond for a hundred days


def _starts(run: Run) -> list[int]:
    """When the first call began. Perfetto drops what happened before zero."""
    if not isinstance(run, StoredRun):
        return [call.start_ns for call in run.records_of_calls]
    rows = run.numbers("SELECT min(start_ns) FROM calls")
    return [int(start) for (start,) in rows if start is not None]


def _is_on_device(call: KernelCall) -> bool:
    return call.device.partition(":")[0] not in ("", "cpu")


def _site_args(site: Site, call: KernelCall) -> dict[str, Any]:
    frame = call.origin
    tensors = [f"{arg.role} {arg.name}: {arg.tensor.text}" for arg in site.args if arg.tensor is not None]
    return {
        "kind": site.kernel.kind,
        "producer": call.producer,
        "line": "" if frame is None else storable(str(frame)),
        "grid": "" if site.grid is None else str(list(site.grid)),
        "device": site.device,
        "arguments": [storable(t) for t in tensors],
    }
