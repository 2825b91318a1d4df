"""The graphs that Dynamo hands to Inductor, with what they are called with."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from kernelscope.probes.patching import Patch, PatchSet

_COMPILE = "torch._inductor.compile_fx:compile_fx"


@dataclass(slots=True)
class TracedGraph:
    """One graph before any pass."""

    module: GraphModule
    example: list[Any]  # what it was traced with
    real: list[Any] | None = None  # what it is being called with
    differentiates: bool = True  # an optimizer's step does not, and writes to what requires gradients


class TracedGraphs(PatchSet):
    """The probe: `current` is the graph that is being compiled or called, or was last."""

    def __init__(self) -> None:
        self.current: TracedGraph | None = None
        super().__init__(Patch(_COMPILE, self._around))

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_fx(model: Any, example_inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(model, GraphModule):
                return original(model, example_inputs, *args, **kwargs)
            traced = TracedGraph(GraphModule(model, copy.deepcopy(model.graph)), list(example_inputs))
            traced.differentiates = torch.is_grad_enabled()
            self.current = traced
            compiled = original(model, example_inputs, *args, **kwargs)

            @functools.wraps(compiled)
            def call(*given: Any) -> Any:
                self.current, traced.real = traced, list(given)
                traced.differentiates = torch.is_grad_enabled()
                return compiled(*given)

            call._boxed_call = False  # type: ignore[attr-defined]
            return call

        return compile_fx
