"""A launch that is under way, and what to compare its outputs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import getitem
from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.launch import Launch
from kernelscope.shadowing.graph_call_state import GraphCallState
from kernelscope.shadowing.reference.evaluate import Reference
from kernelscope.shadowing.reference.launch_nodes import LaunchNodes, Output

from .pieces import Key


@dataclass(slots=True)
class Pending:
    """A launch that is under way: what to compare its outputs with."""

    index: int
    state: GraphCallState
    nodes: LaunchNodes
    alive: dict[str, Any]
    reference: Reference
    inputs: dict[Node, Any] = field(default_factory=dict)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)  # put back after the launch
    given: dict[Node, torch.Tensor] = field(default_factory=dict)  # for readers of what is not a node's value
    eager: dict[Node, Any] | None = None
    wide: dict[Node, Any] | None = None
    is_left_out: bool = False  # one of its outputs is not checked
    is_right: bool = True  # as far as it is known
    missing: set[str] = field(default_factory=set)  # outputs that depend on what cannot be evaluated
    doubtful: set[str] = field(default_factory=set)  # buffers of unknown contents that it reads

    @property
    def evaluated(self) -> list[Output]:
        """The outputs that have a reference."""
        return [output for output in self.nodes.outputs if output.name not in self.missing]

    def in_double(self) -> dict[Node, Any]:
        if self.wide is None:
            self.wide = self.reference.double(self.nodes.order, self.inputs)
        return self.wide


def made_outputs(launch: Launch, pending: Pending) -> dict[str, Any]:
    """What the launch left, by the wrapper's names; an output without an index is returned."""
    made = {output.name: pending.alive.get(output.name) for output in pending.nodes.outputs}
    returned = [output for output in pending.nodes.outputs if output.index is None]
    return made | {each.name: reduce(getitem, each.item, launch.result) for each in returned}


def leaves_out(pending: Pending, node: Node | None) -> list[Output]:
    """Go on without a node that cannot be evaluated; the outputs that depend on it, or none if all do."""
    nodes, writers = pending.nodes, {w for by in pending.state.in_place.writers.values() for w in by}
    bad = {node}
    for each in nodes.order:
        if not bad.isdisjoint(each.all_input_nodes):
            bad.add(each)
    missing = [output for output in pending.evaluated if output.node in bad]
    order = [each for each in nodes.order if each not in bad]
    # Of memory that is written to, every later reader depends on it.
    if node is None or len(missing) in (0, len(pending.evaluated)) or not writers.isdisjoint(bad):
        return []
    pending.missing |= {output.name for output in missing}
    pending.nodes = replace(nodes, order=order)
    return missing


def doubtful(pending: Pending) -> list[Key]:
    """The buffers of unknown contents that it reads, or whose makers' inputs its reference reads instead."""
    names = {*pending.doubtful, *pending.nodes.carried.values()}
    return [(id(pending.state.doubted), name) for name in sorted(names)]


def part_of(values: Mapping[Node, Any], output: Output) -> Any:
    value = values[output.node]
    return value[output.key] if output.key and value is not None else value
