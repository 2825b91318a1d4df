"""The hashes of one entry of a listing, as two listings are compared by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kernelscope.model.call import KernelCall
from kernelscope.model.kinds import OperatorCall
from kernelscope.model.labels import TensorLabel

from .entries import Entry, OperatorEntry
from .stock_form import leaves

Logged = KernelCall | Entry


@dataclass(frozen=True, slots=True)
class Hashes:
    """What is known of an entry's values, and what it is called."""

    kind: str  # of a kernel; the class of another entry
    name: str  # what listings are aligned by
    shown: str  # what stock calls it
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] | None = None  # of an operator: where each argument stands, as stock writes it
    pre: dict[int, Any] = field(default_factory=dict)  # by argument
    post: dict[int, Any] = field(default_factory=dict)
    modified: frozenset[int] = frozenset()
    is_call: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def call_type(self) -> str:
        if self.paths is not None:
            return "torch op"
        return f"{self.kind} kernel" if self.is_call else "annotation"


class HashedEntry(Entry):
    """An entry that brings its hashes along."""

    hashes: Hashes


def hashes_of(call: Logged) -> Hashes:
    if isinstance(call, HashedEntry):
        return call.hashes
    if isinstance(call, OperatorEntry | OperatorCall) and call.is_stock_form:
        return _in_stock_form(call)
    if not isinstance(call, KernelCall):
        return Hashes(type(call).__name__, call.name, call.name)
    return Hashes(
        call.kind,
        call.kernel_name,
        call_name(call),
        call.arg_names,
        tuple(_path(call, i) for i in range(len(call.arguments))) if isinstance(call, OperatorCall) else None,
        call.pre_hashes,
        call.post_hashes,
        frozenset(call.modified_args),
        is_call=True,
    )


def _in_stock_form(call: OperatorEntry | OperatorCall) -> Hashes:
    log: dict[str, Any] = call.log or {}
    before, after = [*leaves(log.get("input_hash"))], [*leaves(log.get("hash"))]
    paths = tuple(path for path, _ in (*before, *after))
    outputs = range(len(before), len(paths))
    return Hashes(
        "op",
        call_name(call),
        call_name(call),
        paths,
        paths,
        {i: value for i, (_, value) in enumerate(before)},
        {i: value for i, (_, value) in zip(outputs, after, strict=True)},
        frozenset(outputs),
        is_call=True,
    )


def call_name(call: Logged) -> str:
    """The operator, kernel or line."""
    if isinstance(call, OperatorCall) and call.notes is not None:
        return call.notes.name
    return call.kernel_name if isinstance(call, KernelCall) else call.name


def _path(call: OperatorCall, i: int) -> str:
    """Where in (args, kwargs), or in the result, the i-th flat argument stands, as stock writes it."""
    arguments = call.arguments
    if arguments[i].returned:
        returned = [j for j, a in enumerate(arguments) if a.returned]
        return f"[{returned.index(i)}]" if len(returned) > 1 else ""
    if call.notes is None:
        return arguments[i].name
    leaves = [*_leaves(call.notes.args, "[0]"), *_leaves(call.notes.kwargs, "[1]")]
    return leaves[i] if i < len(leaves) else arguments[i].name


def _leaves(value: Any, path: str) -> Iterator[str]:
    """Paths in the order in which arguments are made flat: only what may hold tensors is opened."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        place = f"{path}[{key!r}]"
        if isinstance(inner, list | tuple) and any(isinstance(v, TensorLabel) for v in inner):
            yield from _leaves(inner, place)
        else:
            yield place
