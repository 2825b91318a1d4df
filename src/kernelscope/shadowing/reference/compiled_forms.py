"""Operators that compiled code computes in another form than eager, and is right."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.launch import Launch

from .node_kinds import is_packed_linear
from .small_errors.ties import chooses_order, sorted_by_inductor


def compiled_form(target: Any, args: Any, kwargs: Any, *, triton: bool) -> Any:
    """What the operator gives in the form that compiled code has; None where that is eager's."""
    if is_packed_linear(target):
        return torch.nn.functional.linear(args[0], args[2], args[3])
    if triton and chooses_order(target, kwargs):
        return sorted_by_inductor(target, args, kwargs)
    return None


def leaves_out_the_bias(node: Node | None, launch: Launch) -> bool:
    """Another kernel adds it: of a convolution on a GPU, or of a product with packed weights."""
    if node is not None and is_packed_linear(node.target) and node.args[3] is not None:
        return any(arg.name == "B" and arg.tensor is None for arg in launch.site.args)
    if node is None or node.target is not torch.ops.aten.convolution.default or node.args[2] is None:
        return False
    return launch.kwargs.get("bias", node) is None
