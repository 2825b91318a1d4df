"""What `kernelscope stages` shows."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from pathlib import Path

from kernelscope.cli.arguments import part_of
from kernelscope.errors import RunError
from kernelscope.stages import NoSuchStage, Shown, StagedGraph, Stages, render
from kernelscope.stages.documents import document
from kernelscope.stages.export import export, folder_name, fusion_text
from kernelscope.store import folder
from kernelscope.store.reader import DAMAGES
from kernelscope.store.stored_run import StoredRun, load

from . import plain, stages

_PARTS = ("fx", "dag", "code", "wrapper")


def show(args: argparse.Namespace) -> int:
    run = load(folder.resolve(args.run), part=part_of(args))
    try:
        return _show(args, run, run.stages)
    except NoSuchStage as error:
        raise RunError(f"{run.path}: {error}") from None
    except BrokenPipeError:
        raise
    except DAMAGES as error:  # what stands inside of a stage is read here
        raise RunError(f"{run.path} is damaged: a stage cannot be read ({error})") from None


def _show(args: argparse.Namespace, run: StoredRun, found: Stages) -> int:
    if args.settings:
        return _settings(args, run)
    if not found.graphs and not found.frames:
        raise RunError(
            f"{run.path} has no stages: record them with kernelscope run --stages, or record(stages=True)"
        )
    graphs = [found.graph(args.graph)] if args.graph else found.graphs
    if args.export:
        return _export(args, run, graphs)
    if args.kernel:
        return _kernel(args, run, graphs)
    if args.stage:
        print(_one(graphs, "--stage").stage(args.stage).text)
    elif args.diff:
        print(_one(graphs, "--diff").diff(*args.diff))
    elif args.fusion:
        for graph in graphs:
            print(f"graph {graph.name}\n{fusion_text(graph)}")
    elif args.sections:
        for graph in graphs:
            print(render(document(graph, run.info.versions), _shown(args)))
    elif args.json:
        plain.dump(_form(args, run, found, graphs))
    else:
        for line in stages.tree(found, graphs, run.path, run.graphs):
            print(line)
    return 0


def _one(graphs: list[StagedGraph], why: str) -> StagedGraph:
    if len(graphs) > 1:
        names = ", ".join(f'"{g.name}"' for g in graphs)
        raise NoSuchStage(f"{why} is about one graph; choose it with --graph: {names}")
    return graphs[0]


def _shown(args: argparse.Namespace) -> Shown:
    wanted = [part.strip() for part in args.only.split(",") if part.strip()]
    for part in wanted:
        if part not in _PARTS:
            raise RunError(f"there is no section {part!r}; there are {', '.join(_PARTS)}")
    fx, dag, code, wrapper = (part in wanted for part in _PARTS)
    return Shown(fx, dag, code, wrapper, not args.no_meta, not args.no_flow, args.lines)


def _form(
    args: argparse.Namespace, run: StoredRun, found: Stages, graphs: list[StagedGraph]
) -> dict[str, object]:
    if args.graph:
        return {"run": plain.run_form(run, run.path), "graph": document(graphs[0], run.info.versions)}
    return {
        "run": plain.run_form(run, run.path),
        "graphs": [stages.graph_form(g) for g in graphs],
        "graph_breaks": [stages.incident_form(i) for i in found.graph_breaks],
        "recompiles": [stages.incident_form(i) for i in found.recompiles],
        "failures": [stages.incident_form(i) for i in found.failures],
    }


def _export(args: argparse.Namespace, run: StoredRun, graphs: list[StagedGraph]) -> int:
    target = Path(args.export)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} exists already; choose another name, or remove it first")
    try:
        made = [
            path
            for position, graph in enumerate(graphs)
            for path in export(graph, target / folder_name(graph, position), run.info.versions, args.indent)
        ]
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error.strerror}") from None
    if args.json:
        plain.dump({"folder": str(target), "files": [str(path) for path in made]})
    else:
        print(f"{len(made)} files of {len(graphs)} graphs in {target}")
    return 0


def _kernel(args: argparse.Namespace, run: StoredRun, graphs: list[StagedGraph]) -> int:
    named = [
        (graph, name)
        for graph in graphs
        for name in stages.kernel_names(graph)
        if fnmatchcase(name, args.kernel)
    ]
    if not named:
        known = ", ".join(dict.fromkeys(name for graph in graphs for name in stages.kernel_names(graph)))
        raise NoSuchStage(f"there is no kernel {args.kernel!r}; there is {known or 'none'}")
    if args.json:
        plain.dump({"kernels": [stages.kernel_form(graph, name) for graph, name in named]})
        return 0
    for graph, name in named:
        for line in stages.kernel_block(graph, name):
            print(line)
    return 0


def _settings(args: argparse.Namespace, run: StoredRun) -> int:
    found = run.compiler_settings
    if args.json:
        plain.dump({"settings": found})
        return 0
    for module, values in found.items():
        print(module)
        for name, value in values.items():
            print(f"  {name} = {value}")
    return 0
