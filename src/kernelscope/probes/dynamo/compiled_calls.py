"""The program's calls of what torch.compile has made; on request, of modules that run eagerly."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

_COMPILE = "torch._dynamo.eval_frame:_TorchDynamoContext.__call__"
_MODULE = "torch.nn.modules.module:Module.__call__"
Emit = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]


class _Thread(threading.local):
    depth = 0


class CompiledCalls(PatchSet):
    """The probe: emits each outermost call, before it happens."""

    def __init__(self, emit: Emit, *, modules: bool = False) -> None:
        self._emit = emit
        self._here = _Thread()
        patches = [Patch(_COMPILE, self._around_compile)]
        if modules:
            patches.append(Patch(_MODULE, self._around_module))
        super().__init__(*patches)

    def _around_compile(self, original: Any) -> Any:
        def compile(context: Any, fn: Any) -> Any:
            made = original(context, fn)
            if isinstance(made, torch.nn.Module):
                noted = self._noting(made.forward, made)
                object.__setattr__(made, "forward", noted)
                return made
            if isinstance(made, type) or not callable(made):
                return made
            return functools.wraps(made)(self._noting(made, made))

        return compile

    def _around_module(self, original: Any) -> Any:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            return self._noted(original, (module, *args), kwargs, module, args)

        return call

    def _noting(self, function: Any, target: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return function(*args, **kwargs)
            return self._noted(function, args, kwargs, target, args)

        return call

    def _noted(self, function: Any, given: Any, kwargs: Any, target: Any, args: Any) -> Any:
        here = self._here
        if not here.depth:
            with contained("looking at a call of compiled code"):
                self._emit(target, args, kwargs)
        here.depth += 1
        try:
            return function(*given, **kwargs)
        finally:
            here.depth -= 1
