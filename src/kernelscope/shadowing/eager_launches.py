"""Replaces chosen launches by eager while compiled code runs: nothing is compiled again.

A launch is replaced by its own nodes of the graph, evaluated on the inputs that it was given. Where they
cover all that the kernel writes, the kernel is not launched at all: one that crashes no longer does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelscope.events import GraphCall
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.checks.judge import why_not_comparable
from kernelscope.shadowing.checks.launch_check import LaunchCheck
from kernelscope.shadowing.checks.pending import Pending, made_outputs, part_of
from kernelscope.shadowing.checks.pieces import Key
from kernelscope.shadowing.reference.launch_nodes import LaunchNodes, Output

from .graph_call_state import GraphCallState
from .result import ShadowResult
from .session import Session

EVERY = "*"  # in place of a kernel's name
Tell = Callable[[str, str, dict[str, Any]], None]  # "kernel" or "execution", its name, what is known of it


class EagerSession(Session):
    """A session that also replaces launches; with `judges` off it only does that."""

    can_wait = False  # a launch may be replaced in one run, and not in the next

    def __init__(self, tell: Tell, *, judges: bool) -> None:
        super().__init__(ShadowResult())
        self._tell = tell
        self._judges = judges
        self._off: frozenset[str] = frozenset()
        self._off_graph_calls: frozenset[str] = frozenset()
        self._names: dict[int, str] = {}  # of graph calls, by index
        self._numbers: dict[str, int] = {}  # of graphs, by path: in the order in which this run came to them
        self._blamed: set[Key] = set()  # buffers of unknown contents, in any run
        self._launches = EagerLaunches(self.result, self._replaces, judges=judges)

    def begin(self, off: frozenset[str], off_graph_calls: frozenset[str]) -> None:
        """Another run of the program, with the same compiled code; these are replaced in it."""
        before, self.result = self.result, ShadowResult()
        for culprit in before.culprits:
            if culprit.is_step:  # stages are compared once, when a graph first executes
                self.result.add(culprit)
        self._doubt_again()
        self._off, self._off_graph_calls = off, off_graph_calls
        self._names, self._numbers = {}, {}
        self.regions.begin()
        self._launches = EagerLaunches(self.result, self._replaces, judges=self._judges)

    def _doubt_again(self) -> None:
        """A kernel that was blamed can be replaced as if it left the node that it seemed to."""
        doubts, functions = self._launches.doubts, [*self._functions.values()]
        self._blamed |= doubts.blamed
        again = self._blamed & doubts.unsettled()  # no reader has shown that it leaves something else
        while functions:
            function = functions.pop()
            function.doubted.difference_update({n for owner, n in again if owner == id(function.doubted)})
            functions += function.inner.values()

    def graph_call(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None:
        super().graph_call(graph_call, inputs)
        if graph_call.index in self._states:
            self._numbers.setdefault(graph_call.graph.path, len(self._numbers))
            name = f"{len(self._names)}"
            self._names[graph_call.index] = name
            self._tell("execution", name, {"graph": graph_call.graph.name, "inputs": _shapes(inputs)})

    def _prepare(self, index: int, launch: Launch, state: GraphCallState) -> Pending:
        pending = super()._prepare(index, launch, state)
        if pending.nodes.outputs and not pending.nodes.given:
            self._tell("kernel", self._name_of(launch), _about(launch, pending))
        return pending

    def _is_launched(self, launch: Launch, state: GraphCallState) -> bool:
        return self._judges and not self._replaces(launch, state)

    def _name_of(self, launch: Launch) -> str:
        """The same in every run, also if the program compiles anew in each."""
        site = launch.site
        return f"{site.kernel.name} (graph {self._numbers.get(site.file, -1)}, line {site.line})"

    def _replaces(self, launch: Launch, state: GraphCallState) -> bool:
        return (
            EVERY in self._off
            or self._name_of(launch) in self._off
            or self._names.get(launch.graph_call, "") in self._off_graph_calls
        )


class EagerLaunches(LaunchCheck):
    """Replaces what some launches leave by eager's values; computes these for all launches if it judges."""

    def __init__(
        self, result: ShadowResult, replaces: Callable[[Launch, GraphCallState], bool], *, judges: bool
    ) -> None:
        super().__init__(result, offload=False)
        self._replaces = replaces
        self._judges = self.poisons = judges
        self.replaced = 0  # launches
        self.failures: list[str] = []  # what could not be replaced, and why

    def wants(self, launch: Launch, pending: Pending) -> bool:
        return self._judges or self._replaces(launch, pending.state)

    def before(
        self, index: int, launch: Launch, state: GraphCallState, nodes: LaunchNodes, alive: dict[str, Any]
    ) -> Pending:
        replaces = self._replaces(launch, state)
        # Before anything is computed: an operator may write to what it is given also when eager runs it.
        kept = _copies_of_inputs(launch) if replaces else []
        pending = super().before(index, launch, state, nodes, alive)
        pending.kept = kept
        if replaces and _is_whole(launch, pending):
            launch.func = lambda *args, **kwargs: self._write(launch, pending)
        return pending

    def after(self, launch: Launch, pending: Pending) -> None:
        if self._replaces(launch, pending.state):
            pending.is_right = False  # eager's result settles no doubt about what the kernel reads
            if not _is_whole(launch, pending):
                self._write(launch, pending)
                for storage in launch.storages:
                    storage.epoch += 1  # so that recordings read the values again
        super().after(launch, pending)

    def _judge_output(self, launch: Launch, pending: Pending, output: Output, made: Any) -> None:
        if self._judges:
            super()._judge_output(launch, pending, output, made)

    def _write(self, launch: Launch, pending: Pending) -> None:
        """What eager computed goes where the kernel's results are."""
        if pending.eager is None:
            if not pending.nodes.given:
                self._cannot(launch, "the FX nodes of this launch could not be evaluated")
            return
        made, is_replaced = made_outputs(launch, pending), False
        with torch.no_grad(), quiet():
            for tensor, before in pending.kept:
                tensor.detach().copy_(before)
            for output in pending.evaluated:
                target, eager = made[output.name], part_of(pending.eager, output)
                if reason := why_not_comparable(target, eager):
                    self._cannot(launch, f"{output.argument}: {reason}")
                    continue
                target.detach().copy_(eager.reshape(target.shape))
                is_replaced = True
        missing = [each.argument for each in pending.nodes.outputs if each.name in pending.missing]
        left = [(argument, "an FX node of it could not be evaluated") for argument in missing]
        for argument, reason in [*pending.nodes.unchecked, *left]:
            self._cannot(launch, f"{argument}: {reason}")
        self.replaced += is_replaced

    def _cannot(self, launch: Launch, why: str) -> None:
        message = f"{launch.site.kernel.name}: {why}"
        if message not in self.failures:
            self.failures.append(message)


def _about(launch: Launch, pending: Pending) -> dict[str, Any]:
    site, nodes = launch.site, pending.nodes
    return {
        "kernel": site.kernel.name,
        "kind": site.kernel.kind,
        "phase": launch.phase,
        "nodes": [node.name for node in nodes.order],
        "joined": list(nodes.joined),
        "origin": str(site.origin[0]) if site.origin else "",
    }


def _is_whole(launch: Launch, pending: Pending) -> bool:
    """Whether eager's values are all that the launch would leave."""
    nodes = pending.nodes
    is_partly_known = pending.missing or nodes.pieces or nodes.unchecked or nodes.given
    if pending.eager is None or is_partly_known or launch.point.returns:
        return False
    outputs = ((pending.alive.get(o.name), part_of(pending.eager, o)) for o in nodes.outputs)
    return not any(why_not_comparable(made, eager) for made, eager in outputs)


def _copies_of_inputs(launch: Launch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For operators that write to arguments without declaring it."""
    given = [launch.flat[i] for i in launch.point.tensors if i not in launch.point.written]
    return [(tensor, tensor.detach().clone()) for tensor in given]


def _shapes(inputs: Sequence[Any]) -> list[str]:
    return [
        f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}"
        for each in inputs
        if isinstance(each, torch.Tensor)
    ]
