"""Random numbers that a launch drew, noted for the comparison of functions as a whole."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from kernelscope.shadowing.draws.compiled_draws import note_drawn, note_seeds
from kernelscope.shadowing.graph_call_state import GraphCallState
from kernelscope.shadowing.reference.node_kinds import SEEDS, saves_generator, whole_of


def note_draw(state: GraphCallState, node: Node, made: Any) -> None:
    whole, nodes = whole_of(node), list(state.lowered.module.graph.nodes)
    part = node.args[1] if whole is not node and isinstance(node.args[1], int) else None
    operator: Any = whole.target
    if saves_generator(whole):
        if part != 1:
            return  # the state
        operator, part = whole.args[0], None
    if operator is SEEDS:
        _, device = whole.args
        assert isinstance(device, torch.device)
        note_seeds(state.name, device, made)
    else:
        note_drawn(state.name, operator, nodes.index(whole), part, made)
