"""What the program that fails has compiled: its graphs, and the values that they were given."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Node

from kernelscope.errors import RunError
from kernelscope.probes.compilation.traced_graphs import TracedGraph, TracedGraphs
from kernelscope.shadowing.api import shadow
from kernelscope.shadowing.session import Wrong
from kernelscope.trials.gpu_faults import gpu_is_lost, wait_for_gpu

from .candidates import Candidate, copied, of_module, part_of, work_of
from .failures import Failure, of_culprit, of_exception
from .journal import Journal
from .single_node_search import Singles
from .speculative_compile import Foresight


class _Enough(BaseException):
    """Ends the program at the first thing that is wrong; no `Exception`, so that it is caught by nobody."""


@dataclass(slots=True)
class Captured:
    """Where to begin, best first."""

    failure: Failure | None = None
    starts: list[Candidate] = field(default_factory=list)
    nodes: int = 0  # of the graph that failed
    nothing: str = ""  # why there is no failure
    singles: Singles | None = None  # of the graph, compiled already

    def close(self) -> None:
        if self.singles is not None:
            self.singles.close()


def capture(
    program: Callable[[], Any],
    journal: Journal | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Captured:
    """Run it under `shadow`, up to the first thing that is wrong.

    journal    of the search that follows: it has what is compiled for it already
    meanwhile  is called while the C++ compiler is at work, if ever
    """
    found, process = Captured(), os.getpid()

    def wrong(what: Wrong) -> None:
        if os.getpid() != process:  # the program has forked itself, and nobody asks that one
            return
        found.failure = of_culprit(what.culprit)
        found.starts, found.nodes = _starts(what, traced.current)
        raise _Enough

    traced, foresight = TracedGraphs(), Foresight(meanwhile, journal or Journal())
    traced.install()
    try:
        with shadow(wrong=wrong) as result:
            foresight.install()
            try:
                program()
                wait_for_gpu()
                foresight.end()
            finally:
                foresight.remove()
                found.singles = foresight.singles
        if traced.current is not None:  # for a check of the user's own
            found.starts = _of_traced(traced.current)
        found.nothing = (
            result.problem
            or "nothing fails: no kernel computes something else than eager, and nothing was raised"
        )
    except _Enough:
        pass
    except Exception as error:
        if gpu_is_lost():
            said = str(error).partition("\n")[0]
            raise RunError(
                f"the program loses its GPU ({said}), and nothing can be tried after that; "
                "`kernelscope bisect --fails-on exception` names the kernel"
            ) from None
        if traced.current is None:
            raise
        found.failure = of_exception(error)
        found.starts = _of_traced(traced.current)
        found.nodes = max((c.size for c in found.starts), default=0)
    finally:
        traced.remove()
        torch._dynamo.reset()
    return found


def _starts(wrong: Wrong, traced: TracedGraph | None) -> tuple[list[Candidate], int]:
    """The kernel's own part of its graph, the graph, and what Dynamo traced."""
    starts: list[Candidate] = []
    nodes = 0
    if wrong.module is not None:
        nodes = len(work_of(wrong.module))
        dynamic = any(n.op == "placeholder" and not _is_tensor(n) for n in wrong.module.graph.nodes)
        if wrong.order:
            starts += _of_unit(wrong, dynamic)
        if wrong.inputs is not None:
            starts.append(of_module(wrong.module, wrong.inputs, dynamic=dynamic))
    # A pass before autograd sees what Dynamo traced, and nothing else.
    of_traced = _of_traced(traced) if traced is not None else []
    nodes = max([nodes, *(c.size for c in of_traced)])
    is_stage = wrong.culprit.verdict == "wrong-stage"
    return ([*of_traced, *starts] if is_stage else [*starts, *of_traced]), nodes


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _of_unit(wrong: Wrong, dynamic: bool) -> list[Candidate]:
    """With the values that the launch was really given."""
    assert wrong.module is not None
    # Not to be differentiated: the graph is the forward or the backward one already.
    values = {node.name: _plain(value) for node, value in wrong.given.items()}
    whole = Candidate(wrong.module, [], dynamic)
    for node in wrong.order:  # as placeholders, only what is given has a value; what is computed needs none
        values.setdefault(node.name, node.meta.get("val"))
    sizes = {
        n.name: wrong.sizes.get(str(v.node.expr))
        for n in wrong.module.graph.nodes
        if isinstance(v := n.meta.get("val"), torch.SymInt)
    }
    values |= {name: size for name, size in sizes.items() if size is not None}
    try:
        made = part_of(whole, {n.name for n in wrong.order}, values)
    except KeyError:  # a size that nobody has told
        return []
    return [made] if made is not None else []


def _plain(value: Any) -> Any:
    return copied(value.detach()) if isinstance(value, torch.Tensor) else value


def _of_traced(traced: TracedGraph) -> list[Candidate]:
    inputs = traced.real if traced.real is not None else [_generated(v) for v in traced.example]
    if any(v is None for v in inputs):
        return []
    if not traced.differentiates:
        inputs = [_plain(v) for v in inputs]
    dynamic = any(isinstance(v, int | torch.SymInt) for v in traced.example)
    try:
        made = of_module(traced.module, inputs, dynamic=dynamic)
    except Exception:
        return []
    if made.differentiates and not _can_be_differentiated(made):
        made = replace(made, inputs=[_plain(v) for v in made.inputs])
    return [made]


def _can_be_differentiated(candidate: Candidate) -> bool:
    """Not if it writes to what requires gradients, as an optimizer does; Dynamo leaves out its `no_grad`."""
    try:
        with torch.enable_grad():
            candidate.module.forward(*[copied(v) for v in candidate.inputs])
    except Exception:
        return False
    return True


def _generated(value: Any) -> Any:
    """A tensor like a traced one: what fails to compile fails with any values."""
    if isinstance(value, torch.SymInt):
        return int(value.node.hint) if value.node.hint is not None else None
    if not isinstance(value, torch.Tensor):
        return value
    sizes = [int(n) if isinstance(n, int) else int(n.node.hint) for n in value.shape]
    strides = [int(n) if isinstance(n, int) else int(n.node.hint) for n in value.stride()]
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
        generator = torch.Generator().manual_seed(0)
        if made.is_floating_point():
            made.copy_(torch.randn(sizes, generator=generator).to(value.dtype))
        else:
            made.zero_()
        return made.requires_grad_(bool(value.requires_grad) and made.is_floating_point())
