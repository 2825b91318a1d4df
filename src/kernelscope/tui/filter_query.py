"""The filter above the list of calls, parsed into arguments of `Run.select`."""

from __future__ import annotations

from typing import Any

_KEYS = ("kernel", "kind", "graph", "step", "phase", "first")


class InvalidFilter(ValueError):
    """What is wrong with it, in one sentence."""


def parse_filter(line: str) -> dict[str, Any]:
    """ "*mm* phase=backward step=3": a glob of kernels, a number to begin at, or pairs.

    A word without wildcards matches anywhere in the name.
    """
    found: dict[str, Any] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals and word.isdecimal():
            found["first"] = int(word)
        elif not equals:
            found["kernel"] = word if set(word) & set("*?[") else f"*{word}*"
        elif key not in _KEYS:
            raise InvalidFilter(f"unknown filter {key!r:.40}; use {', '.join(_KEYS)}")
        elif not value:
            raise InvalidFilter(f"{key}= needs a value")
        elif key in ("step", "first") and not value.isdecimal():
            raise InvalidFilter(f"{key} must be a number, not {value!r:.40}")
        else:
            found[key] = int(value) if value.isdecimal() and key in ("step", "first", "graph") else value
    return found
