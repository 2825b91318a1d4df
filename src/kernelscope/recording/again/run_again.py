"""Runs chosen calls again where they happen, on the memory that they found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernelscope.events import Arg, Call
from kernelscope.fingerprint import fingerprint
from kernelscope.fingerprint.torch_bits import quiet, why_not
from kernelscope.probes.bus import BUS
from kernelscope.probes.describe import returned_tensors
from kernelscope.probes.launch import Launch


class RunAgain(ABC):
    """An observer of launches; the program keeps the results of its own launch, and its generators."""

    def __init__(self) -> None:
        self._found: dict[int, Memory] = {}

    @abstractmethod
    def wants(self, call: Call, launch: Launch) -> bool: ...

    @abstractmethod
    def check(self, call: Call, launch: Launch, found: Memory) -> None:
        """Launch it again, as often as it takes; `found` is the memory as the call found it."""

    @abstractmethod
    def failed(self, call: Call, launch: Launch, error: Exception) -> None: ...

    def before(self, call: Call, launch: Launch) -> None:
        if self.wants(call, launch):
            with _own_work():
                self._found[call.index] = Memory(launch)

    def after(self, call: Call, launch: Launch) -> None:
        found = self._found.pop(call.index, None)
        if found is None:
            return
        with _own_work():
            left = Memory(launch)
            try:
                self.check(call, launch, found)
            except Exception as error:
                self.failed(call, launch, error)
            finally:
                left.put_back()


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
def _own_work() -> Iterator[None]:
    with BUS.mute(), quiet():
        yield
