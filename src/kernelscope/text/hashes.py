"""Hashes as text: 64 bits are hexadecimal digits, hashes of a user's own are left as they are."""

from __future__ import annotations

from typing import Any


def full_hash(value: Any) -> Any:
    """All 16 digits; JSON's numbers are too small for 64 bits."""
    return f"{value:016x}" if type(value) is int else value


def short_hash(value: Any) -> str:
    """ "#0123abcd" for people; nothing for None."""
    if value is None:
        return ""
    return f"#{full_hash(value)}"[:9] if type(value) is int else f"#{value}"
