"""Which fingerprints calls refer to, and how they come to run.db."""

from __future__ import annotations

from typing import Any

from kernelscope.events import Call, Finding, Replay

from .row_writer import LOG_SHIFT, Database

NEWEST_SLOTS = 1 << 15  # slots


class UsedSlots:
    """How far each log is used. Only the writer has to do with it, one transaction at a time."""

    def __init__(self) -> None:
        self._of_calls: dict[int, tuple[Any, int]] = {}  # by log: its reader, and how far it is used
        self._planned_until: dict[int, int] = {}  # by log
        self.planned_by: Any = None  # what takes the fingerprints that are planned
        self._forgotten: dict[int, int] = {}  # by log: the first slot that is still kept

    def add(self, call: Call) -> None:
        if call.fingerprinter is None:
            return
        for slots in (call.pre, call.post, call.poison):
            for slot in (slots or {}).values():
                log = slot >> LOG_SHIFT
                fingerprinter, used = self._of_calls.get(log, (call.fingerprinter, 0))
                self._of_calls[log] = fingerprinter, max(used, slot + 1)

    def add_planned(self, first: int, rows: int) -> None:
        log = first >> LOG_SHIFT
        self._planned_until[log] = max(first + rows, self._planned_until.get(log, 0))

    def add_replay(self, replay: Replay) -> None:
        if replay.first >= 0:
            log = replay.first >> LOG_SHIFT
            fingerprinter, used = self._of_calls.get(log, (replay.fingerprinter, 0))
            self._of_calls[log] = fingerprinter, max(used, replay.first + replay.graph.slots)

    def keep_nothing(self) -> None:
        """From now on: nothing will be written any more."""
        self._of_calls, self._planned_until, self.planned_by = {}, {}, None

    def _all(self) -> list[tuple[int, tuple[Any, int]]]:
        used = dict(self._of_calls)
        for log, until in self._planned_until.items():
            used[log] = self.planned_by, max(until, used.get(log, (None, 0))[1])
        return list(used.items())

    def write(self, db: Database, *, final: bool) -> None:
        for log, (fingerprinter, used) in self._all():
            first = log << LOG_SHIFT
            if not final:  # only what is here: reading from a device would make the program wait for it
                db.fingerprints(fingerprinter, log, range(first, min(used, fingerprinter.ready(log))))
                continue
            getattr(fingerprinter, "doubt_unwritten", lambda: None)()
            try:
                db.fingerprints(fingerprinter, log, range(first, used))
            except RuntimeError as error:  # a CUDA fault has taken the device's memory with it
                self._of_calls.pop(log, None)
                self._planned_until.pop(log, None)
                ready = max(min(used, fingerprinter.ready(log)), first)
                db.fingerprints(fingerprinter, log, range(first, ready))
                why = str(error).partition("\n")[0]
                message = f"the last {used - ready} hashes could not be read from the device: {why}"
                db.findings([Finding("hashes-lost", message)])

    def forget_written(self, db: Database) -> None:
        """What is on disk need not be kept in memory; the newest stay for a while, for observers."""
        for log, (fingerprinter, used) in self._all():
            until = min(db.fingerprints_until(log), used) - NEWEST_SLOTS
            if until >> LOG_SHIFT == log and until - self._forgotten.get(log, 0) > NEWEST_SLOTS:
                getattr(fingerprinter, "forget", lambda slot: None)(until)
                self._forgotten[log] = until
