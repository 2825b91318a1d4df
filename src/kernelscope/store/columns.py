"""The calls of a run as columns of numbers, so that a million of them are compared in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelscope.events import Call, Site
from kernelscope.model.run import Run
from kernelscope.store.run_db.row_reader import DatabaseReader
from kernelscope.store.run_db.row_writer import LOG_SHIFT

from .planned_columns import LAYOUTS_SINCE, add_planned, first_slots
from .run_db import codec
from .stored_run import StoredRun

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_CHUNK = 50_000  # rows that SQLite joins to one text
_SPACES = bytes(c if c in b"0123456789" else 32 for c in range(256))
_GOLDEN, _ODD1, _ODD2 = (
    np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xBF58476D1CE4E5B9)
)  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """One entry per call, in order. `found` and `left` say in 64 bits which values a call found and left.

    What a call only read is among what it left, and so are the numbers that it was given: only contents that
    it wrote over stand in `found` alone, which is therefore read on demand.
    """

    sites: Mapping[int, Site]
    index: Ints
    site: Ints
    graph_call: Ints
    step: Ints
    left: Words
    has_hashes: bool
    thread: Ints
    found: Words | None = None

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def threads(self) -> tuple[int, ...]:
        """The threads that made calls, in order of their first one."""
        if not len(self.thread) or self.thread.min() == self.thread.max():
            return tuple(self.thread[:1].tolist())
        distinct, first = np.unique(self.thread, return_index=True)
        return tuple(distinct[np.argsort(first)].tolist())


def columns_of(run: Run, *, found: bool = False) -> Columns:
    return _of_disk(run, found) if isinstance(run, StoredRun) else _of_memory(run, found)


def mixed(words: Words) -> Words:
    """A bijection that spreads every bit; equal words stay equal."""
    with np.errstate(over="ignore"):
        words = words * _ODD1
        words ^= words >> np.uint64(32)
        words *= _ODD2
        words ^= words >> np.uint64(29)
    return words


def signatures(rows: Ints, positions: Ints, values: Words, count: int) -> Words:
    """One word for all (position, value) of a row; rows come in order."""
    found = np.zeros(count, np.uint64)
    if len(rows):
        with np.errstate(over="ignore"):
            each = mixed(values ^ ((positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN))
            starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
            found[rows[starts]] = np.add.reduceat(each, starts)
    return found


def word(value: Any) -> int:
    """Any value as 64 bits; equal values give equal ones, and NaN equals NaN."""
    return value % (1 << 64) if type(value) is int else text_word(codec.to_json(value))


@lru_cache(maxsize=10_000)
def text_word(text: str) -> int:
    """A text as 64 bits, the same in every process and on every machine."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


# -- a run in memory --------------------------------------------------------------------------------------


def _of_memory(run: Run, found: bool) -> Columns:
    calls = run.records_of_calls
    given = [text_word(codec.to_json(call.scalars)) if call.scalars else 0 for call in calls]
    numbers = np.array(given, np.uint64)
    left = [_slots_of(call, call.pre if call.post is None else call.post) for call in calls]
    return Columns(
        {call.site.id: call.site for call in calls},
        np.arange(len(calls)),
        np.array([call.site.id for call in calls], np.int64),
        np.array([call.graph_call for call in calls], np.int64),
        np.array([call.step for call in calls], np.int64),
        _signed(left) ^ numbers,
        any(left),
        np.array([call.thread for call in calls], np.int64),
        _signed([_slots_of(call, call.pre) for call in calls]) ^ numbers if found else None,
    )


def _slots_of(call: Call, slots: dict[int, int] | None) -> list[tuple[int, int]]:
    return [(i, word(call.fingerprinter.read(slot))) for i, slot in sorted(slots.items())] if slots else []


def _signed(hashes: Sequence[Sequence[tuple[int, int]]]) -> Words:
    flat = [(row, i, value) for row, found in enumerate(hashes) for i, value in found]
    rows, positions, values = zip(*flat, strict=True) if flat else ((), (), ())
    return signatures(
        np.array(rows, np.int64), np.array(positions, np.int64), np.array(values, np.uint64), len(hashes)
    )


# -- a run on disk ----------------------------------------------------------------------------------------
# SQLite joins a column to one text and numpy takes it apart: no Python object for each value, and Python's
# lock is free meanwhile, so that two runs are read side by side.


def _of_disk(run: StoredRun, found: bool) -> Columns:
    run.sync()
    database = run.database
    with database.understood():
        sites = {id: site for id, (site, _) in run.sites.items()}
        index, site, graph_call, step, thread = _calls(database)
        known = np.array(sorted(sites), np.int64)
        at = np.minimum(np.searchsorted(known, site), len(known) - 1)
        if len(site) and (not len(known) or not np.array_equal(known[at], site)):
            raise ValueError("calls refer to a site that does not exist")
        values = _Values(database)
        left = _details(database, values, index, "ifnull(post, ifnull(pre, ''))")
        before = _details(database, values, index, "ifnull(pre, '')") if found else None
        if database.version >= LAYOUTS_SINCE:
            _, layout, is_replayed = numbers_of(
                database, "calls", ["ifnull(layout, 0)", "replay IS NOT NULL"]
            )
            starts = first_slots(database, index, graph_call, is_replayed)
            calls = index, layout, starts
            add_planned(database, values.of, signatures, _given, calls, (left, before))
        return Columns(sites, index, site, graph_call, step, left, len(values) > 0, thread, before)


def _calls(database: DatabaseReader) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    picked = "group_concat(site), group_concat(graph_call), min(thread), max(thread)"
    chunks = list(_chunks(database, picked, "calls", "id"))
    index = _together([keys for keys, _ in chunks], np.int64)
    site, graph_call = (
        _together([_numbers(texts[column]) for _, texts in chunks], np.int64) for column in range(2)
    )
    if not len(index) == len(site) == len(graph_call):
        raise ValueError("the calls have columns of different lengths")
    own = {thread for _, texts in chunks for thread in texts[2:] if thread is not None}
    steps, threads = _of_graph_calls(database, graph_call)
    return (
        index,
        site,
        graph_call,
        _steps(database, index, graph_call, steps),
        _threads(database, own, threads),
    )


def _of_graph_calls(database: DatabaseReader, graph_call: Ints) -> tuple[Ints, Ints]:
    """Of each call, the step and the thread of its graph call; 0 outside of one."""
    executions = database.rows("SELECT id, step, thread FROM graph_calls ORDER BY id")
    if not executions:
        return np.zeros(len(graph_call), np.int64), np.broadcast_to(np.int64(0), graph_call.shape)
    ids, steps, threads = np.array(executions, np.int64).T
    at = np.minimum(np.searchsorted(ids, graph_call), len(ids) - 1)
    inside = ids[at] == graph_call
    if threads.min() == threads.max():
        return np.where(inside, steps[at], 0), np.broadcast_to(threads[0], graph_call.shape)
    return np.where(inside, steps[at], 0), np.where(inside, threads[at], 0)


def _threads(database: DatabaseReader, own: set[int], of_graph_calls: Ints) -> Ints:
    """The thread of each call; `own` are those that calls name themselves, or the least and the greatest."""
    is_one = len(of_graph_calls) and not of_graph_calls.strides[0]
    given = {int(of_graph_calls[0])} - {0} if is_one else set()
    if is_one and len(own | given) < 2:
        return np.broadcast_to(np.int64(next(iter(own | given), 0)), of_graph_calls.shape)
    _, thread = numbers_of(database, "calls", ["ifnull(thread, -1)"])
    return np.where(thread < 0, of_graph_calls, thread)


def _steps(database: DatabaseReader, index: Ints, graph_call: Ints, steps: Ints) -> Ints:
    """Within a graph the step is that of its execution; only what is outside says it itself."""
    step = steps
    if len(index) and graph_call.min() < 0:
        for keys, (text,) in _chunks(database, "group_concat(ifnull(step, 0))", "calls", "id"):
            rows_at = np.searchsorted(index, keys)
            step[rows_at] = np.where(graph_call[rows_at] < 0, _numbers(text), step[rows_at])
    return step


def _details(database: DatabaseReader, values: _Values, index: Ints, slots: str) -> Words:
    found = np.zeros(len(index), np.uint64)
    picked = f"group_concat({slots}, char(10)), max(scalars <> '[]')"
    for calls, (text, has_scalars) in _chunks(database, picked, "details", "call"):
        rows_at = np.searchsorted(index, calls)
        if rows_at[-1] >= len(index) or not np.array_equal(index[rows_at], calls):
            raise ValueError("details refer to a call that does not exist")
        found[rows_at] = values.signatures(text, len(calls))
        if has_scalars:
            where = "FROM details WHERE call BETWEEN ? AND ? ORDER BY call"
            rows = database.rows(f"SELECT scalars {where}", (int(calls[0]), int(calls[-1])))
            found[rows_at] ^= np.fromiter((_given(scalars) for (scalars,) in rows), np.uint64, len(calls))
    return found


def _given(scalars: str) -> int:
    return text_word(scalars) if scalars != "[]" else 0


class _Values:
    """What every slot holds, as one word each."""

    def __init__(self, database: DatabaseReader) -> None:
        self._logs: dict[int, tuple[Ints, Words]] = {}  # by log: its slots, and what they hold
        [(first, last)] = database.rows("SELECT min(slot), max(slot) FROM fingerprints")
        for log in range((first or 0) >> LOG_SHIFT, ((last or 0) >> LOG_SHIFT) + 1):
            slots, words = self._read(database, log << LOG_SHIFT, (log + 1 << LOG_SHIFT) - 1)
            if len(slots):
                self._logs[log] = slots, words

    def __len__(self) -> int:
        return sum(len(slots) for slots, _ in self._logs.values())

    @staticmethod
    def _read(database: DatabaseReader, first: int, last: int) -> tuple[Ints, Words]:
        slots: list[Ints] = []
        words: list[Words] = []
        picked = "group_concat(bits), count(bits)"
        for keys, (bits, plain) in _chunks(database, picked, "fingerprints", "slot", first, last):
            slots.append(keys)
            if plain == len(keys):
                words.append(_numbers(bits).astype(np.uint64))
            else:  # hashes of another kind than 64 bits
                ends = (int(keys[0]), int(keys[-1]))
                rows = database.table("fingerprints", "WHERE slot BETWEEN ? AND ? ORDER BY slot", ends)
                found = [word(codec.fingerprint_value(bits, other)) for _, bits, other, _ in rows]
                words.append(np.array(found, np.uint64))
        return _together(slots, np.int64), _together(words, np.uint64)

    def signatures(self, text: str, count: int) -> Words:
        """Of lines of JSON that map arguments to slots."""
        raw = text.encode()
        letters = np.frombuffer(raw, np.uint8)
        ends = np.flatnonzero(letters == ord("\n"))
        if len(ends) != count - 1:
            raise ValueError("a column of details has the wrong length")
        numbers = _numbers(raw.translate(_SPACES).decode(), " ")
        colons = np.flatnonzero(letters == ord(":"))
        if len(numbers) != 2 * len(colons):
            raise ValueError("details do not hold slots")
        until = np.searchsorted(colons, ends)
        rows = np.repeat(np.arange(count), np.diff(until, prepend=0, append=len(colons)))
        return signatures(rows, numbers[0::2], self.of(numbers[1::2]), count)

    def of(self, slots: Ints) -> Words:
        found = np.zeros(len(slots), np.uint64)
        logs = slots >> LOG_SHIFT
        for log, (known, words) in self._logs.items():
            here = logs == log if len(self._logs) > 1 else np.ones(len(slots), bool)
            wanted = slots[here]
            if known[-1] - known[0] + 1 == len(known):
                at = wanted - known[0]  # they follow one another without a gap
            else:
                at = np.searchsorted(known, wanted)
            there = (at >= 0) & (at < len(known))
            at = np.where(there, at, 0)
            there &= known[at] == wanted
            found[here] = np.where(there, words[at], np.uint64(0))
        return found


def numbers_of(
    database: DatabaseReader, table: str, expressions: Sequence[str], key: str = "id"
) -> list[Ints]:
    """The key and some expressions of a table, each as one array of whole numbers; none of them NULL."""
    picked = ", ".join(f"group_concat({each})" for each in expressions)
    parts: list[list[Ints]] = [[] for _ in range(1 + len(expressions))]
    for keys, texts in _chunks(database, picked, table, key):
        for part, found in zip(parts, (keys, *map(_numbers, texts)), strict=True):
            if len(found) != len(keys):
                raise ValueError(f"a column of {table} has the wrong length")
            part.append(found)
    return [_together(part, np.int64) for part in parts]


def _chunks(
    database: DatabaseReader,
    picked: str,
    table: str,
    key: str,
    first: int | None = None,
    last: int | None = None,
) -> Iterator[tuple[Ints, tuple[Any, ...]]]:
    """The keys and the picked columns of a table, so many rows joined at once, in the order of the keys."""
    if first is None or last is None:
        [(first, last)] = database.rows(f"SELECT min({key}), max({key}) FROM {table}")
    while first is not None and last is not None and first <= last:
        # Sparse keys: the next chunk begins where there is a row.
        where = f"FROM {table} WHERE {key} BETWEEN ? AND ?"
        [(begin,)] = database.rows(f"SELECT min({key}) {where}", (first, last))
        if begin is None:
            return
        end = min(begin + _CHUNK - 1, last)
        [(count, *found)] = database.rows(f"SELECT count(*), {picked} {where}", (begin, end))
        if count == end - begin + 1:
            keys = np.arange(begin, end + 1)
        else:
            [(text,)] = database.rows(f"SELECT group_concat({key}) {where}", (begin, end))
            keys = _numbers(text)
        yield keys, tuple(found)
        first = end + 1


def _numbers(text: str, separator: str = ",") -> Ints:
    return np.fromstring(text, np.int64, sep=separator) if text.strip() else np.zeros(0, np.int64)


def _together(parts: list[Any], kind: Any) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, kind)
