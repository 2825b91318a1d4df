"""`torch.compile(model, backend="gcu")`."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._guards import CompileContext

from kernelscope import config
from kernelscope.gcu.execution.executor import CompiledGraph
from kernelscope.late_modules import loaded

from .compile_graph import Compilation, compile_graph
from .debug_tracer import Trace, current_config
from .direct_calls import direct


def gcu(module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Any:
    """Compile a Dynamo graph: AOTAutograd makes forward and backward of it, and each becomes kernels."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    from kernelscope.gcu.lowering.operator_texts import decompositions

    if options:
        raise ValueError(f"the gcu backend takes no options, and was given {', '.join(sorted(options))}")
    settings = config.conductor_from_environment()
    inner = Inner(settings)
    inner.begin(module, example_inputs)
    compiler = aot_autograd(
        fw_compiler=inner.forward,
        bw_compiler=inner.backward,
        inference_compiler=inner.inference,
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    made = compiler(module, example_inputs)
    whole = direct(module, example_inputs, inner.for_inference) if inner.for_inference is not None else None
    return made if whole is None else whole


class Inner:
    """The compilers of the ATen graphs below one Dynamo graph.

    `begin` and `compile` are looked up on the class at every call, so that a probe can put itself there.
    """

    def __init__(self, settings: config.Conductor) -> None:
        self._names: list[str] = []
        self._trace: Trace | None = None
        self._settings = settings
        self.for_inference: CompiledGraph | None = None
        self._compile_graph = compile_graph  # a backward graph is compiled later, and in the same way

    def begin(self, module: torch.fx.GraphModule, inputs: list[Any]) -> None:
        """Dynamo's graph is here."""
        self._names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        tracing = current_config(self._settings)
        if tracing.enabled:
            self._trace = Trace(module, inputs, tracing, self._settings)
            self._trace.show_fx()

    def forward(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return self.compile(module, "forward", Compilation())

    def backward(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return self.compile(module, "backward", Compilation())

    def inference(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.for_inference = self.compile(module, "inference", Compilation())
        return self.for_inference

    def compile(self, module: torch.fx.GraphModule, direction: str, done: Compilation) -> CompiledGraph:
        """One ATen graph; `done` keeps what was made on the way."""
        trace = self._trace
        build = trace.build if trace is not None else None
        try:
            graph = self._compile_graph(
                module, direction, self._friendly(module, direction), done, build, self._settings.strict
            )
            graph.compile_id = str(CompileContext.current_compile_id() or "")
            return graph
        finally:
            if trace is not None:
                trace.show_rest(done)

    def _friendly(self, module: torch.fx.GraphModule, direction: str) -> dict[str, str]:
        """Dynamo's names for the arguments, where they are the same ones in the same order."""
        given = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        if direction == "backward" or len(given) != len(self._names):
            return {}
        return dict(zip(given, self._names, strict=True))


loaded(__name__)
