"""Graphs that Dynamo can call without AOTAutograd's wrapper around them.

The wrapper copies back what a graph changed, restores views, and turns off autograd and autocast around the
graph. A graph of kernels alone, whose results are new tensors, needs none of that: kernels are called with
pointers. The wrapper would take as long as a kernel on 100,000 numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from kernelscope.gcu.execution.executor import CompiledGraph, Launch, Result

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)  # what no wrapper takes apart
_MODES = (torch._C._set_grad_enabled,)  # what a graph leaves behind in its caller's thread


def direct(
    module: torch.fx.GraphModule, example_inputs: Sequence[Any], graph: CompiledGraph
) -> Callable[..., Any] | None:
    """A function to call instead of AOTAutograd's, given Dynamo's graph and the one that it became."""
    if len(example_inputs) != graph.inputs or any(type(x) not in _PLAIN for x in example_inputs):
        return None
    if any(node.target in _MODES for node in module.graph.nodes):
        return None
    launches = [step for step in graph.steps if isinstance(step, Launch)]
    made = [o for launch in launches for o in launch.outputs]
    if len(launches) != len(graph.steps) or any(o.static is None for o in made):
        return None
    returned = [o.register for o in graph.outputs if isinstance(o, Result)]
    wanted = _returned(module)
    is_new = len(set(returned)) == len(graph.outputs) and {*returned} <= {o.register for o in made}
    if not is_new or wanted is None or len(wanted) != len(returned):
        return None  # another result than Dynamo's is a change of an input, or the base of a view

    def call(*arguments: Any) -> list[Any]:
        return graph([*arguments])

    return call


def _returned(module: torch.fx.GraphModule) -> list[torch.fx.Node] | None:
    """What Dynamo's graph returns; None if something of it is not a tensor."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    found = list(output.args[0]) if isinstance(output.args[0], list | tuple) else []
    values = [each.meta.get("example_value") for each in found if isinstance(each, torch.fx.Node)]
    is_plain = len(values) == len(found) and all(isinstance(value, torch.Tensor) for value in values)
    return found if is_plain else None
