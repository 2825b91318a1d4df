"""What `kernelscope stages` prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.stages import NoSuchStage, Shown, StagedGraph, render
from kernelscope.stages.document import document
from kernelscope.stages.export import export, folder_name, fusion_text
from kernelscope.store.run_db.row_reader import DAMAGES
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import counted
from kernelscope.text.visible import one_line

from . import plain, stages

_SECTIONS = ("fx", "dag", "code", "wrapper")


@contextmanager
def clear_errors(run: StoredRun) -> Iterator[None]:
    """Errors in the stages of a run become one sentence."""
    try:
        yield
    except NoSuchStage as error:
        raise RunError(f"{run.path}: {error}") from None
    except BrokenPipeError:
        raise
    except DAMAGES as error:  # what is inside a stage is read only here
        raise RunError(f"{run.path} is damaged: a stage cannot be read ({error})") from None


def graphs_of(run: StoredRun, name: str | None) -> list[StagedGraph]:
    """The graph of that name, or all."""
    found = run.stages
    if not found.graphs and not found.frames:
        raise RunError(
            f"{run.path} has no stages; record them: kernelscope run --stages …, or record(stages=True)"
        )
    return [found.graph(name)] if name else found.graphs


def only_graph(graphs: list[StagedGraph], option: str) -> StagedGraph:
    if len(graphs) > 1:
        names = ", ".join(f'"{g.name}"' for g in graphs)
        raise NoSuchStage(f"{option} needs one graph; choose it with --graph: {names}")
    return graphs[0]


def sections(names: str, *, meta: bool, flow: bool, lines: int) -> Shown:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in _SECTIONS:
            raise RunError(f"--only {names}: there is no section {name!r}; use {', '.join(_SECTIONS)}")
    fx, dag, code, wrapper = (name in wanted for name in _SECTIONS)
    return Shown(fx, dag, code, wrapper, meta, flow, lines)


def show_sections(run: StoredRun, graphs: list[StagedGraph], shown: Shown) -> None:
    for graph in graphs:
        print(render(document(graph, run.info.versions), shown))


def show_fusion(graphs: list[StagedGraph]) -> None:
    for graph in graphs:
        print(f"graph {graph.name}\n{fusion_text(graph)}")


def show_graphs(run: StoredRun, graphs: list[StagedGraph], *, is_one: bool, as_json: bool) -> None:
    found = run.stages
    if not as_json:
        for line in stages.tree(found, graphs, run.path, run.graphs):
            print(line)
    elif is_one:
        form = document(graphs[0], run.info.versions)
        plain.dump({"run": plain.run_form(run, run.path), "graph": form})
    else:
        plain.dump(
            {
                "run": plain.run_form(run, run.path),
                "graphs": [stages.graph_form(g) for g in graphs],
                "graph_breaks": [stages.incident_form(i) for i in found.graph_breaks],
                "recompiles": [stages.incident_form(i) for i in found.recompiles],
                "failures": [stages.incident_form(i) for i in found.failures],
            }
        )


def export_stages(
    run: StoredRun, graphs: list[StagedGraph], target: Path, indent: int, *, as_json: bool
) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} already exists and is not overwritten; choose another name")
    try:
        made = [
            path
            for position, graph in enumerate(graphs)
            for path in export(graph, target / folder_name(graph, position), run.info.versions, indent)
        ]
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror}") from None
    if as_json:
        plain.dump({"folder": str(target), "files": [str(path) for path in made]})
    else:
        print(f"{counted(len(made), 'file')} of {counted(len(graphs), 'graph')} in {target}")


def show_kernels(graphs: list[StagedGraph], glob: str, *, as_json: bool) -> None:
    known = [(graph, name) for graph in graphs for name in stages.kernel_names(graph)]
    named = [(graph, name) for graph, name in known if fnmatchcase(name, glob)]
    if not named:
        names = ", ".join(dict.fromkeys(name for _, name in known))
        raise NoSuchStage(f"no kernel matches {glob!r}; the kernels are: {names or '(none)'}")
    if as_json:
        plain.dump({"kernels": [stages.kernel_form(graph, name) for graph, name in named]})
        return
    for graph, name in named:
        for line in stages.kernel_block(graph, name):
            print(line)


def show_settings(run: StoredRun, *, as_json: bool) -> None:
    found = run.compiler_settings
    if as_json:
        plain.dump({"settings": found})
        return
    for module, values in found.items():
        print(one_line(module))
        for name, value in values.items():
            print(one_line(f"  {name} = {value}"))
