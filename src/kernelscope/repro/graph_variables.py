"""The variables of a wrapper and the nodes of its graph: which variable holds the value of which node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from kernelscope.events import TensorSpec
from kernelscope.generated_code.printed_graph import read_fx
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.model.call import KernelCall
from kernelscope.stages.graphs import StagedGraph

from .sizes import learn, values_of
from .variable_values import Value, VariableValues

Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and stride


class GraphVariables:
    """The variables of one function of a wrapper before one call."""

    def __init__(
        self, staged: StagedGraph, wrapper: Wrapper, values: VariableValues, function: str = "call"
    ) -> None:
        dag = staged.part("dag") or {}
        stage = staged.stages.get("post_grad")
        bodies = dag.get("bodies", {})
        body = function if function in bodies else ""
        self.text = read_fx(stage.text if stage is not None else "", body)
        inputs = [*dag.get("inputs", ()), *(each for given in bodies.values() for each in given)]
        listed = [*inputs, *dag.get("buffers", ())]
        self._layouts = {b["name"]: (b["shape"], b.get("stride", [])) for b in listed}
        self.devices = {b["name"]: str(b.get("scope", "cpu")) for b in listed}
        self.dtypes = {b["name"]: b["dtype"].removeprefix("torch.") for b in listed}
        own = [b for b in listed if b.get("body", "") == body]
        self.nodes = {b["name"]: b["node"] for b in own if b.get("node")}
        names = [b["name"] for b in bodies[body]] if body else list(self.text.inputs)
        self.nodes |= dict(zip(names, self.text.inputs, strict=False))
        self.changed = self.text.changed
        self.renamed, self._reused = wrapper.renamed, wrapper.reused
        self._written = values.written_before
        results = wrapper.results(body or "call")
        if len(results) == len(self.text.results):  # what the wrapper returns is the value of that node
            for result, node in zip(results, self.text.results, strict=True):
                if result.variable and node:
                    self.nodes.setdefault(result.variable, node)
        self.symbols = self._sizes(values.calls, values.before)

    def holder(self, name: str) -> str:
        """The variable that tells what is in the memory of this one: the one last written under its name."""
        chain = [name]
        while (
            chain[-1] not in self._written and (older := self.renamed.get(chain[-1])) and older not in chain
        ):
            chain.append(older)
        for each, newer in zip(reversed(chain), [*reversed(chain[:-1]), ""], strict=True):
            if each in self.nodes:
                return each
            if newer in self._reused:  # nothing is in it yet
                break
        return chain[-1]

    def held(self, name: str) -> str:
        """The node whose value a variable has."""
        return str(self.nodes.get(self.holder(name), ""))

    def is_changed_input(self, name: str) -> bool:
        """Whether it no longer holds what the graph was given: eager begins with that, and changes it."""
        variable = self.holder(name)
        return variable in self._written and self.nodes.get(variable) in self.text.inputs

    def named_later(self, name: str) -> str:
        """The node of what an operator returned: `buf2 = buf1`, where only `buf2` is a buffer of a node."""
        later = [new for new, old in self.renamed.items() if old == name]
        return next((self.nodes[new] for new in later if new in self.nodes), "")

    def layout(self, variable: str) -> Layout | None:
        """None where it is not known."""
        if variable not in self._layouts:
            return None
        shape, stride = (values_of(sizes, self.symbols) for sizes in self._layouts[variable])
        return None if shape is None or stride is None else (shape, stride)

    def whole(self, name: str, variable: str, node: str, spec: TensorSpec) -> str:
        """Code that makes the value of a node from an argument; "" if the argument is a part of it."""
        while variable not in self._layouts and variable in self.renamed:
            variable = self.renamed[variable]
        layout = self.layout(variable)
        if layout is None:
            return name
        shape, stride = layout
        text = name
        if (spec.shape, spec.stride) != layout:
            if prod(spec.shape) != prod(shape):
                return ""
            text = f"base({name}, {shape}, {stride})"
        sizes = self.text.lines[node].shape if node in self.text.lines else self.text.inputs.get(node)
        node_shape = values_of(sizes, self.symbols) if sizes is not None else None
        if node_shape is not None and node_shape != shape:
            if prod(node_shape) != prod(shape):
                return ""
            text = f"{text}.reshape({node_shape})"
        return text

    def _sizes(self, calls: Iterable[KernelCall], around: Mapping[str, Value]) -> dict[str, int]:
        """The symbolic sizes of this graph call: scalars that were passed, and what shapes tell."""
        found: dict[str, int] = {}
        specs = [(name, value.spec) for name, value in around.items()]
        for call in calls:
            for arg, value in zip(call.arguments, call.args, strict=True):
                if arg.tensor is not None:
                    specs.append((arg.wrapper_name, arg.tensor))
                elif isinstance(value, int) and arg.wrapper_name.isidentifier():
                    found[arg.wrapper_name] = value
        for name, spec in specs:
            # Only arguments with the layout of their buffers count: a view of one tells other sizes.
            shape, stride = self._layouts.get(name, ((), ()))
            tried = dict(found)
            learn(tried, shape, spec.shape)
            learn(tried, stride, spec.stride)
            if (values_of(shape, tried), values_of(stride, tried)) == (spec.shape, spec.stride):
                found.update(tried)
        return found
