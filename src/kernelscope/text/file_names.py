"""Names of files and folders that are made of other names: of kernels, graphs, modules, scripts."""

from __future__ import annotations

import hashlib
import re
import sys

_MOST = 200  # bytes: file systems take 255, and our callers add a number and an ending
_HASH = 8


def file_name(text: str, *, keep: str = "", most: int = _MOST) -> str:
    """`text` with "_" for what is not a letter, a digit, "_", ".", "-" or in `keep`; at most `most` bytes.

    One that is cut ends with a hash of all of it, so that names with the same beginning stay different.
    """
    encoding = sys.getfilesystemencoding()
    plain = re.sub(rf"[^\w.{re.escape(keep)}-]+", "_", text)
    raw = plain.encode(encoding, "replace").replace(b"?", b"_")  # what the locale's file names cannot hold
    if len(raw) > most:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
        raw = raw[: most - _HASH - 1] + f"-{digest}".encode()
    name = raw.decode(encoding, "ignore")  # a character that was cut in two is left out
    return name if name.strip(".") else "_" * len(name)  # "..": not a name, but another folder


def readable(name: str) -> str:
    """The name of a file whose bytes Python could not decode in this locale, decoded as UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
