"""Records of compiling as plain values for JSON, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kernelscope.events import Frame
from kernelscope.text.visible import unbroken

from .records import KINDS, FxOrigin, Record, TimedConfig

# In files a timed config is a "Candidate", as it was when the format was made.
_NAMES = {kind: "Candidate" if kind is TimedConfig else kind.__name__ for kind in KINDS}
_BY_NAME = {name: kind for kind, name in _NAMES.items()}


def to_plain(record: Record) -> list[Any]:
    return [_NAMES[type(record)], *(_plain(getattr(record, f.name)) for f in fields(record))]


def from_plain(given: Any) -> Record:
    """Raises ValueError, KeyError or TypeError if it is not a record."""
    name, *values = given
    kind = _BY_NAME[name]
    expected = fields(kind)
    if len(values) != len(expected):
        raise ValueError(f"a {name} has {len(expected)} fields, not {len(values)}")
    made: Record = kind(*(_read(f.name, value) for f, value in zip(expected, values, strict=True)))
    return made


def frames_to_plain(frames: tuple[Frame, ...]) -> list[Any]:
    return [[f.file, f.line, f.function] for f in frames]


def frames_of(given: Any) -> tuple[Frame, ...]:
    return tuple(Frame(_name(file), int(line), _name(function)) for file, line, function in given)


def _name(given: Any) -> str:
    return unbroken(str(given))


def nodes_to_plain(nodes: tuple[FxOrigin, ...]) -> list[Any]:
    return [[n.name, n.target, list(n.pre_grad), frames_to_plain(n.frames)] for n in nodes]


def nodes_of(given: Any) -> tuple[FxOrigin, ...]:
    return tuple(
        FxOrigin(_name(name), _name(target), tuple(map(_name, pre)), frames_of(frames))
        for name, target, pre, frames in given
    )


def _plain(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    if value and isinstance(value[0], Frame):
        return frames_to_plain(value)
    if value and isinstance(value[0], FxOrigin):
        return nodes_to_plain(value)
    return list(value)


def _read(field: str, value: Any) -> Any:
    if field in ("origin", "frames"):
        return frames_of(value)
    if field == "nodes":
        return nodes_of(value)
    if field == "buffers":
        return tuple(map(str, value))
    if not isinstance(value, str | int | bool):
        raise TypeError(f"{field} is {value!r:.40}")
    return value
