"""From kernels and an FX graph to the steps that run it."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from kernelscope.gcu.generation.kernels import Kernel
from kernelscope.gcu.lowering.lower import Lowered
from kernelscope.gcu.lowering.sizes import size_of, sizes_of, symbols_in

from .executor import AtenCall, Check, CompiledGraph, Launch, Output, Result, size_reader
from .program import Program


def assemble(
    lowered: Lowered,
    kernels: list[Kernel],
    program: Program | None,
    module: torch.fx.GraphModule,
    name: str,
    direction: str,
    check_inputs: bool,
) -> CompiledGraph:
    """The steps of a graph in the order of its groups, with views where ATen or the caller needs them."""
    return _Assembly(lowered, kernels, program, module).run(name, direction, check_inputs)


class _Assembly:
    def __init__(
        self, lowered: Lowered, kernels: list[Kernel], program: Program | None, module: torch.fx.GraphModule
    ) -> None:
        self.lowered = lowered
        self.program = program
        self.module = module
        self.fx = {n.name: n for n in lowered.graph.nodes}
        self.kernel_of = {name: k for k in kernels for name in k.nodes}
        self.register_of_buffer: dict[str, int] = {}
        self.register_of_fx: dict[torch.fx.Node, int] = {}
        self.symbols: dict[str, int] = {}
        self.steps: list[Launch | AtenCall] = []
        self.constants: dict[int, Any] = {}
        self.names: list[str] = []  # by register
        self._taken = set(lowered.dag.buffers)

    def register(self, name: str, buffer: str = "") -> int:
        """A new place; a buffer's has the buffer's name, and no other has that."""
        given, number = buffer or name, 1
        while not buffer and given in self._taken:
            number += 1
            given = f"{name}_{number}"
        self._taken.add(given)
        self.names.append(given)
        return len(self.names) - 1

    def run(self, name: str, direction: str, check_inputs: bool) -> CompiledGraph:
        placeholders = [n for n in self.lowered.graph.nodes if n.op == "placeholder"]
        for node in placeholders:
            self._input(node)
        for node in self.lowered.graph.nodes:
            if node.op == "get_attr":
                place = self._input(node)
                value: Any = self.module
                for part in str(node.target).split("."):
                    value = getattr(value, part)
                self.constants[place] = value
        done: set[str] = set()
        for group in self.lowered.dag.groups:
            first = self.lowered.dag.node(group[0])
            if first.kind == "aten":
                self._aten(self.fx[first.fx[0]], first.name)
            else:
                kernel = self.kernel_of.get(group[0])
                if kernel is not None and kernel.name not in done:
                    done.add(kernel.name)
                    self._launch(kernel)
        outputs = self._outputs()
        graph = CompiledGraph(
            name, direction, len(placeholders), self.steps, outputs, self.constants, self.names
        )
        if check_inputs:
            graph.checks = self._checks(placeholders)
        for step in self.steps:
            step.graph = graph
        self._free(outputs)
        return graph

    def _input(self, node: torch.fx.Node) -> int:
        value = node.meta.get("val")
        size = size_of(value) if isinstance(value, torch.SymInt) else None
        if isinstance(value, torch.Tensor):
            buffer = self.lowered.renamed[node.name]
            place = self.register_of_buffer[buffer] = self.register(node.name, buffer)
        elif getattr(size, "is_Symbol", False):
            place = self.register(str(size))
            self.symbols.setdefault(str(size), place)
        else:
            place = self.register(node.name)
        self.register_of_fx[node] = place
        return place

    def _symbol_registers(self, names: set[str]) -> dict[str, int]:
        """Registers that hold symbols; one that is not an argument is read from a tensor's shape, once."""
        for name in names - set(self.symbols):
            place = self.register(name)
            node, dim = self._dimension(name)
            read = AtenCall(torch.ops.aten.sym_size.int, (node, dim), {}, place, name, is_view=True)
            read.places = self.register_of_fx
            self.steps.insert(0, read)
            self.symbols[name] = place
        return self.symbols

    def _dimension(self, name: str) -> tuple[torch.fx.Node, int]:
        for node in self.lowered.graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and isinstance(value, torch.Tensor):
                for dim, size in enumerate(value.shape):
                    if str(size_of(size)) == name:
                        return node, dim
        raise RuntimeError(f"no input has the size {name} of this graph")

    def _launch(self, kernel: Kernel) -> None:
        dag = self.lowered.dag
        inputs = [self.register_of_buffer[b] for b in kernel.inputs]
        outputs = []
        for b in kernel.outputs:
            buffer = dag.buffers[b]
            place = self.register_of_buffer[b] = self.register(b, b)
            wanted = set().union(*(symbols_in(s) for s in (*buffer.shape, *buffer.stride)), set())
            symbols = self._symbol_registers(wanted)
            static = None
            if not wanted:
                static = (tuple(map(int, buffer.shape)), tuple(map(int, buffer.stride)))
            shape, stride = size_reader(buffer.shape, symbols), size_reader(buffer.stride, symbols)
            sizes = (buffer.shape, buffer.stride)
            outputs.append(Output(place, shape, stride, buffer.dtype, sizes, static))
        launch = Launch(kernel, None, inputs, outputs, lambda registers: ())
        if kernel.text and self.program is not None:
            self._ready(launch, kernel)
        nodes = [dag.node(n) for n in kernel.nodes]
        launch.origin = next((n.origin for n in reversed(nodes) if n.origin), "")
        launch.fx = tuple(dict.fromkeys(self.fx[name] for n in nodes for name in n.fx))
        self.steps.append(launch)

    def _ready(self, launch: Launch, kernel: Kernel) -> None:
        """The entry point, and the sizes that are passed after the pointers."""
        import sympy

        assert self.program is not None
        code = self.program.translation.function(kernel.name)
        launch.program, launch.entry = self.program, self.program.entry(kernel.name)
        launch.source = kernel.text
        launch.arg_names = tuple(a.name for a in code.arguments if a.dims is not None)
        buffers = [self.lowered.dag.buffers[b] for b in (*kernel.inputs, *kernel.outputs)]
        dims = [
            (a.name, b.dims) for a, b in zip([a for a in code.arguments if a.dims], buffers, strict=False)
        ]
        sizes: list[Any] = [sympy.Symbol(s, integer=True) for s in kernel.symbols]
        for symbol in code.symbols:
            unnamed = next((d[i] for n, d in dims for i in range(len(d)) if symbol == f"{n}_dim{i}"), None)
            sizes.append(sympy.Symbol(symbol, integer=True) if unnamed is None else unnamed)
        if sizes:
            wanted = set().union(*(symbols_in(s) for s in sizes))
            launch.symbols = size_reader(tuple(sizes), self._symbol_registers(wanted))
            launch.is_static = False
            launch.sizes = tuple(sizes)
            launch.scalars = len(kernel.symbols) if kernel.returns else 0

    # -- ATen ------------------------------------------------------------------------------------------

    def _need(self, node: torch.fx.Node) -> None:
        """Make sure that an FX value will be there: a buffer, a view of one, or a number."""
        if node in self.register_of_fx:
            return
        view = self.lowered.views.get(node.name)
        owner = self.lowered.dag.producers().get(view.buffer) if view is not None else None
        if view is not None and owner is not None and node.name in owner.fx and node.name == _last(owner.fx):
            place = self.register_of_buffer.get(view.buffer)
            if place is not None and view.buffer == owner.output and not self._is_view(node):
                self.register_of_fx[node] = place
                return
        if node.op == "call_function":
            self._aten(node, "", is_view=True)
            return
        raise RuntimeError(f"{node} is needed before it is computed")

    def _is_view(self, node: torch.fx.Node) -> bool:
        owner = self.lowered.dag.producers().get(self.lowered.views[node.name].buffer)
        return owner is None or node.name not in owner.fx

    def _aten(self, node: torch.fx.Node, buffer: str, is_view: bool = False) -> None:
        for each in node.all_input_nodes:
            self._need(each)
        place = self.register_of_fx[node] = self.register(node.name, buffer)
        call = AtenCall(node.target, node.args, dict(node.kwargs), place, node.name, is_view)
        call.places = self.register_of_fx
        call.origin = str(node.meta.get("stack_trace") or "")
        call.fx = (node,)
        if buffer:
            self.register_of_buffer[buffer] = place
            known = self.lowered.dag.buffers[buffer]
            wanted = set().union(*(symbols_in(s) for s in known.stride), set())
            is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
            if is_tensor and known.is_dense and wanted <= self.lowered.told:
                call.stride, call.sizes = (
                    size_reader(known.stride, self._symbol_registers(wanted)),
                    known.stride,
                )
        self.steps.append(call)

    # -- ends ------------------------------------------------------------------------------------------

    def _outputs(self) -> list[Any]:
        node = next(n for n in self.lowered.graph.nodes if n.op == "output")
        found: list[Any] = []
        for each in node.args[0]:
            if isinstance(each, torch.fx.Node):
                self._need(each)
                found.append(Result(self.register_of_fx[each]))
            else:
                found.append(each)
        return found

    def _checks(self, placeholders: list[torch.fx.Node]) -> list[Check]:
        """The strides that a backward graph was compiled for: autograd may bring others."""
        found = []
        for node in placeholders:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                stride = sizes_of(value.stride())
                if all(symbols_in(s) <= set(self.symbols) for s in stride):
                    found.append(Check(self.register_of_fx[node], size_reader(stride, self.symbols), stride))
        return found

    def _free(self, outputs: list[Any]) -> None:
        """Let go of each value after the last step that uses it."""
        last: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            for place in _used(step):
                last[place] = number
        keep = (
            {o.register for o in outputs if hasattr(o, "register")}
            | set(self.constants)
            | set(self.symbols.values())
        )
        for number, step in enumerate(self.steps):
            step.free = tuple(p for p, at in last.items() if at == number and p not in keep)


def _last(names: tuple[str, ...]) -> str:
    return names[-1]


def _used(step: Launch | AtenCall) -> list[int]:
    if isinstance(step, Launch):
        return [*step.inputs, *(o.register for o in step.outputs)]
    found: list[int] = [step.register]
    torch.fx.node.map_arg((step.args, step.kwargs), lambda n: found.append(step.places[n]))
    return found
