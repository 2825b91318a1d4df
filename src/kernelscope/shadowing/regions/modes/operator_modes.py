"""Modes that see every operator of an eager run: one that takes notes, one that adds small errors.

They work below autograd, so they are also in force while gradients are computed. They leave a subclass of
tensors without memory of its own to itself, and see the operators on the tensors of which it consists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.probes.thread_mode import ThreadMode
from kernelscope.shadowing.checks.measure import is_equal
from kernelscope.shadowing.reference.custom_operators import copied_as_it_lies, is_custom
from kernelscope.shadowing.reference.node_kinds import aten, draws_from_generator
from kernelscope.shadowing.reference.small_errors.exact_numbers import makes_whole_numbers
from kernelscope.shadowing.reference.small_errors.rounding import (
    REDUCING,
    defines_signs_of_zeros,
    rounding_of,
    shaken,
)
from kernelscope.shadowing.reference.small_errors.ties import chooses_order, sorted_by_inductor
from kernelscope.shadowing.regions.copies import consist_of_others

_EMPTY = {
    aten.empty, aten.empty_like, aten.empty_permuted, aten.empty_strided, aten.new_empty,
    aten.new_empty_strided, aten.resize_,
}  # fmt: skip
# They move numbers, or choose among them, and never round.
_EXACT = {
    aten.clone, aten.copy_, aten.copy, aten.cat, aten.stack, aten.index, aten.index_select, aten.gather,
    aten.where, aten.fill_, aten.fill, aten.zero_, aten.constant_pad_nd, aten.repeat, aten.flip,
    aten.roll, aten.lift_fresh, aten.lift_fresh_copy, aten.lift, aten.tril, aten.triu, aten.masked_fill,
    aten.masked_fill_, aten.masked_select, aten.relu, aten.relu_, aten.neg, aten.neg_, aten.abs,
    aten.max, aten.min, aten.amax, aten.amin, aten.maximum, aten.minimum, aten.clamp, aten.clamp_,
    aten.sort, aten.topk, aten.sign, aten.embedding, aten.scatter, aten.index_fill,
    aten.reflection_pad1d, aten.reflection_pad2d, aten.threshold_backward, aten.slice_scatter,
    aten.select_scatter, aten.unfold_copy, aten.set_, aten.resize_,
}  # fmt: skip


class WritesToInput(BaseException):
    """An operator is about to write to a tensor of the program, which must not catch this."""


class Notes(ThreadMode):
    """Runs everything as it is; `fill` goes where memory would be left uninitialised.

    With `opposite`, what is drawn from few values is another one each time: two seeds may draw the same.
    """

    supports_higher_order_operators = True

    def __init__(self, fill: float | None = None, *, opposite: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fill, self._opposite = fill, opposite
        self.draws = False  # random numbers
        self.is_uninitialised = False  # some memory, at first
        self.eps = 0.0  # of the coarsest float that was computed
        self.signed_zeros = True  # every operator defines the sign of a zero
        self.protected: frozenset[int] = frozenset()  # addresses of memory that must not be written to
        self.is_refused = False  # a write to it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if consist_of_others(types):
            return NotImplemented
        if is_traced(types, args, kwargs):
            return func(*args, **(kwargs or {}))
        if self.protected and writes(func):
            written = [t for t in tensors_in((args, kwargs)) if t.layout == torch.strided]
            if any(t.untyped_storage().data_ptr() in self.protected for t in written):
                self.is_refused = True
                raise WritesToInput
        given = [*tensors_in((args, kwargs))] if self.protected and is_custom(func) else []
        if given:  # what it declares need not be true
            args, kwargs = tree_map(copied_as_it_lies, (args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if not all(map(is_equal, given, tensors_in((args, kwargs)))):
            self.is_refused = True
            raise WritesToInput
        if draws_from_generator(func, args, kwargs or {}):
            self.draws = True
            if self._opposite:
                _draw_otherwise(func, args, result)
        is_new = not is_view(func)
        for made in tensors_in(result):
            if is_new:
                self.eps = max(self.eps, rounding_here(func, made.dtype, made.device))
                self.signed_zeros = self.signed_zeros and defines_signs_of_zeros(func, made.device)
        if getattr(func, "overloadpacket", None) in _EMPTY:
            self.is_uninitialised = True
            if self.fill is not None and func.overloadpacket is not aten.resize_:
                for made in tensors_in(result):
                    made.fill_(self.fill if made.dtype.is_floating_point or made.dtype.is_complex else 1)
        return result


class Noisy(Notes):  # type: ignore[no-untyped-call]
    """As it is, but with an error of one rounding after each operator: where float64 cannot be computed."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if result is NotImplemented or is_traced(types, args, kwargs):
            return result
        is_exact = is_exact_operator(func) or is_view(func)
        if not is_exact and any(True for _ in tensors_in(args)):
            for made in tensors_in(result):
                if eps := rounding_here(func, made.dtype, made.device):
                    reach = reach_of(func, args, result)
                    made.copy_(shaken(made, eps * (1 + math.sqrt(reach) / 8), self._generator))
        if chooses_order(func, kwargs or {}):
            return sorted_by_inductor(func, args, kwargs or {})
        return result


def is_traced(types: Any, args: Any, kwargs: Any) -> bool:
    """Tensors without values: an operator such as flex_attention traces its functions while it runs."""
    if any(issubclass(each, FakeTensor) for each in types):
        return True
    device = (kwargs or {}).get("device")
    if device is not None and torch.device(device).type == "meta":
        return True
    return any(tensor.is_meta for tensor in tensors_in((args, kwargs)))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    yield from (part for part in tree_leaves(value) if isinstance(part, torch.Tensor))


def _draw_otherwise(func: Any, args: Any, result: Any) -> None:
    """1 for 0 and 0 for 1, and the next category; other integers stay, as they may be places in something."""
    for made in tensors_in(result):
        if getattr(func, "overloadpacket", None) is aten.multinomial:
            made.add_(1).remainder_(args[0].shape[-1])
        elif made.is_floating_point() and bool(((made == 0) | (made == 1)).all()):
            made.copy_(made == 0)
        elif made.dtype == torch.bool:
            made.logical_not_()


# They write to running statistics, or to noise, and their schemas do not say so.
_WRITES_UNDECLARED = (
    "batch_norm", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index",
    "instance_norm", "batch_norm_update_stats", "batch_norm_gather_stats", "rrelu_with_noise",
    "batch_norm_gather_stats_with_counts",
)  # fmt: skip


def writes(func: Any) -> bool:
    return declares_writes(func) or getattr(func, "_opname", "") in _WRITES_UNDECLARED


def declares_writes(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def is_view(func: Any) -> bool:
    return bool(getattr(func, "is_view", False)) or func in (aten.detach.default, aten.alias.default)


def rounding_here(func: Any, dtype: torch.dtype, device: torch.device) -> float:
    """One rounding of this operator; integers and 8-bit floats are what they are."""
    return 0.0 if dtype.itemsize == 1 else rounding_of(func, dtype, device)


def is_exact_operator(func: Any) -> bool:
    """Moves numbers, and may depend on strides, or rounds to integers: what it is given stays as it is."""
    packet = getattr(func, "overloadpacket", None)
    name = str(getattr(packet, "__name__", ""))
    is_moved = packet in _EXACT or name.startswith("as_strided") or name.endswith("_copy")
    return is_moved or makes_whole_numbers(func)


def reach_of(func: Any, args: Any, result: Any) -> float:
    """How many numbers go into one of the result's, for an operator that adds many; else 0."""
    if is_view(func) or is_exact_operator(func):
        return 0
    ins = [t for t in tensors_in(args) if t.is_floating_point() or t.is_complex()]
    outs = [t for t in tensors_in(result) if t.numel()]
    if not ins or not outs:
        return 0
    share = max(t.numel() for t in ins) / min(t.numel() for t in outs)
    name = str(getattr(func, "__name__", func))
    if any(word in name for word in REDUCING):
        return max(share, *(float(t.shape[-1]) if t.dim() else 1.0 for t in ins))
    return share if share > 1 else 0
