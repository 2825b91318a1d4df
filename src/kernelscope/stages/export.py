"""The stages of a graph as files: to open, to run, to step through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernelscope.generated_code.kernels import GeneratedKernel, cpp_wrapper_in
from kernelscope.native.sources import joined
from kernelscope.private_files import make_folder, write_text
from kernelscope.text.file_names import file_name

from .document import document, write
from .graphs import StagedGraph
from .records import Provenance

# Stage to file; the first five as TORCH_COMPILE_DEBUG=1 names them.
_FILES = {
    "aot": "fx_graph_readable.py",
    "runnable": "fx_graph_runnable.py",
    "post_grad": "fx_graph_transformed.py",
    "output_code": "output_code.py",
    "lowered": "dag_lowered.txt",
    "fused": "dag_fused.txt",
    "host_wrapper": "host_wrapper.cpp",
    "schedule_before": "ir_pre_fusion.txt",
    "schedule": "ir_post_fusion.txt",
    "dynamo": "dynamo_graph.py",
    "guards": "guards.txt",
    "pre_grad_input": "pre_grad_input.py",
    "pre_grad": "pre_grad.py",
    "joint_input": "joint_graph_input.py",
    "joint": "joint_graph.py",
    "joint_optimized": "joint_graph_optimized.py",
    "post_grad_input": "post_grad_input.py",
}
_ENDINGS = {"cpp": ".cpp", "triton": ".py", "choreo": ".co"}
_CHOREO_HEADER = Path(__file__).parent.parent / "gcu" / "choreo" / "choreo.h"


def export(graph: StagedGraph, folder: Path, versions: dict[str, str], indent: int = 2) -> list[Path]:
    """Write all stages of a graph into a new folder; returns the files."""
    make_folder(folder)
    files: dict[str, str] = {}
    for name, stage in graph.stages.items():
        if name in _FILES:
            files[_FILES[name]] = stage.text
    if "choreo" in graph.stages:  # what output_code.py loads, and what host_wrapper.cpp includes
        files[f"{file_name(graph.compilation.name)}.co"] = graph.stages["choreo"].text
        files[_CHOREO_HEADER.name] = joined(_CHOREO_HEADER)
    for number, (name, stage) in enumerate((n, s) for n, s in graph.stages.items() if s.language == "diff"):
        files[f"passes/{number:02d}-{file_name(name.removeprefix('pass '))}.diff"] = stage.text
    for kernel in graph.kernels:
        files[f"kernels/{file_name(kernel.name)}{_ending(kernel)}"] = kernel.source
    cpp = cpp_wrapper_in(graph.output_code)
    if cpp:
        files["output_code.cpp"] = cpp
    files["fusion.txt"] = fusion_text(graph)
    files["provenance.json"] = json.dumps(
        [provenance_form(p) for p in graph.provenance], indent=indent or None
    )
    files["times.json"] = json.dumps(graph.phases, indent=indent or None)
    for name, text in files.items():
        path = folder / name
        make_folder(path.parent, exist_ok=True)
        # The class of a lambda's graph has a name that is not valid in Python.
        text = text.replace("class <lambda>(", "class GraphModule(") if name.endswith(".py") else text
        text = text if text.endswith("\n") else text + "\n"
        write_text(path, text, errors="backslashreplace")
    made = document(graph, versions)
    made["files"] = {name: name for name in sorted(files)}
    write(made, folder / "document.json", indent)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def folder_name(graph: StagedGraph, position: int) -> str:
    """Sorted as they were compiled: "00-0_0-forward"."""
    return f"{position:02d}-{file_name(graph.name)}"


def fusion_text(graph: StagedGraph) -> str:
    """Groups that became one kernel, and pairs that were refused; each node with what it computes."""
    dag = graph.part("dag") or {"groups": [], "nodes": []}
    computes = {n["name"]: ", ".join(n["metadata"]["fx"]) for n in dag["nodes"]}
    group_of = {name: number for number, group in enumerate(dag["groups"]) for name in group}
    lines = ["fused:"] if dag["groups"] else ["no schedule was recorded"]
    for group in dag["groups"]:
        lines.append("  " + " + ".join(f"{name} ({computes.get(name, '?')})" for name in group))
    lines += ["refused:"] if graph.refusals else []
    for r in graph.refusals:
        groups = {group_of.get(name, -1) for name in members(r.first, computes) + members(r.second, computes)}
        ended = "; they share a kernel in the end" if len(groups) == 1 and -1 not in groups else ""
        lines.append(
            f"  {r.first} with {r.second}: {r.reason}" + (f" ({r.times}×)" if r.times > 1 else "") + ended
        )
    return "\n".join(lines)


def members(name: str, known: dict[str, str]) -> list[str]:
    """The scheduler nodes in a fused one, whose name is theirs joined: "op1_op2"."""
    return [name] if name in known else [part for part in name.split("_") if part]


def provenance_form(p: Provenance) -> dict[str, Any]:
    """One launch, its nodes and their lines, as JSON shows it."""
    return {
        "kernel": p.kernel,
        "handle": p.handle,
        "buffers": list(p.buffers),
        "nodes": [
            {
                "name": n.name,
                "target": n.target,
                "pre_grad": list(n.pre_grad),
                "origin": [{"file": f.file, "line": f.line, "function": f.function} for f in n.frames],
            }
            for n in p.nodes
        ],
    }


def _ending(kernel: GeneratedKernel) -> str:
    return next((end for language, end in _ENDINGS.items() if kernel.language.startswith(language)), ".txt")
