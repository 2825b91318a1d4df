"""Re-runs one call many times with the same inputs, and checks that its outputs are identical."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kernelscope.events import Arg, Call
from kernelscope.fingerprint import fingerprint
from kernelscope.fingerprint.torch_bits import poison, quiet, why_not
from kernelscope.probes.bus import BUS
from kernelscope.probes.describe import returned_tensors
from kernelscope.probes.launch import Launch

TIMES = 20


@dataclass(frozen=True, slots=True)
class Replay:
    """What replaying one call alone has shown."""

    index: int
    kernel_name: str
    times: int = 0
    differed: int = 0  # of these, with the same contents everywhere
    arguments: tuple[str, ...] = ()  # those that differed
    unwritten: bool = False  # it differs with the contents of memory that held nothing yet
    error: str = ""  # why it could not be replayed

    @property
    def is_confirmed(self) -> bool:
        return bool(self.differed or self.unwritten)


class Replayer:
    """Re-runs the calls with these indices where they happen, and restores memory and generators."""

    def __init__(self, calls: Collection[int], times: int = TIMES) -> None:
        self._wanted, self._times = frozenset(calls), times
        self.replays: dict[int, Replay] = {}
        # By call and argument: what its first launch left, and what a replay left that differed.
        self.examples: dict[int, dict[str, tuple[torch.Tensor, torch.Tensor]]] = {}
        self._found: dict[int, Memory] = {}

    def before(self, call: Call, launch: Launch) -> None:
        if call.index in self._wanted:
            with own_work():
                self._found[call.index] = Memory(launch)

    def after(self, call: Call, launch: Launch) -> None:
        found = self._found.pop(call.index, None)
        if found is None:
            return
        name = launch.site.kernel.name
        with own_work():
            left = Memory(launch)
            try:
                self.replays[call.index] = self._replay(call, launch, found)
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                self.replays[call.index] = Replay(call.index, name, error=what)
            finally:
                left.put_back()

    def _replay(self, call: Call, launch: Launch, found: Memory) -> Replay:
        written = written_by(launch, launch.result)
        first, kept = hashes(written), {i: tensor.clone() for i, tensor in written.items()}
        differing: dict[int, int] = {}
        differed = 0
        for _ in range(self._times):
            left = self._launch(launch, found)
            again = hashes(left)
            if missing := [launch.site.args[i].name for i in first if i not in again]:
                raise RuntimeError(f"launched again, it did not return {', '.join(missing)}")
            other = [i for i in first if again[i] != first[i]]
            differed += bool(other)
            for i in other:
                pair = (kept[i].cpu(), left[i].cpu().clone())
                self.examples.setdefault(call.index, {})[launch.site.args[i].name] = pair
            differing |= dict.fromkeys(other, 1)
        unwritten: list[int] = []
        if not differed and launch.uninitialised:
            for fill in (poison, torch.Tensor.zero_):
                again = hashes(self._launch(launch, found, fill))
                unwritten += [i for i in first if again.get(i) != first[i]]
        args = launch.site.args
        names = tuple(args[i].name for i in sorted(differing or dict.fromkeys(unwritten)))
        return Replay(call.index, launch.site.kernel.name, self._times, differed, names, bool(unwritten))

    def _launch(self, launch: Launch, found: Memory, fill: Any = None) -> dict[int, torch.Tensor]:
        found.put_back()
        if fill is not None:
            for i in launch.uninitialised:
                fill(launch.flat[i])
        return written_by(launch, launch.func(*launch.args, **launch.kwargs))


class Memory:
    """The memory of a launch's arguments, and the random number generators, at one moment."""

    def __init__(self, launch: Launch) -> None:
        tensors = [launch.flat[i] for i in launch.point.tensors]
        storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in tensors}
        self._storages = [(storage, storage.clone()) for storage in storages.values()]
        self._cpu = torch.get_rng_state()
        cuda: Any = torch.cuda
        self._cuda = torch.cuda.get_rng_state_all() if cuda.is_initialized() else []

    def put_back(self) -> None:
        for storage, contents in self._storages:
            storage.copy_(contents)
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)


def hashes(tensors: dict[int, torch.Tensor]) -> dict[int, int]:
    return {i: fingerprint(tensor, "hash").bits for i, tensor in tensors.items()}


def written_by(launch: Launch, result: Any) -> dict[int, torch.Tensor]:
    """What a launch wrote and returned, by argument."""
    tensors = {i: launch.flat[i] for i in launch.point.tensors}
    first = len(launch.point.site.args)
    if launch.returned:
        given = {id(value) for value in launch.flat}
        made = [t for _, t in returned_tensors(result, launch.point.return_names) if id(t) not in given]
        tensors |= {first + position: tensor for position, tensor in enumerate(made)}
    written = launch.point.written | set(range(first, first + len(launch.returned)))
    if launch.point.is_opaque:
        written = frozenset(tensors)
    args = launch.site.args
    return {
        i: tensor
        for i, tensor in tensors.items()
        if i in written and why_not(tensor) is None and not _is_unread(args[i])
    }


def _is_unread(arg: Arg) -> bool:
    return arg.tensor is not None and bool(arg.tensor.unread)


@contextmanager
def own_work() -> Iterator[None]:
    with BUS.mute(), quiet():
        yield
