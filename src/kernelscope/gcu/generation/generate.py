"""Groups of the internal graph to Choreo functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kernelscope.gcu.lowering.dag import ELEMENT, Access, Dag, Node
from kernelscope.gcu.lowering.fuse import Hint, collapse, external, plan
from kernelscope.gcu.lowering.sizes import Size, is_zero, product, times

from .kernels import Kernel, Names, identifier, needed_outside
from .matmul import matmul_body
from .pointwise import PointwiseBody
from .row_reductions import RowsBody
from .transposed import TransposedBody

HEADER = (
    '// Generated Choreo DSL\n// Auto-generated from PyTorch FX Graph via Conductor\n\n#include "choreo.h"\n'
)


def generate(dag: Dag, hint: Hint, threads: int) -> list[Kernel]:
    """The kernels of a graph, with names to be filled in: `{kernel}` stands for the stem of all names."""
    found = []
    groups = [g for g in dag.groups if dag.node(g[0]).kind != "aten"]
    for number, group in enumerate(groups):
        nodes = tuple(dag.node(name) for name in group)
        suffix = f"_{number}" if len(groups) > 1 else ""
        kernel = _kernel(nodes, dag, hint, threads, f"{{kernel}}{suffix}")
        if kernel is not None:
            found.append(kernel)
    return found


def _kernel(nodes: tuple[Node, ...], dag: Dag, hint: Hint, threads: int, name: str) -> Kernel | None:
    if all(_is_empty(n) for n in nodes):
        return Kernel(name, nodes=tuple(n.name for n in nodes), outputs=[n.output for n in nodes])
    if nodes[0].kind == "matmul":
        one = nodes[0]
        return _wrap(
            name, nodes, list(one.reads), [one.output], dag, partial(matmul_body, one, threads=threads)
        )
    if nodes[0].kind == "cat":
        return _wrap(name, nodes, list(nodes[0].reads), [nodes[0].output], dag, partial(_cat, nodes[0]))
    made = plan(nodes, hint)
    assert made is not None, f"group {[n.name for n in nodes]} has no plan"
    inputs, outputs = list(external(made)), needed_outside(made, dag)
    if not outputs:
        return None

    def body(names: Names) -> list[str]:
        if made.reduced:
            return RowsBody(made, names, outputs, hint, threads).lines()
        transposed = TransposedBody(made, names, outputs, hint, threads)
        chosen = transposed if transposed.applies else PointwiseBody(made, names, outputs, hint, threads)
        return chosen.lines()

    return _wrap(name, nodes, inputs, outputs, dag, body)


def _is_empty(n: Node) -> bool:
    return any(is_zero(s) for s in n.shape)


def _wrap(
    name: str,
    nodes: tuple[Node, ...],
    inputs: list[str],
    outputs: list[str],
    dag: Dag,
    body_of: Callable[[Names], list[str]],
) -> Kernel:
    names = Names(dag, [*inputs, *outputs])
    lines = body_of(names)
    kernel = Kernel(name, inputs, outputs, nodes=tuple(n.name for n in nodes))
    for n in nodes:
        names.symbols |= n.symbols
    arguments = inputs if kernel.returns else [*inputs, *outputs]
    known = names.bound(arguments)
    result = outputs[0]
    declared = ""
    if kernel.returns:
        buffer = dag.buffers[result]
        declared = f"  {ELEMENT[buffer.dtype]} [{names.sizes(buffer.dims)}] {names[result]};\n"
    kernel.symbols = sorted(names.symbols - known)
    parameters = [names.declared(b) for b in arguments]
    parameters += [f"s64 {s}" for s in kernel.symbols]
    head = f"__co__ {'auto' if kernel.returns else 'void'} {name}({', '.join(parameters)}) {{"
    tail = f"  return {names[result]};\n" if kernel.returns else ""
    body = "\n".join(f"  {line}" for line in lines)
    remark = "\n".join(f"  // {n.text()}" for n in nodes) if len(nodes) > 1 else ""
    kernel.text = f"{head}\n{declared}{remark}\n{body}\n{tail}}}\n"
    return kernel


def _cat(node: Node, names: Names) -> list[str]:
    """Each part is copied to where it belongs in the result."""
    assert node.stores is not None
    lines: list[str] = []
    for number, (access, (shape, offset)) in enumerate(
        zip(node.inputs, node.metadata["pieces"], strict=True)
    ):
        if any(is_zero(s) for s in shape):
            continue
        stores = Access(node.stores.buffer, node.stores.strides, offset)
        dims = list(shape)
        runs = collapse(dims, [access.strides, stores.strides], [0] * len(dims))
        merged = [product(dims[i] for i in run) for run in runs] or [1]
        index = [f"c{number}_{i}" for i in range(len(merged))]
        source, target = (_over(a, runs) for a in (access, stores))
        lines += _copy_loops(names, source, target, merged, index)
    return lines


def _over(access: Access, runs: list[list[int]]) -> Access:
    strides: tuple[Size, ...] = tuple(access.strides[run[-1]] for run in runs) or (0,)
    return replace(access, strides=strides)


def _copy_loops(
    names: Names, source: Access, target: Access, dims: list[Size], index: list[str]
) -> list[str]:
    read = names.element(source, dims, index)
    # The target is a part of the result, so its place is always spelled out.
    flat = names._flat(target, index)
    extent: Size = times(product(names.buffer(target.buffer).dims))
    write = f"{names.shaped(target.buffer, [extent])}.at({flat})"
    return [f"foreach {{{', '.join(index)}}} in [{names.sizes(dims)}] {{", f"  {write} = {read};", "}"]


__all__ = ["HEADER", "generate", "identifier"]
