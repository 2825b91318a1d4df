"""User-written Triton kernels launched from Python; Inductor's wrappers launch the compiled ones."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import Any

import torch

from kernelscope.events import Arg
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.benchmarking import muted
from kernelscope.probes.describe import describe, plain, tensor_in
from kernelscope.probes.launch import LaunchPoint
from kernelscope.probes.origins import caller_frames, caller_key
from kernelscope.probes.own_work import own_fault, unseen
from kernelscope.probes.patching import Patch, PatchSet

from .kernel_signatures import declared_constexprs
from .pointer_roles import roles_in_source

_JIT = "triton.runtime.jit:JITFunction.run"
_INTERPRETED = "triton.runtime.interpreter:InterpretedFunction.run"
_BENCH = "triton.runtime.autotuner:Autotuner._bench"


class UserTriton(PatchSet):
    """The probe for `kernel[grid](…)`."""

    def __init__(self) -> None:
        super().__init__(
            Patch(_JIT, self._around_run),
            Patch(_INTERPRETED, self._around_run),
            Patch(_BENCH, muted),
        )
        self._points: dict[Any, LaunchPoint] = {}

    def install(self) -> None:
        if find_spec("triton") is None:
            return  # no Triton, no Triton kernels
        super().install()

    def remove(self) -> None:
        super().remove()
        self._points.clear()

    def _around_run(self, original: Any) -> Any:
        here = BUS.here

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            # In a graph, without a launch that is looked at, it is part of one that was noted.
            is_part = here.graph_call >= 0 and here.launch is None
            if warmup or here.muted or is_part or not BUS.listeners:
                return original(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            try:
                bound = _bind(kernel, args, kwargs)
            except Exception:
                BUS.finding(own_fault(f"looking at the arguments of {_name(kernel)}"))
                return original(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            if callable(grid):
                grid = grid(bound)  # the program's own, and so are its errors
            # Launched with the very same arguments; only the grid's function has been called already.
            passed = {"grid": grid, "warmup": warmup, **kwargs}
            try:
                flat, point = unseen(self._look, kernel, bound, kwargs, grid)
            except Exception:
                BUS.finding(own_fault(f"looking at the arguments of {_name(kernel)}"))
                return original(kernel, *args, **passed)
            return BUS.run(point, flat, original, (kernel, *args), passed)

        return run

    def _look(self, kernel: Any, bound: dict[str, Any], kwargs: dict[str, Any], grid: Any) -> Any:
        passed, settings = _split(kernel, bound, kwargs)
        flat = [tensor_in(value) for value in passed.values()]
        return flat, self._point(kernel, list(passed), flat, tuple(grid), settings)

    def _point(
        self, kernel: Any, names: list[str], flat: list[Any], grid: tuple[int, ...], settings: dict[str, Any]
    ) -> LaunchPoint:
        shapes = tuple(_key(v) for v in flat)
        key = (kernel, caller_key(), grid, shapes, tuple((k, _hashable(v)) for k, v in settings.items()))
        if key not in self._points:
            self._points[key] = _make_point(kernel, names, flat, grid, settings)
        return self._points[key]


def _name(kernel: Any) -> str:
    return str(getattr(getattr(kernel, "fn", None), "__name__", "a Triton kernel"))


def _bind(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Every parameter of the kernel with its value, in order, defaults included."""
    parameters = inspect.signature(kernel.fn).parameters
    bound = dict(zip(parameters, args, strict=False))
    for name, parameter in parameters.items():
        if name in kwargs:
            bound[name] = kwargs[name]
        elif name not in bound and parameter.default is not parameter.empty:
            bound[name] = parameter.default
    return {name: bound[name] for name in parameters if name in bound}


def _split(
    kernel: Any, bound: dict[str, Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the kernel is passed, and what it is specialised on: constexprs, num_warps and the like."""
    constant = declared_constexprs(kernel)
    settings = {name: plain(bound[name]) for name in bound if name in constant}
    settings |= {name: plain(value) for name, value in kwargs.items() if name not in bound}
    return {name: value for name, value in bound.items() if name not in constant}, settings


def _type_name(tensor: torch.Tensor) -> str:
    return "Tensor" if type(tensor) is torch.nn.Parameter else type(tensor).__name__


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        strided = value.layout is torch.strided
        stride = value.stride() if strided else value.layout
        return tuple(value.shape), stride, value.dtype, value.device, type(value)
    return type(value)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _make_point(
    kernel: Any, names: list[str], flat: list[Any], grid: tuple[int, ...], settings: dict[str, Any]
) -> LaunchPoint:
    name = str(kernel.fn.__name__)
    source = _source(kernel)
    roles = roles_in_source(source, name)
    args = tuple(
        Arg(name, roles.get(name, "inout"), describe(value, _type_name(value)))
        if isinstance(value, torch.Tensor)
        else Arg(name, "scalar", varies=True)
        for name, value in zip(names, flat, strict=True)
    )
    known = BUS.kernel(name, "triton", "user", source)
    whole_grid = (*(int(n) for n in grid), 1, 1)[:3]
    site = BUS.site(known, args, caller_frames(), grid=whole_grid, config=settings)
    return LaunchPoint(site, is_leaf=True, is_opaque=True)


def _source(kernel: Any) -> str:
    source = getattr(kernel, "raw_src", None) or getattr(kernel, "src", None)
    if isinstance(source, list):
        return "".join(source)
    if source:
        return str(source)
    try:
        return inspect.getsource(kernel.fn)
    except (OSError, TypeError):
        return ""
