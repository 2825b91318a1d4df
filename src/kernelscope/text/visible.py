"""Text that is safe to send to a terminal, and to put into Markdown or HTML: hidden characters are shown.

A run may come from a stranger. An escape sequence in the name of a kernel would change the terminal, and a
character that reverses the direction of text would make one name look like another. They are written as
Python and JSON write them: \\x1b, \\u202e. What stands in JSON still means the same.
"""

from __future__ import annotations

import re
from typing import Any, TextIO, cast

# C0 but tab and line feed, DEL, C1; what joins, breaks, reverses or hides (category Cf and the like). A
# carriage return before a line feed is the end of a line.
_FORMATS = (
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_FORMATS}]|\r(?!\n)")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_BYTES = re.compile("[\udc80-\udcff]+")  # of a file's name that is not UTF-8, or not in this locale
_BREAKS = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    """`text` without anything that a terminal obeys or hides; lines and tabs stay."""
    if _BYTES.search(text):
        text = _BYTES.sub(_visible_bytes, text)
    if _HIDDEN.search(text) is None:
        return text
    return _LONE_RETURN.sub(r"\\r", text).translate(_SHOWN)  # a stranger's text may be long, and all hidden


def one_line(text: str) -> str:
    """The same for a name: line feeds and tabs are shown too, so that it cannot pass for several lines."""
    return re.sub("[\n\r\t]", lambda found: _BREAKS[found[0]], visible(text))


def unbroken(text: str) -> str:
    """A recorded name without line breaks, which no name has; the rest of it as it was recorded."""
    return text.replace("\n", r"\n").replace("\r", r"\r") if "\n" in text or "\r" in text else text


def visible_form(value: Any) -> Any:
    """What JSON can hold, with every text in it made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key) if isinstance(key, str) else key: visible_form(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [visible_form(each) for each in value]
    return value


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return _BREAKS.get(found[0], f"\\x{code:02x}")
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


class _Shown(dict[int, str | int]):
    """What is written for each character, as far as one was met."""

    def __missing__(self, code: int) -> str | int:
        found = None if chr(code) == "\r" else _HIDDEN.match(chr(code))  # what is left of them ends a line
        self[code] = shown = code if found is None else _escaped(found)
        return shown


_SHOWN = _Shown()


def _visible_bytes(found: re.Match[str]) -> str:
    """Bytes stay as they are, so that the file can be found by its name, unless they hide something."""
    raw = found[0].encode("ascii", "surrogateescape")
    shown = []
    for letter in raw.decode("utf-8", "surrogateescape"):
        if _BYTES.match(letter):  # alone it is no UTF-8; below 0xa0 other terminals obey it
            shown.append(letter if ord(letter) >= 0xDCA0 else f"\\x{ord(letter) - 0xDC00:02x}")
        else:
            hidden = _HIDDEN.sub(_escaped, letter)
            shown.append(hidden if hidden != letter else letter.encode().decode("ascii", "surrogateescape"))
    return "".join(shown)


class VisibleStream:
    """A stream of text that sends nothing which a terminal obeys, except what `control` is given."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def control(self, text: str) -> None:
        """Send our own escape sequences as they are."""
        self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def visible_stream(stream: TextIO) -> TextIO:
    """The stream itself if it is safe already."""
    return stream if isinstance(stream, VisibleStream) else cast(TextIO, VisibleStream(stream))


def control(stream: TextIO, text: str) -> None:
    """Send escape sequences of our own, such as those of a progress line, to any stream."""
    if isinstance(stream, VisibleStream):
        stream.control(text)
    else:
        stream.write(text)
