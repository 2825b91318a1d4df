"""The one background thread that brings a recording to disk, and the way to it from launching threads."""

from __future__ import annotations

import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError, reason
from kernelscope.events import Call, Finding, GraphCall, Mark, RunInfo
from kernelscope.stages.records import Record
from kernelscope.store.flight.markers import StreamMarkers
from kernelscope.store.flight.native_noter import native_numbers
from kernelscope.store.flight.noting import PlainNotes
from kernelscope.store.flight.recorder import CELLS, Flight
from kernelscope.store.flight.replays import QueuedReplays, calls_of
from kernelscope.store.flight.ring import Ring
from kernelscope.store.run_db.row_writer import NUMBERS_OF_NOTED, Database
from kernelscope.store.run_db.used_slots import UsedSlots

from .discarding_queue import DiscardingQueue
from .file_systems import about_disk, network_of

TICK = 0.25  # seconds between two transactions: a crash may cost this and the time that one takes
_GLANCES = 5  # in each of them, for new sites
_LEAST_AHEAD = 256  # calls that the program may make during a transaction, however short the last one was
_MOST_WAITING = 20_000  # calls in full, before the program waits for the writer


class Writer:
    """Takes what a recording sees and writes it in batches. Launching threads only append."""

    def __init__(
        self, folder: Path, info: RunInfo, *, timed: bool = False, keep_last: int = 0, cells: int = CELLS,
        mounts: str | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.on_failure: Callable[[], None] = lambda: None
        self.failure = ""
        self._keep_last = keep_last
        self._full: list[Call] = []
        self._graph_calls: list[GraphCall] = []
        self._marks: list[Mark] = []
        self._findings: list[Finding] = []
        self.compiled: list[Record] = []  # what the compiler did, not yet written
        self._errors: list[tuple[int, str]] = []
        self._durations: list[tuple[int, int]] = []
        self._tensors: list[tuple[Any, ...]] = []
        self._told: list[tuple[str, Any]] = []
        self._planned: list[tuple[int, int, int]] = []  # graph calls: first slot, how many
        self.save_waiting: Callable[[], None] = lambda: None  # writes tensors that were copied
        self.slots = UsedSlots()
        self._written = 0
        self._last_begun = 0  # the next call when the last transaction began
        self._step_starts: list[int] = [0]  # of the steps that stay
        self.first_kept = 0  # calls before this one are of steps that do not stay
        self._dropped_before = 0
        self.lock = threading.RLock()  # one transaction at a time
        self._wake, self._stop, self._room = threading.Event(), threading.Event(), threading.Condition()
        self._asked = self._answered = 0  # transactions that the main thread waits for
        self._markers: StreamMarkers | None = None
        self.is_open = True
        try:
            network = network_of(folder, mounts)
            self.database = Database(folder / "run.db", info, log=not network)
            self.flight = Flight(folder / "flight", info.pid, cells=cells, numbers=native_numbers(cells))
        except (OSError, sqlite3.Error) as error:
            for name in ("run.db", "run.db-journal", "run.db-wal", "run.db-shm", "flight"):
                with suppress(OSError):
                    (folder / name).unlink()  # of a run that never was
            raise RunError(f"{folder} cannot hold a run: {reason(error)}") from None
        self._findings += about_disk(
            folder, network, has_log=self.database.has_log, unlocked=self.flight.unlocked
        )
        self._ring = Ring(self.flight)
        self.flight.make_room = self._make_room
        self.left = self.flight.leaver(timed=timed)
        self.note = self.flight.noter(self.left)  # what it returns is called after the launch
        self.plain_notes = PlainNotes(self.flight)
        self._replays = QueuedReplays(self.flight, self.plain_notes, self._make_room)
        self.replayed = self._replays.add
        self._thread = threading.Thread(target=self._work, name="kernelscope writer", daemon=True)
        self._thread.start()

    # -- from the recording ----------------------------------------------------------------------------

    def enter(self, call: Call) -> None:
        if self.is_open:
            self.flight.enter(call)

    def leave(self, call: Call) -> None:
        """The call is over, and all that is known of it stands in it."""
        if not self.is_open:
            return
        if self.flight.sites.get(call.site.id) is not call.site:
            self.flight.meet(call.site)
        self._full.append(call)
        self.left(call.index)  # after that: what the ring shows as over is in the queue
        if len(self._full) > _MOST_WAITING:
            self.wait_until(lambda: len(self._full) <= _MOST_WAITING)

    def watch_streams(self, stream_of: Callable[[int], int]) -> None:
        """Have CUDA streams say which calls have completed. `stream_of` knows a device's current stream."""
        self._markers = StreamMarkers(self._has_no_markers)
        left = self.flight.device_leaver(self.left, self._markers.mark, stream_of)
        self.note = self.flight.noter(left)
        self.plain_notes.mark_with(self._markers, stream_of)
        self._replays.mark = self._markers.mark

    def _has_no_markers(self, why: str) -> None:
        self.finding(Finding("no-stream-markers", f"GPU progress will not be known after a crash: {why}"))

    def launched(self, index: int, stream: int) -> None:
        """A call that is written in full has been enqueued on a CUDA stream."""
        if self._markers is not None:
            self.flight.on_stream(index, self._markers.mark(stream, index))

    def note_failed(self, graph_call: int, line: int, error: str) -> None:
        """A graph raised; if a noted launch of it was running, at this line, it was that."""
        found = self.flight.running_in(graph_call)
        if found is not None:
            index, site = found
            if site is not None and site.line == line:
                self._errors.append((index, error))
            self.left(index)

    def graph_call(self, graph_call: GraphCall) -> None:
        self._graph_calls.append(graph_call)

    def planned(self, graph_call: int, first: int, rows: int) -> None:
        """The fingerprints of this graph call will be in so many slots from `first` on."""
        self._planned.append((graph_call, first, rows))

    def mark(self, kind: str, text: str) -> None:
        if not self.is_open:
            return
        index = self.flight.next_call
        self._marks.append(Mark(index, kind, text))
        if kind == "step" and self._keep_last:
            self._step_starts = [*self._step_starts[-self._keep_last :], index]
            self.first_kept = self._step_starts[0]

    def finding(self, finding: Finding) -> None:
        self._findings.append(finding)

    def set_metadata(self, key: str, value: Any) -> None:
        """Something about the run as a whole."""
        self._told.append((key, value))

    @property
    def calls(self) -> int:
        """Written so far."""
        return self._written

    def duration(self, call: int, nanoseconds: int) -> None:
        self._durations.append((nanoseconds, call))

    def tensor(self, call: int, position: int, moment: str, file: str) -> None:
        self._tensors.append((call, position, moment, file))

    # -- back-pressure ---------------------------------------------------------------------------------

    def _make_room(self, number: int) -> None:
        """The ring is full of calls that are not written yet: the program waits, memory does not grow."""
        self.wait_until(lambda: number <= self.flight.limit)

    def wait_until(self, enough: Callable[[], bool]) -> None:
        if threading.current_thread() is self._thread:
            return
        with self._room:
            while self.is_open and not enough() and self._thread.is_alive():
                self._wake.set()
                self._room.wait(0.05)

    # -- on the writer's thread ------------------------------------------------------------------------

    def _work(self) -> None:
        while self.is_open and not self._stop.is_set():
            # New sites are written at once: that work belongs to the first steps, which are slow anyway.
            any(self._wake.wait(TICK / _GLANCES) or self.flight.new_sites for _ in range(_GLANCES))
            self._wake.clear()
            asked = self._asked
            self._transact()
            with self._room:
                self._answered = asked
                self._room.notify_all()

    def flush(self) -> None:
        """Write what has come in; after this, everything that is over is on disk."""
        if threading.current_thread() is threading.main_thread() and self._thread.is_alive():
            # Not here: Ctrl-C would break off a transaction, and what it has taken would be lost.
            with self._room:
                self._asked = asked = self._asked + 1
                while self._answered < asked and self.is_open and self._thread.is_alive():
                    self._wake.set()
                    self._room.wait(0.05)
            if self._answered >= asked:
                return
        self._transact()

    def _transact(self) -> None:
        with self.lock:
            if not self.is_open:
                return
            try:
                self._flush(final=False)
            except Exception as error:  # whatever it is: the program must go on, and hear of it
                self.give_up(reason(error))
            finally:
                with self._room:
                    self._room.notify_all()

    def _limit_debt(self) -> None:
        """During a transaction, at most as many calls as since the last: then the program waits for its end.

        Otherwise a program that keeps Python's lock would leave the writer ever further behind.
        """
        now = self.flight.next_call
        ahead = max(now - self._last_begun, _LEAST_AHEAD)
        self.flight.limit = min(self.flight.limit, now + ahead)
        self._last_begun = now

    def _flush(self, *, final: bool) -> None:
        self.save_waiting()
        self._limit_debt()
        noted = self._ring.take(final=final)
        flight, queues = self.flight, self._take_queues()
        (
            new_sites, new_layouts, full, graph_calls, marks, findings, errors, durations, tensors, told,
            compiled, planned,
        ) = queues  # fmt: skip
        newer = [call for call in full if call.index >= self._ring.taken]
        if newer:  # came in since the ring was looked at: no gaps, so next time
            self._full[:0] = newer
            full = [call for call in full if call.index < self._ring.taken]
        replays = self._replays.take(self._ring.taken)
        early = [pair for pair in durations if pair[1] >= self._ring.taken]
        self._durations[:0] = early
        durations = [pair for pair in durations if pair[1] < self._ring.taken]
        with self.database as db:
            db.sites([(flight.sites[id], flight.uninitialised.get(id)) for id in dict.fromkeys(new_sites)])
            db.layouts(new_layouts)
            db.graph_calls(graph_calls)
            db.first_slots([(graph_call, first) for graph_call, first, _ in planned])
            db.noted_calls(noted)
            db.calls(full)
            db.replays(replays)
            for index, message in errors:
                db.error(index, message)
            db.durations(durations)
            db.tensors(tensors)
            for call in full:
                self.slots.add(call)
            for _, first, rows in planned:
                self.slots.add_planned(first, rows)
            for _, replay in replays:
                self.slots.add_replay(replay)
            self.slots.write(db, final=final)
            db.marks(marks)
            db.findings(findings)
            db.compiled(compiled)
            for key, value in told:
                db.note(key, value)
            self._replays.note_progress(db, self._markers)
            if (first_kept := self.first_kept) > self._dropped_before:
                db.drop_before(first_kept)
                self._dropped_before = first_kept
        self._ring.free()
        self.database.checkpoint()
        self.slots.forget_written(self.database)
        if self._markers is not None:
            flight.completed(self._markers.completed())
        self._written += len(noted) // (8 * NUMBERS_OF_NOTED) + len(full) + calls_of(replays)
        flight.clear_site_table()
        flight.status(self._written, self.database.graph_count, self.database.size, closed=final)

    def _take_queues(self) -> tuple[list[Any], ...]:
        """Each queue so far. What arrives meanwhile waits for the next time."""
        queues = (
            self.flight.new_sites, self.flight.new_layouts, self._full, self._graph_calls, self._marks,
            self._findings, self._errors, self._durations, self._tensors, self._told, self.compiled,
            self._planned,
        )  # fmt: skip
        taken: list[list[Any]] = []
        for queue in queues:
            count = len(queue)
            taken.append(queue[:count])
            del queue[:count]
        return tuple(taken)

    # -- the end ---------------------------------------------------------------------------------------

    def give_up(self, why: str) -> None:
        """The recording stops; the program goes on, and what was written so far can be read."""
        self.is_open = False
        self.failure = why
        self._stop.set()
        self.flight.limit = 1 << 62
        self.flight.stopped(why)
        self.database.abandon()
        self._keep_nothing()
        self.on_failure()
        message = (
            f"kernelscope stopped recording to {self.folder}: {why}. The program continues; what was "
            "recorded so far can be read."
        )
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:  # the program has made errors of warnings, and this one is not its own
            print(message, file=sys.stderr)

    def _keep_nothing(self) -> None:
        """From now on: nothing will be written any more, and launching threads still append."""
        discarded, self.save_waiting = DiscardingQueue(), lambda: None
        self._full = self._graph_calls = self._marks = self._findings = self.compiled = discarded
        self._errors = self._durations = self._tensors = self._told = self._planned = discarded
        self._replays.keep_nothing()
        self.slots.keep_nothing()
        self.flight.keep_no_sites(discarded)

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self.lock:
            if not self.is_open:
                return
            try:
                self._flush(final=True)
                self.database.close()
            except Exception as error:
                self.give_up(reason(error))
            self.is_open = False
            self._keep_nothing()
            self.flight.close()

    def forget(self) -> None:
        """In a forked child: the folder is its parent's."""
        with self.lock if self._thread.is_alive() else nullcontext():  # a child does not have the thread
            if self.is_open:
                self.flight.close()
            self.is_open = False
            self._keep_nothing()
            self.flight.limit = 1 << 62
