"""Eager operators, seen by a dispatch mode while a recording with ops="all" is open."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from ..events import Site
from .bus import BUS, LaunchPoint
from .describe import flatten, is_subclass
from .operators import (
    is_birth,
    is_view,
    operator_args,
    operator_name,
    return_names,
    unwritten_returns,
)
from .origins import caller_frames, caller_key

_NOT_KERNELS = {"prim", "prims", "profiler", "debug_mode_ops"}


class EagerOperators:
    """The probe for operators outside compiled graphs; one mode per thread that opened a recording."""

    def __init__(self) -> None:
        self._modes: dict[int, tuple[_OperatorMode, int]] = {}

    def install(self) -> None:
        thread = threading.get_ident()
        mode, count = self._modes.get(thread, (None, 0))
        if mode is None:
            mode = _OperatorMode()
            _push_mode(mode)
        self._modes[thread] = (mode, count + 1)

    def remove(self) -> None:
        thread = threading.get_ident()
        if thread not in self._modes:
            raise RuntimeError(
                "a recording with ops='all' was closed on another thread than the one that opened it; "
                "close it where it was opened, because torch keeps dispatch modes per thread"
            )
        mode, count = self._modes.pop(thread)
        if count > 1:
            self._modes[thread] = (mode, count - 1)
        else:
            _take_off(mode)

    def forget(self) -> None:
        """In a forked child only the forking thread lives on, with a copy of its modes."""
        for mode, _ in [self._modes[t] for t in self._modes if t == threading.get_ident()]:
            _take_off(mode)
        self._modes.clear()


def _take_off(mode: TorchDispatchMode) -> None:
    """Remove a mode from the stack, also from below modes that were entered after it."""
    above: list[TorchDispatchMode] = []
    while (top := _pop_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        _push_mode(other)


class _OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its __init_subclass__
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._points: dict[Any, LaunchPoint] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        here = BUS.here
        if here.muted or here.in_graph or not BUS.listeners or TracingContext.try_get() is not None:
            return func(*args, **kwargs)
        if any(issubclass(t, FakeTensor) for t in types):
            return func(*args, **kwargs)
        if types and any(isinstance(a, torch.Tensor) and is_subclass(a) for a in _tensors(args, kwargs)):
            return NotImplemented  # the subclass unwraps itself, and what it runs comes here again
        if is_view(func) or getattr(func, "namespace", "") in _NOT_KERNELS:
            return func(*args, **kwargs)
        if is_birth(func):
            result = func(*args, **kwargs)
            if (
                isinstance(result, torch.Tensor)
                and result.device.type != "meta"
                and result.layout is torch.strided
            ):
                BUS.storages.born(result)
            return result
        flat = flatten(args, kwargs)
        return BUS.run(self._point(func, args, kwargs, flat), flat, func, args, kwargs)

    def _point(self, func: Any, args: Any, kwargs: Any, flat: list[Any]) -> LaunchPoint:
        key = (func, caller_key(), tuple(kwargs), tuple(_key(v) for v in flat))
        point = self._points.get(key)
        if point is None:
            _, described = operator_args(func, args, kwargs)
            frames = caller_frames()
            device = next((a.tensor.device for a in described if a.tensor is not None), "")
            site = Site(
                next(BUS.site_ids),
                BUS.kernel(operator_name(func), "op", "eager"),
                described,
                file=frames[0].file if frames else "",
                line=frames[0].line if frames else 0,
                origin=frames,
                device=device,
            )
            point = self._points[key] = LaunchPoint(
                site,
                is_static=False,
                returns=True,
                return_names=return_names(func),
                unwritten_returns=unwritten_returns(func),
            )
        return point


def _tensors(args: Any, kwargs: Any) -> Any:
    for value in (*args, *kwargs.values()):
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        strided = value.layout is torch.strided
        return (
            value.shape,
            value.stride() if strided else None,
            value.dtype,
            value.device,
            type(value),
            value.layout,
        )
    return type(value)
