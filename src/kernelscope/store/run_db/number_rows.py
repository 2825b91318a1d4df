"""Rows of whole numbers, many in one value: SQLite takes them apart, and Python's lock is free meanwhile.

To bind each number costs the writer a step with the lock, during which the recorded program waits for it.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Sequence

from kernelscope.store.flight.native_noter import DECIMAL_WIDTH, LIBRARY

_AT_ONCE = 4096  # rows

# As many rows as a statement may take apart.
PLACES = (
    "CREATE TEMP TABLE places (place INTEGER PRIMARY KEY)",
    "INSERT INTO temp.places WITH RECURSIVE counted (n) AS "
    f"(SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < {_AT_ONCE - 1}) SELECT n FROM counted",
)
FIRST = ":first + place"  # in place of a number: the first of them, and its neighbours


def number(column: int, width: int) -> str:
    """The SQL of a row's number, of so many in each row."""
    at = f"place * {width * DECIMAL_WIDTH} + {column * DECIMAL_WIDTH + 1}"
    return f"CAST(substr(:texts, {at}, {DECIMAL_WIDTH}) AS INTEGER)"


def text_of(start: int, length: int, width: int) -> str:
    """The SQL of a part of the text; NULL where it is empty. Two numbers of each row say where it is."""
    part = f"substr(:text, {number(start, width)} + 1, {number(length, width)})"
    return f"nullif(CAST({part} AS TEXT), '')"


def columns(*given: Sequence[int]) -> array[int]:
    """The numbers of all rows, from those of each column."""
    numbers = array("q", bytes(8 * len(given) * len(given[0])))
    for at, column in enumerate(given):
        numbers[at :: len(given)] = array("q", column)
    return numbers


def insert(
    db: sqlite3.Connection,
    into: str,
    values: Sequence[str],
    numbers: array[int] | bytes,
    width: int,
    first: int = 0,
    text: bytes = b"",
) -> bool:
    """Insert a row for each `width` numbers (signed, 64 bits); False where there is no compiler.

    `values` are SQL: see `number` and `FIRST`, which counts from `first`; `:text` is the text.
    """
    library = LIBRARY.get()
    if library is None:
        return False
    texts, size = library.decimals(numbers), width * DECIMAL_WIDTH
    sql = f"INSERT OR REPLACE INTO {into} SELECT {', '.join(values)} FROM temp.places WHERE place < :rows"
    for start in range(0, len(texts), _AT_ONCE * size):
        some = texts[start : start + _AT_ONCE * size]
        rows = len(some) // size
        db.execute(sql, {"texts": some, "rows": rows, "first": first + start // size, "text": text})
    return True
