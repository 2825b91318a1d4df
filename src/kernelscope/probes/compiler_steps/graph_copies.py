"""Copies of FX graphs that later passes do not change, with the graphs inside of them."""

from __future__ import annotations

import copy
import warnings

import torch
from torch.fx import GraphModule


def text_of(gm: GraphModule) -> str:
    """All that a pass can change, also in the bodies of branches and loops."""
    own = "\n".join(f"{n.name} {n.target} {n.args} {n.kwargs}" for n in gm.graph.nodes)
    return "\n".join([own, *(f"{name}: {text_of(inner)}" for name, inner in bodies_of(gm).items())])


def copied(gm: GraphModule) -> GraphModule:
    """A copy; tensors that the graph itself has are shared."""
    with torch.utils._python_dispatch._disable_current_modes(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about its own way to copy a tree's shape
        made = GraphModule(gm, copy.deepcopy(gm.graph))
        for name, inner in bodies_of(gm).items():
            setattr(made, name, copied(inner))
        return made


def bodies_of(gm: GraphModule) -> dict[str, GraphModule]:
    names = {str(n.target) for n in gm.graph.nodes if n.op in ("get_attr", "call_module")}
    found = {name: getattr(gm, name, None) for name in sorted(names) if "." not in name}
    return {name: inner for name, inner in found.items() if isinstance(inner, GraphModule)}
