"""Texts fitted to a number of terminal columns: shortened in the middle, or wrapped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from unicodedata import combining, east_asian_width

DOTS = "…"
_TWO_COLUMNS = re.compile(r"\S {2,}(?=\S)")
_TAB = 8


def columns_of(text: str) -> int:
    """How many columns a terminal needs for it."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of_one, text))


def _columns_of_one(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """At most `width` columns: the middle is left out, because names differ at their ends."""
    if columns_of(text) <= width:
        return text
    if width <= 1:
        return DOTS[:width]
    tail = (width - 1) // 2
    return _head(text, width - 1 - tail) + DOTS + _head(text[::-1], tail)[::-1]


def _head(text: str, width: int) -> str:
    if text[: width + 1].isascii():
        return text[:width]
    taken = 0
    for position, character in enumerate(text):
        taken += _columns_of_one(character)
        if taken > width:
            return text[:position]
    return text


def padded(text: str, width: int, *, right: bool = False) -> str:
    gap = " " * (width - columns_of(text))
    return gap + text if right else text + gap


def fitted_widths(wanted: Sequence[int], room: int, least: int = 8) -> list[int]:
    """Widths of columns that together need at most `room`: the widest are made smaller first."""
    widths = list(wanted)
    over = sum(widths) - room
    while over > 0 and max(widths, default=0) > least:
        widest = max(widths)
        next_width = max([w for w in widths if w < widest] + [least])
        group = [i for i, w in enumerate(widths) if w == widest]
        cut = min(over, (widest - next_width) * len(group))
        for place, i in enumerate(group):
            widths[i] -= cut // len(group) + (place < cut % len(group))
        over -= cut
    return widths


def wrapped(line: str, width: int, *, rightmost: float = 0.45) -> Iterator[str]:
    """The line in pieces of at most `width` columns; a second column of text stays a column.

    It does so if it begins left of `rightmost`, a share of the width.
    """
    line = line.expandtabs(_TAB)
    if len(_head(line, width)) == len(line):
        yield line
        return
    indent = " " * _hanging(line, width, int(width * rightmost))
    while len(head := _head(line, width)) < len(line):  # not all of it is measured each time
        start = len(line) - len(line.lstrip(" "))
        cut = head.rfind(" ", start + 1)
        if line[len(head) : len(head) + 1] == " ":
            cut = len(head)
        if cut <= max(len(indent), start):  # a word that is longer than the line
            cut = len(head)
        yield line[:cut].rstrip()
        rest = line[cut:].lstrip(" ")
        if not rest:
            return
        line = indent + rest
    yield line


def _hanging(line: str, width: int, rightmost: int) -> int:
    """Where further lines begin: below the last column of a table, or a bit to the right of the first."""
    gaps = [found.end() for found in _TWO_COLUMNS.finditer(line) if found.end() <= rightmost]
    if gaps:
        return columns_of(line[: gaps[-1]])
    start = len(line) - len(line.lstrip(" "))
    return min(start + 2, width // 2)
