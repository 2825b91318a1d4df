"""What running a compiled graph does, as a Python program: the steps of the executor, one after another.

Beside its `.co` file the program runs. A recording shows it as the graph's code, and says of each launch on
which line it stands; the comments before launches are those that Inductor writes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from kernelscope.gcu.lowering.sizes import Size

from .executor import AtenCall, CompiledGraph, GraphCode, Launch, Output, Result

_HEAD = """\
# {name}, {direction}: what running this graph does.
from math import inf, nan
import operator
import torch
from torch import device
from kernelscope.gcu import laid_out
{imports}

def call(args, constants=None):
"""
_LOAD = """\
from kernelscope.gcu import load
from pathlib import Path

# Not checked, as in the compiled graph: with checks it rounds otherwise.
_program = load(Path(__file__).with_name("{name}.co"), checked=False)
"""


def code_of(graph: CompiledGraph) -> GraphCode:
    """The program of a graph, which is written once."""
    if graph.code is None:
        graph.code = _Writer(graph).run()
    return graph.code


def line_of(step: Launch | AtenCall) -> int:
    """Where a step launches something in the program of its graph; 0 if it does not."""
    if step.graph is None:
        return 0
    position = next((i for i, each in enumerate(step.graph.steps) if each is step), -1)
    return code_of(step.graph).line_of(position)


class _Writer:
    def __init__(self, graph: CompiledGraph) -> None:
        self._graph = graph
        launches = any(getattr(step, "entry", None) is not None for step in graph.steps)
        load = _LOAD.format(name=graph.name) if launches else ""
        self._lines = _HEAD.format(name=graph.name, direction=graph.direction, imports=load).splitlines()
        self._at: dict[int, int] = {}

    def run(self) -> GraphCode:
        graph = self._graph
        given = graph.names[: graph.inputs]
        if given:
            self._add(f"{', '.join(given)}{',' if len(given) == 1 else ''} = args")
        self._add("args.clear()")
        for register in graph.constants:
            self._add(f"{graph.names[register]} = constants[{graph.names[register]!r}]")
        for check in graph.checks:
            name = graph.names[check.register]
            self._add(f"{name} = laid_out({name}, {_tuple(check.sizes)})")
        for number, step in enumerate(graph.steps):
            if isinstance(step, Launch):
                self._launch(number, step)
            else:
                self._aten(number, step)
            if step.free:
                self._add(f"del {', '.join(graph.names[register] for register in step.free)}")
        results = [graph.names[o.register] if isinstance(o, Result) else _value(o) for o in graph.outputs]
        self._add(f"return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        return GraphCode("\n".join(self._lines) + "\n", self._at)

    def _add(self, text: str) -> None:
        self._lines.append(f"    {text}")

    def _mark(self, number: int, name: str) -> None:
        """The launch that follows, with its number, as Inductor marks those of its wrappers."""
        self._add(f"# [Provenance debug handles] {name}:{number}")
        self._at[number] = len(self._lines) + 1

    def _launch(self, number: int, step: Launch) -> None:
        names = self._graph.names
        for output in step.outputs:
            self._add(f"{names[output.register]} = {_allocation(output)}")
        if step.entry is None:
            return  # nothing to compute
        inputs, outputs = [names[i] for i in step.inputs], [names[o.register] for o in step.outputs]
        sizes = [_size(s) for s in step.sizes]
        arguments = [*inputs, *sizes[: step.scalars], *outputs, *sizes[step.scalars :]]
        self._mark(number, step.kernel.name)
        self._add(f'_program.launch("{step.kernel.name}", {", ".join(arguments)})')

    def _aten(self, number: int, step: AtenCall) -> None:
        def named(node: torch.fx.Node) -> _Name:
            return _Name(self._graph.names[step.places[node]])

        args = torch.fx.node.map_arg(step.args, named)
        kwargs = torch.fx.node.map_arg(step.kwargs, named)
        target = self._graph.names[step.register]
        if getattr(step.target, "__name__", "") == "getitem":
            self._add(f"{target} = {_value(args[0])}[{_value(args[1])}]")
            return
        given = [*map(_value, args), *(f"{k}={_value(v)}" for k, v in kwargs.items())]
        text = f"{_target(step.target)}({', '.join(given)})"
        if step.stride is not None:
            text = f"laid_out({text}, {_tuple(step.sizes)})"
        if not step.is_view and isinstance(step.target, torch._ops.OpOverload):
            self._mark(number, f"torch.ops.{step.target}")
        self._add(f"{target} = {text}")


class _Name(str):
    """A variable, as opposed to a string."""


def _allocation(output: Output) -> str:
    shape, stride = map(_tuple, output.sizes)
    return f'torch.empty_strided({shape}, {stride}, dtype={output.dtype}, device="cpu")'


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{target}"
    module = str(getattr(target, "__module__", "")).removeprefix("_")
    return f"{module}.{getattr(target, '__name__', target)}"


def _tuple(sizes: tuple[Size, ...]) -> str:
    return f"({', '.join(map(_size, sizes))}{',' if len(sizes) == 1 else ''})"


def _size(size: Size) -> str:
    if isinstance(size, int):
        return str(size)
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(size))


def _value(value: Any) -> str:
    """An argument as Python."""
    if isinstance(value, _Name):
        return str(value)
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_value, value))
        return f"({inner}{',' if len(value) == 1 else ''})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({_value(value.start)}, {_value(value.stop)}, {_value(value.step)})"
    return repr(value)
