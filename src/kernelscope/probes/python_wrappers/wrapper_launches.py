"""The hooks of a generated wrapper: for each call, the function that launches and records."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch._ops import HigherOrderOperator

from kernelscope.events import Arg, Frame, Kernel, Role, Site, SteadySite
from kernelscope.generated_code.calls import ArgText, Callsite
from kernelscope.generated_code.kernels import GeneratedKernel
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.probes.bus import BUS
from kernelscope.probes.describe import flatten, tensor_in
from kernelscope.probes.launch import Launch, LaunchPoint
from kernelscope.probes.makers.addresses import given_tensors, launched_as_written, with_tensors
from kernelscope.probes.makers.signatures import known_arguments, takes_addresses
from kernelscope.probes.operators import operator_args, operator_name, operator_point
from kernelscope.probes.origins import LineMap, is_users
from kernelscope.probes.own_work import own_fault, unseen
from kernelscope.probes.triton.kernel_signatures import (
    is_users_own,
    launcher_arguments,
    triton_arguments,
    triton_constants,
)

from .call_arguments import (
    Address,
    flat_texts,
    is_constant,
    positional_arg,
    returned_addresses,
    shape_key,
    variables_of,
)
from .multi_kernels import hook_kernel, launching
from .planned_source import address_of
from .wrapper_calls import LOCAL_LAUNCHES, is_birth, lookup

# In the name of a kernel that updates inputs (running statistics, counters): Inductor keeps the line of its
# last node, which is the copy, made by no line. What was computed before it may be anything.
UPDATES = "_copy_"


@dataclass(frozen=True, slots=True)
class SeenLaunch:
    """What the first launch of a call in a wrapper has shown."""

    note: str  # name of the constant with the number that notes have for it
    steady: SteadySite
    addresses: list[Address]  # of each argument and each returned tensor


class WrapperLaunches:
    """Builds the hooks of one wrapper module."""

    def __init__(
        self,
        wrapper: Wrapper,
        path: str,
        namespace: dict[str, Any],
        lines: LineMap,
        callers: tuple[Frame, ...] = (),
        *,
        sizes: frozenset[str] = frozenset(),
    ) -> None:
        """`sizes`: these launches are for one set of sizes, which these variables follow from."""
        self._wrapper = wrapper
        self._sizes = sizes
        self.is_static = wrapper.is_static or bool(sizes)
        self._path = path
        self._namespace = namespace
        self._lines = lines
        self._callers = callers  # the user's lines that called the graph
        self.count = 0
        self._hooks: set[str] = set()
        # By hook: None where a note is not enough. An entry is written at once, for other threads to read.
        self._seen: dict[str, SeenLaunch | None] = {}
        self.sub_kernels: list[Any] = []  # of MultiKernels: their `run` is hooked on the object itself

    @property
    def is_complete(self) -> bool:
        """Whether every launch has been seen at least once."""
        return len(self._seen) == len(self._hooks)

    def notable(self) -> dict[str, SeenLaunch]:
        """By hook: the launches of which a note is enough."""
        return {hook: seen for hook, seen in list(self._seen.items()) if seen is not None}

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
        owner = lookup(callsite.path.rpartition(".")[0], self._namespace)
        if text.maker == "triton":
            return self._triton(callsite, text, owner, None)
        if hasattr(owner, "picked_kernel"):
            return self._multi_kernel(callsite, owner)
        names, kernel = known_arguments(text), self._kernel(text, text.language)
        if not takes_addresses(text.maker):
            return self._positional(callsite, kernel, names, target)
        launched = launched_as_written(target)
        recorded = self._positional(with_tensors(callsite), kernel, names, launched)
        return given_tensors(callsite, recorded)

    def _multi_kernel(self, callsite: Callsite, multi_kernel: Any) -> Callable[..., Any]:
        launches: dict[int, Callable[..., Any]] = {}
        for i, kernel in enumerate(multi_kernel.kernels):
            name = str(kernel.inductor_meta.get("kernel_name", callsite.path))
            text = self._wrapper.kernels.get(name, GeneratedKernel(name, "triton", ""))
            passed = tuple(a for part in multi_kernel.arg_index[i] for a in callsite.args[part])
            run = partial(type(kernel).run, kernel)
            launches[id(kernel)] = self._triton(replace(callsite, args=passed), text, kernel, run)
            if kernel not in self.sub_kernels:  # equal kernels share one MultiKernel
                hook_kernel(kernel)
                self.sub_kernels.append(kernel)
        return launching(multi_kernel, launches)

    def _triton(self, callsite: Callsite, text: GeneratedKernel, owner: Any, run: Any) -> Callable[..., Any]:
        producer = "user" if is_users_own(owner) else "inductor"
        kernel = self._kernel(replace(text, name=owner.fn.__name__), "triton", producer)
        names, extra = triton_arguments(owner, text.source), launcher_arguments(owner)
        seal = _seal_triton(owner, [*(name for name, _ in names), *extra])
        target, method = (owner, "run") if run is None else (run, "")
        return self._positional(callsite, kernel, names, target, seal, len(extra), method)

    def _kernel(self, text: GeneratedKernel, kind: str, producer: str = "inductor") -> Kernel:
        return BUS.kernel(text.name, kind, producer, text.source)

    def _site(self, callsite: Callsite, kernel: Kernel, args: tuple[Arg, ...]) -> Site:
        origin = self._frames(callsite)
        if not origin and not any(a.tensor is not None and a.role != "out" for a in args):
            # Seeds are drawn at the start by a node without a stack: they belong to the line that uses them.
            made = {callsite.target, *(a.wrapper_name for a in args if a.role in ("out", "inout"))} - {""}
            later = (c for c in self._wrapper.callsites if c.line > callsite.line and made & variables_of(c))
            origin = next((f for c in later if (f := self._frames(c))), ())
        if not origin and UPDATES in kernel.name:
            origin = self._callers
        origin = origin or self._lines.nearest_frames(callsite.line)
        if not origin or not is_users(origin[0].file):
            origin = self._callers + origin  # torch's own modules leave no line of the user's in the graph
        group = next((str(a.value) for a in args if a.name == "group_name"), "")
        return BUS.site(kernel, args, origin, file=self._path, line=callsite.line, collective=group)

    def _frames(self, callsite: Callsite) -> tuple[Frame, ...]:
        text = self._wrapper.kernels.get(callsite.path)
        if text is None or text.maker != "cpp_pybinding":
            return self._lines.frames(callsite.line)
        position = bisect_left(self._lines_of_launches, callsite.line)
        previous = self._lines_of_launches[position - 1] if position else 0
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
        func: Any,
        seal: Callable[[Site, Launch], Site] | None = None,
        extra: int = 0,
        method: str = "",
    ) -> Callable[..., Any]:
        """A generated kernel: flat arguments, outputs among them; the last `extra` are for its launcher.

        With a `method`, the function is whatever the object has under that name at each launch.
        """
        is_static, sizes = self.is_static, self._sizes
        points: dict[Any, LaunchPoint] = {}

        def point_for(args: tuple[Any, ...]) -> LaunchPoint:
            texts = [*callsite.args, *[ArgText("", False)] * (len(args) - len(callsite.args))]
            described = tuple(positional_arg(i, v, texts[i], names, sizes) for i, v in enumerate(args))
            site = self._site(callsite, kernel, described)
            opaque = kernel.producer != "inductor"
            return LaunchPoint(
                site, is_static=is_static, is_leaf=True, is_opaque=opaque, is_wrappers=True, seal=seal
            )

        def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, LaunchPoint]:
            flat = tuple(map(tensor_in, args[: len(args) - extra] if extra else args))
            key = None if is_static else tuple(map(shape_key, (*flat, *args[len(flat) :])))
            return flat, points.get(key) or points.setdefault(key, point_for(flat))

        return self._once_steady(callsite, kernel.name, func, look, method)

    def _once_steady(
        self,
        callsite: Callsite,
        name: str,
        target: Any,
        look: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, LaunchPoint]],
        method: str = "",
    ) -> Callable[..., Any]:
        """The first launch is recorded in full; after it a note is enough, unless values are wanted.

        Where `look` cannot describe the arguments, the launch is not recorded, and a finding reports it.
        """
        is_plain, hook, seen, here = not _interprets(), callsite.hook, self._seen, BUS.here
        self._hooks.add(hook)
        self.count += 1

        def launch(*args: Any, **kwargs: Any) -> Any:
            func = getattr(target, method) if method else target
            if here.muted or not BUS.listeners:
                return func(*args, **kwargs)
            try:
                flat, point = look(args, kwargs)
            except Exception:
                BUS.finding(own_fault(f"describing {name}"))
                return func(*args, **kwargs)
            result = BUS.run(point, flat, func, args, kwargs)
            try:
                if point.steady is not None and hook not in seen:
                    is_notable = is_plain and point.is_leaf and not point.scalars
                    is_notable &= not callsite.elsewhere  # a note has the stream of the graph call
                    seen[hook] = seen_launch(callsite, point, result, args, kwargs) if is_notable else None
            except Exception:
                seen[hook] = None  # its launches are recorded in full each time
                BUS.finding(own_fault(f"describing {name}"))
            return result

        return launch

    def _operator(
        self, callsite: Callsite, described_by: Any, func: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Anything that is not generated: ATen, custom operators, higher-order operators."""
        is_static, sizes = self.is_static, self._sizes
        points: dict[Any, LaunchPoint] = {}
        name = callsite.path if callsite.path.startswith("extern_kernels.") else operator_name(described_by)
        kernel = BUS.kernel(name, "extern", "inductor")
        is_leaf = getattr(described_by, "namespace", "aten") == "aten" and not isinstance(
            described_by, HigherOrderOperator
        )

        def point_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> LaunchPoint:
            texts = list(flat_texts(callsite, args, kwargs))
            names = [t.name for t in texts]
            _, described = operator_args(
                described_by, args, kwargs, lambda i: i < len(texts) and is_constant(texts[i], sizes), names
            )
            site = self._site(callsite, kernel, described)
            return operator_point(
                site,
                described_by,
                is_static=is_static,
                is_leaf=is_leaf,
                is_opaque=not is_leaf,
                is_wrappers=True,
            )

        def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, LaunchPoint]:
            flat = flatten(args, kwargs)
            key = None if is_static else tuple(shape_key(a) for a in flat)
            return flat, points.get(key) or points.setdefault(key, point_for(args, kwargs))

        return self._once_steady(callsite, kernel.name, func, look)


def seen_launch(
    callsite: Callsite, point: LaunchPoint, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> SeenLaunch:
    assert point.steady is not None
    given = len(point.site.args)
    texts = flat_texts(callsite, args, kwargs) if point.returns else callsite.args
    addresses: list[Address] = [address_of(text.node) for text in texts][:given]
    for i, value in enumerate(args[: len(addresses)]):
        if tensor_in(value) is not value:
            addresses[i] = None  # a descriptor, which has no address of its own
    addresses += [None] * (given - len(addresses))
    addresses += returned_addresses(callsite.target, result, flatten(args, kwargs))
    return SeenLaunch(callsite.steady, point.steady, addresses)


def _interprets() -> bool:
    """Whether Triton's interpreter launches, which is a launch of a user's kernel inside ours."""
    triton = sys.modules.get("triton")
    return triton is not None and bool(triton.knobs.runtime.interpret)


def _method(name: str) -> Callable[..., Any]:
    return lambda tensor, *args, **kwargs: getattr(tensor, name)(*args, **kwargs)


def _birth(target: Callable[..., Any], path: str) -> Callable[..., Any]:
    storages, here = BUS.storages, BUS.here
    is_pool = path.endswith("alloc_from_pool")

    def allocate(*args: Any, **kwargs: Any) -> Any:
        tensor = target(*args, **kwargs)
        try:
            if is_pool:
                unseen(storages.born_in_pool, tensor)
            else:
                unseen(storages.born, tensor, here.graph_call)
        except Exception:
            BUS.finding(own_fault("looking at memory that a graph allocated"))
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
