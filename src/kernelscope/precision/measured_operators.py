"""The error of each eager operator: it runs once more in float64, on copies of what it was given."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import Listener
from kernelscope.shadowing.generator_state import untouched_random_numbers
from kernelscope.shadowing.reference.node_kinds import draws_from_generator
from kernelscope.shadowing.reference.small_errors.rounding import eps_of, widen
from kernelscope.shadowing.reference.subgraphs import wide_dtype

from .errors import error_of
from .measured_launches import Key, Measured, key_of

Wide = tuple[dict[int, torch.Tensor], Any, Any]  # the copy of each argument, by identity; arguments, keywords


class MeasuredOperators(Listener):
    """Operators that run inside another one, or inside compiled code, are a part of that."""

    def __init__(self) -> None:
        self.found: dict[Key, Measured] = {}

    @property
    def wants_values(self) -> bool:
        return True

    def before(self, launch: Launch) -> Wide | None:
        if launch.outer is not None or launch.site.kernel.kind != "op":
            return None
        if draws_from_generator(launch.func, launch.args, launch.kwargs):
            self._of(launch).reason = "it draws random numbers"
            return None
        copies: dict[int, torch.Tensor] = {}

        def wide(part: Any) -> Any:
            if not isinstance(part, torch.Tensor):
                return wide_dtype(part)
            if id(part) not in copies:
                copies[id(part)] = widen(part.detach().clone())
            return copies[id(part)]

        with BUS.mute(), quiet():
            args, kwargs = tree_map(wide, (launch.args, launch.kwargs))
        return copies, args, kwargs

    def after(self, launch: Launch, wide: Wide) -> None:
        if launch.error is not None:
            return
        copies, args, kwargs = wide
        found = self._of(launch)
        with BUS.mute(), quiet(), untouched_random_numbers():
            try:
                result = launch.func(*args, **kwargs)
            except Exception as error:  # there is no float64 kernel, or its dtypes do not fit
                found.reason = f"it does not run in float64: {str(error).partition(chr(10))[0][:150]}"
                return
            pairs = list(zip(_tensors(launch.result), _tensors(result), strict=False))
            pairs += [(t, copies[id(t)]) for t in self._written(launch) if id(t) in copies]
            for made, reference in pairs:
                self._measure(found, made.detach(), reference)

    def _written(self, launch: Launch) -> list[torch.Tensor]:
        return [launch.flat[i] for i in launch.point.written]

    def _measure(self, found: Measured, made: torch.Tensor, wide: torch.Tensor) -> None:
        if made.shape != wide.shape:
            return
        error = error_of(made, wide)
        if error is not None:
            dtype = made.real.dtype if made.is_complex() else made.dtype
            found.error, found.is_measured = found.error.worse(error), True
            found.roundings = max(found.roundings, error.relative / eps_of(dtype))

    def _of(self, launch: Launch) -> Measured:
        return self.found.setdefault(key_of(launch.site), Measured())


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
