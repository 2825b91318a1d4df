"""Replays the logged launches of a C++ wrapper, on mirrors of their memory that get the copied contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import torch

from kernelscope.events import Arg, Finding, Frame, Graph, Role, SteadySite, TensorSpec
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.describe import describe, interned, plain
from kernelscope.probes.launch import LaunchPoint
from kernelscope.probes.own_work import own_fault, unseen

from .launch_log import AFTER, BEFORE, BIRTH, Entry, Location, LoggedValue

NOT_COPIED = "not copied"  # why a tensor has no values


_Pair = tuple[LoggedValue | None, LoggedValue | None]  # what a launch found, what it left


class PastLaunches:
    """Of one execution of a graph."""

    def __init__(
        self, points: dict[Any, LaunchPoint], *, wants_values: bool, origin: tuple[Frame, ...]
    ) -> None:
        self._points = points
        self._wants_values = wants_values
        self._origin = origin
        self._mirrors: dict[int, torch.Tensor] = {}  # by where the memory begins
        self._pending: Entry | None = None  # a launch that has begun
        self._uncopied = 0  # arguments without values
        self._unknown: set[str] = set()  # arguments that could not be read, and why
        self.launched: list[tuple[Graph | None, SteadySite]] = []  # with the graph that begins there
        self.begins: Graph | None = None  # with the next launch
        self.can_repeat = True  # every launch was recorded, inside a graph call

    def add(self, entry: Entry) -> None:
        if entry.moment == BIRTH:
            for value in entry.values:
                if value.location is not None:
                    self._born(value.location)
        elif entry.moment == BEFORE:
            self._finish()
            self._pending = entry
        elif entry.moment == AFTER and self._pending is not None:
            before, self._pending = self._pending, None
            self._launch(before, entry)

    def close(self) -> None:
        """The log has been read."""
        self._finish()
        if self._uncopied:
            BUS.finding(_uncopied(self._uncopied))
        for reason in sorted(self._unknown):
            BUS.finding(Finding("values-not-copied", f"in a C++ wrapper, {reason}"))

    def _finish(self) -> None:
        """A launch that began and did not return."""
        before, self._pending = self._pending, None
        if before is not None:
            self._launch(before, None)

    def _launch(self, before: Entry, after: Entry | None) -> None:
        try:
            with torch.no_grad():
                flat, left, point = unseen(self._prepared, before, after)
        except Exception:
            self.can_repeat = False
            BUS.finding(own_fault(f"describing {before.names[0]}"))
            return
        took = after.ns - before.ns if after is not None else -1
        happening = _Happening(left, failed=after is None)
        with suppress(_DidNotReturn):  # its caller got the real error
            BUS.run(point, flat, happening, (), {"started_ns": before.ns, "took_ns": took})
        scalars = tuple(plain(flat[i]) for i in point.scalars)
        self.launched.append((self.begins, SteadySite(point.site, happening.uninitialised, scalars=scalars)))
        self.begins = None
        self.can_repeat &= happening.is_over and BUS.here.graph_call >= 0

    def _prepared(
        self, before: Entry, after: Entry | None
    ) -> tuple[list[Any], list[tuple[torch.Tensor, torch.Tensor]], LaunchPoint]:
        flat: list[Any] = []
        args: list[Arg] = []
        left: list[tuple[torch.Tensor, torch.Tensor]] = []
        pairs = _paired(before.values, after.values if after is not None else [])
        with BUS.mute(), quiet():
            for arg, found, made in _named(before.meta["args"], pairs):
                location = (found.location if found is not None else None) or (
                    made.location if made else None
                )
                if location is None:
                    if unknown := (found or made or LoggedValue(0)).unknown:
                        self._unknown.add(f"{arg.name} of {before.names[0]} is not read: {unknown}")
                    number = found.number if found is not None else None
                    flat.append(number)
                    args.append(replace(arg, role="scalar", varies=number is not None))
                    continue
                if found is None or found.location is None:  # it exists only afterwards
                    self._born(location)
                tensor = self._view(location)
                if found is not None and found.copy is not None:
                    _fill(tensor, found.copy)
                if made is not None and made.copy is not None:
                    left.append((tensor, made.copy))
                flat.append(tensor)
                args.append(replace(arg, tensor=self._spec(tensor, location, arg.role, found, made)))
        return flat, left, self._point(before, tuple(args))

    def _spec(
        self,
        tensor: torch.Tensor,
        location: Location,
        role: Role,
        found: LoggedValue | None,
        made: LoggedValue | None,
    ) -> TensorSpec:
        spec = describe(tensor)
        copied = made if role == "out" else found
        missing = self._wants_values and (copied is None or copied.copy is None)
        self._uncopied += missing
        return interned(replace(spec, device=location.device, unread=NOT_COPIED if missing else spec.unread))

    def _point(self, entry: Entry, args: tuple[Arg, ...]) -> LaunchPoint:
        key = (entry.names[0], id(entry.meta), args, self._origin)
        point = self._points.get(key)
        if point is None:
            name, meta = entry.names[0], entry.meta
            source = str(meta.get("source", ""))
            kernel = BUS.kernel(name, meta["kind"], "inductor", source)
            config = {"nodes": meta["nodes"]} if "nodes" in meta else {}
            site = BUS.site(kernel, args, self._origin, file="C++ wrapper", config=config)
            # Another thread may have been faster.
            point = self._points.setdefault(key, LaunchPoint(site, is_leaf=True, is_past=True))
        return point

    # -- memory ----------------------------------------------------------------------------------------

    def _born(self, location: Location) -> None:
        self._mirrors.pop(location.storage, None)
        BUS.storages.born(self._bytes(location), BUS.here.graph_call)

    def _bytes(self, location: Location) -> torch.Tensor:
        mirror = self._mirrors.get(location.storage)
        if mirror is None or mirror.nbytes < location.nbytes:
            mirror = torch.empty(location.nbytes, dtype=torch.uint8, device=self._device(location))
            self._mirrors[location.storage] = mirror
        return mirror

    def _device(self, location: Location) -> str:
        # Where no values are copied, the memory is never read, so it can be the host's.
        return location.device if self._wants_values else "cpu"

    def _view(self, location: Location) -> torch.Tensor:
        memory = self._bytes(location).untyped_storage()
        tensor = torch.empty(0, dtype=location.dtype, device=memory.device)
        return tensor.set_(memory, location.offset, location.shape, location.stride)


class _DidNotReturn(RuntimeError):
    pass


class _Happening:
    """Makes what a launch left, where it left it; once."""

    def __init__(self, left: list[tuple[torch.Tensor, torch.Tensor]], *, failed: bool) -> None:
        self._left: list[tuple[torch.Tensor, torch.Tensor]] | None = left
        self._failed = failed
        self.uninitialised: tuple[int, ...] = ()  # arguments that it found so
        self.is_over = False

    def __call__(self, **times: int) -> None:
        if self._failed:
            raise _DidNotReturn("it did not return")
        if self._left is None:
            raise RuntimeError("a kernel of a C++ wrapper cannot be launched by itself")
        with torch.no_grad():
            for tensor, contents in self._left:
                _fill(tensor, contents)
        self._left = None
        if BUS.here.launch is not None:
            self.uninitialised, self.is_over = BUS.here.launch.uninitialised, True


def _fill(tensor: torch.Tensor, contents: torch.Tensor) -> None:
    """Of what is expanded, one is enough, and torch would not write to it more than once."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor, contents = tensor.narrow(dim, 0, 1), contents.narrow(dim, 0, 1)
    tensor.copy_(contents)


def _paired(before: list[LoggedValue], after: list[LoggedValue]) -> Iterator[tuple[int, *_Pair]]:
    """By argument; an argument may be a list of tensors."""
    sides: list[dict[int, list[LoggedValue]]] = [{}, {}]
    for side, values in zip(sides, (before, after), strict=True):
        for value in values:
            side.setdefault(value.arg, []).append(value)
    for arg in sorted({*sides[0], *sides[1]}):
        found, made = sides[0].get(arg, []), sides[1].get(arg, [])
        for i in range(max(len(found), len(made))):
            yield arg, found[i] if i < len(found) else None, made[i] if i < len(made) else None


def _named(described: list[list[Any]], pairs: Iterable[tuple[int, *_Pair]]) -> Iterator[tuple[Arg, *_Pair]]:
    counts: dict[int, int] = {}
    for i, found, made in pairs:
        name, role, wrapper = described[i] if i < len(described) else (f"arg{i}", "in", "")
        if isinstance(wrapper, list):  # of tensors, each with what is known of it
            location = counts[i] = counts.get(i, -1) + 1
            known = wrapper[location] if location < len(wrapper) else (f"{name}[{location}]", role, "")
            name, role, wrapper = known
        if name:
            yield Arg(name, cast(Role, role), wrapper_name=wrapper), found, made


def _uncopied(arguments: int) -> Finding:
    return Finding(
        "values-not-copied",
        f"{arguments} arguments of launches in a C++ wrapper have no values: the launch failed, or there was "
        "not enough memory for more copies, which wait until the wrapper returns",
    )
