"""The versions of torch and Python that are supported, and tested. Nothing else in the code knows them."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

SUPPORTED = {"torch": ((2, 11), (2, 15)), "Python": ((3, 11), (3, 14))}  # from, up to and with
TESTED = {"torch": (2, 15), "Python": (3, 13)}  # the newest with a row in docs/versions.md


def in_words(name: str) -> str:
    """What is supported, in words: "torch 2.11 to 2.15"."""
    return f"{name} {_span(*SUPPORTED[name])}"


def too_old(name: str, found: str) -> str:
    """A sentence if this version is older than any that works, else nothing."""
    first, last = SUPPORTED[name]
    if (_release(found) or first) >= first:
        return ""
    needed = f"kernelscope needs {name} {_dotted(first)} or newer (supported: {_span(first, last)})"
    return f"{needed}; this is {name} {found}"


def too_new(name: str, found: str) -> str:
    """A note if this version is newer than any that is supported, else nothing."""
    first, last = SUPPORTED[name]
    release = _release(found)
    if release is None or release <= last:
        return ""
    return f"{name} {_dotted(release)} is newer than any that is supported ({_span(first, last)})"


def untested(name: str, found: str) -> str:
    """A note if this version is supported, and newer than any that tests have run on, else nothing."""
    release, last = _release(found), TESTED[name]
    if release is None or release <= last or too_new(name, found):
        return ""
    return f"supported, but not tested; tests ran with {_span(SUPPORTED[name][0], last)}"


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


def _span(first: tuple[int, int], last: tuple[int, int]) -> str:
    return f"{_dotted(first)} to {_dotted(last)}"


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
