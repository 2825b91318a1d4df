"""The nodes of a launch: the sub-graph from the wrapper variables that it reads to those that it writes.

Lowering knows which node's value each variable (`buf3`, `primals_1`) holds.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.launch import Launch
from kernelscope.shadowing.graph_call_state import GraphCallState

from .compiled_forms import leaves_out_the_bias
from .graph_walk import Walked, stop_at, walk, walk_in_place
from .node_kinds import is_given, is_user_kernel, is_view, kernel_arguments, reshaped, whole_of
from .places import Holdings, Memories
from .small_errors.rounding import Rounding

IN_PARTS = -1  # not an argument: written part by part


@dataclass(frozen=True, slots=True)
class Output:
    """One buffer that a launch leaves."""

    name: str  # the wrapper's
    argument: str  # the kernel's
    node: Node
    index: int | None  # among the launch's arguments; None: it is returned
    item: tuple[int, ...] = ()  # of a returned tuple
    key: str = ""  # of what a user's kernel writes: the kernel's name for it
    held: Node | None = None  # which node's value the buffer then has, where that is not `node`
    is_guess: bool = False  # that it holds this node's value
    is_copy: bool = False  # of a buffer that may have this node's value already
    base: Node | None = None  # written in the middle of the graph: `node`, or what that is a view of
    writers: tuple[Node, ...] = ()  # these change what it is


@dataclass(slots=True)
class LaunchNodes:
    """What one launch computes."""

    outputs: list[Output] = field(default_factory=list)
    order: list[Node] = field(default_factory=list)  # to be evaluated, one after the other
    inputs: dict[Node, str] = field(default_factory=dict)  # the wrapper's variable that has its value
    carried: dict[Node, str] = field(default_factory=dict)  # inputs of the kernels that made its pieces
    pieces: list[str] = field(default_factory=list)  # outputs without a node, checked with their readers
    joined: list[str] = field(default_factory=list)  # kernels that made the pieces which this one reads
    unchecked: list[tuple[str, str]] = field(default_factory=list)  # argument, why
    unread: dict[str, Node] = field(default_factory=dict)  # outputs that the wrapper does not read
    fresh: list[Node] = field(default_factory=list)  # uninitialised memory
    unknown: list[Node] = field(default_factory=list)  # neither given nor alive: none of it may be needed
    given: bool = False  # draws random numbers
    makes_memory: bool | None = None  # one of the order is uninitialised; None: not known yet
    differing: set[str] = field(default_factory=set)  # outputs that last were not eager's bit by bit
    roundings: dict[str, Rounding] = field(default_factory=dict)  # by output, of those that were judged


def nodes_of(launch: Launch, state: GraphCallState, alive: Mapping[str, Any]) -> LaunchNodes:
    """Worked out at the first launch of a site; every later one is alike."""
    search = _Search(launch, state, alive)
    return search.of_users_kernel() if launch.site.kernel.producer == "user" else search.of_kernel()


class _Search:
    """Looks for the nodes of one launch."""

    def __init__(self, launch: Launch, state: GraphCallState, alive: Mapping[str, Any]) -> None:
        self._launch, self._state = launch, state
        self._memories = Memories(alive, launch.flat)
        self._text, self._lowered, self._line = state.text, state.lowered, launch.site.line
        self._found: dict[str, Output] = {}  # by the wrapper's name
        self._nodes = LaunchNodes()

    def of_kernel(self) -> LaunchNodes:
        launch, nodes = self._launch, self._nodes
        for i, arg in enumerate(launch.site.args):
            if arg.tensor is not None and arg.role in ("out", "inout") and arg.wrapper_name:
                self._add_output(arg.wrapper_name, arg.name, i, launch.flat[i])
        target = self._text.targets.get(self._line, "")
        if launch.point.returns and target and "out" not in launch.kwargs:
            self._add_returned(target)
        if any(is_given(whole_of(o.node)) for o in self._found.values()):
            nodes.given = True
            nodes.outputs = [*self._found.values()]
            return nodes
        stops = self._stops()
        for output in [*self._found.values(), *self._wholes()]:
            self._add_nodes(output, stops)
        # What it goes on with is judged with it, also where the reference needs none of that kernel's inputs.
        makers = (self._state.makers[n] for n in given_values(launch, self._state) if n in self._state.pieces)
        nodes.joined = list(dict.fromkeys([*nodes.joined, *chain.from_iterable(makers)]))
        return nodes

    def of_users_kernel(self) -> LaunchNodes:
        """A user's Triton kernel: the reference is the same kernel, launched by eager."""
        args, nodes = self._launch.site.args, self._nodes
        written = [(i, a) for i, a in enumerate(args) if a.tensor and a.role in ("out", "inout")]
        node = self._users_node({a.name: a.wrapper_name for _, a in written})
        if node is None:
            nodes.unchecked = [(a.name, "its FX node is unknown") for _, a in written]
            return nodes
        stops = self._stops()
        given = kernel_arguments(node)
        for i, arg in written:
            base = given.get(arg.name)
            if isinstance(base, Node):
                nodes.outputs.append(Output(arg.wrapper_name, arg.name, node, i, key=arg.name, held=base))
                if i in self._launch.uninitialised or base not in stops:
                    nodes.fresh.append(base)
        if not nodes.outputs:
            return nodes
        self._stop_at_alive(stops, self._state.holds)
        order, leaves, missing = walk([node], {*stops, *nodes.fresh}, self._state.overwritten)
        if missing:
            nodes.unchecked = [(o.argument, not_given(missing)) for o in nodes.outputs]
            nodes.outputs = []
            return nodes
        nodes.order, nodes.inputs = order, {n: stops[n] for n in leaves if n not in nodes.fresh}
        return nodes

    def _users_node(self, names: Mapping[str, str]) -> Node | None:
        """The node of this launch: the first with these arguments that belongs to no earlier launch."""
        taken = self._text.users
        for node in self._lowered.module.graph.nodes:
            if not is_user_kernel(node) or taken.get(node.name, self._line) != self._line:
                continue
            given = kernel_arguments(node)
            bases = {k: self._lowered.nodes.get(v) or self._state.holds.node(v) for k, v in names.items()}
            if names.keys() <= given.keys() and all(b is None or given[k] is b for k, b in bases.items()):
                taken[node.name] = self._line
                found: Node = node
                return found
        return None

    # -- outputs ---------------------------------------------------------------------------------------

    def _add_output(self, name: str, argument: str, index: int, tensor: torch.Tensor) -> None:
        state, text, nodes = self._state, self._text, self._nodes
        if (base := state.in_place.base_in(name)) is not None:
            whole = state.in_place.variables[base]  # the name may be that of a view
            form = state.in_place.node_in(whole, base)
            self._add_base(Output(whole, argument, form, index, held=form, base=base), base)
            return
        is_part = (whole := state.whole_of(name)) != ""
        if is_part and state.in_place.base_in(whole) is not None and whole in self._written():
            return  # and written over by this very launch: the whole is judged
        is_input = name in state.inputs
        if not (text.is_read_after(name, self._line) or is_part or is_input):
            is_fresh = index in self._launch.uninitialised
            node = (state.node_of(name, tensor) or state.guess_of(name, tensor)) if is_fresh else None
            if node is not None:
                nodes.unread[name] = node
            return  # the kernel need not store what is not read
        is_last = text.last_write.get(name, self._line) <= self._line
        sure = state.node_of(name, tensor) if is_last else None
        node = sure or (state.guess_of(name, tensor) if is_last else None)
        is_result = name in text.returned or (is_input and not text.is_read_after(name, self._line))
        if node is None and is_last and not is_part and is_result:
            nodes.unchecked.append((argument, "the FX node whose value it holds is unknown"))
        elif node is None:
            nodes.pieces.append(name)
        else:
            is_copy = state.source_of(name) != ""
            output = Output(name, argument, node, index, is_guess=sure is None, is_copy=is_copy)
            self._found.setdefault(name, output)

    def _written(self) -> set[str]:
        return {arg.wrapper_name for arg in self._launch.site.args if arg.role in ("out", "inout")}

    def _add_base(self, output: Output, base: Node) -> None:
        """A buffer that is written in the middle of the graph: by this launch up to a known version."""
        in_place = self._state.in_place
        span = in_place.versions(base, self._line)
        if span is None or self._line not in in_place.lines.get(base, ()):
            self._nodes.pieces.append(output.name)
            reason = "several launches write to it, and which node each one computes is unknown"
            self._nodes.unchecked.append((output.argument, reason))
        else:
            writers = in_place.writers[base][slice(*span)]
            self._found.setdefault(output.name, replace(output, writers=tuple(writers)))

    def _add_returned(self, target: str) -> None:
        text, lowered, nodes = self._text, self._lowered, self._nodes
        if not text.is_read_after(target, self._line):
            return
        items = text.items_of(target)
        if not items:
            renamed = [new for new, old in text.renamed.items() if old == target]
            # A new name that another launch writes to, in place, holds what that launch makes of the result.
            same = [n for n in renamed if text.last_write.get(n, 0) <= self._line]
            names = [target, *(n for n in same if not text.goes_on_after(n, self._line))]
            node = next((lowered.nodes[name] for name in names if name in lowered.nodes), None)
            origin = last_of(lowered.origins.get(target, ()))
            if leaves_out_the_bias(node or origin, self._launch):
                nodes.pieces.append(target)
            elif node is None and origin is not None:  # its node got another layout: see the reader
                self._found[target] = Output(target, "result", origin, None, is_guess=True)
            elif node is None and target in text.returned:
                nodes.unchecked.append((target, "the FX node of what it returns is unknown"))
            elif node is None:
                nodes.pieces.append(target)
            else:
                self._found[target] = Output(target, "result", node, None)
        for name in items:
            node = lowered.nodes.get(name)
            if node is None and (part := self._item_of_origin(name)) is not None:  # it got another layout
                path = _path_in_result(part)
                self._found[name] = Output(name, f"result{path[0]}", part, None, path, is_guess=True)
            elif node is None and text.is_read_after(name, self._line):
                nodes.unchecked.append((name, "the FX node of this part of the result is unknown"))
            elif node is not None and text.is_read_after(name, self._line):
                path = _path_in_result(node)
                shown = "".join(map(str, path)) if len(path) < 2 else "".join(f"[{i}]" for i in path)
                self._found[name] = Output(name, f"result{shown}", node, None, path)

    def _item_of_origin(self, name: str) -> Node | None:
        """The node of `buf3[1]`, if the operator that made buf3 is known."""
        origin, place = last_of(self._lowered.origins.get(name, ())), self._text.item_places.get(name)
        if origin is None or not place or not self._text.is_read_after(name, self._line):
            return None
        items = [user for user in origin.users if user.target is operator.getitem]
        return next((item for item in items if (item.args[1],) == place), None)

    def _wholes(self) -> list[Output]:
        """The buffers whose last part this launch writes: only as a whole do they hold a node's value."""
        state, lowered = self._state, self._lowered
        named = {a.wrapper_name: a.name for a in self._launch.site.args if a.role in ("out", "inout")}
        found = []
        for whole in {state.whole_of(name): None for name in named}:
            parts, node = lowered.parts.get(whole, ()), lowered.nodes.get(whole)
            if self._text.last_write.get(whole, self._line) > self._line:
                continue  # another launch makes the node's value of it, in place
            if node is not None and parts and all(part in state.done or part in named for part in parts):
                argument = next(named[part] for part in parts if part in named)
                found.append(Output(whole, argument, node, IN_PARTS))
        return found

    # -- from the outputs back to the inputs -----------------------------------------------------------

    def _stops(self) -> dict[Node, str]:
        """The nodes whose values this launch is given, with the variables that hold them."""
        stops: dict[Node, str] = {}
        for name in given_values(self._launch, self._state):
            if (node := self._state.holds.node(name)) is not None:
                self._stop_at(stops, node, name)
        return stops

    def _stop_at(self, stops: dict[Node, str], node: Node, name: str) -> None:
        for each in (node, *self._lowered.same.get(node, ())):
            stop_at(stops, each, name)

    def _stop_at_alive(self, stops: dict[Node, str], held: Holdings) -> None:
        for name, node in held.items():
            if held.read(name, self._memories) is not None:
                self._stop_at(stops, node, name)

    def _add_nodes(self, output: Output, given: Mapping[Node, str]) -> None:
        """Add what computes one output: from the kernel's own inputs, or else from all that is alive."""
        state, nodes, stops = self._state, self._nodes, dict(given)
        carried = {n: p for p, known in state.carried.items() for n in known}
        order, leaves, missing = self._walked(output, {*stops, *carried})
        for more in (state.holds, state.unread):
            if missing:
                self._stop_at_alive(stops, more)
                order, leaves, missing = self._walked(output, {*stops, *carried})
        if missing and stops.get(output.node, output.name) != output.name:  # a copy, in another layout
            order, leaves, missing = [], [output.node], []
        unknown = set[Node]()
        while missing and unknown.isdisjoint(missing) and state.in_place.writers.keys().isdisjoint(missing):
            unknown |= {*missing}
            order, leaves, missing = self._walked(output, {*stops, *carried, *unknown})
        if missing or output.node in unknown:
            nodes.unchecked.append((output.argument, not_given(missing or [output.node])))
            return
        nodes.outputs.append(output)
        for leaf in leaves:
            if leaf in unknown:
                nodes.unknown += [leaf] if leaf not in nodes.unknown else []
            elif leaf in stops:
                nodes.inputs[leaf] = stops[leaf]
            else:
                nodes.carried[leaf] = carried[leaf]
                nodes.joined += [k for k in state.makers.get(carried[leaf], ()) if k not in nodes.joined]
        known = set(nodes.order)
        nodes.order += [node for node in order if node not in known]
        if state.in_place.writers:  # one output may read what is written for another one, as it was before
            nodes.order.sort(key=state.in_place.place.__getitem__)

    def _walked(self, output: Output, stops: set[Node]) -> Walked:
        in_place, overwritten = self._state.in_place, self._state.overwritten
        if output.is_copy and output.node in stops:
            return [], [output.node], []
        if not in_place.writers:
            return walk([output.node], stops, overwritten)
        base = output.base or output.node
        is_made = not output.writers or in_place.is_made_at(base, self._line)
        if not is_made and output.node is not base:  # a view of it, which the writers change with it
            is_made, stops = True, stops - {output.node}
        wanted = [*([output.node] if is_made else ()), *output.writers]
        return walk_in_place(wanted, stops, overwritten, in_place, self._line)


def given_values(launch: Launch, state: GraphCallState) -> list[str]:
    """The variables whose values lie in the memory that this launch reads, whatever its name is by now."""
    found: dict[str, None] = {}
    for value, arg in zip(launch.flat, launch.site.args, strict=False):
        if arg.tensor is not None and arg.wrapper_name and arg.role != "out":
            found |= dict.fromkeys(state.holds.lying_in(arg.wrapper_name, value))
    return list(found)


def ancestors(output: Output, nodes: LaunchNodes) -> list[Node]:
    """Those of the nodes that compute this output."""
    members, needed, own = set(nodes.order), {output.node, *output.writers}, output.node
    for each in reversed(nodes.order):
        if each in needed:
            needed |= {n for n in each.all_input_nodes if n in members and n not in nodes.inputs}
    return [each for each in nodes.order if each in needed and (each is own or not is_view(each))]


def last_of(origins: Sequence[Node]) -> Node | None:
    """Of the nodes that went into a buffer, the one that the others lead to, if there is one."""
    computed = [node for node in origins if node.op == "call_function"]
    read = {given for node in computed for given in node.all_input_nodes}
    last = [node for node in computed if node not in read]
    return last[0] if len(last) == 1 else None


def not_given(missing: Sequence[Node]) -> str:
    return f"it needs {missing[0].name}, which this kernel was not given"


def _path_in_result(node: Node) -> tuple[int, ...]:
    """Where in a result an item is: getitem(getitem(result, 1), 0)."""
    found: list[int] = []
    while (inner := reshaped(node)) is not None:  # squeeze(getitem(result, 0))
        node = inner
    while node.target is operator.getitem and isinstance(node.args[1], int):
        found.insert(0, node.args[1])
        assert isinstance(node.args[0], Node)
        node = node.args[0]
    return tuple(found)
