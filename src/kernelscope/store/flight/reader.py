"""What a flight recorder holds after the process that wrote it is gone. Trusts nothing that it reads."""

from __future__ import annotations

import fcntl
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.events import Kernel, Site
from kernelscope.store.run_db import codec
from kernelscope.store.safety.regular_files import open_regular, read_regular
from kernelscope.text.visible import unbroken

from .recorder import (
    CELL,
    DOING_AT,
    DOING_BYTES,
    ENTERED,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PASSING,
    RECORD,
    SINCE,
    STATUS,
    STATUS_AT,
    STOPPED_AT,
    STOPPED_BYTES,
    STREAM,
    STREAMS,
    STREAMS_AT,
    UNLOCKED,
    UNLOCKED_AT,
    VERSION,
)

UNKNOWN = "cannot tell whether it is still being recorded: its file system has no locks"
_MOST_CELLS = 1 << 20
_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One launch, as the ring tells it."""

    index: int
    site: int
    graph_call: int
    start_ns: int
    end_ns: int
    is_executing: bool  # entered and not left: what the host was in
    stream: int  # number among the stream markers, counted from 1; 0 for none
    is_full: bool  # written in full by the writer, once it is over


@dataclass(frozen=True, slots=True)
class FlightLog:
    """The readable part of a `flight` file."""

    pid: int
    calls: int
    graphs: int
    is_closed: bool
    cells: list[Cell]  # oldest first
    streams: list[tuple[int, int]]  # handle, newest completed call + 1
    stopped: str = ""  # why the recording stopped although the program went on
    sites: dict[int, Site] = field(default_factory=dict)


def read_status(path: Path) -> tuple[int, int, int] | None:
    """Calls, graphs and bytes written so far; None where there is nothing to read."""
    try:
        with open_regular(path) as file:
            head = file.read(STATUS_AT + STATUS.size)
    except (OSError, RunError):
        return None
    if not head.startswith(MAGIC) or len(head) < STATUS_AT + STATUS.size:
        return None
    calls, graphs, written, _ = STATUS.unpack_from(head, STATUS_AT)
    return calls, graphs, written


def read_doing(path: Path) -> tuple[str, int]:
    """What is being compiled, and since when in ns of the monotonic clock; empty when nothing is."""
    try:
        with path.open("rb") as file:
            file.seek(DOING_AT)
            data = file.read(DOING_BYTES)
    except OSError:
        return "", 0
    if len(data) < DOING_BYTES:
        return "", 0
    return data[SINCE.size :].rstrip(b"\0").decode("utf-8", "replace"), SINCE.unpack_from(data)[0]


def is_recording(path: Path, lock: Callable[[int, int], None] = fcntl.flock) -> bool | None:
    """Whether the process that writes this file is alive: it holds a lock as long as it is.

    None where that cannot be known: the recording is not closed, and the file system has no locks.
    """
    try:
        with open_regular(path) as file:
            head = file.read(STATUS_AT + STATUS.size).ljust(STATUS_AT + STATUS.size, b"\0")
            is_unlocked = UNLOCKED.unpack_from(head, UNLOCKED_AT)[0] == 1
            try:
                lock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError:
                is_unlocked = True
    except (OSError, RunError):  # there is no such file
        return False
    is_closed = STATUS.unpack_from(head, STATUS_AT)[3] == 1
    return None if is_unlocked and not is_closed else False


def read_flight(path: Path) -> FlightLog:
    try:
        data = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        raise RunError(f"{path} is not a flight recorder of kernelscope, or is cut short")
    _, version, cells, cell_bytes, header_bytes, pid, _ = HEADER.unpack_from(data)
    if version > VERSION:
        raise RunError(
            f"{path} has version {version} and this kernelscope reads up to {VERSION}: "
            "it was written by a newer kernelscope; upgrade to read it"
        )
    end = HEADER_BYTES + cells * CELL.size
    is_sane = 0 < cells <= _MOST_CELLS and cells & (cells - 1) == 0
    if not is_sane or cell_bytes != CELL.size or header_bytes != HEADER_BYTES or len(data) < end:
        raise RunError(f"{path} is damaged: its header does not fit its {len(data)} bytes")
    calls, graphs, _, closed = STATUS.unpack_from(data, STATUS_AT)
    markers = [STREAM.unpack_from(data, STREAMS_AT + i * STREAM.size) for i in range(STREAMS)]
    return FlightLog(
        pid, calls, graphs, bool(closed),
        cells=sorted(_cells(data, cells), key=lambda cell: cell.index),
        streams=[(handle, value) for handle, value in markers],
        stopped=data[STOPPED_AT : STOPPED_AT + STOPPED_BYTES].rstrip(b"\0").decode("utf-8", "replace"),
        sites=dict(_site_table(data, end)),
    )  # fmt: skip


def _cells(data: bytes, cells: int) -> Iterator[Cell]:
    ring = data[HEADER_BYTES : HEADER_BYTES + cells * CELL.size]
    found = [
        (index - 1, end_ns, *rest)
        for at, (*rest, index, end_ns) in enumerate(CELL.iter_unpack(ring))
        if index and (index - 1) % cells == at
    ]
    newest = max((cell[0] for cell in found), default=-1)
    newest_of: dict[int, int] = {}
    for index, _, _, _, graph_call, *_ in found:
        newest_of[graph_call] = max(index, newest_of.get(graph_call, -1))
    for index, end_ns, start_ns, site, graph_call, state, stream, is_full, _layout in found:
        if index > newest - cells + 1:  # the oldest may have been half overwritten
            runs = state == ENTERED or (state == PASSING and newest_of[graph_call] == index)
            yield Cell(index, site, graph_call, start_ns, end_ns, runs, stream, bool(is_full))


def _site_table(data: bytes, at: int) -> Iterator[tuple[int, Site]]:
    """The table of sites, up to the first record that is not whole."""
    while at + RECORD.size <= len(data):
        length, checksum = RECORD.unpack_from(data, at)
        text = data[at + RECORD.size : at + RECORD.size + length]
        if not length or len(text) < length or zlib.crc32(text) != checksum:
            return
        try:
            kernel, row, arguments = json.loads(text)
            kernel, row, *arguments = (_unbroken(each) for each in (kernel, row, *arguments))
            site = codec.site_of(row, Kernel(*kernel), map(codec.arg_of, arguments))
            # A kernel's source is in run.db alone, where it is signed.
            yield int(row[0]), replace(site, kernel=replace(site.kernel, source=""))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
            return
        at += RECORD.size + length


def _unbroken(cells: list[Any]) -> tuple[Any, ...]:
    return tuple(unbroken(cell) if isinstance(cell, str) else cell for cell in cells)
