"""Whether a buffer can be compared with its node, and what stands for one that nothing was written to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.launch import Launch
from kernelscope.shadowing.reference.graph_walk import concrete_shape
from kernelscope.shadowing.reference.node_kinds import value_of


def nothing_in(node: Node, symbols: Mapping[str, Any], *, offload: bool) -> torch.Tensor:
    """In place of uninitialised memory."""
    fake = value_of(node)
    device = "cpu" if offload else fake.device
    made = torch.empty(concrete_shape(fake, symbols), dtype=fake.dtype, device=device)
    return made.fill_(math.nan) if made.is_floating_point() else made.zero_()


def why_not_comparable(made: Any, eager: Any) -> str:
    if not isinstance(made, torch.Tensor) or not isinstance(eager, torch.Tensor):
        return "it is not a tensor"
    if made.numel() == eager.numel() and made.dtype == eager.dtype:
        return ""
    node, buffer = f"{eager.dtype}{list(eager.shape)}", f"{made.dtype}{list(made.shape)}"
    return f"its FX node gives {node}, but the buffer is {buffer}"


def overwrites(launch: Launch, inputs: Any) -> bool:
    """Whether the launch writes to memory that the reference still has to read."""
    written = {launch.flat[i].untyped_storage()._cdata for i in launch.point.written}
    tensors = (value for value in inputs if isinstance(value, torch.Tensor))
    return any(tensor.untyped_storage()._cdata in written for tensor in tensors)
