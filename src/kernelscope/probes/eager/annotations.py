"""What DebugMode lists between launches: modules, Python-level functions, redistributions."""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

import torch
from torch._guards import TracingContext
from torch.overrides import TorchFunctionMode

from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.patching import Patch, PatchSet

_REDISTRIBUTES = ("torch.distributed.tensor._dispatch", "torch.distributed.tensor._redistribute")


class ModuleCalls:
    """Calls `enter(name)` and `leave()` around every forward of an nn.Module outside compiled code."""

    def __init__(self, enter: Callable[[str], None], leave: Callable[[], None]) -> None:
        self._enter = enter
        self._leave = leave
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._inner_named: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._handles: list[Any] = []
        self._inside: list[torch.nn.Module] = []
        self._in_compiled = getattr(torch._dynamo.eval_frame, "_is_in_optimized_module", lambda: False)

    def __enter__(self) -> None:
        hooks = torch.nn.modules.module
        self._handles = [
            hooks.register_module_forward_pre_hook(self._before),
            hooks.register_module_forward_hook(self._after, always_call=True),
        ]

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._inside.clear()

    def _before(self, module: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or self._in_compiled():
            return
        self._inside.append(module)
        self._enter(self._name(module))

    def _after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self._inside and self._inside[-1] is module:  # otherwise it was entered before us
            self._inside.pop()
            self._leave()

    def _name(self, module: torch.nn.Module) -> str:
        """Of a module at two places the last one; those inside it have the first, as in torch's listing."""
        name = self._names.setdefault(module, type(module).__name__)
        if module not in self._inner_named:
            for child, inner in module.named_children():
                self._names[inner] = f"{name}.{child}"
                self._name(inner)
            self._inner_named.add(module)
        return name


class FunctionCalls(TorchFunctionMode):
    """Lets `watch(func, args, kwargs, proceed)` stand around every function of torch's Python API."""

    def __init__(self, watch: Callable[[Any, Any, Any, Callable[[], Any]], Any]) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if BUS.here.muted or torch.compiler.is_compiling() or TracingContext.try_get() is not None:
            return func(*args, **kwargs)
        return self._watch(func, args, kwargs, lambda: func(*args, **kwargs))


class RedistributionLog(Protocol):
    """What DTensor's dispatch code tells a debug mode."""

    def record_redistribute_calls(
        self,
        arg: Any,
        src_placement: Any,
        dst_placement: Any,
        transform_info_str: str | None = None,
        is_explicit: bool = False,
    ) -> AbstractContextManager[None]: ...

    def record_output_placements(self, output_spec: Any) -> None: ...


class Redistributions(PatchSet):
    """Makes DTensor's own debug calls reach us. A tensor library loaded inside the block is not seen."""

    def __init__(self, log: Callable[[], RedistributionLog]) -> None:
        self._log = log
        super().__init__()

    def install(self) -> None:
        name = "get_active_debug_mode"
        loaded = [module for module in _REDISTRIBUTES if hasattr(sys.modules.get(module), name)]
        self.patches = [Patch(f"{module}:{name}", self._around) for module in loaded]
        super().install()

    def _around(self, original: Any) -> Any:
        # An outer one of ours, or stock's own DebugMode, still hears of it through `original`.
        def active() -> Any:
            # What is traced or compiled is not the program's own work: it lists what runs in the end.
            is_traced = torch.compiler.is_compiling() or TracingContext.try_get() is not None
            is_others = BUS.here.muted or is_traced or BUS.here.in_graph
            return original() if is_others else _Several(self._log(), original())

        return active


class _Several:
    def __init__(self, first: RedistributionLog, second: RedistributionLog | None) -> None:
        self._logs = [first] if second is None else [first, second]

    def record_redistribute_calls(self, *args: Any, **kwargs: Any) -> AbstractContextManager[None]:
        stack = ExitStack()
        for log in self._logs:
            stack.enter_context(log.record_redistribute_calls(*args, **kwargs))
        return stack  # type: ignore[return-value]

    def record_output_placements(self, output_spec: Any) -> None:
        for log in self._logs:
            log.record_output_placements(output_spec)


def keep_annotations_in_graphs() -> None:
    """Compiled code drops an operator that returns nothing, unless torch is told what the line is for."""
    stock = importlib.import_module("torch.utils._debug_mode")
    getattr(getattr(stock, "_mode", stock), "_ensure_annotate_decorated", bool)()


def annotate_in_graph(tag: str) -> None:
    """For code that is being compiled: the line appears when the graph runs."""
    torch.ops.debug_mode_ops.annotate(tag)


def placements_text(spec: Any) -> str:
    """A DTensor's layout, "S(0)R"."""
    write = getattr(type(spec), "format_shard_order_str", None)
    if write is not None:
        return str(write(spec.placements, spec.shard_order))
    return "".join(str(p) for p in spec.placements)


def is_dtensor(value: Any) -> bool:
    dtensor = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return dtensor is not None and isinstance(value, dtensor)


def forward_trace() -> str | None:
    """In the backward pass: where the forward operator was called, if anomaly mode noted it."""
    node: Any = torch._C._current_autograd_node()
    noted = node.metadata.get("traceback_") if node is not None else None
    return "".join(noted) if noted else None


def in_graph_pool(launch: Launch) -> bool:
    """Whether a launch's memory belongs to a CUDA graph, which must not find it still in use later."""
    if launch.captured is not None:
        return True
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or launch.graph_call < 0 or not launch.site.device.startswith("cuda"):
        return False
    manager = trees.get_manager(int(launch.site.device.partition(":")[2] or 0), False)
    return manager is not None and (manager.in_warmup or manager.in_recording)
