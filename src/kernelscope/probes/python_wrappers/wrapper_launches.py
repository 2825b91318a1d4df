"""What stands behind each hooked call of a generated wrapper: the function that launches and records."""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from kernelscope.events import Arg, Frame, Kernel, Role, Site, SteadySite
from kernelscope.generated_code.calls import ArgText, Callsite
from kernelscope.generated_code.kernels import GeneratedKernel
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.probes import operators
from kernelscope.probes.bus import BUS, own_fault, unseen
from kernelscope.probes.describe import describe, flatten, plain
from kernelscope.probes.launch import Launch, LaunchPoint
from kernelscope.probes.operators import operator_args, operator_name
from kernelscope.probes.origins import LineMap, is_users
from kernelscope.probes.triton.kernel_signatures import (
    cpp_arguments,
    is_users_own,
    launcher_arguments,
    triton_arguments,
    triton_constants,
)

from .planned_source import address_of

# Methods of a local tensor that launch a kernel; the wrapper calls them without going through a global.
LOCAL_LAUNCHES = {".zero_", ".copy_", ".fill_"}
# In the name of a kernel that updates inputs (running statistics, counters): Inductor keeps the line of its
# last node, which is the copy, made by no line. What was computed before it may be anything.
UPDATES = "_copy_"


class WrapperLaunches:
    """Builds the hooks of one wrapper module."""

    def __init__(
        self,
        wrapper: Wrapper,
        path: str,
        namespace: dict[str, Any],
        lines: LineMap,
        callers: tuple[Frame, ...] = (),
    ) -> None:
        self._wrapper = wrapper
        self._path = path
        self._namespace = namespace
        self._lines = lines
        self._callers = callers  # the user's lines that called the graph
        self.count = 0
        self.unseen: set[str] = set()  # hooks of launches that have not been seen yet
        self.notable: dict[str, tuple[str, SteadySite]] = {}  # by hook: what a note of it says, and its name
        # By hook: a variable for each argument and returned tensor, and the expression with its address.
        self.addresses: dict[str, list[tuple[str, str] | None]] = {}
        self.sub_kernels: list[Any] = []  # of MultiKernels: their `run` is hooked on the object itself

    def hook(self, callsite: Callsite) -> Callable[..., Any]:
        path = callsite.path
        if path in LOCAL_LAUNCHES:
            return self._operator(callsite, getattr(torch.ops.aten, path[1:]), _method(path[1:]))
        target = lookup(path, self._namespace)
        root = path.split(".")[0]
        text = self._wrapper.kernels.get(root)
        if is_birth(path, target):
            return _birth(target, path)
        if text is not None:
            return self._generated(callsite, text, target)
        return self._operator(callsite, target, target)

    def _generated(self, callsite: Callsite, text: GeneratedKernel, target: Any) -> Callable[..., Any]:
        if text.maker == "cpp_pybinding":
            kernel = self._kernel(text, "cpp")
            return self._positional(callsite, kernel, cpp_arguments(text.source), lambda: target)
        owner = lookup(callsite.path.rpartition(".")[0], self._namespace)
        if text.maker == "triton":
            return self._triton(callsite, text, owner, None)
        if hasattr(owner, "picked_kernel"):
            return self._multi_kernel(callsite, owner)
        return self._positional(callsite, self._kernel(text, text.maker), (), lambda: target)

    def _multi_kernel(self, callsite: Callsite, multi_kernel: Any) -> Callable[..., Any]:
        """A MultiKernel benchmarks its kernels and then runs the one it picked: that one is the launch."""
        launches: dict[int, Callable[..., Any]] = {}
        for i, kernel in enumerate(multi_kernel.kernels):
            name = str(kernel.inductor_meta.get("kernel_name", callsite.path))
            text = self._wrapper.kernels.get(name, GeneratedKernel(name, "triton", ""))
            passed = tuple(a for part in multi_kernel.arg_index[i] for a in callsite.args[part])
            run = partial(type(kernel).run, kernel)
            launches[id(kernel)] = self._triton(replace(callsite, args=passed), text, kernel, run)
            if kernel not in self.sub_kernels:  # equal kernels share one MultiKernel
                kernel.run = partial(_run_sub_kernel, kernel)
                self.sub_kernels.append(kernel)

        def launch(*args: Any, **kwargs: Any) -> Any:
            outer, _here.sub_launches = _here.sub_launches, launches
            try:
                return multi_kernel.run(*args, **kwargs)
            finally:
                _here.sub_launches = outer

        return launch

    def _triton(self, callsite: Callsite, text: GeneratedKernel, owner: Any, run: Any) -> Callable[..., Any]:
        producer = "user" if is_users_own(owner) else "inductor"
        kernel = self._kernel(replace(text, name=owner.fn.__name__), "triton", producer)
        names, extra = triton_arguments(owner, text.source), launcher_arguments(owner)
        seal = _seal_triton(owner, [*(name for name, _ in names), *extra])
        return self._positional(
            callsite, kernel, names, (lambda: run) if run else (lambda: owner.run), seal, len(extra)
        )

    def _kernel(self, text: GeneratedKernel, kind: str, producer: str = "inductor") -> Kernel:
        return BUS.kernel(text.name, kind, producer, text.source, source_hash(text.source, text.name))

    def _site(self, callsite: Callsite, kernel: Kernel, args: tuple[Arg, ...]) -> Site:
        device = next((a.tensor.device for a in args if a.tensor is not None), "")
        origin = self._frames(callsite)
        if not origin and not any(a.tensor is not None and a.role != "out" for a in args):
            # Seeds are drawn at the start by a node without a stack: they belong to the line that uses them.
            made = {callsite.target, *(a.wrapper_name for a in args if a.role in ("out", "inout"))} - {""}
            later = (c for c in self._wrapper.callsites if c.line > callsite.line and made & _names(c))
            origin = next((f for c in later if (f := self._frames(c))), ())
        if not origin and UPDATES in kernel.name:
            origin = self._callers
        origin = origin or self._lines.nearest_frames(callsite.line)
        if not origin or not is_users(origin[0].file):
            origin = self._callers + origin  # torch's own modules leave no line of the user's in the graph
        return Site(
            next(BUS.site_ids),
            kernel,
            args,
            self._path,
            callsite.line,
            origin=origin,
            device=device,
            collective=next((str(a.value) for a in args if a.name == "group_name"), ""),
        )

    def _frames(self, callsite: Callsite) -> tuple[Frame, ...]:
        text = self._wrapper.kernels.get(callsite.path)
        if text is None or text.maker != "cpp_pybinding":
            return self._lines.frames(callsite.line)
        place = bisect_left(self._lines_of_launches, callsite.line)
        previous = self._lines_of_launches[place - 1] if place else 0
        following = self._wrapper.statement_after(callsite.line)
        return self._lines.frames_of_group(callsite.line, previous, following)

    @cached_property
    def _lines_of_launches(self) -> list[int]:
        called = ((c.line, c.path) for c in self._wrapper.callsites)
        return sorted(line for line, path in called if not is_birth(path, lookup(path, self._namespace)))

    def _positional(
        self,
        callsite: Callsite,
        kernel: Kernel,
        names: Sequence[tuple[str, Role]],
        func: Callable[[], Any],
        seal: Callable[[Site, Launch], Site] | None = None,
        extra: int = 0,
    ) -> Callable[..., Any]:
        """A generated kernel: its arguments are flat, and what it writes is among them.

        The last `extra` are for its launcher, not for the kernel.
        """
        here, is_static = BUS.here, self._wrapper.is_static
        points: dict[Any, LaunchPoint] = {}

        def point_for(args: tuple[Any, ...]) -> LaunchPoint:
            texts = [*callsite.args, *[ArgText("", False)] * (len(args) - len(callsite.args))]
            described = tuple(_positional_arg(i, v, texts[i], names) for i, v in enumerate(args))
            self.addresses[callsite.hook] = [address_of(text.node) for text in texts]
            site = self._site(callsite, kernel, described)
            opaque = kernel.producer != "inductor"
            return LaunchPoint(
                site, is_static=is_static, is_leaf=True, is_opaque=opaque, is_wrappers=True, seal=seal
            )

        def launch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, LaunchPoint | None]:
            if here.muted or not BUS.listeners:
                return func()(*args, **kwargs), None
            key = None if is_static else tuple(_shape_key(a) for a in args)
            flat = args[: len(args) - extra] if extra else args
            point = points.get(key) or _new_point(points, key, kernel, point_for, flat)
            if point is None:
                return func()(*args, **kwargs), None
            return BUS.run(point, flat, func(), args, kwargs), point

        return self._once_steady(callsite, launch)

    def _once_steady(
        self,
        callsite: Callsite,
        run: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, LaunchPoint | None]],
    ) -> Callable[..., Any]:
        """The first launch is looked at closely; after it, if nobody wants values, a note will do."""
        is_plain = not _interprets()
        self.unseen.add(callsite.hook)
        self.count += 1

        def launch(*args: Any, **kwargs: Any) -> Any:
            result, point = run(args, kwargs)
            if point is not None and point.steady is not None and callsite.hook in self.unseen:
                if point.is_leaf and not point.scalars and is_plain:
                    given = len(point.site.args)
                    returned = _returned_addresses(callsite.target, result, flatten(args, kwargs))
                    self.addresses[callsite.hook] = self.addresses[callsite.hook][:given] + returned
                    self.notable[callsite.hook] = callsite.steady, point.steady
                # Last: a thread that finds no hook here writes notes for all that are notable.
                self.unseen.discard(callsite.hook)
            return result

        return launch

    def _operator(
        self, callsite: Callsite, described_by: Any, func: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Anything that is not generated: ATen, custom operators, higher-order operators."""
        here, is_static = BUS.here, self._wrapper.is_static
        points: dict[Any, LaunchPoint] = {}
        name = callsite.path if callsite.path.startswith("extern_kernels.") else operator_name(described_by)
        kernel = BUS.kernel(name, "extern", "inductor")
        is_leaf = getattr(described_by, "namespace", "aten") == "aten" and not isinstance(
            described_by, HigherOrderOperator
        )

        def point_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> LaunchPoint:
            texts = list(_flat_texts(callsite, args, kwargs))
            names = [t.name for t in texts]
            self.addresses[callsite.hook] = [address_of(text.node) for text in texts]
            _, described = operator_args(
                described_by, args, kwargs, lambda i: i < len(texts) and texts[i].literal, names
            )
            site = self._site(callsite, kernel, described)
            return LaunchPoint(
                site,
                is_static=is_static,
                is_leaf=is_leaf,
                is_opaque=not is_leaf,
                is_pending=operators.is_async_collective(described_by),
                is_wrappers=True,
                returns=True,
                return_names=operators.return_names(described_by),
                uninitialised_returns=operators.uninitialised_returns(described_by),
            )

        def launch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, LaunchPoint | None]:
            if here.muted or not BUS.listeners:
                return func(*args, **kwargs), None
            flat = flatten(args, kwargs)
            key = None if is_static else tuple(_shape_key(a) for a in flat)
            point = points.get(key) or _new_point(points, key, kernel, point_for, args, kwargs)
            if point is None:
                return func(*args, **kwargs), None
            return BUS.run(point, flat, func, args, kwargs), point

        return self._once_steady(callsite, launch)


def _returned_addresses(target: str, result: Any, given: list[Any]) -> list[tuple[str, str] | None]:
    """Where the wrapper finds what a launch returned, in the order of the site's arguments."""
    if isinstance(result, torch.Tensor):
        results, places = [result], ["{}"]
    elif isinstance(result, tuple | list):
        results, places = list(result), [f"{{}}[{i}]" for i in range(len(result))]
    else:
        return []
    known = {id(value) for value in given}
    return [
        (target, place) if target.isidentifier() else None
        for value, place in zip(results, places, strict=True)
        if isinstance(value, torch.Tensor) and id(value) not in known
    ]


def _interprets() -> bool:
    """Whether Triton's interpreter launches, which is a launch of a user's kernel inside ours."""
    triton = sys.modules.get("triton")
    return triton is not None and bool(triton.knobs.runtime.interpret)


def _new_point(
    points: dict[Any, LaunchPoint], key: Any, kernel: Kernel, make: Callable[..., LaunchPoint], *given: Any
) -> LaunchPoint | None:
    """None where the arguments cannot be described: the launch goes on unrecorded, and a finding says so."""
    try:
        return points.setdefault(key, make(*given))
    except Exception:
        BUS.finding(own_fault(f"describing {kernel.name}"))
        return None


def _names(callsite: Callsite) -> set[str]:
    """Every variable that a call in the wrapper is given."""
    texts = [*callsite.args, *callsite.kwargs.values()]
    return {text.name for text in texts} | {item.name for text in texts for item in text.items or ()}


class _ThreadState(threading.local):
    sub_launches: Mapping[int, Callable[..., Any]] = {}  # of the MultiKernel callsite that is running


_here = _ThreadState()


def _run_sub_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    launch = _here.sub_launches.get(id(kernel)) or partial(type(kernel).run, kernel)
    return launch(*args, **kwargs)


def lookup(path: str, namespace: dict[str, Any]) -> Any:
    """What a dotted path means in a module, or None."""
    root, *rest = path.split(".")
    found = namespace.get(root)
    for name in rest:
        found = getattr(found, name, None)
    return found


def is_birth(path: str, target: Any) -> bool:
    name = path.rpartition(".")[2]
    return name.startswith("empty_strided") or name == "alloc_from_pool" or operators.is_birth(target)


def is_launch(path: str, namespace: dict[str, Any], kernels: Mapping[str, GeneratedKernel]) -> bool:
    """Whether a call in a wrapper launches a kernel or hands out memory, and so is to be hooked."""
    if path.startswith("."):
        return path in LOCAL_LAUNCHES
    root = path.split(".")[0]
    target = lookup(path, namespace)
    if root in kernels or root == "extern_kernels" or is_birth(path, target):
        return target is not None
    if isinstance(target, OpOverload | OpOverloadPacket):
        return not operators.is_view(target)
    return isinstance(target, HigherOrderOperator)


@lru_cache(maxsize=4096)
def source_hash(source: str, name: str) -> str:
    """Equal for two kernels that differ only in Inductor's numbering (`…_0`, `…_3`)."""
    base = re.sub(r"_\d+$", "", name)
    normal = re.sub(rf"\b{re.escape(base)}_\d+\b", base, source) if base else source
    return hashlib.sha256(normal.encode()).hexdigest()[:16] if source else ""


def _positional_arg(i: int, value: Any, text: ArgText, names: Sequence[tuple[str, Role]]) -> Arg:
    name, role = (
        names[i] if i < len(names) else (f"arg{i}", "inout" if isinstance(value, torch.Tensor) else "scalar")
    )
    if isinstance(value, torch.Tensor):
        return Arg(name, role if role != "scalar" else "in", describe(value), text.name)
    if text.literal:
        return Arg(name, "scalar", None, text.name, plain(value))
    return Arg(name, "scalar", None, text.name, varies=True)


def _shape_key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride() if value.layout is torch.strided else None
    return value if isinstance(value, int) else None


def _flat_texts(callsite: Callsite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[ArgText]:
    """The wrapper's words for each flat argument."""
    unknown = ArgText("", False)
    texts = [*callsite.args, *[unknown] * (len(args) - len(callsite.args))]
    given = [
        *zip(texts, args, strict=False),
        *((callsite.kwargs.get(k, unknown), v) for k, v in kwargs.items()),
    ]
    for text, value in given:
        if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
            yield from text.items or [text] * len(value)
        else:
            yield text


def _method(name: str) -> Callable[..., Any]:
    return lambda tensor, *args, **kwargs: getattr(tensor, name)(*args, **kwargs)


def _birth(target: Callable[..., Any], path: str) -> Callable[..., Any]:
    storages, here = BUS.storages, BUS.here
    is_pool = path.endswith("alloc_from_pool")

    def allocate(*args: Any, **kwargs: Any) -> Any:
        tensor = target(*args, **kwargs)
        if is_pool:
            unseen(storages.born_in_pool, tensor)
        else:
            unseen(storages.born, tensor, here.graph_call)
        return tensor

    return allocate


def _seal_triton(owner: Any, names: list[str]) -> Callable[[Site, Launch], Site]:
    """After the first launch the autotuner has settled on a config, and the grid is known."""

    def seal(site: Site, launch: Launch) -> Site:
        from torch._inductor.runtime.triton_heuristics import GridExpr

        launchers = getattr(owner, "launchers", None)
        config = launchers[0].config if launchers else owner.configs[0]
        passed = dict(zip(names, launch.args, strict=True))
        grid = GridExpr.from_meta(owner.inductor_meta, config).eval_slow(passed)
        settings = triton_constants(owner) | dict(config.kwargs)
        settings |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
        return replace(site, grid=tuple(int(n) for n in grid), config=settings)

    return seal
