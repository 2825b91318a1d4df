"""Writes to memory whose value a later launch needs: launches in a wrong order, memory given away too early.

Each of these kernels is right, so this explains only a function that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.fx import Node

from kernelscope.probes.launch import Launch
from kernelscope.shadowing.checks.pending import Pending
from kernelscope.shadowing.culprit import Culprit, Ran, culprit_of
from kernelscope.shadowing.graph_call_state import GraphCallState, Lost, Writer
from kernelscope.shadowing.reference.launch_nodes import Output, given_values
from kernelscope.shadowing.reference.places import overlap, place_of

VERDICT = "early-write"


def overwrite(launch: Launch, pending: Pending) -> None:
    """What lay where this launch has written is gone; it is remembered who did it."""
    ran, args = Ran(launch.site, launch.phase), launch.site.args
    written = [(launch.flat[i], args[i].name if i < len(args) else "") for i in launch.point.written]
    for tensor, argument in [*written, *((each, "result") for each in launch.returned)]:
        pending.state.overwrite([tensor], Writer(pending.index, ran, argument))


class EarlyWrites:
    """Launches that overwrote what a later one needed, in the order in which that was noticed."""

    def __init__(self) -> None:
        self._found: list[Culprit] = []

    def since(self, launch: int) -> Culprit | None:
        """The first among the launches from this one on."""
        return min((c for c in self._found if c.index >= launch), key=lambda c: c.index, default=None)

    def look(self, launch: Launch, pending: Pending, outputs: Sequence[Output] = ()) -> None:
        """Of a launch that was not given what these outputs need: whether that lay where it reads."""
        state = pending.state
        if not state.lost or not (outputs or pending.nodes.unchecked):
            return
        lost = _lost_in_what_it_reads(launch, state)
        wanted = [output.node for output in outputs] or _unchecked(launch, pending)
        node = next((each for each in _needed(wanted, launch, state) if each in lost), None)
        if node is None:
            return
        writer = lost[node].writer
        reader = f"{launch.site.kernel.name} (launch {pending.index})"
        cause = "the launches are in the wrong order, or the memory was given away too early"
        reason = f"it overwrites {node.name}, which {reader} reads afterwards: {cause}"
        found = culprit_of(
            writer.launch, writer.index, VERDICT, reason, argument=writer.argument, buffer=lost[node].name,
            node=node.name, graph=state.name,
        )  # fmt: skip
        self._found.append(found)


def _lost_in_what_it_reads(launch: Launch, state: GraphCallState) -> dict[Node, Lost]:
    arguments = zip(launch.flat, launch.site.args, strict=False)
    read = [place_of(value) for value, arg in arguments if arg.tensor is not None and arg.role != "out"]
    return {
        node: lost
        for node, lost in state.lost.items()
        if any(place is not None and overlap(place, lost.place) for place in read)
    }


def _unchecked(launch: Launch, pending: Pending) -> list[Node]:
    """What it should compute, of the outputs that are not checked."""
    state, found = pending.state, []
    tensors = {
        arg.name: (arg.wrapper_name, value)
        for value, arg in zip(launch.flat, launch.site.args, strict=False)
        if isinstance(value, torch.Tensor)
    }
    for argument, _ in pending.nodes.unchecked:
        node = state.node_of(*tensors[argument]) if argument in tensors else state.lowered.nodes.get(argument)
        found += [node] if node is not None else []
    return found


def _needed(wanted: Sequence[Node], launch: Launch, state: GraphCallState) -> Iterator[Node]:
    """From what it computes back to what it was given, the nearest first."""
    held = {state.holds.node(name) for name in given_values(launch, state)}
    todo, seen = [*wanted], {*wanted}
    while todo:
        node = todo.pop(0)
        yield node
        todo += (more := [n for n in node.all_input_nodes if n not in seen and n not in held])
        seen.update(more)
