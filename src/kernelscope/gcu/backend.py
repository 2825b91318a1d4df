"""`torch.compile(model, backend="gcu")`."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from kernelscope import config

from .compile_graph import Compilation, compile_graph
from .debug_tracer import Trace, current_config


def gcu(module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Any:
    """Compile a Dynamo graph: AOTAutograd makes forward and backward of it, and each becomes kernels."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    from .operators import decompositions

    if options:
        raise ValueError(f"the gcu backend takes no options, and was given {', '.join(sorted(options))}")
    settings = config.conductor_from_environment()
    tracing = current_config(settings)
    trace = Trace(module, example_inputs, tracing, settings) if tracing.enabled else None
    if trace is not None:
        trace.show_fx()
    inner = _Inner([n.name for n in module.graph.nodes if n.op == "placeholder"], trace, settings)
    compiler = aot_autograd(
        fw_compiler=inner.forward,
        bw_compiler=inner.backward,
        inference_compiler=inner.inference,
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    return compiler(module, example_inputs)


class _Inner:
    """The compilers of the ATen graphs below one Dynamo graph."""

    def __init__(self, names: list[str], trace: Trace | None, settings: config.Conductor) -> None:
        self._names = names
        self._trace = trace
        self._settings = settings
        self._compile_graph = compile_graph  # a backward graph is compiled later, and in the same way

    def forward(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return self._compile(module, "forward")

    def backward(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return self._compile(module, "backward")

    def inference(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return self._compile(module, "inference")

    def _compile(self, module: torch.fx.GraphModule, direction: str) -> Any:
        done = Compilation()
        trace = self._trace
        build = trace.build if trace is not None else None
        try:
            return self._compile_graph(
                module, direction, self._friendly(module, direction), done, build, self._settings.strict
            )
        finally:
            if trace is not None:
                trace.show_rest(done)

    def _friendly(self, module: torch.fx.GraphModule, direction: str) -> dict[str, str]:
        """Dynamo's names for the arguments, where they are the same ones in the same order."""
        given = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        if direction == "backward" or len(given) != len(self._names):
            return {}
        return dict(zip(given, self._names, strict=True))
