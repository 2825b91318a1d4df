"""The versions of torch and Python that are tested. The only place in the code that knows them."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

TESTED = {"torch": ((2, 11), (2, 15)), "Python": ((3, 11), (3, 14))}  # from, up to and with


def in_words(name: str) -> str:
    """In words: "torch 2.11 to 2.15"."""
    return f"{name} {_span(name)}"


def too_old(name: str, found: str) -> str:
    """A sentence if this version is older than any that works, else nothing."""
    first, _ = TESTED[name]
    if (_release(found) or first) >= first:
        return ""
    return (
        f"kernelscope needs {name} {_dotted(first)} or newer (tested: {_span(name)}); this is {name} {found}"
    )


def too_new(name: str, found: str) -> str:
    """A note if this version is newer than any that was tested, else nothing."""
    _, last = TESTED[name]
    release = _release(found)
    if release is None or release <= last:
        return ""
    return f"{name} {_dotted(release)} is newer than any that was tested ({_span(name)})"


def installed_torch_is_too_old() -> str:
    """The same of the torch that is installed, without importing it."""
    try:
        return too_old("torch", version("torch"))
    except PackageNotFoundError:
        return ""


def _release(found: str) -> tuple[int, int] | None:
    """(2, 16) for 2.16.0a0+git1; None where it does not say, as "unknown"."""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def _span(name: str) -> str:
    first, last = TESTED[name]
    return f"{_dotted(first)} to {_dotted(last)}"


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
