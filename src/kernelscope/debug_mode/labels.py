"""Live tensors to labels."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from kernelscope.model.labels import TensorLabel, map_tree
from kernelscope.probes.describe import plain
from kernelscope.probes.eager.annotations import is_dtensor, placements_text

_KEPT = (torch.dtype, torch.device, torch.layout, torch.memory_format, type(Ellipsis))


class Labels:
    """Makes labels, with the chosen attributes, and numbers that stay with a tensor."""

    def __init__(self, attributes: Sequence[str], *, ids: bool) -> None:
        self._attributes = tuple(attributes)
        self._ids = ids
        self._numbers: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._next = 0

    def tree(self, value: Any) -> Any:
        """The same nest with labels for tensors, and nothing in it that lives on."""
        with torch._C.DisableTorchFunction():
            return map_tree(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        if isinstance(value, torch.Size):
            return tuple(map(self._leaf, value))
        if isinstance(value, slice):
            return slice(*map(self._leaf, (value.start, value.stop, value.step)))
        return value if isinstance(value, _KEPT) else plain(value)

    def of(self, tensor: torch.Tensor) -> TensorLabel:
        sharded = is_dtensor(tensor)
        return TensorLabel(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(n if type(n) is int else str(n) for n in tensor.shape),
            prefix="dt" if sharded else "ft" if isinstance(tensor, FakeTensor) else "t",
            id=self._number(tensor) if self._ids else None,
            attributes={a: str(getattr(tensor, a)) for a in self._attributes if hasattr(tensor, a)},
            placements=placements_text(tensor._spec) if sharded else "",  # type: ignore[attr-defined]
        )

    def _number(self, tensor: torch.Tensor) -> int:
        known = self._numbers.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        number, self._next = self._next, self._next + 1
        self._numbers[id(tensor)] = (weakref.ref(tensor), number)
        return number


def operator_label(op: Any) -> str:
    """ "aten::mm", "torch.nn.functional.linear"."""
    if isinstance(op, torch._ops.OpOverload):
        return op.__qualname__
    if hasattr(op, "__module__") and hasattr(op, "__name__"):
        return f"{op.__module__}.{op.__name__}"
    return str(op)
