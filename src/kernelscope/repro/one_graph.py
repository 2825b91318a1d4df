"""A script that compiles one recorded graph again, and compares it with eager and with the recording."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from kernelscope.analysis.random_operators import is_random
from kernelscope.errors import RunError
from kernelscope.events import Graph, TensorSpec
from kernelscope.generated_code.printed_graph import FxText, read_fx
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.model.call import KernelCall
from kernelscope.model.run import is_graph
from kernelscope.stages.graphs import NoSuchStage, StagedGraph
from kernelscope.store.stored_run import StoredRun

from .graph_variables import GraphVariables
from .saved_arguments import HOW_TO_RECORD, Tensors, entry, saved_entry
from .script_parts import (
    Script,
    docstring,
    draws_by_seed,
    ending,
    flags,
    laid_out,
    registering,
    rule,
    settings,
    tables,
)
from .sizes import value_of, values_of
from .variable_values import Value, VariableValues


def graph_script(run: StoredRun, which: str, imports: Sequence[str] = (), stage: str = "") -> Script:
    """The script for a graph's first graph call; `stage`: which form of it is compiled and evaluated."""
    graph, first = _graph(run, which)
    staged = run.stages_of(graph)
    if staged is None or "post_grad" not in staged.stages:
        raise RunError(f"graph {graph.name} was recorded without stages; record it with\n  {HOW_TO_RECORD}")
    wrapper = Wrapper.of_any_text(graph.source)
    values, tensors, notes = VariableValues(run, first, wrapper), Tensors(run), list[str]()
    known = GraphVariables(staged, wrapper, values)
    inputs, last = values.first_and_last
    for variable, value in list(inputs.items()):  # memory that goes on under a new name
        if variable in known.renamed:
            inputs.setdefault(known.renamed[variable], value)
    name, text = _reference(staged, known.text, stage)
    _check_names(name, text)
    given, numbers = _given(known, text, inputs, tensors, notes)
    recorded = _recorded(known, text, wrapper, last, tensors)
    drawn = [line for line in text.lines.values() if _draws(line.code)]
    by_seed = any(draws_by_seed(line.code) for line in drawn)
    random = [line.name for line in drawn if not draws_by_seed(line.code)]
    if random:
        recorded = {}
        notes.append(f"{random[0]} draws random numbers: not compared with the recorded results")
    if any("seed" in about and 0 not in about["shape"] for about in given.values()):
        recorded = {}
        notes.append("not compared with the recorded results: some inputs are random")
    changed = run.compiler_settings.get("torch._inductor.config", {})
    changed |= {"fallback_random": True} if random and not by_seed else {}
    blocks = [
        docstring(f"Graph {graph.name} of a recorded run, from its stage {name!r}.", run.info.versions),
        *[f"import {module}" for module in (*imports, *_modules(text))],
        *flags(run, first),
        *settings(changed, notes),
        rule(f"the graph, as Inductor's stage {name!r} has it"),
        *registering("\n".join(line.code for line in text.lines.values())),
        f"def graph({', '.join([*given, *numbers])}):",
        *[f"    {line.statement}" for line in text.lines.values()],
        "    return {" + ", ".join(f"{key!r}: {n}" for key, n in _results(text, given).items()) + "}",
        f"SIZES = {numbers!r}",
        "def eager(**given):",
        "    with torch.no_grad():",
        "        return graph(**given, **SIZES)",
        f"compiled = torch.compile(graph{', dynamic=True' if numbers else ''})",
        "def launch(**given):",
        "    with torch.no_grad():",
        "        return compiled(**given, **SIZES)",
        *tables(given, recorded, notes),
        *ending("eager", draws=by_seed),
    ]
    return Script(f"repro_graph_{graph.name}", laid_out(blocks), tensors.held, notes)


def _graph(run: StoredRun, which: str) -> tuple[Graph, KernelCall]:
    wanted: int | str = int(which) if which.isdecimal() else which
    graphs = [g for g in run.graphs if is_graph(g, wanted)]
    if not graphs:
        known = ", ".join(f"{g.id} ({g.name})" for g in run.graphs) or "none"
        raise RunError(f"{run.path} has no graph {which}; it has {known}")
    graph = graphs[0]
    calls = run.select(graph=graph.id, limit=1)
    if not calls:
        raise RunError(f"the run has no calls of graph {graph.name}")
    if not run.saved_tensors(calls[0].index):
        raise RunError(
            f"the inputs of graph {graph.name} were not saved; record them with\n  {HOW_TO_RECORD}"
        )
    return graph, calls[0]


def _reference(staged: StagedGraph, post_grad: FxText, stage: str) -> tuple[str, FxText]:
    """The earliest form of the graph that takes the same inputs: passes after it are then checked too."""
    if stage:
        return stage, _readable(staged, stage)
    names = ["dynamo", "aot"] if staged.direction != "backward" else ["aot"]
    for name in names:
        if name in staged.stages:
            text = read_fx(staged.stages[name].text)
            if text.lines and _same_inputs(text, post_grad) and not _needs_context(text):
                return name, text
    return "post_grad", _readable(staged, "post_grad")


def _needs_context(text: FxText) -> bool:
    """Whether it computes gradients itself, as `torch.func.grad` does, or was traced under autocast.

    A script runs without either; in later stages both are written out.
    """
    codes = [line.code for line in text.lines.values()]
    return text.is_under_autocast() or any("_functorch" in code or "autograd" in code for code in codes)


def _readable(staged: StagedGraph, name: str) -> FxText:
    try:
        text = read_fx(staged.stage(name).text)
    except NoSuchStage as error:
        raise RunError(str(error)) from None
    if not text.lines or not text.results:
        raise RunError(f"stage {name} of graph {staged.name} is not a program that a script can run")
    return text


def _results(text: FxText, given: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """What the graph returns, and what it leaves in inputs that it changes."""
    found = {f"result_{i}": name for i, name in enumerate(text.results) if name}
    return found | {f"{name} after": name for name, about in given.items() if about["role"] == "inout"}


def _modules(text: FxText) -> list[str]:
    code = "\n".join(line.code for line in text.lines.values())
    return [name for name in ("math", "operator") if re.search(rf"\b{name}\.", code)]


def _check_names(stage: str, text: FxText) -> None:
    """What only the program has cannot be in a script of torch alone."""
    known = {*text.inputs, *text.lines, *dir(builtins)}
    for line in text.lines.values():
        strange = [name for name in line.needs if name not in known]
        if "self." in line.code or "triton_kernel_wrapper" in line.code or strange:
            raise RunError(
                f"a line of stage {stage} needs more than torch and the inputs of the graph:\n"
                f"  {line.code}\nReproduce one of its kernels (--call N), or another stage (--stage NAME)"
            )


def _same_inputs(text: FxText, post_grad: FxText) -> bool:
    """Inputs in the same order, and results that are the first of the other's."""
    shapes = [shape for name, shape in text.inputs.items() if name not in text.symbols]
    others = [shape for name, shape in post_grad.inputs.items() if name not in post_grad.symbols]
    made = [text.lines[n].shape if n in text.lines else None for n in text.results]
    theirs = [post_grad.lines[n].shape if n in post_grad.lines else None for n in post_grad.results]
    if "self." in "".join(line.code for line in text.lines.values()):
        return False
    return shapes == others and len(made) <= len(theirs) and made == theirs[: len(made)] and None not in made


def _given(
    known: GraphVariables, text: FxText, inputs: Mapping[str, Value], tensors: Tensors, notes: list[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """The graph's tensors, and its sizes."""
    given: dict[str, dict[str, Any]] = {}
    numbers: dict[str, int] = {}
    variables = [name for name in known.text.inputs if name not in known.text.symbols]
    names = [name for name in text.inputs if name not in text.symbols]
    if len(names) != len(variables):
        raise RunError(
            f"this stage takes {len(names)} tensors, but the compiled graph takes {len(variables)}, and only "
            "those were saved; leave out --stage to use a stage that takes the same"
        )
    for name, variable in zip(names, variables, strict=True):
        value = inputs.get(variable)
        if value is None or known.whole(name, variable, variable, value.spec) == "":
            given[name] = _unread(known, variable, notes)
            continue
        role = "inout" if known.text.is_written(variable) else "in"
        given[name] = saved_entry(role, value, name, tensors)
        layout = known.layout(variable)
        if layout is not None and layout != (value.spec.shape, value.spec.stride):
            given[name]["base"] = layout  # a kernel read it as another view
    for name, expression in text.symbols.items():
        number = value_of(expression, known.symbols)
        if number is None:
            raise RunError(f"the recording does not have the size {expression} of the graph")
        numbers[name] = number
    return given, numbers


def _unread(known: GraphVariables, variable: str, notes: list[str]) -> dict[str, Any]:
    """An input that no kernel reads as a whole: it has no recorded value."""
    layout = known.layout(variable)
    if layout is None:
        raise RunError(f"the input {variable} of the graph was not saved: no kernel reads it")
    if 0 not in layout[0]:
        notes.append(f"{variable} was not saved, because no kernel reads it as a whole: here it is random")
    dtype = known.dtypes.get(variable, "float32")
    low, high = (-4.0, 4.0) if "float" in dtype else (0, 1)
    spec = TensorSpec(dtype, *layout, known.devices.get(variable, "cpu"))
    return entry("in", spec, seed=0, min=low, max=high, mean=0.0, std=1.0)


def _recorded(
    known: GraphVariables, text: FxText, wrapper: Wrapper, last: Mapping[str, Value], tensors: Tensors
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    returned, results = wrapper.results(), known.text.results
    if len(returned) != len(results):
        return found
    for i, name in enumerate(text.results):
        value = last.get(returned[i].variable)
        line = known.text.lines.get(results[i])
        if not name or value is None or line is None or line.shape is None:
            continue
        shape, spec = values_of(line.shape, known.symbols), value.spec
        if shape is None or spec.stride != _dense(spec.shape) or prod(shape) != prod(spec.shape):
            continue
        about: dict[str, Any] = {"dtype": spec.dtype, "shape": shape}
        if (view := returned[i].view) is not None:
            stride = values_of(view.stride, known.symbols)
            if values_of(view.shape, known.symbols) != shape or stride is None or view.offset != "0":
                continue
            about["stride"] = stride
        found[f"result_{i}"] = about | {"saved": tensors.add(value.file, f"result {i}")}
    return found


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(max(1, size) for size in shape[i + 1 :]) for i in range(len(shape)))


def _draws(code: str) -> bool:
    called = re.findall(r"(?<![\w.])[\w.]++(?=\()", code)
    return any(is_random(word) for word in called) or "prims.inductor_rand" in code
