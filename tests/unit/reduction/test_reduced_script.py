"""What is left of a graph, written as a script."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from kernelscope.reduction.candidates import of_module
from kernelscope.reduction.reducer import Reduction
from kernelscope.reduction.script import reduced_script
from kernelscope.trials.failure_signature import FailureSignature


def branches(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: x.cos() + torch.tensor([1.5]), lambda x: x * 3, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x.relu() - 1, (x,))


def test_a_graph_with_branches_has_them_in_its_script() -> None:
    traced: list[GraphModule] = []

    def keep(module: GraphModule, inputs: list[Any]) -> Any:
        traced.append(module)
        return module.forward

    x, flag = torch.ones(4), torch.tensor(True)
    torch.compile(branches, backend=keep, fullgraph=True)(x, flag)
    torch._dynamo.reset()
    nodes = [n for n in traced[0].graph.nodes if n.op == "placeholder"]
    inputs = [x if "x" in n.name else flag for n in nodes]
    found = Reduction(of_module(traced[0], inputs), FailureSignature("check", "the check fails"), 9)
    script = reduced_script(found)
    names: dict[str, Any] = {"__name__": "reduced"}
    exec(compile(script.text, "reduced.py", "exec"), names)
    for value in (x, -x):
        given = {n.name: value if "x" in n.name else flag for n in nodes}
        (result,) = names["eager"](**given).values()
        assert torch.allclose(result, branches(value, flag))
