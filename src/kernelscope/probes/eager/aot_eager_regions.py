"""Regions of the backend "aot_eager", run node by node, so that each operator's module and line are known."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

_STOCK = "torch.utils._debug_mode"  # the backend asks here, at each call, who wants to see its nodes


class RegionLog(Protocol):
    """Who lists what a region runs."""

    def enter_region(self, backend: str) -> None: ...

    def at_node(self, modules: Sequence[str], header: str, stack_trace: str | None) -> None: ...

    def leave_region(self, backend: str) -> None: ...


class InterpretedRegions(PatchSet):
    """Runs the graphs of aot_eager with an interpreter that tells a log about each node before it runs."""

    def __init__(self, log: Callable[[], RegionLog]) -> None:
        self._log = log
        super().__init__(
            Patch(f"{_STOCK}:get_active_debug_mode", self._who_asks),
            Patch(f"{_STOCK}:DebugInterpreter", self._interpreter),
        )

    def _who_asks(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def active() -> Any:
            outer = original()
            is_stocks = outer is not None and not isinstance(outer, _Wanted)
            if BUS.here.muted or is_stocks:
                return outer
            return _Wanted((*(outer.logs if outer is not None else ()), self._log()))

        return active

    def _interpreter(self, original: Any) -> Callable[..., Any]:
        def make(module: torch.fx.GraphModule, backend: str) -> Any:
            wanted = sys.modules[_STOCK].get_active_debug_mode()
            return (
                _Nodes(module, backend, wanted.logs)
                if isinstance(wanted, _Wanted)
                else original(module, backend)
            )

        return make


class _Wanted:
    """What the backend takes for an open debug mode."""

    run_compile_with_interpreter = True

    def __init__(self, logs: tuple[RegionLog, ...]) -> None:
        self.logs = logs


class _Nodes(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, backend: str, logs: tuple[RegionLog, ...]) -> None:
        super().__init__(module)
        self._backend, self._logs = backend, logs

    def run(self, *args: Any, **kwargs: Any) -> Any:
        for log in self._logs:
            log.enter_region(self._backend)
        try:
            return super().run(*args, **kwargs)
        finally:
            for log in self._logs:
                log.leave_region(self._backend)

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op not in ("placeholder", "output"):
            with contained(f"looking at the node {n.name}"):
                forward = n.meta.get("nn_module_stack")
                modules = [name for name, _ in (forward or n.meta.get("fwd_nn_module_stack") or {}).values()]
                header = "nn.Mod (compile)" if forward else "nn.Mod (compile bwd)"
                for log in self._logs:
                    log.at_node(modules, header, n.meta.get("stack_trace"))
        return super().run_node(n)
