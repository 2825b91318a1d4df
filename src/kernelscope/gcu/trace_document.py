"""One compilation as the document of the stages schema."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import torch

from kernelscope import __version__, stages
from kernelscope.gcu.lowering.dag import ELEMENT, Buffer, Dag
from kernelscope.gcu.lowering.lower import Lowered
from kernelscope.gcu.lowering.sizes import literal, times

if TYPE_CHECKING:
    from .compile_graph import Compilation

_BYTES = {"8": 1, "6": 2, "2": 4, "4": 8}


def wrapper_text(done: Compilation) -> str:
    """The translation unit as it is saved."""
    assert done.translation is not None
    head = f"// Host wrapper of {done.name}.co: the kernels in C++, and how they are called.\n"
    return head + done.translation.cpp


def document(done: Compilation, fx: dict[str, Any], commands: tuple[str, ...]) -> dict[str, Any]:
    made = stages.new_document("gcu", done.name, done.direction)
    made["versions"] = {
        "kernelscope": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    made["fx"] = fx
    if done.lowered is not None:
        made["dag"] = _dag(done.lowered)
        made["fallbacks"] = [vars(f) for f in done.lowered.fallbacks]
    made["passes"] = [{"name": name, "graph": text} for name, text in done.passes]
    if done.module is not None:
        made["aten"] = done.module.code.strip()
    if done.translation is not None:
        made["code"] = _code(done)
        made["wrapper"] = _wrapper(done)
        made["wrapper"]["build"] = list(commands)
    if done.error is not None:
        made["error"] = {
            "stage": done.failed_stage,
            "type": type(done.error).__name__,
            "message": str(done.error),
        }
    return made


def _buffer(b: Buffer) -> dict[str, Any]:
    return {
        "name": b.name,
        "shape": [s if isinstance(s, int) else literal(s) for s in b.shape],
        "stride": [s if isinstance(s, int) else literal(s) for s in b.stride],
        "dtype": str(b.dtype),
        "scope": str(b.scope),
    }


def _dag(lowered: Lowered) -> dict[str, Any]:
    dag: Dag = lowered.dag
    group = {name: i for i, names in enumerate(dag.groups) for name in names}
    nodes = []
    for n in dag.nodes:
        metadata: dict[str, Any] = {"op": n.op, "group": group.get(n.name, -1), "fx": list(n.fx)}
        if n.body:
            metadata["body"] = n.body
        nodes.append(
            {
                "name": n.name,
                "inputs": list(n.reads),
                "outputs": [n.output],
                "metadata": metadata,
                "type": n.type,
                "origin": n.origin,
            }
        )
    return {
        "inputs": [_buffer(dag.buffers[b]) for b in dag.inputs],
        "outputs": [_buffer(dag.buffers[b]) for b in dag.outputs],
        "buffers": [_buffer(b) for b in dag.buffers.values()],
        "nodes": nodes,
        "edges": [list(e) for e in dag.edges()],
        "groups": [list(g) for g in dag.groups],
        "text": dag.text(),
    }


def _code(done: Compilation) -> dict[str, Any]:
    assert done.translation is not None
    assert done.lowered is not None
    device = "\n".join(f"__cok__ {{\n{i.text}\n}}" for i in _device(done))
    kernels = []
    for k in done.kernels:
        if not k.text:
            continue
        code = done.translation.function(k.name)
        nodes = [done.lowered.dag.node(n) for n in k.nodes]
        kernels.append(
            {
                "name": k.name,
                "nodes": list(k.nodes),
                "fx": list(dict.fromkeys(f for n in nodes for f in n.fx)),
                "origin": list(dict.fromkeys(n.origin for n in nodes if n.origin)),
                "parallel": list(code.parallel),
                "chunking": list(code.chunking),
                "allocations": [
                    {"name": n, "scope": s, "dtype": t, "shape": shape} for n, s, t, shape in code.allocations
                ],
                "dma": list(code.kept),
            }
        )
    return {
        "title": "GENERATED CHOREO DSL CODE",
        "heading": "Complete DSL Implementation",
        "language": "choreo",
        "text": done.dsl,
        "device_text": device,
        "kernels": kernels,
    }


def _device(done: Compilation) -> list[Any]:
    from kernelscope.gcu.choreo.syntax.tree import DeviceCode

    from .choreo import parse

    return [i for i in parse(done.dsl).items if isinstance(i, DeviceCode)]


def _wrapper(done: Compilation) -> dict[str, Any]:
    assert done.translation is not None
    assert done.lowered is not None
    dag = done.lowered.dag
    buffers = []
    used = dict.fromkeys(b for k in done.kernels if k.text for b in (*k.inputs, *k.outputs))
    for name in used:
        b = dag.buffers[name]
        element = ELEMENT[b.dtype]
        size = times(b.extent, _BYTES[element[-1]])
        shape = [s if isinstance(s, int) else literal(s) for s in b.shape]
        buffers.append(
            {
                "name": name,
                "size": size if isinstance(size, int) else literal(size),
                "alignment": "default",
                "memory_type": "device",
                "dtype": element,
                "shape": shape,
            }
        )
    text = wrapper_text(done)
    return {
        "signatures": [f.signature for f in done.translation.functions],
        "buffers": buffers,
        "critical": _critical(text, [f.name for f in done.translation.functions]),
        "text": text,
    }


def _critical(text: str, names: list[str]) -> list[dict[str, Any]]:
    """The lines that take arguments apart and call the kernels, with their numbers."""
    found: list[dict[str, Any]] = []
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        starts = line.startswith(("[[maybe_unused]] static", 'extern "C" int choreo_'))
        if starts and any(f"{name}(" in line for name in names):
            inside = True
        if inside:
            found.append({"number": number, "text": line})
        if line == "}":
            inside = False
    return found
