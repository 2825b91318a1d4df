"""Eager operators, seen by a dispatch mode while a recording with ops="all" is open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import _guards
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelscope.events import Kind, Producer
from kernelscope.fingerprint.fingerprinter import why_not
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.describe import flatten, geometry
from kernelscope.probes.distributed.collectives import group_of, is_in_place
from kernelscope.probes.distributed.dtensors import DTensorOperators, dtensor_class
from kernelscope.probes.launch import LaunchPoint
from kernelscope.probes.makers.undeclared_writes import undeclared_writes
from kernelscope.probes.operators import (
    is_birth,
    is_view,
    operator_args,
    operator_name,
    operator_point,
)
from kernelscope.probes.origins import caller_frames, caller_key
from kernelscope.probes.own_work import own_fault, unseen
from kernelscope.probes.patching import resolve
from kernelscope.probes.thread_mode import ThreadMode, leave_soon

from .number_arguments import with_tensors
from .other_threads import OtherThreads
from .unseen_operators import WATCH

_NOT_KERNELS = {"prim", "prims", "profiler", "debug_mode_ops"}
_ANNOTATION = "debug_mode_ops::annotate"  # a line that a program adds to torch's DebugMode, and to ours


_TARGETS = (
    "torch.utils._python_dispatch:_push_mode",
    "torch.utils._python_dispatch:_pop_mode",
    "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
    "torch._guards:TracingContext.try_get",
)


class _Installed(threading.local):
    mode: OperatorMode | None = None
    users = 0


class EagerOperators:
    """The probe for operators outside compiled graphs.

    One mode, on each thread that opened a recording and on those where Python code begins meanwhile.
    """

    def __init__(self) -> None:
        self._here = _Installed()
        self._users = 0  # on all threads
        self._mode: OperatorMode | None = None
        self._others = OtherThreads(self._with_mode)

    def install(self) -> None:
        here = self._here
        here.users += 1
        self._users += 1
        if self._mode is None:
            for target in _TARGETS:
                resolve(target)
            self._mode = OperatorMode()
            WATCH.start()
            self._others.install()
        if here.mode is None and not _is_here(self._mode):
            WATCH.observed()
            _python_dispatch._push_mode(self._mode)
            here.mode = self._mode

    def remove(self) -> None:
        here = self._here
        self._users = max(self._users - 1, 0)
        if not self._users:
            self._end()
        if not here.users:
            raise RuntimeError(
                "a recording with ops='all' was closed on another thread; "
                "close it on the thread that opened it, because torch keeps dispatch modes per thread"
            )
        here.users -= 1
        if not here.users and here.mode is not None:
            mode, here.mode = here.mode, None
            _take_off(mode)

    def _end(self) -> None:
        self._others.remove()
        WATCH.stop()
        if self._mode is not None:
            self._mode.is_over = True  # on threads that still have it
            self._mode = None

    def forget(self) -> None:
        """In a forked child only the forking thread lives on, with a copy of its modes."""
        if self._mode is not None:
            _take_off(self._mode)
        WATCH.forget()
        self._end()
        self._here = _Installed()
        self._users = 0

    def _with_mode(self, run: Callable[[], Any]) -> Any:
        """Run something on another thread than that of the recording, or on the same."""
        mode, here = self._mode, BUS.here
        # Inside of a launch it belongs to that.
        if mode is None or here.launch is not None or here.muted or here.in_graph or _is_here(mode):
            return run()
        WATCH.observed()
        _python_dispatch._push_mode(mode)
        try:
            return run()
        finally:
            _take_off(mode)


def _is_here(mode: TorchDispatchMode) -> bool:
    return mode in _python_dispatch._get_current_dispatch_mode_stack()


def _take_off(mode: TorchDispatchMode) -> None:
    """Remove a mode from the stack, also from below modes that were entered after it."""
    if not _is_here(mode):
        return  # closed inside a block that sets all modes aside: it comes back idle
    above: list[TorchDispatchMode] = []
    while (top := _python_dispatch._pop_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        _python_dispatch._push_mode(other)


def _left(mode: TorchDispatchMode) -> bool:
    """Take it off; not while torch has set it aside, because it is about to put it back."""
    if not _is_here(mode):
        return False
    _take_off(mode)
    return True


class OperatorMode(ThreadMode):
    """Each operator that reaches it is a call of this kind and producer."""

    supports_higher_order_operators = True

    def __init__(
        self, kind: Kind = "op", producer: Producer = "eager", *, inside_graphs: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made_by = kind, producer
        self._inside_graphs = inside_graphs
        self._points: dict[Any, LaunchPoint] = {}
        self._dtensors = DTensorOperators()
        self._told = threading.local()  # of each thread: the operator on DTensors that is about to run
        self.is_over = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            args = with_tensors(func, args)
        except Exception:
            BUS.finding(own_fault(f"looking at the arguments of {func}"))
        here = BUS.here
        if self.is_over:
            leave_soon(lambda: _left(self))
            return func(*args, **kwargs)
        is_graphs = here.in_graph and not self._inside_graphs
        # Bystanders hear of what a graph's launches run, which is part of them.
        if here.muted > (here.leaves if is_graphs else 0) or (is_graphs and not BUS.bystanders):
            return func(*args, **kwargs)
        if not BUS.listeners or _guards.TracingContext.try_get() is not None:
            return func(*args, **kwargs)
        try:
            what = _what_is(func, types)
        except Exception:
            BUS.finding(own_fault(f"looking at {func}"))
            what = "not a kernel"
        if is_graphs:  # a launch is one of the graph's own kind; bystanders list operators
            is_one = what in ("launch", "view", "birth")
            return BUS.pass_by("in graph", func, args, kwargs) if is_one else func(*args, **kwargs)
        if what == "not a kernel":
            return func(*args, **kwargs)
        if what == "subclass":
            return self._unwrap(func, types, args, kwargs)
        if what in ("fake", "view", "annotation"):
            return BUS.pass_by(what, func, args, kwargs)
        if what == "region":
            return BUS.pass_by(what, func, args, kwargs, self._run_region)
        if what == "birth":
            result = BUS.pass_by("birth", func, args, kwargs)
            with contained(f"looking at the memory that {func} allocated"):
                if isinstance(result, torch.Tensor) and why_not(result) is None:
                    BUS.storages.born(result)
            return result
        try:
            flat, point = unseen(self._point, func, args, kwargs)
        except Exception:
            BUS.finding(own_fault(f"looking at the arguments of {func}"))
            return func(*args, **kwargs)
        return BUS.run(point, flat, func, args, kwargs)

    def _unwrap(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """The subclass unwraps itself, and what it runs comes here again."""
        dtensor = dtensor_class()
        if dtensor is None or not any(issubclass(t, dtensor) for t in types) or self._is_told(func):
            BUS.unwrapped(func, types, args, kwargs)
            return NotImplemented
        self._dtensors.begins(func, args, kwargs)
        self._told.operator = func
        try:
            with self:  # it comes here once more, and then goes on to the subclass
                result = func(*args, **kwargs)
        finally:
            self._told.operator = None
        self._dtensors.ends(func, result)
        return result

    def _is_told(self, func: Any) -> bool:
        told = getattr(self._told, "operator", None)
        self._told.operator = None
        return told is func

    def _run_region(self, graph: Any, name: Any, *operands: Any) -> Any:
        """What the graph runs comes here again, operator by operator."""
        with self:
            is_boxed = getattr(graph, "_boxed_call", False)
            return graph(list(operands)) if is_boxed else graph(*operands)

    def _point(self, func: Any, args: Any, kwargs: Any) -> tuple[list[Any], LaunchPoint]:
        flat = flatten(args, kwargs)
        group = group_of(func, flat)  # two groups are two sites
        written = undeclared_writes(func, args, kwargs)
        asked = BUS.here.callback_of
        key = (func, caller_key(), asked, tuple(kwargs), tuple(_key(v) for v in flat), group, written)
        point = self._points.get(key)
        if point is None:
            _, described = operator_args(func, args, kwargs)
            kernel = BUS.kernel(operator_name(func), *self._made_by)
            frames = caller_frames() or (asked.frames if asked is not None else ())
            site = BUS.site(kernel, described, frames, collective=group)
            is_opaque = getattr(func, "namespace", "") != "aten" and not is_in_place(func)
            point = self._points[key] = operator_point(site, func, is_static=False, is_opaque=is_opaque)
        return flat, point


def _what_is(func: Any, types: Any) -> str:
    """What an operator outside of compiled graphs is to a recording."""
    if any(issubclass(t, FakeTensor) for t in types) or _under_fake_mode():
        return "fake"
    if types and all(t is torch.Tensor or t is torch.nn.Parameter for t in types):
        return "not a kernel"  # autograd detaches what it saves, and asks with plain tensors
    if types:
        return "subclass"
    if getattr(func, "namespace", "") in _NOT_KERNELS:
        return "annotation" if func.__qualname__ == _ANNOTATION else "not a kernel"
    if getattr(func, "_name", "") == "invoke_subgraph":
        return "region"
    if is_view(func):
        return "view"
    return "birth" if is_birth(func) else "launch"


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return geometry(value), value.dtype, value.device, type(value), value.layout
    return type(value)


def _under_fake_mode() -> bool:
    """With no fake tensor among its arguments, a factory still makes one."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
