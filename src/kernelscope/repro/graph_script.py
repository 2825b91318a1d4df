"""A script that compiles one recorded graph anew, and compares it with eager and with what was recorded."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelscope.analysis.random_operators import is_random
from kernelscope.errors import RunError
from kernelscope.events import Graph
from kernelscope.generated_code.printed_graph import FxText, read_fx
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.model.call import KernelCall
from kernelscope.model.run import is_graph
from kernelscope.stages.graphs import NoSuchStage, StagedGraph
from kernelscope.store.stored_run import StoredRun

from .composing import (
    Script,
    docstring,
    draws_by_seed,
    ending,
    laid_out,
    registering,
    rule,
    settings,
    switches,
    tables,
)
from .eager_part import GraphNames, sizes_of_execution, whole
from .saved_arguments import Tensors, Value, calls_around, values_of_call
from .sizes import value_of, values_of


def graph_script(run: StoredRun, which: str, imports: Sequence[str] = (), stage: str = "") -> Script:
    """The script for a graph's first execution; `stage` says which form of it is compiled and evaluated."""
    graph, first = _graph(run, which)
    staged = run.stages_of(graph)
    if staged is None or "post_grad" not in staged.stages:
        raise RunError(
            f"graph {graph.name} has no recorded stages: record with\n"
            "  kernelscope run --values save --stages your_script.py"
        )
    wrapper = Wrapper.of_any_text(graph.source)
    known, tensors, notes = GraphNames(staged, wrapper), Tensors(run), list[str]()
    inputs, left = _values(run, first, wrapper)
    for variable, value in list(inputs.items()):  # memory that goes on under a new name
        if variable in known.renamed:
            inputs.setdefault(known.renamed[variable], value)
    symbols = sizes_of_execution(calls_around(run, first), known)
    name, text = _reference(staged, known.text, stage)
    _check_names(name, text)
    given, numbers = _given(known, text, inputs, symbols, tensors, notes)
    recorded = _recorded(known, text, wrapper, left, symbols, tensors)
    drawn = [line for line in text.lines.values() if _draws(line.code)]
    by_seed = any(draws_by_seed(line.code) for line in drawn)
    random = [line.name for line in drawn if not draws_by_seed(line.code)]
    if random:
        recorded = {}
        notes.append(f"{random[0]} draws random numbers: other than recorded, which are not checked")
    if any("seed" in about and 0 not in about["shape"] for about in given.values()):
        recorded = {}
        notes.append("the recorded result is not checked: it was computed from other values")
    changed = run.compiler_settings.get("torch._inductor.config", {})
    changed |= {"fallback_random": True} if random and not by_seed else {}
    blocks = [
        docstring(
            f"Graph {graph.name} of a recorded run, compiled anew: its stage {name!r}.", run.info.versions
        ),
        *[f"import {module}" for module in (*imports, *_modules(text))],
        *switches(run, first),
        *settings(changed, notes),
        rule(f"the graph, as Inductor's stage {name!r} has it"),
        *registering("\n".join(line.code for line in text.lines.values())),
        f"def graph({', '.join([*given, *numbers])}):",
        *[f"    {line.code}" for line in text.lines.values()],
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
        raise RunError(f"graph {graph.name} launched nothing that was recorded")
    if not run.saved_tensors(calls[0].index):
        raise RunError(
            f"graph {graph.name} has no saved inputs: record them with\n"
            "  kernelscope run --values save --stages your_script.py"
        )
    return graph, calls[0]


def _values(run: StoredRun, first: KernelCall, wrapper: Wrapper) -> tuple[dict[str, Value], dict[str, Value]]:
    """What the variables of one execution held when they were first read, and when last written."""
    inputs: dict[str, Value] = {}
    left: dict[str, Value] = {}
    for call in calls_around(run, first):
        for name, value in values_of_call(run, call, "before", wrapper):
            inputs.setdefault(name, value)
            left.setdefault(name, value)
        left |= dict(values_of_call(run, call, "after", wrapper))
    return inputs, left


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
        raise RunError(f"the stage {name} of graph {staged.name} cannot be read as a program")
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
                f"the stage {stage} has a line that needs more than torch and the inputs of the graph:\n"
                f"  {line.code}\nTake one of its kernels alone (--call N), or another stage (--stage NAME)"
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
    known: GraphNames,
    text: FxText,
    inputs: Mapping[str, Value],
    symbols: Mapping[str, int],
    tensors: Tensors,
    notes: list[str],
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """The graph's tensors, and its sizes."""
    given: dict[str, dict[str, Any]] = {}
    numbers: dict[str, int] = {}
    theirs = [name for name in known.text.inputs if name not in known.text.symbols]
    ours = [name for name in text.inputs if name not in text.symbols]
    if len(ours) != len(theirs):
        raise RunError(
            f"this stage takes {len(ours)} tensors, and the compiled graph {len(theirs)}: only those "
            "were saved; leave --stage out to have one that takes the same"
        )
    for own, variable in zip(ours, theirs, strict=True):
        value = inputs.get(variable)
        if value is None or whole(own, variable, variable, value.spec, known, symbols) == "":
            given[own] = _unread(known, variable, symbols, notes)
            continue
        spec = value.spec
        role = "inout" if known.text.is_written(variable) else "in"
        given[own] = {"role": role, "dtype": spec.dtype, "shape": spec.shape, "stride": spec.stride}
        given[own]["saved"] = tensors.add(value.file, own)
        layout = known.layouts.get(variable)
        shape, stride = (values_of(part, symbols) for part in layout) if layout else (None, None)
        if shape is not None and stride is not None and (shape, stride) != (spec.shape, spec.stride):
            given[own]["base"] = (shape, stride)  # a kernel read it as another view
        if spec.device != "cpu":
            given[own]["device"] = spec.device
    for own, expression in text.symbols.items():
        number = value_of(expression, symbols)
        if number is None:
            raise RunError(f"the size {expression} of the graph is not known from what was recorded")
        numbers[own] = number
    return given, numbers


def _unread(known: GraphNames, variable: str, symbols: Mapping[str, int], notes: list[str]) -> dict[str, Any]:
    """An input that no kernel reads as a whole: it has no recorded value."""
    layout = known.layouts.get(variable)
    shape, stride = (values_of(part, symbols) for part in layout) if layout else (None, None)
    if shape is None or stride is None:
        raise RunError(f"the input {variable} of the graph was read by no kernel, so it was not saved")
    if 0 not in shape:
        notes.append(f"no kernel reads {variable} as a whole, so it was not saved: here it is random")
    dtype = known.dtypes.get(variable, "float32")
    low, high = (-4.0, 4.0) if "float" in dtype else (0, 1)
    place = known.devices.get(variable, "cpu")
    return {
        "role": "in", "dtype": dtype, "shape": shape, "stride": stride, "seed": 0, "min": low, "max": high,
        "mean": 0.0, "std": 1.0,
    } | ({"device": place} if place != "cpu" else {})  # fmt: skip


def _recorded(
    known: GraphNames,
    text: FxText,
    wrapper: Wrapper,
    left: Mapping[str, Value],
    symbols: Mapping[str, int],
    tensors: Tensors,
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    returned, results = wrapper.results(), known.text.results
    if len(returned) != len(results):
        return found
    for i, name in enumerate(text.results):
        value = left.get(returned[i].variable)
        line = known.text.lines.get(results[i])
        if not name or value is None or line is None or line.shape is None:
            continue
        shape = values_of(line.shape, symbols)
        if (
            shape is None
            or value.spec.stride != _dense(value.spec.shape)
            or _count(shape) != _count(value.spec.shape)
        ):
            continue
        about: dict[str, Any] = {
            "saved": tensors.add(value.file, f"result {i}"), "dtype": value.spec.dtype, "shape": shape,
        }  # fmt: skip
        if (view := returned[i].view) is not None:
            stride = values_of(view.stride, symbols)
            if values_of(view.shape, symbols) != shape or stride is None or view.offset != "0":
                continue
            about["stride"] = stride
        found[f"result_{i}"] = about
    return found


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def _count(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _draws(code: str) -> bool:
    return any(is_random(word) for word in re.findall(r"[\w.]+(?=\()", code)) or "prims.inductor_rand" in code
