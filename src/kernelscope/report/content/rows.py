"""Calls as columns of numbers, with the slots of their values: what the table and the timeline show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from kernelscope.events import Call
from kernelscope.fingerprint.stats import Stats
from kernelscope.store.run_db.codec import to_json
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.hashes import full_hash

from .pictures import shown

Form = dict[str, Any]
_STATS = tuple(Stats.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which calls: of these sites, in this phase, step, graph or stream. None is any."""

    sites: tuple[int, ...] | None = None
    phase: str | None = None
    step: int | None = None
    stream: int | None = None

    @property
    def is_all(self) -> bool:
        return all(getattr(self, f.name) is None for f in fields(self))


def indices(run: StoredRun, wanted: Wanted) -> list[int]:
    """The calls that are wanted, in order."""
    where: list[str] = ["1"]
    given: list[Any] = []
    if wanted.sites is not None:
        where.append(f"site IN ({', '.join(str(int(site)) for site in wanted.sites)})")
    for column, value, default in (
        ("phase", wanted.phase, "other"), ("step", wanted.step, 0), ("stream", wanted.stream, 0)
    ):  # fmt: skip
        if value is not None:
            # What a call leaves open its graph call says; no join, because it would be one of all calls.
            alone = " OR graph_call < 0" if value == default else ""
            among = f"graph_call IN (SELECT id FROM graph_calls WHERE {column} = ?){alone}"
            where.append(f"({column} = ? OR ({column} IS NULL AND ({among})))")
            given += [value, value]
    sql = f"SELECT id FROM calls WHERE {' AND '.join(where)} ORDER BY id"
    return [int(id) for (id,) in run.rows(sql, given)]


def rows(calls: Sequence[Call]) -> Form:
    """One list per column; `values` has the slots of each call's arguments, `prints` what they hold."""
    return {
        "index": [call.index for call in calls],
        "site": [call.site.id for call in calls],
        "graph_call": [call.graph_call for call in calls],
        "step": [call.step for call in calls],
        "phase": [call.phase for call in calls],
        "stream": [call.stream for call in calls],
        "thread": [call.thread for call in calls],
        "start": [call.start_ns for call in calls],
        "time": [call.duration_ns if call.duration_ns >= 0 else None for call in calls],
        "values": [_values(call) for call in calls],
        "prints": prints(calls),
    }


def _values(call: Call) -> Form:
    """What few calls have is left out where they have it not, because there may be very many."""
    form: Form = {}
    if call.pre:
        form["pre"] = call.pre
    if call.post:
        form["post"] = {i: slot for i, slot in call.post.items() if (call.pre or {}).get(i) != slot}
    if call.scalars:
        form["scalars"] = [to_json(value) for value in call.scalars]
    if call.uninitialised:
        form["uninitialised"] = call.uninitialised
    if call.error:
        form["error"] = call.error
    if call.parent >= 0:
        form["parent"] = call.parent
    if call.replay >= 0:
        form["replay"] = call.replay
    return form


def prints(calls: Iterable[Call]) -> dict[int, list[Any]]:
    """By slot: the hash, and the statistics where they were taken."""
    found: dict[int, list[Any]] = {}
    for call in calls:
        for slots in (call.pre, call.post):
            for slot in (slots or {}).values():
                if slot not in found:
                    found[slot] = _print(call.fingerprinter, slot)
    return found


def _print(fingerprinter: Any, slot: int) -> list[Any]:
    value, stats = fingerprinter.read(slot), fingerprinter.stats(slot)
    told = value if value is None else str(full_hash(value))
    return [told] if stats is None else [told, *(_number(getattr(stats, name)) for name in _STATS)]


def _number(value: Any) -> Any:
    """A sum of float64 numbers may be too large for one."""
    return shown(float(f"{value:.6g}")) if isinstance(value, float) else value
