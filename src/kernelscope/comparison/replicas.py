"""Copies of the reference's memory with values perturbed by one rounding, carried along with the program."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.fingerprint.torch_bits import why_not
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch

from .flow.calls_and_values import alias_of

COUNT = 4
_SWEEP_EVERY = 512


class Replicas:
    """For each storage of the program several others, on which each operator runs too."""

    def __init__(self) -> None:
        self._memory: dict[int, list[Any]] = {}  # by storage
        self._generator = torch.Generator().manual_seed(0)
        self._until_sweep = _SWEEP_EVERY
        self.not_repeated: set[str] = set()  # operators that could not run on replicas

    def of(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        memory = self._memory.get(BUS.storages.of(tensor).id)
        return [alias_of(tensor, each) for each in memory] if memory is not None else []

    def ensure(self, tensor: torch.Tensor) -> None:
        """A storage that is new is copied as it is."""
        storage = BUS.storages.of(tensor).id
        if storage not in self._memory:
            self._memory[storage] = [_copied(tensor) for _ in range(COUNT)]

    def set(self, tensor: torch.Tensor, value: torch.Tensor, eps: float, tiny: float = 0.0) -> None:
        """All of them have this value, each with an error of one rounding of its own."""
        self.ensure(tensor)
        for each in self.of(tensor):
            each.copy_(self._shaken(value.to(each.dtype), eps, tiny))

    def shake(self, tensor: torch.Tensor, eps: float) -> None:
        """One more rounding of what they have."""
        if eps and (tensor.is_floating_point() or tensor.is_complex()):
            for each in self.of(tensor):
                each.copy_(self._shaken(each, eps, 0.0))

    def run(self, launch: Launch, *, again: bool) -> None:
        """An operator that has run: the same on every replica, or where that cannot be done its results."""
        self._sweep()
        made = [t for t in tree_leaves(launch.result) if isinstance(t, torch.Tensor) and why_not(t) is None]
        fresh = [t for t in made if BUS.storages.of(t).id not in self._memory]
        if not again or not self._repeated(launch, fresh):
            for tensor in [*fresh, *(launch.flat[i] for i in launch.point.written)]:
                if why_not(tensor) is None:
                    self.set(tensor, tensor, 0.0)

    def drop_out(self, launch: Launch) -> None:
        """Dropout has drawn its mask, which may since be another one: what it leaves follows from that."""
        x, chance, train = (*launch.args, *launch.kwargs.values())[:3]
        result, mask = launch.result
        scale = 0.0 if chance == 1 else 1 / (1 - chance) if train is not False else 1.0
        alias_of(result).copy_(x * mask * scale)
        for target, each, kept in zip(self.of(result), self.of(x), self.of(mask), strict=True):
            target.copy_(each * kept * scale)

    def _repeated(self, launch: Launch, fresh: list[torch.Tensor]) -> bool:
        results = []
        try:
            for number in range(COUNT):
                args, kwargs = tree_map(lambda part: self._part(part, number), (launch.args, launch.kwargs))  # noqa: B023
                results.append(launch.func(*args, **kwargs))
        except Exception:
            self.not_repeated.add(launch.site.kernel.name)
            return False
        flat = [[t for t in tree_leaves(r) if isinstance(t, torch.Tensor)] for r in results]
        made = [t for t in tree_leaves(launch.result) if isinstance(t, torch.Tensor)]
        if any(len(each) != len(made) for each in flat):
            self.not_repeated.add(launch.site.kernel.name)
            return False
        new = {id(t) for t in fresh}
        for i, tensor in enumerate(made):
            if id(tensor) in new:
                self._take(tensor, [each[i] for each in flat])
        return True

    def _take(self, tensor: torch.Tensor, results: list[torch.Tensor]) -> None:
        self.ensure(tensor)
        for target, result in zip(self.of(tensor), results, strict=True):
            # A shape that depends on values: the replica goes on with the program's own.
            target.copy_(result if result.shape == tensor.shape else tensor)

    def _part(self, part: Any, number: int) -> Any:
        if not isinstance(part, torch.Tensor) or why_not(part) is not None:
            return part
        found = alias_of(part, self._memory[BUS.storages.of(part).id][number])
        found = found.conj() if part.is_conj() else found
        return found.neg() if part.is_neg() else found

    def _shaken(self, value: torch.Tensor, eps: float, tiny: float) -> torch.Tensor:
        if not eps or not (value.is_floating_point() or value.is_complex()):
            return value
        drawn = torch.rand(value.shape, generator=self._generator)
        noise = drawn.to(value.device) - 0.5
        shaken = (value + (value * eps + (value != 0) * tiny) * noise).to(value.dtype)
        return torch.where(value.isfinite(), shaken, value)  # a mask's infinity has no rounding

    def _sweep(self) -> None:
        """What the program has freed is not needed any more."""
        self._until_sweep -= 1
        if self._until_sweep <= 0:
            self._until_sweep = _SWEEP_EVERY
            alive = {storage.id for storage in BUS.storages.lasting(self._memory)}
            self._memory = {key: found for key, found in self._memory.items() if key in alive}


def _copied(tensor: torch.Tensor) -> Any:
    storage: Any = tensor.untyped_storage()
    return storage.clone()
