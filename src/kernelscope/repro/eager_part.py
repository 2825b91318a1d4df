"""What a launch should compute: the lines of its graph, from the values that it was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import TensorSpec
from kernelscope.generated_code.printed_graph import FxLine, FxText, read_fx, slice_of
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.model.call import KernelCall
from kernelscope.stages.graphs import StagedGraph
from kernelscope.store.stored_run import StoredRun

from .launch_code import LaunchCode
from .saved_arguments import (
    Tensors,
    Value,
    about_value,
    place_among,
    values_at_first,
    values_before,
    written_after,
    written_before,
)
from .sizes import learn, value_of, values_of


@dataclass(slots=True)
class EagerPart:
    """A function's body in eager code."""

    bind: list[str] = field(default_factory=list)  # nodes that are given, from the arguments
    lines: list[FxLine] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)  # argument -> node
    context: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # values that the kernel itself was not given
    symbols: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)  # outputs without eager, and why


class GraphNames:
    """What the stages of one graph tell about its variables."""

    def __init__(self, staged: StagedGraph, wrapper: Wrapper, function: str = "call") -> None:
        """Of the graph, or of the body of a branch or loop that is this function of the wrapper."""
        dag = staged.part("dag") or {}
        stage = staged.stages.get("post_grad")
        bodies = dag.get("bodies", {})
        body = function if function in bodies else ""
        self.text: FxText = read_fx(stage.text if stage is not None else "", body)
        inputs = [*dag.get("inputs", ()), *(each for given in bodies.values() for each in given)]
        listed = [*inputs, *dag.get("buffers", ())]
        self.layouts = {b["name"]: (b["shape"], b.get("stride", [])) for b in listed}
        self.devices = {b["name"]: str(b.get("scope", "cpu")) for b in listed}
        self.dtypes = {b["name"]: b["dtype"].removeprefix("torch.") for b in listed}
        own = [b for b in listed if b.get("body", "") == body]
        self.nodes = {b["name"]: b["node"] for b in own if b.get("node")}
        names = [b["name"] for b in bodies[body]] if body else list(self.text.inputs)
        self.nodes |= dict(zip(names, self.text.inputs, strict=False))
        self.changed = self.text.changed
        self.renamed, self.reused = wrapper.renamed, wrapper.reused
        self.written: set[str] = set()  # by launches before the one that is looked at
        self.written_again: set[str] = set()  # by launches after it
        results = wrapper.results(body or "call")
        if len(results) == len(self.text.results):  # what the wrapper returns is the value of that node
            for result, node in zip(results, self.text.results, strict=True):
                if result.variable and node:
                    self.nodes.setdefault(result.variable, node)

    def holder(self, name: str) -> str:
        """The variable that says what is in the memory of this one: who was written last under its name."""
        chain = [name]
        while chain[-1] not in self.written and (older := self.renamed.get(chain[-1])) and older not in chain:
            chain.append(older)
        for each, newer in zip(reversed(chain), [*reversed(chain[:-1]), ""], strict=True):
            if each in self.nodes:
                return each
            if newer in self.reused:  # nothing is in it yet
                break
        return chain[-1]

    def held(self, name: str) -> str:
        """The node whose value a variable has."""
        return str(self.nodes.get(self.holder(name), ""))

    def is_changed_input(self, name: str) -> bool:
        """Whether it no longer holds what the graph was given: eager begins with that, and changes it."""
        variable = self.holder(name)
        return variable in self.written and self.nodes.get(variable) in self.text.inputs

    def named_later(self, name: str) -> str:
        """The node of what an operator returned: `buf2 = buf1`, where only `buf2` is a buffer of a node."""
        later = [new for new, old in self.renamed.items() if old == name]
        return next((self.nodes[new] for new in later if new in self.nodes), "")


def eager_part(
    run: StoredRun,
    call: KernelCall,
    names: Mapping[int, str],
    wrapper: Wrapper,
    launch: LaunchCode,
    tensors: Tensors,
    held: Mapping[str, TensorSpec],
) -> EagerPart | None:
    """None where the run has no stages of the graph; `held` are variables that the script has by name."""
    staged = run.stages_of(call.graph)
    if staged is None or "post_grad" not in staged.stages:
        return None
    function, part = wrapper.function_at(call.wrapper_line[1]), EagerPart()
    graph = GraphNames(staged, wrapper, function.name if function is not None else "")
    graph.written = written_before(run, call, wrapper)
    graph.written_again = written_after(run, call, wrapper)
    outputs = _outputs(call, names, graph, wrapper, launch, part)
    around = values_before(run, call, wrapper)
    part.symbols = _symbols(call, graph, around)
    own = _own_inputs(call, names, graph, part.symbols)
    for name, spec in held.items():
        if (node := graph.held(name)) and (text := whole(name, name, node, spec, graph, part.symbols)):
            own.setdefault(node, text)
    others: dict[str, Context] = {}
    at_first = values_at_first(run, call, wrapper)
    for name in around:
        value = at_first.get(name) if graph.is_changed_input(name) else around[name]
        if value is not None and (node := graph.held(name)) and node not in {*own, *graph.changed}:
            variable = f"value_of_{name}"
            if text := whole(variable, graph.holder(name), node, value.spec, graph, part.symbols):
                others[node] = Context(variable, value, text)
    needed: dict[str, None] = {}
    for argument, node in outputs.items():
        found = slice_of(graph.text, node, frozenset(own))
        if found.missing:
            found = slice_of(graph.text, node, frozenset({*own, *others}))
        if found.missing:
            part.unknown.append(f"{argument}: eager would need {found.missing[0]}, which was not recorded")
            continue
        part.outputs[argument] = node
        known = {line.name for line in part.lines}
        part.lines += [line for line in found.lines if line.name not in known]
        needed |= dict.fromkeys(found.given)
    order = {name: place for place, name in enumerate(graph.text.lines)}
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
    graph: GraphNames,
    tensors: Tensors,
) -> None:
    if node in own:
        part.bind.append(f"{node} = {own[node]}")
    elif node in others:
        other = others[node]
        about = about_value(other.value, other.variable, tensors)
        part.context[other.variable] = {"role": "context"} | about
        part.bind.append(f"{node} = {other.text}")
    elif node in graph.text.symbols:
        number = value_of(graph.text.symbols[node], part.symbols)
        if number is None:
            part.unknown.append(f"the size {graph.text.symbols[node]} is not known")
        part.bind.append(f"{node} = {number}")


def _outputs(
    call: KernelCall,
    names: Mapping[int, str],
    graph: GraphNames,
    wrapper: Wrapper,
    launch: LaunchCode,
    part: EagerPart,
) -> dict[str, str]:
    """By argument that is written or returned: the node that it should be."""
    found: dict[str, str] = {}
    returned = [i for i, arg in enumerate(call.arguments) if arg.returned]
    for i, arg in enumerate(call.arguments):
        if arg.tensor is None or arg.role not in ("out", "inout"):
            continue
        if arg.returned:
            place = place_among(returned, i, arg.name)
            variable = launch.items.get(place, "") if launch.items else launch.target
        else:
            variable = arg.wrapper_name
        node = graph.nodes.get(variable, "") or (graph.named_later(variable) if arg.returned else "")
        if node in graph.text.inputs:
            if variable in graph.written_again:
                part.unknown.append(
                    f"{arg.name}: it is written again later, and only the last value is a node"
                )
                continue
            node = graph.text.last_write(node)
        elif not arg.returned and not wrapper.is_read_after(variable, call.wrapper_line[1]):
            continue  # nobody reads it: the store may have been left out
        if node in graph.changed:
            part.unknown.append(f"{arg.name}: {node} is changed in place, here or later")
        elif node in graph.text.lines:
            found[names[i]] = node
        elif variable:
            part.unknown.append(f"{arg.name}: no FX node is known whose value it holds")
    return found


def _own_inputs(
    call: KernelCall, names: Mapping[int, str], graph: GraphNames, symbols: Mapping[str, int]
) -> dict[str, str]:
    """By node: the expression that makes its value of an argument."""
    found: dict[str, str] = {}
    for i, arg in enumerate(call.arguments):
        role = call.roles[i]
        # One that is only read may be memory that the launch itself fills first, under another name.
        if arg.tensor is None or not arg.wrapper_name or role == "out" or i in call.uninitialised:
            continue
        variable = graph.holder(arg.wrapper_name)
        node = graph.held(arg.wrapper_name)
        if not node or node in found or node in graph.changed or graph.is_changed_input(arg.wrapper_name):
            continue
        expression = whole(names[i], variable, node, arg.tensor, graph, symbols)
        if expression:
            found[node] = expression
    return found


def whole(
    name: str, variable: str, node: str, spec: Any, graph: GraphNames, symbols: Mapping[str, int]
) -> str:
    """The argument in the layout of its buffer and the shape of its node; nothing if it is a part of it."""
    while variable not in graph.layouts and variable in graph.renamed:
        variable = graph.renamed[variable]
    shape, stride = (values_of(sizes, symbols) for sizes in graph.layouts.get(variable, ((), ())))
    if variable not in graph.layouts or shape is None or stride is None:
        return name
    wanted = graph.text.lines[node].shape if node in graph.text.lines else graph.text.inputs.get(node)
    node_shape = values_of(wanted, symbols) if wanted is not None else None
    text = name
    if (spec.shape, spec.stride) != (shape, stride):
        if _count(spec.shape) != _count(shape):
            return ""
        text = f"base({name}, {shape}, {stride})"
    if node_shape is not None and node_shape != shape:
        if _count(node_shape) != _count(shape):
            return ""
        text = f"{text}.reshape({node_shape})"
    return text


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _symbols(call: KernelCall, graph: GraphNames, around: Mapping[str, Value]) -> dict[str, int]:
    """The sizes of this execution: as scalars that were passed, and as shapes tell them."""
    found = passed_sizes(call)
    learn_sizes(found, graph, [*_specs(call), *((name, value.spec) for name, value in around.items())])
    return found


def passed_sizes(call: KernelCall) -> dict[str, int]:
    return {
        arg.wrapper_name: value
        for arg, value in zip(call.arguments, call.args, strict=True)
        if arg.tensor is None and isinstance(value, int) and arg.wrapper_name.isidentifier()
    }


def sizes_of_execution(calls: Iterable[KernelCall], graph: GraphNames) -> dict[str, int]:
    found: dict[str, int] = {}
    calls = list(calls)
    for call in calls:
        found |= passed_sizes(call)
    learn_sizes(found, graph, [pair for call in calls for pair in _specs(call)])
    return found


def _specs(call: KernelCall) -> list[tuple[str, TensorSpec]]:
    return [(arg.wrapper_name, arg.tensor) for arg in call.arguments if arg.tensor is not None]


def learn_sizes(found: dict[str, int], graph: GraphNames, specs: Iterable[tuple[str, TensorSpec]]) -> None:
    """From arguments that have the layout of their buffers: a view of one tells other sizes."""
    for name, spec in specs:
        shape, stride = graph.layouts.get(name, ((), ()))
        tried = dict(found)
        learn(tried, shape, spec.shape)
        learn(tried, stride, spec.stride)
        if (values_of(shape, tried), values_of(stride, tried)) == (spec.shape, spec.stride):
            found.update(tried)
