"""The parts of a document that Inductor's generated code fills: kernels and wrapper."""

from __future__ import annotations

import math
import re
from typing import Any

from kernelscope.events import item_size
from kernelscope.generated_code.kernels import GeneratedKernel

from .graphs import StagedGraph, user_lines

_FUNCTION = re.compile(r'^(extern "C" |def \w++\()', re.MULTILINE)
_SIGNATURE = re.compile(r'extern "C" ++(?P<cpp>[^{;]+)\{|(?P<python>def \w++\(.*?\)):', re.DOTALL)
_CALL = re.compile(r"\s*(def call\(|void AOTInductorModel::run_impl|void inductor_entry_impl)")


def parts(graph: StagedGraph) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if "aot" in graph.stages:
        made["aot"] = graph.stages["aot"].text
    dag = graph.part("dag")
    if dag is not None:
        made["fallbacks"] = [_fallback(n) for n in dag["nodes"] if n["metadata"].get("kernel")]
    if graph.output_code:
        made["code"] = _code(graph, dag)
        made["wrapper"] = _wrapper(graph, dag)
    return made


def _fallback(node: dict[str, Any]) -> dict[str, str]:
    reason = "Inductor calls an extern kernel here instead of generating code"
    return {"node": node["name"], "target": str(node["metadata"]["kernel"]), "reason": reason}


def _code(graph: StagedGraph, dag: dict[str, Any] | None) -> dict[str, Any]:
    kernels = graph.kernels
    text = "\n\n".join(f"{_comment(k)} {k.name}\n{k.source}" for k in kernels)
    return {
        "title": "GENERATED CODE",
        "heading": "Complete Implementation",
        "language": kernels[0].language if kernels else "python",
        "text": text or "# no generated kernels: the wrapper calls extern kernels only",
        "device_text": "",
        "kernels": [_kernel(graph, name, dag) for name in _names(graph)],
    }


def _names(graph: StagedGraph) -> list[str]:
    """Generated and extern kernels."""
    return list(dict.fromkeys([k.name for k in graph.kernels] + [p.kernel for p in graph.provenance]))


def _kernel(graph: StagedGraph, name: str, dag: dict[str, Any] | None) -> dict[str, Any]:
    launches = graph.provenance_of(name)
    buffers = {b for p in launches for b in p.buffers}
    nodes = [n["name"] for n in (dag or {"nodes": []})["nodes"] if buffers & set(n["outputs"])]
    lines = dict.fromkeys(str(line) for p in launches for line in user_lines(p))
    return {
        "name": name,
        "nodes": nodes,
        "fx": list(dict.fromkeys(n.name for p in launches for n in p.nodes)),
        "pre_grad": list(dict.fromkeys(name for p in launches for n in p.nodes for name in n.pre_grad)),
        "origin": list(lines),
        "parallel": [],
        "chunking": [],
        "allocations": [],
        "dma": [],
    }


def _comment(kernel: GeneratedKernel) -> str:
    return "//" if kernel.language.startswith("cpp") else "#"


def _wrapper(graph: StagedGraph, dag: dict[str, Any] | None) -> dict[str, Any]:
    code = graph.output_code
    return {
        "signatures": [s for k in graph.kernels for s in _signatures(k)] or ["def call(args)"],
        "buffers": [_allocation(b) for b in _buffers(dag) if b["scope"] != "symbol"],
        "critical": _critical(code),
        "text": code,
    }


def _signatures(kernel: GeneratedKernel) -> list[str]:
    """As the kernel's own source has it; its name there may be a placeholder."""
    end = len(kernel.source)
    for start in reversed([found.start() for found in _FUNCTION.finditer(kernel.source)]):
        # Up to the next function, and not to the end: a stranger's text may have any number of them.
        if found := _SIGNATURE.match(kernel.source, start, end):
            text = " ".join((found["cpp"] or found["python"]).split())
            return [re.sub(r"\bkernel\(", lambda _: f"{kernel.name}(", text)]
        end = start
    return []


def _buffers(dag: dict[str, Any] | None) -> list[dict[str, Any]]:
    if dag is None:
        return []
    return list({b["name"]: b for b in (*dag["inputs"], *dag["buffers"])}.values())


def _allocation(b: dict[str, Any]) -> dict[str, Any]:
    item = item_size(b["dtype"])
    known = all(isinstance(s, int) for s in b["shape"])
    size = math.prod(b["shape"]) * item if known else " * ".join(map(str, [*b["shape"], item]))
    return {
        "name": b["name"],
        "size": size,
        "alignment": "default",
        "memory_type": b["scope"],
        "dtype": b["dtype"].removeprefix("torch."),
        "shape": b["shape"],
    }


def _critical(code: str) -> list[dict[str, Any]]:
    """The body of `call`: what allocates, launches and frees, with line numbers."""
    found: list[dict[str, Any]] = []
    indent = -1
    for number, line in enumerate(code.splitlines(), start=1):
        at = len(line) - len(line.lstrip())
        if _CALL.match(line):
            indent = at
        elif line.strip() and indent >= 0 and at <= indent and not line.strip().startswith(("{", ")", "}")):
            indent = -1
        if indent >= 0 and line.strip():
            found.append({"number": number, "text": line})
    return found
