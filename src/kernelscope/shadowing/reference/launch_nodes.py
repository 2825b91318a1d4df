"""Which nodes a launch computes, and from what: the kernel's own part of the graph.

A launch is given wrapper variables (`buf3`, `primals_1`). Lowering said which node's value each buffer
holds. The unit of a launch is the sub-graph from the variables that it reads to those that it writes.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.launch import Launch
from kernelscope.shadowing.graph_execution import Execution

from .node_kinds import is_given, is_user_kernel, kernel_arguments, whole_of
from .slices import Walked, walk, walk_in_place
from .slices import stop_at as stop_at_one

IN_PARTS = -1  # not an argument: written slice by slice


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
    writers: tuple[Node, ...] = ()  # in the middle of the graph: these change what `node` is


@dataclass(slots=True)
class Unit:
    """What one launch computes."""

    outputs: list[Output] = field(default_factory=list)
    order: list[Node] = field(default_factory=list)  # to be evaluated, one after the other
    inputs: dict[Node, str] = field(default_factory=dict)  # the wrapper's variable that has its value
    carried: dict[Node, str] = field(default_factory=dict)  # known since an earlier kernel of the same unit
    pieces: list[str] = field(default_factory=list)  # outputs without a node, judged with who reads them
    joined: list[str] = field(default_factory=list)  # kernels that made the pieces which this one reads
    unchecked: list[tuple[str, str]] = field(default_factory=list)  # argument, why
    unread: dict[str, Node] = field(default_factory=dict)  # outputs that nobody reads
    fresh: list[Node] = field(default_factory=list)  # memory that holds nothing yet
    given: bool = False  # draws random numbers


def unit_of(launch: Launch, execution: Execution, alive: Mapping[str, Any]) -> Unit:
    """Worked out at the first launch of a place; every later one is alike."""
    text, line, unit = execution.text, launch.site.line, Unit()
    found: list[Output] = []
    if launch.site.kernel.producer == "user":
        return _unit_of_users(launch, execution, alive)
    for i, arg in enumerate(launch.site.args):
        if arg.tensor is None or arg.role not in ("out", "inout") or not arg.wrapper_name:
            continue
        _add_output(unit, found, execution, arg.wrapper_name, arg.name, i, launch.flat[i], line)
    target = text.targets.get(line, "")
    if launch.point.returns and target and "out" not in launch.kwargs:
        _add_returned(unit, found, execution, launch, target)
    if any(is_given(whole_of(o.node)) for o in found):
        unit.given = True
        unit.outputs = found
        return unit
    stops = _stops(launch, execution, alive)
    found += _wholes(launch, unit, execution)
    for output in found:
        _slice(unit, output, stops, execution, alive, line)
    return unit


def _wholes(launch: Launch, unit: Unit, execution: Execution) -> list[Output]:
    """The buffers whose last slice this launch writes: only as a whole do they have a value that is known."""
    named = {a.wrapper_name: a.name for a in launch.site.args if a.role in ("out", "inout")}
    found = []
    for whole in {execution.whole_of(name): None for name in named}:
        parts, node = execution.lowered.parts.get(whole, ()), execution.lowered.nodes.get(whole)
        if node is not None and parts and all(part in execution.done or part in named for part in parts):
            argument = next(named[part] for part in parts if part in named)
            found.append(Output(whole, argument, node, IN_PARTS))
    return found


def _unit_of_users(launch: Launch, execution: Execution, alive: Mapping[str, Any]) -> Unit:
    """A user's Triton kernel: the reference is the same kernel, launched by eager."""
    unit = Unit()
    written = [(i, a) for i, a in enumerate(launch.site.args) if a.tensor and a.role in ("out", "inout")]
    node = _users_node(launch, execution, {a.name: a.wrapper_name for _, a in written})
    if node is None:
        unit.unchecked = [(a.name, "no FX node is known for this launch") for _, a in written]
        return unit
    stops = _stops(launch, execution, alive)
    given = kernel_arguments(node)
    for i, arg in written:
        base = given.get(arg.name)
        if isinstance(base, Node):
            unit.outputs.append(Output(arg.wrapper_name, arg.name, node, i, key=arg.name, held=base))
            if i in launch.uninitialised or base not in stops:
                unit.fresh.append(base)
    for name, node in execution.holds.items():
        if isinstance(alive.get(name), torch.Tensor):
            stop_at(execution, stops, node, name)
    target = unit.outputs[0].node if unit.outputs else None
    if target is None:
        return unit
    order, leaves, missing = walk([target], {*stops, *unit.fresh}, execution.overwritten)
    if missing:
        unit.unchecked = [(o.argument, f"needs {missing[0].name}") for o in unit.outputs]
        unit.outputs = []
        return unit
    unit.order, unit.inputs = order, {n: stops[n] for n in leaves if n not in unit.fresh}
    return unit


def _users_node(launch: Launch, execution: Execution, names: Mapping[str, str]) -> Node | None:
    """The node of this launch: the first of its kind that no launch before it has."""
    taken, line = execution.text.users, launch.site.line
    for node in execution.lowered.module.graph.nodes:
        if not is_user_kernel(node) or taken.get(node.name, line) != line:
            continue
        given = kernel_arguments(node)
        bases = {
            key: execution.lowered.nodes.get(name) or execution.holds.get(name) for key, name in names.items()
        }
        if names.keys() <= given.keys() and all(b is None or given[k] is b for k, b in bases.items()):
            taken[node.name] = line
            found: Node = node
            return found
    return None


def _add_output(
    unit: Unit,
    found: list[Output],
    execution: Execution,
    name: str,
    argument: str,
    index: int,
    tensor: torch.Tensor,
    line: int,
) -> None:
    text = execution.text
    if (base := execution.in_place.base_in(name)) is not None:
        _add_base(unit, found, execution, Output(name, argument, base, index, held=base), line)
        return
    is_part = execution.whole_of(name) != ""
    is_input = name in execution.holds and execution.holds[name].op == "placeholder"
    if not (text.is_read_after(name, line) or is_part or is_input):
        node = execution.node_of(name, tensor) or execution.guess_of(name, tensor)
        if node is not None:
            unit.unread[name] = node
        return  # nobody looks at it: the store may have been left out
    is_last = text.last_write.get(name, line) <= line
    sure = execution.node_of(name, tensor) if is_last else None
    node = sure or (execution.guess_of(name, tensor) if is_last else None)
    if node is None and is_last and not is_part and name in text.returned:
        unit.unchecked.append((argument, "no FX node is known whose value it holds"))
    elif node is None:
        unit.pieces.append(name)
    elif not any(o.name == name for o in found):
        found.append(Output(name, argument, node, index, is_guess=sure is None))


def _add_base(unit: Unit, found: list[Output], execution: Execution, output: Output, line: int) -> None:
    """What is written in the middle of the graph: by this launch up to a known version, or nobody knows."""
    span = execution.in_place.versions(output.node, line)
    if span is None or line not in execution.in_place.lines.get(output.node, ()):
        unit.pieces.append(output.name)
        unit.unchecked.append((output.argument, "it is written in several steps that cannot be told apart"))
    elif not any(o.name == output.name for o in found):
        writers = execution.in_place.writers[output.node][slice(*span)]
        found.append(replace(output, writers=tuple(writers)))


def _add_returned(unit: Unit, found: list[Output], execution: Execution, launch: Launch, target: str) -> None:
    text, lowered, line = execution.text, execution.lowered, launch.site.line
    if not text.is_read_after(target, line):
        return
    items = text.items_of(target)
    if not items:
        names = [target, *(new for new, old in text.renamed.items() if old == target)]
        node = next((lowered.nodes[name] for name in names if name in lowered.nodes), None)
        if node is None:
            unit.unchecked.append((target, "no FX node is known for what it returns"))
        elif _leaves_out_the_bias(node, launch):
            unit.pieces.append(target)
        else:
            found.append(Output(target, "result", node, None))
        return
    for name in items:
        node = lowered.nodes.get(name)
        if node is None or not text.is_read_after(name, line):
            continue
        places = _places(node)
        told = "".join(map(str, places[:1])) if len(places) < 2 else "".join(f"[{i}]" for i in places)
        found.append(Output(name, f"result{told}", node, None, places))


def _places(node: Node) -> tuple[int, ...]:
    """Where in a result an item is: getitem(getitem(result, 1), 0)."""
    found: list[int] = []
    while node.target is operator.getitem and isinstance(node.args[1], int):
        found.insert(0, node.args[1])
        assert isinstance(node.args[0], Node)
        node = node.args[0]
    return tuple(found)


def _leaves_out_the_bias(node: Node, launch: Launch) -> bool:
    """On a GPU a convolution is given no bias; the kernel that reads its result adds it."""
    if node.target is not torch.ops.aten.convolution.default or node.args[2] is None:
        return False
    return launch.kwargs.get("bias", node) is None


def _stops(launch: Launch, execution: Execution, alive: Mapping[str, Any]) -> dict[Node, str]:
    """The nodes whose values this launch is given, with the variables that hold them."""
    stops: dict[Node, str] = {}
    for i, arg in enumerate(launch.site.args):
        name = arg.wrapper_name
        if arg.tensor is None or not name or arg.role == "out":
            continue
        node = execution.held(name)
        if node is None and arg.role == "inout" and i not in launch.uninitialised:
            node = _before_renaming(name, execution)
        if node is not None:
            stop_at(execution, stops, node, name)
    return stops


def stop_at(execution: Execution, stops: dict[Node, str], node: Node, name: str) -> None:
    for each in (node, *execution.lowered.same.get(node, ())):
        stop_at_one(stops, each, name)


def _before_renaming(name: str, execution: Execution) -> Node | None:
    """What memory that goes on under a new name still holds."""
    renamed = execution.text.renamed
    while (name := renamed.get(name, "")) != "":
        if (node := execution.holds.get(name) or execution.lowered.views.get(name)) is not None:
            return node
    return None


def _slice(
    unit: Unit,
    output: Output,
    stops: dict[Node, str],
    execution: Execution,
    alive: Mapping[str, Any],
    line: int,
) -> None:
    """Add what is needed to compute one output: from the kernel's own inputs, or else from what is alive."""
    carried = {n: p for p, known in execution.carried.items() for n in known}
    order, leaves, missing = _walked(output, set(stops) | set(carried), execution, line)
    if missing:
        more = dict(stops)
        for name, node in execution.holds.items():
            if isinstance(alive.get(name), torch.Tensor):
                stop_at(execution, more, node, name)
        order, leaves, missing = _walked(output, set(more) | set(carried), execution, line)
        stops = more
    if missing:
        for name, node in execution.unread.items():
            if isinstance(alive.get(name), torch.Tensor):
                stop_at(execution, stops, node, name)
        order, leaves, missing = _walked(output, set(stops) | set(carried), execution, line)
    if missing:
        unit.unchecked.append((output.argument, f"needs {missing[0].name}, which this kernel was not given"))
        return
    unit.outputs.append(output)
    for leaf in leaves:
        if leaf in stops:
            unit.inputs[leaf] = stops[leaf]
        else:
            unit.carried[leaf] = carried[leaf]
            unit.joined += [k for k in execution.makers.get(carried[leaf], ()) if k not in unit.joined]
    known = set(unit.order)
    unit.order += [node for node in order if node not in known]


def _walked(output: Output, stops: set[Node], execution: Execution, line: int) -> Walked:
    if not execution.in_place.writers:
        return walk([output.node], stops, execution.overwritten)
    is_made = not output.writers or execution.in_place.is_made_at(output.node, line)
    wanted = [*([output.node] if is_made else ()), *output.writers]
    return walk_in_place(wanted, stops, execution.overwritten, execution.in_place, line)
