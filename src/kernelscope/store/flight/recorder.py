"""The flight recorder: a memory-mapped ring of the last launches, written before each launch.

The pages belong to the file, not to the process, so what was written is there after SIGKILL. The ring is
also the way of compact calls to the writer: a launch that is noted costs one `pack_into` and no allocation.

    header | ring of CELLS cells | table of the sites that may not be in run.db yet

docs/runs.md describes the bytes.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kernelscope.events import COMPACT_CALL, Call, CapturedGraph, CompactCall, Kernel, Site, SteadySite
from kernelscope.private_files import FILE
from kernelscope.store.run_db import codec

from .numbers import Numbers, PlainNumbers

MAGIC = b"KSFLIGHT"
VERSION = 2
HEADER_BYTES = 4096
CELLS = 1 << 16

HEADER = struct.Struct("<8sIIIIQQ")  # magic, version, cells, cell bytes, header bytes, pid, monotonic ns
UNLOCKED = struct.Struct("<I")  # 1 when the process could not lock the file
UNLOCKED_AT = 40
STATUS = struct.Struct("<QQQQ")  # calls, graphs, bytes written, 1 when the recording closed
STATUS_AT = 64
STREAM = struct.Struct("<QQ")  # handle, newest completed call + 1
STREAMS_AT, STREAMS = 128, 64
STOPPED_AT, STOPPED_BYTES = 2048, 512  # why the recording stopped before the program did: text
DOING_AT, DOING_BYTES = 2560, 256  # what is being compiled: since when, and text
SINCE = struct.Struct("<Q")
# start ns, site, graph call, state, stream's number, is full, layout, call + 1; end ns, once it is measured.
# The call is written last: a cell that was being written when the process died still shows its old number.
CELL = struct.Struct("<QIiBBHIQQ")
NOTE = struct.Struct("<QIiQQ")  # the same, up to the call, with the four small ones as one
SITE = struct.Struct("<I")
SITE_AT, STATE_AT, STREAM_NUMBER_AT, END_AT = 8, 16, 17, 32
ENTERED, LEFT = 1, 2
PASSING = 3  # entered, and over when its graph call comes to another call, or ends
_LAYOUT_SHIFT = 32  # of the layout, in the four small ones
RECORD = struct.Struct("<II")  # length and CRC-32 of a record in the table of sites

_TABLE_LIMIT = 4 << 20
_LOOK_BACK = 4096  # calls of other threads that may have come since
_UNKNOWN = SteadySite(Site((1 << 32) - 1, Kernel(-1, "(unknown)", "unknown", "unknown"), ()), ())
_PACK_END = struct.Struct("<Q").pack_into


class Flight:
    """The ring of one recording process, and the sites that its cells speak of."""

    def __init__(
        self,
        path: Path,
        pid: int,
        *,
        cells: int = CELLS,
        lock: Callable[[int, int], None] = fcntl.flock,
        numbers: Numbers | None = None,
    ) -> None:
        self.cells = cells
        self._ring_end = HEADER_BYTES + cells * CELL.size
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
        try:
            # A page without a block behind it would kill the program (SIGBUS) when the disk is full.
            _allocate(self._file, self._ring_end)
            self.map = mmap.mmap(self._file, self._ring_end)
        except BaseException:
            os.close(self._file)
            raise
        # Held until the process ends, so that a reader sees that it runs. Not by the file above: the map has
        # a copy of that.
        self._held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.unlocked = ""  # why a reader cannot see whether it runs
        try:
            lock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # a disk that knows no locks
            self.unlocked = error.strerror or str(error)
        HEADER.pack_into(
            self.map, 0, MAGIC, VERSION, cells, CELL.size, HEADER_BYTES, pid, time.monotonic_ns()
        )
        UNLOCKED.pack_into(self.map, UNLOCKED_AT, bool(self.unlocked))
        self.next_cell = numbers or PlainNumbers(cells, HEADER_BYTES, CELL.size)
        self.steady: Callable[[int], SteadySite | None] = lambda number: None  # by the number in a note
        # By number of a steady site: its site, and what its cells begin with when they are noted plainly.
        self.noted: dict[int, tuple[int, int]] = {}
        self.running: dict[int, int] = {}  # by graph call: the newest call + 1 that was noted plainly
        self.new_layouts: list[tuple[int, SteadySite]] = []  # by number
        self.limit = cells  # the newest call + 1 that has a cell, until the writer has taken older ones
        self.make_room: Callable[[int], None] = lambda number: None
        self.sites: dict[int, Site] = {}
        self.uninitialised: dict[int, tuple[int, ...]] = {}  # by site: arguments of its noted calls
        self.cuda_devices: dict[int, int] = {}  # by site
        self.new_sites: list[int] = []
        self._keeps_sites = True
        self.abandoned: set[int] = set()  # calls whose cell was taken while they still ran
        self._table_bytes = 0
        self._lock = threading.Lock()

    # -- on the launching threads ----------------------------------------------------------------------

    def noter(self, left: Callable[[int], None]) -> Callable[[CompactCall], Callable[[], None]]:
        """What notes a launch in few words; what it returns is to be called when the launch is over."""
        ring, pack, known = self.map, NOTE.pack_into, self.noted
        next_cell, unpack = self.next_cell, COMPACT_CALL.unpack

        def note(entry: CompactCall) -> Callable[[], None]:
            steady, graph_call, start_ns = unpack(entry)
            site, begins = known.get(steady) or self.meet_noted(steady)
            number, at = next_cell()
            if number > self.limit:
                self.make_room(number)
            pack(ring, at, start_ns, site, graph_call, begins - PASSING + ENTERED, number)
            return partial(left, number - 1)

        return note

    def meet_noted(self, number: int) -> tuple[int, int]:
        """What `noted` has for this steady site, from now on."""
        steady = self.steady(number)
        if steady is None:  # of a recording that has closed since
            steady = _UNKNOWN
        self.meet_steady(steady)
        layout = codec.layout_id(steady, number) or 0
        if layout and self._keeps_sites:
            self.new_layouts.append((layout, steady))
        self.noted[number] = found = steady.site.id, PASSING | layout << _LAYOUT_SHIFT
        return found

    def leaver(self, *, timed: bool) -> Callable[[int], None]:
        """What marks a call as over."""
        ring, mask, size, abandoned = self.map, self.cells - 1, CELL.size, self.abandoned
        state, end, now = HEADER_BYTES + STATE_AT, HEADER_BYTES + END_AT, time.monotonic_ns

        def left(index: int) -> None:
            if abandoned and index in abandoned:
                return
            ring[state + (index & mask) * size] = LEFT

        def left_timed(index: int) -> None:
            if abandoned and index in abandoned:
                return
            offset = (index & mask) * size
            _PACK_END(ring, end + offset, now())
            ring[state + offset] = LEFT

        return left_timed if timed else left

    def device_leaver(
        self,
        left: Callable[[int], None],
        mark: Callable[[int, int], int],
        stream_of: Callable[[int], int],
    ) -> Callable[[int], None]:
        """The same for noted calls that may have gone to a GPU: the stream is to say when they completed."""
        ring, mask, size, devices = self.map, self.cells - 1, CELL.size, self.cuda_devices
        base, unpack = HEADER_BYTES, SITE.unpack_from

        def left_on_device(index: int) -> None:
            at = base + (index & mask) * size
            device = devices.get(unpack(ring, at + SITE_AT)[0])
            if device is not None:
                ring[at + STREAM_NUMBER_AT] = mark(stream_of(device), index)
            left(index)

        return left_on_device

    def enter(self, call: Call) -> None:
        """A call that will be written in full is about to be launched."""
        site, index = call.site, call.index
        if self.sites.get(site.id) is not site:
            self.meet(site)
        if index >= self.limit:
            self.make_room(index + 1)
        offset = HEADER_BYTES + (index & (self.cells - 1)) * CELL.size
        CELL.pack_into(
            self.map, offset, call.start_ns, site.id, call.graph_call, ENTERED, 0, 1, 0, index + 1, 0
        )

    def cells_of(self, graph: CapturedGraph) -> bytes:
        """The cells of one replay of a CUDA graph, without what is another each time."""
        met = [(self.noted.get(number) or self.meet_noted(number))[0] for number in graph.numbers]
        return b"".join(CELL.pack(0, site, 0, LEFT, 0, 1, 0, 0, 0) for site in met)

    def replayed(self, cells: bytes, first: int, start_ns: int, graph_call: int, stream: int) -> None:
        """Calls from number `first` on were enqueued together, by a thread that is past them."""
        for number, at in enumerate(range(0, len(cells), CELL.size), first):
            site = SITE.unpack_from(cells, at + SITE_AT)[0]
            offset = HEADER_BYTES + (number - 1 & self.cells - 1) * CELL.size
            CELL.pack_into(self.map, offset, start_ns, site, graph_call, LEFT, stream, 1, 0, number, 0)

    def running_in(self, graph_call: int) -> tuple[int, Site | None] | None:
        """The newest call of a graph, if it was noted and is still running."""
        newest = self.next_call - 1
        for index in range(newest, max(newest - _LOOK_BACK, -1), -1):
            at = HEADER_BYTES + (index & (self.cells - 1)) * CELL.size
            _, site, noted_in, state, _, is_full, _, number, _ = CELL.unpack_from(self.map, at)
            if noted_in == graph_call and number == index + 1:
                return (index, self.sites.get(site)) if state != LEFT and not is_full else None
        return None

    def on_stream(self, index: int, number: int) -> None:
        """Which of the markers tells when the call has completed."""
        if index not in self.abandoned:
            at = HEADER_BYTES + (index & (self.cells - 1)) * CELL.size
            self.map[at + STREAM_NUMBER_AT] = number

    def meet_steady(self, steady: SteadySite) -> None:
        if not self._keeps_sites:
            return
        if self.sites.get(steady.site.id) is not steady.site:
            self.meet(steady.site)
        self.uninitialised[steady.site.id] = steady.uninitialised
        self.new_sites.append(steady.site.id)

    def meet(self, site: Site) -> None:
        """Keep a site where a crash cannot take it, before its first launch."""
        if not self._keeps_sites:
            return
        text = site_text(site)
        kind, _, number = site.device.partition(":")
        with self._lock:
            if kind == "cuda":
                self.cuda_devices[site.id] = int(number or 0)
            self.sites[site.id] = site
            self.new_sites.append(site.id)
            at = self._ring_end + self._table_bytes
            try:
                os.pwrite(self._file, RECORD.pack(len(text), zlib.crc32(text)) + text, at)
                self._table_bytes += RECORD.size + len(text)
            except OSError:
                pass  # no room; the writer will find that out, and say it

    @property
    def next_call(self) -> int:
        """The index that the next call will have."""
        return self.next_cell.next - 1

    def __next__(self) -> int:
        """The index of a call that is written in full."""
        return self.next_cell()[0] - 1

    # -- on the writer's thread ------------------------------------------------------------------------

    def abandon(self, index: int) -> None:
        """Its cell will be another's, although the call still runs: from now on each end asks whose it is."""
        self.abandoned.add(index)

    def clear_site_table(self) -> None:
        """All sites that are known by now are in run.db."""
        if self._table_bytes > _TABLE_LIMIT:
            with self._lock:
                if not self.new_sites:
                    os.ftruncate(self._file, self._ring_end)
                    self._table_bytes = 0

    def status(self, calls: int, graphs: int, written: int, *, closed: bool = False) -> None:
        STATUS.pack_into(self.map, STATUS_AT, calls, graphs, written, closed)

    def completed(self, streams: list[tuple[int, int]]) -> None:
        """Handle and newest completed call + 1 of each stream."""
        for number, (handle, value) in enumerate(streams[:STREAMS]):
            STREAM.pack_into(self.map, STREAMS_AT + number * STREAM.size, handle, value)

    def keep_no_sites(self, discarded: list[Any]) -> None:
        """From now on: no site will be written any more."""
        self._keeps_sites, self.new_sites, self.new_layouts = False, discarded, discarded
        for known in (self.sites, self.uninitialised, self.cuda_devices):
            known.clear()

    def stopped(self, why: str) -> None:
        text = why.encode("utf-8", "replace")[:STOPPED_BYTES].ljust(STOPPED_BYTES, b"\0")
        self.map[STOPPED_AT : STOPPED_AT + STOPPED_BYTES] = text

    def doing(self, what: str, since_ns: int = 0) -> None:
        """What takes its time right now, for a reader in another process; empty when nothing does."""
        text = what.encode("utf-8", "replace")[: DOING_BYTES - SINCE.size]
        room = SINCE.pack(since_ns) + text.ljust(DOING_BYTES - SINCE.size, b"\0")
        self.map[DOING_AT : DOING_AT + DOING_BYTES] = room

    def close(self) -> None:
        """Also in a forked child, for its copy. Who comes late finds no file, not another's."""
        file, self._file = self._file, -1
        os.close(file)
        os.close(self._held)
        # The map stays: a launch on another thread may still be on its way out.


def _allocate(file: int, size: int) -> None:
    try:
        os.posix_fallocate(file, 0, size)
        return
    except AttributeError:  # macOS
        pass
    except OSError as error:  # glibc writes zeros where the disk cannot do it; musl leaves that to us
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    zeros = bytes(size)
    at = 0
    while at < size:  # a disk that is getting full takes a part first
        at += os.pwrite(file, zeros[at:], at)


def site_text(site: Site) -> bytes:
    """A site in one record of the table: everything but the kernel's source."""
    kernel = codec.row_of(site.kernel)
    rows: list[Any] = [
        [*kernel[:4], "", kernel[5]],
        codec.site_row(site),
        [row[2:] for row in codec.argument_rows(site)],
    ]
    return codec.to_json(rows).encode()
