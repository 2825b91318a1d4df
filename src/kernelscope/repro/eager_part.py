"""What a launch should compute: the lines of its graph, from the values that it was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import TensorSpec
from kernelscope.generated_code.printed_graph import FxLine, slice_of
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.model.call import KernelCall
from kernelscope.store.stored_run import StoredRun

from .graph_variables import GraphVariables
from .launch_code import LaunchCode
from .saved_arguments import Tensors, saved_entry
from .sizes import value_of
from .variable_values import Value, VariableValues, index_among


@dataclass(slots=True)
class EagerPart:
    """A function's body in eager code."""

    bind: list[str] = field(default_factory=list)  # nodes that are given, from the arguments
    lines: list[FxLine] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)  # argument -> code for its value
    context: dict[str, dict[str, Any]] = field(default_factory=dict)  # values that the kernel did not get
    unknown: list[str] = field(default_factory=list)  # outputs without eager, and why


def eager_part(
    run: StoredRun,
    call: KernelCall,
    names: Mapping[int, str],
    wrapper: Wrapper,
    launch: LaunchCode,
    tensors: Tensors,
    values: VariableValues,
    held: Mapping[str, TensorSpec],
) -> EagerPart | None:
    """None where the run has no stages of the graph; `held` are variables that the script has by name."""
    staged = run.stages_of(call.graph)
    if staged is None or "post_grad" not in staged.stages:
        return None
    function, part = wrapper.function_at(call.wrapper_line[1]), EagerPart()
    graph = GraphVariables(staged, wrapper, values, function.name if function is not None else "")
    outputs = _outputs(call, names, graph, wrapper, launch, values, part)
    own = _own_inputs(call, names, graph)
    for name, spec in held.items():
        if (node := graph.held(name)) and (text := graph.whole(name, name, node, spec)):
            own.setdefault(node, text)
    others: dict[str, Context] = {}
    for name in values.before:
        value = (values.at_first if graph.is_changed_input(name) else values.before).get(name)
        if value is not None and (node := graph.held(name)) and node not in {*own, *graph.changed}:
            variable = f"value_of_{name}"
            if text := graph.whole(variable, graph.holder(name), node, value.spec):
                others[node] = Context(variable, value, text)
    needed: dict[str, None] = {}
    for argument, (node, text) in outputs.items():
        found = slice_of(graph.text, node, frozenset(own))
        if found.missing:
            found = slice_of(graph.text, node, frozenset({*own, *others}))
        if found.missing:
            part.unknown.append(f"{argument}: eager would need {found.missing[0]}, which was not recorded")
            continue
        part.outputs[argument] = text
        known = {line.name for line in part.lines}
        part.lines += [line for line in found.lines if line.name not in known]
        needed |= dict.fromkeys(found.given)
    order = {name: i for i, name in enumerate(graph.text.lines)}
    part.lines.sort(key=lambda line: order[line.name])
    for node in needed:
        _bind(node, part, own, others, graph, tensors)
    return part


@dataclass(frozen=True, slots=True)
class Context:
    """A value that the kernel itself was not given."""

    variable: str
    value: Value
    text: str  # the node's value, of the variable


def _bind(
    node: str,
    part: EagerPart,
    own: Mapping[str, str],
    others: Mapping[str, Context],
    graph: GraphVariables,
    tensors: Tensors,
) -> None:
    if node in own:
        part.bind.append(f"{node} = {own[node]}")
    elif node in others:
        other = others[node]
        part.context[other.variable] = saved_entry("context", other.value, other.variable, tensors)
        part.bind.append(f"{node} = {other.text}")
    elif node in graph.text.symbols:
        number = value_of(graph.text.symbols[node], graph.symbols)
        if number is None:
            part.unknown.append(f"the size {graph.text.symbols[node]} is not known")
        part.bind.append(f"{node} = {number}")


def _outputs(
    call: KernelCall,
    names: Mapping[int, str],
    graph: GraphVariables,
    wrapper: Wrapper,
    launch: LaunchCode,
    values: VariableValues,
    part: EagerPart,
) -> dict[str, tuple[str, str]]:
    """By argument that is written or returned: the node that leaves its value there, and code for it."""
    found: dict[str, tuple[str, str]] = {}
    returned = [i for i, arg in enumerate(call.arguments) if arg.returned]
    for i, arg in enumerate(call.arguments):
        if arg.tensor is None or arg.role not in ("out", "inout"):
            continue
        variable = arg.wrapper_name
        if arg.returned:
            index = index_among(returned, i, arg.name)
            variable = launch.items.get(index, "") if launch.items else launch.target
        node = graph.nodes.get(variable, "") or (graph.named_later(variable) if arg.returned else "")
        text = node
        if node in graph.text.inputs:
            if variable in values.written_after:
                part.unknown.append(f"{arg.name} is written again later, and only its last value is a node")
                continue
            node, text = graph.text.last_write(node)
        elif not arg.returned and not wrapper.is_read_after(variable, call.wrapper_line[1]):
            continue  # the compiler may have left out the store
        if node in graph.changed:
            part.unknown.append(f"{arg.name}: {node} is changed in place, here or later")
        elif node in graph.text.lines:
            found[names[i]] = node, text
        elif variable:
            part.unknown.append(f"{arg.name} does not hold the value of a known FX node")
    return found


def _own_inputs(call: KernelCall, names: Mapping[int, str], graph: GraphVariables) -> dict[str, str]:
    """By node: the expression that makes its value of an argument."""
    found: dict[str, str] = {}
    for i, arg in enumerate(call.arguments):
        name = arg.wrapper_name
        # An uninitialised input may be memory that the launch itself fills first, under another name.
        if arg.tensor is None or not name or call.roles[i] == "out" or i in call.uninitialised:
            continue
        node = graph.held(name)
        if not node or node in found or node in graph.changed or graph.is_changed_input(name):
            continue
        if expression := graph.whole(names[i], graph.holder(name), node, arg.tensor):
            found[node] = expression
    return found
