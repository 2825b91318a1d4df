"""A listing in a JSON file, to compare it with one of another process: texts and hashes, and no tensors."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import IO, Any

from kernelscope.fingerprint.definition import same_nan
from kernelscope.model.call import KernelCall

from .entries import Entry
from .hashes import HashedEntry, Hashes, Logged, hashes_of

FORMAT, VERSION = "kernelscope.DebugMode.logs", 1
Place = str | os.PathLike[str] | IO[str]


class SavedEntry(HashedEntry):
    """An entry that was read from a file. It prints itself as it did, and has its hashes."""

    def __init__(
        self,
        text: str,
        hashes: Hashes,
        call_depth: int,
        stack: tuple[str, str | None],
        log: dict[str, Any] | None,
    ) -> None:
        super().__init__(call_depth, stack)
        self._text, self.hashes = text, hashes
        if log is not None:
            self.log = log
        elif hashes.post:  # of a file that an earlier release wrote
            self.log = {"hash": [hashes.post[i] for i in sorted(hashes.modified) if i in hashes.post]}

    @property
    def name(self) -> str:
        return self.hashes.name

    def render(self, attributes: Sequence[str] = ()) -> str:
        return self._text


def save_logs(logs: Sequence[Logged], destination: Place) -> None:
    data = {"format": FORMAT, "version": VERSION, "logs": [_form(entry) for entry in logs]}
    text = json.dumps(data, allow_nan=False) + "\n"
    if isinstance(destination, str | os.PathLike):
        with open(destination, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        destination.write(text)


def load_logs(source: Place) -> list[Entry]:
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else getattr(source, "name", "the file")
    if isinstance(source, str | os.PathLike):
        with open(source, encoding="utf-8") as file:
            text = file.read()
    else:
        text = source.read()
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not a listing of DebugMode.save_logs: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("logs"), list):
        raise ValueError(f"{name} is not a listing of DebugMode.save_logs")
    if data.get("version") != VERSION:
        raise ValueError(
            f"{name} has version {data.get('version')!r} of the format; kernelscope reads {VERSION}"
        )
    found: list[Entry] = []
    for number, each in enumerate(data["logs"]):
        try:
            found.append(_entry(each))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"{name} is damaged: entry {number} cannot be read ({error!r})") from None
    return found


def _form(entry: Logged) -> dict[str, Any]:
    hashes = hashes_of(entry)
    return {
        "text": entry.line() if isinstance(entry, KernelCall) else entry.render(),
        "call_depth": entry.call_depth,
        "stack_trace": entry.stack_trace,
        "fwd_stack_trace": entry.fwd_stack_trace,
        "kind": hashes.kind,
        "name": hashes.name,
        "shown": hashes.shown,
        "arguments": list(hashes.arguments),
        "paths": None if hashes.paths is None else list(hashes.paths),
        "pre": {str(i): _plain(value) for i, value in hashes.pre.items()},
        "post": {str(i): _plain(value) for i, value in hashes.post.items()},
        "modified": sorted(hashes.modified),
        "is_call": hashes.is_call,
        "log": {k: _plain(v) for k, v in (entry.log or {}).items() if k in ("hash", "input_hash")},
    }


def _entry(form: dict[str, Any]) -> SavedEntry:
    paths = form["paths"]
    hashes = Hashes(
        str(form["kind"]),
        str(form["name"]),
        str(form["shown"]),
        tuple(map(str, form["arguments"])),
        None if paths is None else tuple(map(str, paths)),
        {int(i): _value(value) for i, value in form["pre"].items()},
        {int(i): _value(value) for i, value in form["post"].items()},
        frozenset(map(int, form["modified"])),
        is_call=bool(form["is_call"]),
    )
    known = len(hashes.arguments)
    if any(not 0 <= i < known for i in (*hashes.pre, *hashes.post)) or len(hashes.paths or ()) not in (
        0,
        known,
    ):
        raise ValueError("hashes of arguments that it does not have")
    forward = form["fwd_stack_trace"]
    stack = str(form["stack_trace"]), None if forward is None else str(forward)
    log = {str(k): _value(v) for k, v in form["log"].items()} if "log" in form else None
    return SavedEntry(str(form["text"]), hashes, int(form["call_depth"]), stack, log)


def _plain(value: Any) -> Any:
    """What JSON has no form for gets a dict with one key."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    if isinstance(value, complex):
        return {"complex": [_plain(value.real), _plain(value.imag)]}
    if isinstance(value, list):
        return {"list": [_plain(each) for each in value]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(each) for each in value]}
    if isinstance(value, dict):
        return {"dict": [[str(k), _plain(each)] for k, each in value.items()]}
    return value if value is None or isinstance(value, bool | int | float | str) else {"text": str(value)}


def _value(form: Any) -> Any:
    if not isinstance(form, dict):
        return form
    [(kind, inner)] = form.items()
    if kind == "float":
        return same_nan(float(inner))
    if kind == "complex":
        real, imaginary = (_value(each) for each in inner)
        return complex(real, imaginary)
    if kind == "dict":
        return {str(k): _value(each) for k, each in inner}
    if kind == "list":
        return [_value(each) for each in inner]
    return tuple(_value(each) for each in inner) if kind == "tuple" else str(inner)
