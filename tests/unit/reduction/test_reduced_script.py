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


def writes(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.sum().relu()


def test_what_it_leaves_in_an_input_is_compared() -> None:
    """A graph may be wrong in nothing but what it writes to an input."""
    inputs = [torch.arange(4.0)]
    found = Reduction(
        of_module(torch.fx.symbolic_trace(writes), inputs), FailureSignature("check", "the check fails"), 2
    )
    names: dict[str, Any] = {"__name__": "reduced"}
    exec(compile(reduced_script(found).text, "reduced.py", "exec"), names)
    assert names["GIVEN"]["x"]["role"] == "inout"
    made = names["eager"](x=torch.arange(4.0))
    assert torch.equal(made["x after"], torch.arange(4.0) + 1)
    names["compiled"] = lambda x: {"result_0": torch.tensor(10.0)}  # the right result, and no write
    assert names["check"]("reduced.py", names["launch"], names["eager"], names["GIVEN"], {}) == 1
