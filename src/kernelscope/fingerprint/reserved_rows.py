"""Rows of the logs from their reservation until they can be read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from .host_log import HostLog
from .log import DeviceLog, Given, Reservation

Slot: TypeAlias = int
DEVICE_SHIFT = 40  # of the number of a device's log in a slot


class ReservedRows:
    """The log of the host, those of devices, and which of their rows are still going to be written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.host_log = HostLog()
        self._devices: list[DeviceLog] = []
        self._doubted: set[Slot] = set()
        self._unwritten: dict[int, int] = {}  # rows of the host's log that were reserved: the first, how many
        self.under_way: dict[Slot, int] = {}  # the same on devices, where a graph call has planned them
        self._given_back: deque[Given] = deque()

    def slot(self, number: int, row: int) -> Slot:
        return (number << DEVICE_SHIFT) + row

    def reservation(self) -> Reservation:
        """To be made before the rows are reserved, and kept until they are written."""
        return Reservation(self._given_back)

    def _take_back(self) -> None:
        """Rows of executions that nothing refers to any more: nothing else will be written to them."""
        while self._given_back:
            log, first, rows = self._given_back.popleft()
            if log is None:
                if self._unwritten.pop(first, None) is not None:
                    self._doubted.update(range(first, first + rows))
            else:
                log.written(first, rows)
                slot = self.slot(self._devices.index(log) + 1, first)
                if self.under_way.pop(slot, None) is not None:
                    self._doubted.update(range(slot, slot + rows))

    def reserve_on_host(
        self, rows: int, numels: Sequence[int] = (), reservation: Reservation | None = None
    ) -> int:
        """Rows that are going to be written to until `written_on_host`."""
        with self._lock:
            first = self.host_log.reserve(rows, numels)
            # Nothing is called between these two, so that no signal comes between.
            self._unwritten[first] = rows
            if reservation is not None:
                reservation.rows = None, first, rows
            return first

    def written_on_host(self, first: int, reservation: Reservation | None = None) -> None:
        with self._lock:
            self._unwritten.pop(first, None)
        if reservation is not None:
            reservation.rows = None

    def reserve_on_device(
        self,
        log: DeviceLog,
        salts: Sequence[int],
        stream: int | None,
        numels: Sequence[int] = (),
        reservation: Reservation | None = None,
    ) -> int:
        """Rows that this stream is going to write to; a device other than a GPU has none."""
        with self._lock:
            self._take_back()
            if stream is not None:
                log.drain(stream)
            row = log.reserve(salts, numels, reservation)
            if stream is not None:
                log.let_stream_write(row, len(salts), stream)
            return row

    def ready(self, number: int) -> Slot:
        """Slots of this log before this one can be read without waiting for the device."""
        with self._lock:
            self._take_back()
            if not number:
                return min(self._unwritten, default=self.host_log.rows)
            return self.slot(number, self._devices[number - 1].ready())

    def enqueued(
        self, log: DeviceLog, first: int, rows: int = 1, reservation: Reservation | None = None
    ) -> None:
        """Note that everything that writes into these rows, which were reserved together, is enqueued."""
        with self._lock:
            log.written(first, rows, reservation)

    def doubt(self, slots: Iterable[Slot]) -> None:
        """Note that some of these slots may never be written; reading them shows which."""
        with self._lock:  # the writer's thread goes through them
            self._doubted.update(slots)

    def doubt_unwritten(self) -> None:
        """Note that graph calls which are executing now may not write their slots before these are read."""
        with self._lock:
            self._take_back()
            for first, rows in [*self._unwritten.items(), *self.under_way.copy().items()]:
                self._doubted.update(range(first, first + rows))
