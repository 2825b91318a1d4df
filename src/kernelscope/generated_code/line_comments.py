"""Comments that name a line of the user's program, as torch writes them into printed graphs."""

from __future__ import annotations

import re
from typing import NamedTuple

_MARK, _CODE = "# File: ", ", code: "
_LINE = re.compile(r":([0-9]{1,9}) in ")


class NamedLine(NamedTuple):
    """A line of the user's program; `code` is None where the comment does not quote it."""

    file: str
    line: int
    code: str | None


def named_line(text: str) -> NamedLine | None:
    """What a comment in this line of text names; one pass, because a stranger's line may be of any length."""
    start = text.find(_MARK)
    found = _LINE.search(text, start + len(_MARK) + 1) if start >= 0 else None
    if found is None:
        return None
    comma = text.find(",", found.end())
    is_quoted = comma >= 0 and text.startswith(_CODE, comma)
    code = text[comma + len(_CODE) :] if is_quoted else None
    return NamedLine(text[start + len(_MARK) : found.start()], int(found[1]), code)
