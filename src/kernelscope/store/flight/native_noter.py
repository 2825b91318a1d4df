"""Notes in the ring that are made by C++, where there is a compiler."""

from __future__ import annotations

import sysconfig
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelscope.native.load import OnDemand, python_module

from .numbers import Numbers
from .recorder import CELL, HEADER_BYTES, LEFT, PASSING, STATE_AT, STREAM_NUMBER_AT, Flight

_MODULE = "kernelscope_noter"  # as the C++ says
DECIMAL_WIDTH = 20  # the same


class NoterLibrary:
    """One loaded library."""

    NAME = "noter"
    SOURCE = Path(__file__).with_name("noter.cpp")
    FLAGS: tuple[str, ...] = (f"-I{sysconfig.get_path('include')}",)

    def __init__(self, library: Path) -> None:
        self._module = python_module(_MODULE, library)

    def noter(self, flight: Flight, marks: Sequence[Any]) -> Any:
        """`marks`: the current stream of a device, what marks one, numbers of streams, their newest calls."""
        layout = HEADER_BYTES, CELL.size, STATE_AT, STREAM_NUMBER_AT, flight.cells, LEFT
        objects = (
            flight, flight.next_cell, flight.noted, flight.running, flight.abandoned, flight.cuda_devices,
            *marks,
        )  # fmt: skip
        return self._module.Noter(flight.map, layout, objects)

    def numbers(self, cells: int) -> Numbers:
        made: Numbers = self._module.Numbers(cells, HEADER_BYTES, CELL.size)
        return made

    def decimals(self, numbers: array[int] | bytes) -> bytes:
        """Signed 64-bit numbers as texts of DECIMAL_WIDTH characters each, made without Python's lock."""
        texts: bytes = self._module.decimals(numbers)
        return texts

    def computes(self) -> bool:
        """Whether a note is what `struct` makes of it, and a text what Python makes of a number."""
        flight = _Flight(self.numbers(_Flight.cells))
        marked: list[tuple[int, int]] = []

        def mark(stream: int, index: int) -> int:
            marked.append((stream, index))
            return 3

        noter = self.noter(flight, (lambda device: 70 + device, mark, {}, {}))  # type: ignore[arg-type]
        for start in (5, 6):
            noter(start.to_bytes(1, "little") + bytes(7) + b"\2" + bytes(7) + b"\7" + bytes(7))
        noter.ended(2)
        noter.replayed(CELL.pack(0, 6, 0, LEFT, 0, 1, 0, 0, 0) * 2, flight.next_cell.take(2), 4, 5, 2)
        cells = [CELL.unpack_from(flight.map, HEADER_BYTES + i * CELL.size) for i in range(4)]
        expected = [(7, 9, 2, state, 3, 0, 8, i + 1, 0) for i, state in enumerate((PASSING, LEFT))]
        expected += [(4, 6, 5, LEFT, 2, 1, 0, number, 0) for number in (3, 4)]
        numbers = array("q", [0, -1, 1234567890123456789, -(1 << 63), (1 << 63) - 1])
        texts = "".join(f"{number:{DECIMAL_WIDTH}}" for number in numbers).encode()
        is_noted = cells == expected and marked == [(71, 0), (71, 1)] and not flight.running
        return is_noted and self.decimals(numbers) == texts


class _Flight:
    """As much of a flight recorder as a noter uses."""

    cells, limit = 4, 4

    def __init__(self, numbers: Numbers) -> None:
        self.map = bytearray(HEADER_BYTES + 4 * CELL.size)
        self.next_cell = numbers
        self.noted: dict[int, tuple[int, int]] = {}
        self.running: dict[int, int] = {}
        self.abandoned: set[int] = set()
        self.cuda_devices = {9: 1}

    def meet_noted(self, number: int) -> tuple[int, int]:
        self.noted[number] = found = 9, PASSING | 8 << 32
        return found


LIBRARY = OnDemand(NoterLibrary)


def native_numbers(cells: int) -> Numbers | None:
    """None without a compiler."""
    library = LIBRARY.get()
    return None if library is None else library.numbers(cells)
