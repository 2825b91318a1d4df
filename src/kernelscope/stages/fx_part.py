"""The part `fx` of a document: Dynamo's graph, read while it is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    import torch.fx


def fx_part(
    module: torch.fx.GraphModule, inputs: Sequence[Any], elements: int, *, wait: bool = True
) -> dict[str, Any]:
    """Nodes, code, and at most `elements` of each input; `wait` for inputs on a device."""
    import torch

    return {
        "graph": str(module.graph).strip(),
        "code": module.code.strip(),
        "nodes": [
            {
                "name": n.name,
                "op": n.op,
                "target": n.target if isinstance(n.target, str) else _qualified(n.target),
                "args": str(n.args),
                "kwargs": str(n.kwargs),
                "meta": {str(k): _short(v) for k, v in n.meta.items()},
            }
            for n in module.graph.nodes
        ],
        "inputs": [_input(i, t, elements, wait) for i, t in enumerate(inputs) if isinstance(t, torch.Tensor)],
    }


def _qualified(target: Any) -> str:
    module = str(getattr(target, "__module__", "")).removeprefix("_")
    return f"{module}.{getattr(target, '__name__', target)}".removeprefix(".")


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _input(index: int, tensor: torch.Tensor, elements: int, wait: bool) -> dict[str, Any]:
    return {
        "index": index,
        "shape": str(tensor.shape),
        "dtype": str(tensor.dtype),
        "device": str(tensor.device),
        "requires_grad": tensor.requires_grad,
        "data": _data(tensor, elements) if wait or tensor.is_cpu else "(not read: on a device)",
    }


def _data(tensor: torch.Tensor, elements: int) -> str:
    """At most so many elements, none of them abbreviated."""
    import torch
    from torch._subclasses import FakeTensor

    if isinstance(tensor, FakeTensor) or any(isinstance(s, torch.SymInt) for s in tensor.shape):
        return "(not known while compiling)"
    total = tensor.numel()
    # By default torch leaves out the middle of more than 1000.
    with torch.no_grad(), torch._tensor_str.printoptions(threshold=max(elements, 1)):
        if total <= elements:
            return str(tensor.detach())
        first = tensor.detach().reshape(-1)[:elements]
        return f"{first} ({elements} of {total} elements)"
