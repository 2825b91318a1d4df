"""Copies of tensors that share memory exactly as the originals do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves

from kernelscope.shadowing.reference.small_errors.rounding import WIDE

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@dataclass(frozen=True, slots=True)
class _View:
    """How one tensor lies in its memory."""

    memory: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    requires_grad: bool
    is_leaf: bool
    is_conj: bool
    is_neg: bool


@dataclass(slots=True)
class Copied:
    """Values of a snapshot once more; by value that requires a gradient: what to differentiate by."""

    values: list[Any]
    leaves: list[torch.Tensor | None]
    dtypes: list[tuple[torch.Tensor, torch.dtype]]  # the dtype that each float tensor really has


class Snapshot:
    """What values are now; `fresh` gives them again, however often and whatever happened since."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._memories: list[tuple[torch.Tensor, set[torch.dtype]]] = []  # flat, with the dtypes that use it
        by_address: dict[tuple[torch.device, int], int] = {}
        self._parts: list[Any] = []
        with torch.no_grad():
            for value in values:
                self._parts.append(self._kept(value, by_address))

    def _kept(self, value: Any, by_address: dict[tuple[torch.device, int], int]) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not is_plain(value):
            return value.detach().clone().requires_grad_(value.requires_grad)
        storage = value.untyped_storage()
        key = value.device, storage.data_ptr()
        index = by_address.get(key) if storage.nbytes() else None
        if index is None:
            index = by_address[key] = len(self._memories)
            self._memories.append((_flat(value).clone(), {value.dtype}))
        self._memories[index][1].add(value.dtype)
        return _View(
            index, tuple(value.shape), value.stride(), int(value.storage_offset()), value.dtype,
            value.requires_grad, value.is_leaf, value.is_conj(), value.is_neg(),
        )  # fmt: skip

    def fresh(self, *, wide: bool = False, differentiates: bool = True) -> Copied:
        """Copies; with `wide`, floats are float64; those that share memory in two dtypes no longer do."""
        copied = Copied([], [], [])
        with torch.no_grad():
            memories = [_widened(flat, dtypes) if wide else flat.clone() for flat, dtypes in self._memories]
            for part in self._parts:
                value = self._again(part, memories, wide=wide)
                if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
                    dtype = part.dtype if isinstance(part, _View) else value.dtype
                    copied.dtypes.append((value, dtype))
                copied.values.append(value)
        for index, part in enumerate(self._parts):
            leaf = None
            if differentiates and isinstance(part, torch.Tensor | _View) and part.requires_grad:
                value = copied.values[index]
                if part.is_leaf:
                    leaf = value.requires_grad_()
                else:
                    leaf = torch.zeros((), dtype=value.dtype, device=value.device).expand(value.shape)
                    leaf.requires_grad_()
                    with torch.enable_grad():
                        copied.values[index] = _Computed.apply(leaf, value)  # type: ignore[no-untyped-call]
            copied.leaves.append(leaf)
        return copied

    def _again(self, part: Any, memories: list[torch.Tensor], *, wide: bool) -> Any:
        if isinstance(part, torch.Tensor):
            return part.detach().to(WIDE.get(part.dtype, part.dtype) if wide else part.dtype, copy=True)
        if not isinstance(part, _View):
            return part
        memory = memories[part.memory]
        dtype = WIDE.get(part.dtype, part.dtype) if wide else part.dtype
        if memory.dtype == dtype or not wide:
            found = _placed(memory, part, dtype)
        else:
            found = _placed(self._memories[part.memory][0], part, part.dtype).to(dtype, copy=True)
        found = found.conj() if part.is_conj else found
        return torch._neg_view(found) if part.is_neg else found


class _Computed(torch.autograd.Function):
    """A tensor that is not a leaf, in memory of its own: it may be written to."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(value)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def tensors_within(value: Any) -> list[str]:
    """Attributes of a subclass that has no memory of its own, and whose address must not be used."""
    subclass: Any = value if is_traceable_wrapper_subclass(value) else None
    return [] if subclass is None or subclass.is_nested else [*subclass.__tensor_flatten__()[0]]


def with_memory(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in it, and for a subclass without memory of its own those of which it consists."""
    for part in tree_leaves(value):
        if is_traceable_wrapper_subclass(part):
            yield from with_memory([getattr(part, name) for name in part.__tensor_flatten__()[0]])
        elif isinstance(part, torch.Tensor):
            yield part


def consist_of_others(types: Iterable[type]) -> bool:
    """Of the types of an operator's arguments: some have no memory of their own."""
    return any(map(is_traceable_wrapper_subclass_type, types))


def is_plain(value: torch.Tensor) -> bool:
    """Whether it is nothing but memory with sizes and strides."""
    return (
        type(value) in _PLAIN
        and value.layout == torch.strided
        and not value.is_quantized
        and not value._is_zerotensor()
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
        and not value.is_nested
        and value.device.type != "meta"
    )


def _flat(value: torch.Tensor) -> torch.Tensor:
    """All of its memory."""
    storage = value.untyped_storage()
    flat = torch.empty(0, dtype=value.dtype, device=value.device)
    return flat.set_(storage, 0, (storage.nbytes() // value.itemsize,), (1,))


def _placed(memory: torch.Tensor, part: _View, dtype: torch.dtype) -> torch.Tensor:
    # Not a view: torch forbids writes to one that was made without gradients.
    made = torch.empty(0, dtype=dtype, device=memory.device)
    return made.set_(memory.untyped_storage(), part.offset, part.size, part.stride)


def _widened(flat: torch.Tensor, dtypes: set[torch.dtype]) -> torch.Tensor:
    wide = WIDE.get(flat.dtype)
    return flat.to(wide) if wide is not None and len(dtypes) == 1 else flat.clone()
