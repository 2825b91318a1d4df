"""The precision of kernels on a page: what `kernelscope precision --json` wrote to a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError

Form = dict[str, Any]
_MOST_BYTES = 64 << 20
_ERRORS = ("median_ulp", "max_ulp", "relative")


class _NotAMap(Exception):
    """The file holds something else."""


def precision_of(path: Path | str | None) -> Form | None:
    """For the page: functions, each with its kernels and the formats that were tried; None without a file."""
    if path is None:
        return None
    try:
        if (size := Path(path).stat().st_size) > _MOST_BYTES:
            raise RunError(f"{path} has {size:,} bytes, and at most {_MOST_BYTES:,} fit a page")
        given = json.loads(Path(path).read_text(encoding="utf-8"))
        return {
            "problem": _text(given, "problem"),
            "notes": _list(given, "notes", _is(str)),
            "functions": _list(given, "functions", _function),
        }
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except (_NotAMap, ValueError, RecursionError) as error:
        raise RunError(
            f"{path} is not what `kernelscope precision --json script.py` prints: {error!s:.200}"
        ) from None


def _function(given: Any) -> Form:
    what_ifs = _list(given, "what_ifs", _what_if)
    return {
        "name": _text(given, "function"),
        "problem": _text(given, "problem"),
        "tolerance": _number(given, "tolerance"),
        "outputs": _list(given, "outputs", _is(str)),
        "notes": [*_list(given, "failures", _is(str)), *_list(given, "notes", _is(str))],
        "kernels": [_with_tries(each, what_ifs) for each in _list(given, "kernels", _kernel)],
        "what_ifs": what_ifs,
    }


def _kernel(given: Any) -> Form:
    error, held = _of(given, "error"), _object(given, "range")
    origin = _list(given, "origin", lambda frame: [_text(frame, "file"), _number(frame, "line")])
    formats = _object(held, "formats")
    return {
        "index": _number(given, "index"),
        "name": _text(given, "kernel_name"),
        "kind": _text(given, "kind"),
        "phase": _text(given, "phase"),
        "dtypes": _list(given, "dtypes", _is(str)),
        "verdict": _text(given, "verdict"),
        "reason": _text(given, "reason"),
        "explained": _number(given, "explained"),
        "error": None if error is None else {name: _number(error, name) for name in _ERRORS},
        "smallest": _number(held, "smallest"),
        "largest": _number(held, "largest"),
        "infinite": (_number(held, "infinite") or 0) + (_number(held, "nan") or 0),
        "lost": {name: _shares(_object(formats, name)) for name in formats},
        "origin": origin[0] if origin else None,
    }


def _shares(given: Form) -> Form:
    """Of the values that a format cannot hold."""
    return {name: _number(given, name) for name in ("overflow", "underflow", "flushed")}


def _what_if(given: Any) -> Form:
    return {
        "format": _text(given, "format"),
        "program": _text(given, "program"),
        "tolerance": _number(given, "tolerance"),
        "is_kept": _of(given, "is_kept") is True,
        "error": _number(given, "error"),
        "error_of_all": _number(given, "error_of_all"),
        "runs": _number(given, "runs"),
        "reason": _text(given, "reason"),
        "candidates": _list(given, "candidates", _candidate),
    }


def _candidate(given: Any) -> Form:
    chosen = _of(given, "is_chosen") is True
    return {"label": _text(given, "label"), "effect": _number(given, "effect"), "is_chosen": chosen}


def _with_tries(kernel: Form, what_ifs: list[Form]) -> Form:
    """In which formats its outputs were tried, in the program as it is, and with what effect."""
    label = f"#{kernel['index']} {kernel['name']}"
    tries = [
        {"format": each["format"], "effect": one["effect"], "can": each["is_kept"] and one["is_chosen"]}
        for each in what_ifs
        if each["program"] == "as it is"
        for one in each["candidates"]
        if one["label"] == label
    ]
    return kernel | {"tries": tries}


# -- a file may hold anything ----------------------------------------------------------------------------


def _of(given: Any, name: str) -> Any:
    if not isinstance(given, dict) or name not in given:
        raise _NotAMap(f"{name} is missing")
    return given[name]


def _object(given: Any, name: str) -> Form:
    found = _of(given, name)
    if not isinstance(found, dict):
        raise _NotAMap(f"{name} is not an object")
    return found


def _text(given: Any, name: str) -> str:
    found = _of(given, name)
    if not isinstance(found, str):
        raise _NotAMap(f"{name} is not text")
    return found


def _number(given: Any, name: str) -> float | None:
    """None where it is not finite."""
    found = _of(given, name)
    if found is None:
        return None
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise _NotAMap(f"{name} is not a number")
    return found if math.isfinite(found) else None


def _list(given: Any, name: str, each: Callable[[Any], Any]) -> list[Any]:
    found = _of(given, name)
    if not isinstance(found, list):
        raise _NotAMap(f"{name} is not a list")
    return [each(one) for one in found]


def _is(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _NotAMap(f"{value!r:.40} is not text")
        return value

    return check
