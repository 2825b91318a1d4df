"""The mode that computes an eager run in float64, with small errors after its operators or without."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.probes.thread_mode import ThreadMode
from kernelscope.shadowing.checks.measure import is_equal
from kernelscope.shadowing.reference.custom_operators import is_custom
from kernelscope.shadowing.reference.node_kinds import aten
from kernelscope.shadowing.reference.small_errors.exact_numbers import where_not_exact
from kernelscope.shadowing.reference.small_errors.rounding import (
    WIDE,
    eps_of,
    error_of_terms,
    rounding_of,
    shaken,
    widen,
)
from kernelscope.shadowing.reference.small_errors.ties import chooses_order, sorted_by_inductor
from kernelscope.shadowing.regions.copies import consist_of_others, with_memory

from .operator_modes import (
    declares_writes,
    is_exact_operator,
    is_traced,
    is_view,
    reach_of,
    rounding_here,
    tensors_in,
    writes,
)

_BITS = {aten.view.dtype}


class Wide(ThreadMode):
    """Computes in float64; with a generator, with an error of one rounding after each operator."""

    supports_higher_order_operators = True

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator
        self._dtypes: dict[int, torch.dtype] = {}  # by address of memory: what it would have been
        self._own: set[int] = set()  # addresses of what an operator that ran narrowly has just returned
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
        if is_traced(types, args, kwargs):
            return func(*args, **kwargs)
        dtype = self._result_dtype(func, args, kwargs)
        result = self._run(func, args, kwargs)
        if self._generator is not None and not writes(func) and (reach := reach_of(func, args, result)):
            device = next((t.device for t in tensors_in(args)), None)
            size = error_of_terms(rounding_of(func, dtype, device) or eps_of(torch.float32), dtype, reach)
            result = self._run_shaken(func, args, kwargs, size, self._generator)
        if self._generator is not None and chooses_order(func, kwargs):
            result = sorted_by_inductor(func, args, kwargs)
        if is_view(func):
            self._learn_constants(result, dtype)
        else:
            self._finish(func, args, kwargs, result, dtype)
        return result

    def _run_shaken(self, func: Any, args: Any, kwargs: Any, size: float, generator: torch.Generator) -> Any:
        """Once more, with errors in its arguments; those stand for the same dtypes as before."""
        moved = tuple(shaken(args, size, generator))
        pairs = zip(with_memory(args), with_memory(moved), strict=True)
        copies = [(before, after) for before, after in pairs if after is not before]
        for before, after in copies:
            self.learn(after, self.dtype_of(before))
        result = self._run(func, moved, kwargs)
        for _, after in copies:  # their memory is free now, for what has no dtype of its own yet
            self._dtypes.pop(after.untyped_storage().data_ptr(), None)
        return result

    def _learn_constants(self, result: Any, dtype: torch.dtype | None) -> None:
        """Views of tensors that are in the graph itself: those were not in float64 before."""
        for made in tensors_in(result):
            is_known = made.layout != torch.strided or made.untyped_storage().data_ptr() in self._dtypes
            if made.dtype in WIDE.values() and dtype is not None and not is_known:
                self.learn(made, dtype)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        self._own.clear()
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
        may_write = writes(func) or not hasattr(func, "_schema")
        for value, made in pairs:
            is_written = may_write or (is_custom(func) and not is_equal(made, value.to(made.dtype)))
            if made is not value and is_written:
                value.copy_(made)
        if may_write:
            same = {id(made): value for value, made in pairs}
            result = tree_map(lambda r: same.get(id(r), r), result)
        wide = widen(result)
        for made, each in zip(with_memory(result), with_memory(wide), strict=True):
            if each is not made:  # logsumexp of attention is float32, whatever the query is
                self.learn(each, made.dtype)
                self._own.add(each.untyped_storage().data_ptr())
        return wide

    def _finish(self, func: Any, args: Any, kwargs: Any, result: Any, dtype: torch.dtype | None) -> None:
        is_exact = is_exact_operator(func) or not any(True for _ in tensors_in(args))
        # What it writes to is known; what it makes beside it is not, such as the result of a batch norm.
        written = [t for t in tensors_in(args) if t.layout == torch.strided] if declares_writes(func) else []
        given = {t.untyped_storage().data_ptr() for t in written}
        for made in tensors_in(result):
            if made.dtype not in WIDE.values():
                continue
            if made.layout != torch.strided or made.untyped_storage().data_ptr() not in given | self._own:
                self.learn(made, dtype or torch.get_default_dtype())
            own = self.dtype_of(made)
            eps = max(rounding_here(func, own, made.device), self.autocast)
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

    def _result_dtype(self, func: Any, args: Any, kwargs: Any) -> torch.dtype | None:
        """What the operator would have returned, in a program of its own dtypes."""
        if not hasattr(func, "_schema"):  # a higher-order operator, with masks and tensors that are captured
            floats = (t for t in with_memory(args) if t.is_floating_point() or t.is_complex())
            return next(map(self.dtype_of, floats), None)
        for part in tree_leaves((args, kwargs)):
            if isinstance(part, torch.dtype):
                return part
        found: dict[bool, torch.dtype] = {}
        for tensor in tensors_in((args, kwargs)):
            if tensor.is_floating_point() or tensor.is_complex():
                kind, dtype = tensor.dim() > 0, self.dtype_of(tensor)
                found[kind] = torch.promote_types(found[kind], dtype) if kind in found else dtype
        return found.get(True, found.get(False))


def _wide_part(part: Any) -> Any:
    if isinstance(part, torch.dtype):
        return WIDE.get(part, part)
    if isinstance(part, torch.Tensor) and part.dtype in WIDE:
        return part.to(WIDE[part.dtype])
    return part


def _makes_default_dtype(func: Any, args: Any, kwargs: Any) -> bool:
    """Such as `zeros`: without tensors, and without a dtype."""
    schema = getattr(func, "_schema", None)
    if schema is None or kwargs.get("dtype") is not None or any(True for _ in tensors_in((args, kwargs))):
        return False
    names = {a.name for a in schema.arguments if a.kwarg_only}
    scalars = (aten.arange, aten.full, aten.scalar_tensor, aten.range)
    if getattr(func, "overloadpacket", None) in scalars:
        return any(isinstance(part, float) for part in tree_leaves(args))
    return "dtype" in names and {"layout", "device"} <= names


def _is_recurrent(func: Any) -> bool:
    """Many steps in one operator, whose roundings in between cannot be seen: `_cudnn_rnn`."""
    return any(word in str(getattr(func, "__name__", func)) for word in ("rnn", "gru", "lstm"))
