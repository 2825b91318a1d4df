"""Modes that see every operator of an eager run: one that takes notes, one that computes in float64.

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
from kernelscope.shadowing.reference.small_errors.exact_numbers import makes_whole_numbers, where_not_exact
from kernelscope.shadowing.reference.small_errors.rounding import (
    REDUCING,
    WIDE,
    defines_signs_of_zeros,
    eps_of,
    error_of_terms,
    rounding_of,
    shaken,
    widen,
)
from kernelscope.shadowing.reference.small_errors.ties import chooses_order, sorted_by_inductor
from kernelscope.shadowing.regions.copies import consist_of_others, with_memory

_BITS = {aten.view.dtype}
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
        if _is_traced(types, args, kwargs):
            return func(*args, **(kwargs or {}))
        if self.protected and _writes(func):
            written = [t for t in _tensors((args, kwargs)) if t.layout == torch.strided]
            if any(t.untyped_storage().data_ptr() in self.protected for t in written):
                self.is_refused = True
                raise WritesToInput
        given = [*_tensors((args, kwargs))] if self.protected and is_custom(func) else []
        if given:  # what it declares need not be true
            args, kwargs = tree_map(copied_as_it_lies, (args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if not all(map(is_equal, given, _tensors((args, kwargs)))):
            self.is_refused = True
            raise WritesToInput
        if draws_from_generator(func, args, kwargs or {}):
            self.draws = True
            if self._opposite:
                _draw_otherwise(func, args, result)
        is_view = _is_view(func)
        for made in _tensors(result):
            if not is_view:
                self.eps = max(self.eps, _rounding(func, made.dtype, made.device))
                self.signed_zeros = self.signed_zeros and defines_signs_of_zeros(func, made.device)
        if getattr(func, "overloadpacket", None) in _EMPTY:
            self.is_uninitialised = True
            if self.fill is not None and func.overloadpacket is not aten.resize_:
                for made in _tensors(result):
                    made.fill_(self.fill if made.dtype.is_floating_point or made.dtype.is_complex else 1)
        return result


class Noisy(Notes):  # type: ignore[no-untyped-call]
    """As it is, but with an error of one rounding after each operator: where float64 cannot be computed."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if result is NotImplemented or _is_traced(types, args, kwargs):
            return result
        is_exact = _is_exact(func) or _is_view(func)
        if not is_exact and any(True for _ in _tensors(args)):
            for made in _tensors(result):
                if eps := _rounding(func, made.dtype, made.device):
                    reach = _reach(func, args, result)
                    made.copy_(shaken(made, eps * (1 + math.sqrt(reach) / 8), self._generator))
        if chooses_order(func, kwargs or {}):
            return sorted_by_inductor(func, args, kwargs or {})
        return result


class Wide(ThreadMode):
    """Computes in float64; with a generator, with an error of one rounding after each operator."""

    supports_higher_order_operators = True

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator
        self._dtypes: dict[int, torch.dtype] = {}  # by address of memory: what it would have been
        self.narrow: set[str] = set()  # operators that ran without float64
        self.autocast = 0.0  # one rounding of the dtype that autocast asks for: below it that cannot be seen

    def learn(self, tensor: torch.Tensor, dtype: torch.dtype) -> None:
        """A float64 tensor that stands for one of this dtype."""
        for part in with_memory(tensor):
            if part.layout is torch.strided:
                self._dtypes[part.untyped_storage().data_ptr()] = dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if consist_of_others(types):
            return NotImplemented
        if _is_traced(types, args, kwargs):
            return func(*args, **kwargs)
        dtype = self._result_dtype(args, kwargs)
        result = self._run(func, args, kwargs)
        if self._generator is not None and not _writes(func) and (reach := _reach(func, args, result)):
            device = next((t.device for t in _tensors(args)), None)
            size = error_of_terms(rounding_of(func, dtype, device) or eps_of(torch.float32), dtype, reach)
            result = self._run(func, tuple(shaken(args, size, self._generator)), kwargs)
        if self._generator is not None and chooses_order(func, kwargs):
            result = sorted_by_inductor(func, args, kwargs)
        if _is_view(func):
            self._learn_constants(result, dtype)
        else:
            self._finish(func, args, kwargs, result, dtype)
        return result

    def _learn_constants(self, result: Any, dtype: torch.dtype | None) -> None:
        """Views of tensors that are in the graph itself: those were not in float64 before."""
        for made in _tensors(result):
            is_known = made.layout != torch.strided or made.untyped_storage().data_ptr() in self._dtypes
            if made.dtype in WIDE.values() and dtype is not None and not is_known:
                self.learn(made, dtype)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if getattr(func, "namespace", "") not in ("aten", "prims") or func in _BITS:
            return self._narrowly(func, args, kwargs)
        wide_args, wide_kwargs = tree_map(_wide_part, (args, kwargs))
        if _makes_default_dtype(func, args, kwargs):
            wide_kwargs["dtype"] = WIDE.get(torch.get_default_dtype(), torch.float64)
        try:
            return widen(func(*wide_args, **wide_kwargs))
        except (RuntimeError, NotImplementedError, TypeError):
            return self._narrowly(func, args, kwargs)

    def _narrowly(self, func: Any, args: Any, kwargs: Any) -> Any:
        """In its own dtypes: there is no float64 kernel, or the bits matter."""
        self.narrow.add(str(func))
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def narrow(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.dtype not in WIDE.values():
                return value
            made = value.to(self.dtype_of(value))
            pairs.append((value, made))
            return made

        result = func(*tree_map(narrow, args), **tree_map(narrow, kwargs))
        may_write = _writes(func) or not hasattr(func, "_schema")
        for value, made in pairs:
            is_written = may_write or (is_custom(func) and not is_equal(made, value.to(made.dtype)))
            if made is not value and is_written:
                value.copy_(made)
        if may_write:
            same = {id(made): value for value, made in pairs}
            result = tree_map(lambda r: same.get(id(r), r), result)
        return widen(result)

    def _finish(self, func: Any, args: Any, kwargs: Any, result: Any, dtype: torch.dtype | None) -> None:
        is_exact = _is_exact(func) or not any(True for _ in _tensors(args))
        # What it writes to is known; what it makes beside it is not, such as the result of a batch norm.
        written = [t for t in _tensors(args) if t.layout == torch.strided] if _declares_writes(func) else []
        given = {t.untyped_storage().data_ptr() for t in written}
        for made in _tensors(result):
            if made.dtype not in WIDE.values():
                continue
            if made.layout != torch.strided or made.untyped_storage().data_ptr() not in given:
                self.learn(made, dtype or torch.get_default_dtype())
            own = self.dtype_of(made)
            eps = max(_rounding(func, own, made.device), self.autocast)
            if self._generator is not None and eps and not is_exact:
                moved = shaken(made, 0.5 * eps, self._generator)
                if not self.autocast:
                    moved = where_not_exact(moved, made, func, args, kwargs, own)
                made.copy_(moved)
                if _is_recurrent(func):  # what one step rounds, the next ones go on with
                    made.mul_(1 + eps * (float(torch.rand((), generator=self._generator)) - 0.5))

    def dtype_of(self, value: torch.Tensor) -> torch.dtype:
        found = self._dtypes.get(value.untyped_storage().data_ptr(), value.dtype)
        if value.is_complex() and not found.is_complex:
            return torch.complex64 if found == torch.float32 else value.dtype
        if not value.is_complex() and found.is_complex:
            return torch.float32 if found == torch.complex64 else value.dtype
        return found

    def _result_dtype(self, args: Any, kwargs: Any) -> torch.dtype | None:
        """What the operator would have returned, in a program of its own dtypes."""
        for part in tree_leaves((args, kwargs)):
            if isinstance(part, torch.dtype):
                return part
        found: dict[bool, torch.dtype] = {}
        for tensor in _tensors((args, kwargs)):
            if tensor.is_floating_point() or tensor.is_complex():
                kind, dtype = tensor.dim() > 0, self.dtype_of(tensor)
                found[kind] = torch.promote_types(found[kind], dtype) if kind in found else dtype
        return found.get(True, found.get(False))


def _is_traced(types: Any, args: Any, kwargs: Any) -> bool:
    """Tensors without values: an operator such as flex_attention traces its functions while it runs."""
    if any(issubclass(each, FakeTensor) for each in types):
        return True
    device = (kwargs or {}).get("device")
    if device is not None and torch.device(device).type == "meta":
        return True
    return any(tensor.is_meta for tensor in _tensors((args, kwargs)))


def _wide_part(part: Any) -> Any:
    if isinstance(part, torch.dtype):
        return WIDE.get(part, part)
    if isinstance(part, torch.Tensor) and part.dtype in WIDE:
        return part.to(WIDE[part.dtype])
    return part


def _makes_default_dtype(func: Any, args: Any, kwargs: Any) -> bool:
    """Such as `zeros`: without tensors, and without a dtype."""
    schema = getattr(func, "_schema", None)
    if schema is None or kwargs.get("dtype") is not None or any(True for _ in _tensors((args, kwargs))):
        return False
    names = {a.name for a in schema.arguments if a.kwarg_only}
    scalars = (aten.arange, aten.full, aten.scalar_tensor, aten.range)
    if getattr(func, "overloadpacket", None) in scalars:
        return any(isinstance(part, float) for part in tree_leaves(args))
    return "dtype" in names and {"layout", "device"} <= names


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    yield from (part for part in tree_leaves(value) if isinstance(part, torch.Tensor))


def _draw_otherwise(func: Any, args: Any, result: Any) -> None:
    """1 for 0 and 0 for 1, and the next category; other integers stay, as they may be places in something."""
    for made in _tensors(result):
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


def _writes(func: Any) -> bool:
    return _declares_writes(func) or getattr(func, "_opname", "") in _WRITES_UNDECLARED


def _declares_writes(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _is_view(func: Any) -> bool:
    return bool(getattr(func, "is_view", False)) or func in (aten.detach.default, aten.alias.default)


def _rounding(func: Any, dtype: torch.dtype, device: torch.device) -> float:
    """One rounding of this operator; integers and 8-bit floats are what they are."""
    return 0.0 if dtype.itemsize == 1 else rounding_of(func, dtype, device)


def _is_exact(func: Any) -> bool:
    """Moves numbers, and may depend on strides, or rounds to integers: what it is given stays as it is."""
    packet = getattr(func, "overloadpacket", None)
    name = str(getattr(packet, "__name__", ""))
    is_moved = packet in _EXACT or name.startswith("as_strided") or name.endswith("_copy")
    return is_moved or makes_whole_numbers(func)


def _is_recurrent(func: Any) -> bool:
    """Many steps in one operator, whose roundings in between cannot be seen: `_cudnn_rnn`."""
    return any(word in str(getattr(func, "__name__", func)) for word in ("rnn", "gru", "lstm"))


def _reach(func: Any, args: Any, result: Any) -> float:
    """How many numbers go into one of the result's, for an operator that adds many; else 0."""
    if _is_view(func) or _is_exact(func):
        return 0
    ins = [t for t in _tensors(args) if t.is_floating_point() or t.is_complex()]
    outs = [t for t in _tensors(result) if t.numel()]
    if not ins or not outs:
        return 0
    share = max(t.numel() for t in ins) / min(t.numel() for t in outs)
    name = str(getattr(func, "__name__", func))
    if any(word in name for word in REDUCING):
        return max(share, *(float(t.shape[-1]) if t.dim() else 1.0 for t in ins))
    return share if share > 1 else 0
