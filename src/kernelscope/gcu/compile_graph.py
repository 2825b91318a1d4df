"""One ATen graph to something that runs, through every stage."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch
import torch.fx

from kernelscope import __version__
from kernelscope.gcu.choreo.cpp.to_cpp import Translation
from kernelscope.gcu.choreo.device_functions import device_part, with_device_calls
from kernelscope.gcu.execution.assemble import assemble
from kernelscope.gcu.execution.executor import CompiledGraph
from kernelscope.gcu.execution.program import Program, build_cached
from kernelscope.gcu.generation.generate import HEADER, generate
from kernelscope.gcu.generation.kernels import Kernel
from kernelscope.gcu.lowering.dag import Access, Dag, Node
from kernelscope.gcu.lowering.fuse import fuse
from kernelscope.gcu.lowering.lower import Lowered, lower
from kernelscope.gcu.lowering.sizes import Size, is_one

from . import torch_mathematics
from .cache import Library
from .choreo import parse, show, translate

MATMUL_LIMIT = 64 * 64 * 64  # products; above, ATen's is faster


class UnsupportedOperator(RuntimeError):
    """CONDUCTOR_STRICT=1, and the graph has operators that are not lowered."""


@dataclass
class Compilation:
    """All stages of one graph, as far as it got."""

    name: str = ""
    direction: str = "inference"
    module: torch.fx.GraphModule | None = None
    lowered: Lowered | None = None
    passes: list[tuple[str, str]] = field(default_factory=list)  # name, the graph after it
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    kernels: list[Kernel] = field(default_factory=list)
    dsl: str = ""
    translation: Translation | None = None
    program: Program | None = None
    uncached: str = ""  # why the library was not kept in the cache
    is_cached: bool = False  # the library came out of the cache
    graph: CompiledGraph | None = None
    error: BaseException | None = None
    failed_stage: str = ""


Build = Callable[[Compilation], Library]


def hints(module: torch.fx.GraphModule) -> Callable[[Size], int]:
    """Numbers for sizes: of a symbol, the size in the inputs that are being compiled for."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    env: ShapeEnv | None = None
    for node in module.graph.nodes:
        value = node.meta.get("val")
        for each in (value, *(value.shape if isinstance(value, torch.Tensor) else ())):
            if isinstance(each, torch.SymInt):
                env = each.node.shape_env

    def hint(size: Size) -> int:
        if isinstance(size, int):
            return size
        known: Any = getattr(env, "backed_var_to_val", None)
        if known is None:  # its name in older versions
            known = getattr(env, "var_to_val", {})
        return int(size.subs({s: known.get(s, 8) for s in size.free_symbols}))

    return hint


PASSES = ("lower", "remove_unused", "share_equal", "fuse")


def compile_graph(
    module: torch.fx.GraphModule,
    direction: str,
    names: dict[str, str],
    done: Compilation,
    build: Build | None = None,
    strict: bool = False,
) -> CompiledGraph:
    """Compile; `done` keeps what was made on the way, also when a stage fails."""
    done.module, done.direction = module, direction
    stage = "DAG"
    began = perf_counter()

    def over(name: str) -> None:
        nonlocal began
        now = perf_counter()
        done.seconds[name], began = now - began, now

    try:
        hint = hints(module)
        lowered = done.lowered = _to_dag(module, names, hint, done)
        over("dag")
        stage = "strict"
        if strict and lowered.fallbacks:
            raise UnsupportedOperator(_refusal(lowered))
        stage = "DSL"
        to_dsl(lowered.dag, hint, done)
        over("dsl")
        stage = "build"
        if done.kernels and done.translation is not None:
            library = (build or _cached)(done)
            done.uncached, done.is_cached = library.uncached, library.is_cached
            done.program = Program(done.translation, library.path)
        over("build")
        stage = "assemble"
        done.graph = assemble(
            lowered, done.kernels, done.program, module, done.name, direction, direction == "backward"
        )
        over("assemble")
        return done.graph
    except Exception as error:
        done.error, done.failed_stage = error, stage
        raise


def _cached(done: Compilation) -> Library:
    assert done.translation is not None
    return build_cached(done.translation)


def _to_dag(
    module: torch.fx.GraphModule, names: dict[str, str], hint: Callable[[Size], int], done: Compilation
) -> Lowered:
    lowered = lower(module.graph, names, hint, MATMUL_LIMIT)
    for name in PASSES:
        if name == "remove_unused":
            _remove_unused(lowered.dag)
        elif name == "share_equal":
            share_equal(lowered.dag)
        elif name == "fuse":
            fuse(lowered.dag, hint)
        lowered.dag.verify(name)
        done.passes.append((name, lowered.dag.text()))
    return lowered


def _remove_unused(dag: Dag) -> None:
    """Drop nodes that are not read, except ATen calls, which may have side effects."""
    wanted = set(dag.outputs)
    left = []
    for n in reversed(dag.nodes):
        if n.kind == "aten" or n.output in wanted:
            left.append(n)
            wanted |= set(n.reads)
    dag.nodes = left[::-1]


def share_equal(dag: Dag) -> None:
    """Compute equal things once; decompositions repeat themselves."""
    instead = dag.same
    pinned = set(dag.outputs) | {b for n in dag.nodes if n.kind == "aten" for b in n.reads}
    first: dict[Any, str] = {}
    place: dict[str, int] = {}  # among those that are left
    left: list[Node] = []
    for n in dag.nodes:
        inputs = tuple(replace(a, buffer=instead.get(a.buffer, a.buffer)) for a in n.inputs)
        n = replace(n, inputs=inputs)
        if n.kind in ("pointwise", "reduce") and n.output not in pinned:
            key = _identity(n, dag)
            if key in first:
                instead[n.output] = first[key]
                same = left[place[first[key]]]
                left[place[first[key]]] = replace(same, fx=tuple(dict.fromkeys((*n.fx, *same.fx))))
                continue
            first[key] = n.output
        place[n.output] = len(left)
        left.append(n)
    dag.nodes = left


def _identity(n: Node, dag: Dag) -> Any:
    """What a node computes, sizes of 1 left out."""
    real = [i for i, s in enumerate(n.shape) if not is_one(s)]

    def squeezed(a: Access) -> Any:
        return a.buffer, tuple(a.strides[i] for i in real), a.offset

    stored = n.stores.strides if n.stores is not None else ()
    return (
        n.kind, n.how, n.body, n.compute, dag.buffers[n.output].dtype, tuple(n.shape[i] for i in real),
        tuple(i in n.reduced for i in real), tuple(map(squeezed, n.inputs)), tuple(stored[i] for i in real),
    )  # fmt: skip


def _refusal(lowered: Lowered) -> str:
    lines = [f"  {f.target} ({f.node}): {f.reason}" for f in lowered.fallbacks]
    return (
        f"CONDUCTOR_STRICT=1, and {len(lines)} operators of this graph are not lowered to Choreo:\n"
        + "\n".join(lines)
        + "\nUnset CONDUCTOR_STRICT to run them through ATen."
    )


def to_dsl(dag: Dag, hint: Callable[[Size], int], done: Compilation) -> None:
    threads = torch.get_num_threads()
    kernels = generate(dag, hint, threads)
    shape = "\n".join(k.text for k in kernels)
    digest = hashlib.sha256(f"{__version__}\0{threads}\0{shape}\0{dag.text()}".encode()).hexdigest()[:8]
    done.name = f"kernel_{digest}"
    for k in kernels:
        k.name = k.name.replace("{kernel}", done.name)
        k.text = with_device_calls(k.text.replace("{kernel}", done.name))
    done.kernels = kernels
    text = "\n".join(k.text for k in kernels if k.text)
    if not text:
        return
    done.dsl = show(parse(f"{HEADER}\n{device_part(text)}\n{text}", f"{done.name}.co"))
    in_blocks = torch_mathematics.has_blocks()
    done.translation = translate(
        done.dsl,
        f"{done.name}.co",
        checked=False,  # its indices are right
        in_blocks=in_blocks,
    )
