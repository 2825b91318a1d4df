"""A strict reader of Chrome's trace event format, as Perfetto imports it: what it would drop fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEEDED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "M": {"name", "pid", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
    "i": {"name", "pid", "tid", "ts", "s"},
}
METADATA = {"process_name", "thread_name", "thread_sort_index"}


@dataclass
class Slice:
    event: dict[str, Any]
    start: int
    end: int
    depth: int = 0
    into: list[Slice] = field(default_factory=list)  # slices that a flow leads to

    @property
    def name(self) -> str:
        return str(self.event["name"])

    @property
    def args(self) -> dict[str, Any]:
        return dict(self.event.get("args", {}))


@dataclass
class Trace:
    tracks: dict[tuple[int, int], str]
    slices: list[Slice]
    instants: list[dict[str, Any]]
    about: dict[str, Any]

    def called(self, name: str) -> list[Slice]:
        return [s for s in self.slices if s.name == name]

    def of(self, category: str) -> list[Slice]:
        return [s for s in self.slices if s.event["cat"] == category]

    def track(self, slice: Slice) -> str:
        return self.tracks[slice.event["pid"], slice.event["tid"]]


def read_trace(path: Path) -> Trace:
    document = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert set(document) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ns", "ms")
    events = document["traceEvents"]
    for event in events:
        check(event)
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [slice_of(e) for e in events if e["ph"] == "X"]
    for each in slices:
        assert (each.event["pid"], each.event["tid"]) in tracks, f"{each.event} is on a track without a name"
    by_track: dict[tuple[int, int], list[Slice]] = {}
    for each in slices:
        by_track.setdefault((each.event["pid"], each.event["tid"]), []).append(each)
    for members in by_track.values():
        nest(members)
    bind_flows([e for e in events if e["ph"] in "sf"], by_track)
    return Trace(tracks, slices, [e for e in events if e["ph"] == "i"], document["otherData"])


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def check(event: dict[str, Any]) -> None:
    assert event["ph"] in NEEDED, event
    missing = NEEDED[event["ph"]] - set(event)
    assert not missing, f"{event} has no {missing}"
    assert type(event["name"]) is str
    for key in ("pid", "tid", "id"):
        assert event.get(key, 0) in range(1 << 31), f"{key} of {event}"
    for key in ("ts", "dur"):
        assert isinstance(event.get(key, 0), int | float), f"{key} of {event}"
        assert event.get(key, 0) >= 0, f"{event} is before zero, where Perfetto drops it"
    assert event.get("dur", 1) > 0
    if event["ph"] == "M":
        assert event["name"] in METADATA


def nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


def slice_of(event: dict[str, Any]) -> Slice:
    start = nanoseconds(event["ts"])
    return Slice(event, start, start + nanoseconds(event["dur"]))


def nest(members: list[Slice]) -> None:
    """Slices of one track lie inside of one another or apart; of two that begin together, the outer first."""
    open_ones: list[Slice] = []
    for each in sorted(members, key=lambda s: s.start):  # stable, as the importer
        while open_ones and open_ones[-1].end <= each.start:
            open_ones.pop()
        assert not open_ones or each.end <= open_ones[-1].end, f"{each.event} overlaps {open_ones[-1].event}"
        each.depth = len(open_ones)
        open_ones.append(each)


def bind_flows(events: list[dict[str, Any]], by_track: dict[tuple[int, int], list[Slice]]) -> None:
    """Each has one beginning and one end, the end not before the beginning, both inside of a slice."""
    begun: dict[int, tuple[dict[str, Any], Slice]] = {}
    ended: set[int] = set()
    for event in sorted(events, key=lambda e: nanoseconds(e["ts"])):
        at = innermost(by_track[event["pid"], event["tid"]], nanoseconds(event["ts"]))
        if event["ph"] == "s":
            assert event["id"] not in begun, f"flow {event['id']} begins twice"
            begun[event["id"]] = event, at
        else:
            source, origin = begun[event["id"]]
            assert event["id"] not in ended, f"flow {event['id']} ends twice"
            assert (source["name"], source["cat"]) == (event["name"], event["cat"])
            ended.add(event["id"])
            origin.into.append(at)
    assert ended == set(begun), "a flow does not end"


def innermost(members: list[Slice], moment: int) -> Slice:
    around = [s for s in members if s.start <= moment < s.end]
    assert around, f"no slice at {moment}"
    return max(around, key=lambda s: s.depth)


def edges(trace: Trace) -> Iterator[tuple[int, int]]:
    """By the calls' indices: who wrote, and who read."""
    for each in trace.slices:
        for target in each.into:
            yield each.args["call"], target.args["call"]
