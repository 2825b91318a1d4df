"""The graphs that the failing program compiles, with the values of their inputs."""

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
from kernelscope.trials.failure_signature import FailureSignature, of_culprit, of_exception
from kernelscope.trials.gpu_faults import gpu_is_lost, wait_for_gpu

from .candidates import Candidate, copied, of_module, part_of, work_of


class _Enough(BaseException):
    """Ends the program at its first failure; not an `Exception`, so that the program does not catch it."""


@dataclass(slots=True)
class Captured:
    """Where to begin, best first."""

    failure: FailureSignature | None = None
    starts: list[Candidate] = field(default_factory=list)
    nodes: int = 0  # of the graph that failed
    nothing: str = ""  # why there is no failure


def capture(program: Callable[[], Any]) -> Captured:
    """Run the program under `shadow`, up to its first failure."""
    found, process = Captured(), os.getpid()

    def wrong(what: Wrong) -> None:
        if os.getpid() != process:  # a fork of the program
            return
        found.failure = of_culprit(what.culprit)
        found.starts, found.nodes = _starts(what, traced.current)
        raise _Enough

    traced = TracedGraphs()
    traced.install()
    try:
        with shadow(wrong=wrong) as result:
            program()
            wait_for_gpu()
        if traced.current is not None:  # for the user's own check
            found.starts = _of_traced(traced.current)
        found.nothing = (
            result.problem
            or "nothing fails: no kernel's result differs from eager, and no exception was raised"
        )
    except _Enough:
        pass
    except Exception as error:
        if gpu_is_lost():
            message = str(error).partition("\n")[0]
            raise RunError(
                f"the program causes a GPU fault ({message}), after which no trial can run; "
                "use `kernelscope bisect --fails-on exception` to find the kernel"
            ) from None
        if traced.current is None:
            raise
        found.failure = of_exception(error)
        found.starts = _of_traced(traced.current)
        found.nodes = max((c.size for c in found.starts), default=0)
    finally:
        traced.remove()
        torch.compiler.reset()
    return found


def _starts(wrong: Wrong, traced: TracedGraph | None) -> tuple[list[Candidate], int]:
    """The kernel's part of its graph, the graph, and what Dynamo traced."""
    starts: list[Candidate] = []
    nodes = 0
    if wrong.module is not None:
        nodes = len(work_of(wrong.module))
        dynamic = any(n.op == "placeholder" and not _is_tensor(n) for n in wrong.module.graph.nodes)
        if wrong.order:
            starts += _of_unit(wrong, dynamic)
        if wrong.inputs is not None:
            starts.append(of_module(wrong.module, wrong.inputs, dynamic=dynamic))
    # A pass before autograd sees only what Dynamo traced.
    of_traced = _of_traced(traced) if traced is not None else []
    nodes = max([nodes, *(c.size for c in of_traced)])
    is_stage = wrong.culprit.is_step
    return ([*of_traced, *starts] if is_stage else [*starts, *of_traced]), nodes


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _of_unit(wrong: Wrong, dynamic: bool) -> list[Candidate]:
    """With the values of the wrong launch."""
    assert wrong.module is not None
    # Without gradients: the graph is the forward or the backward one already.
    values = {node.name: _plain(value) for node, value in wrong.given.items()}
    whole = Candidate(wrong.module, [], dynamic)
    for node in wrong.order:  # only inputs need a value; the rest is computed
        values.setdefault(node.name, node.meta.get("val"))
    sizes = {
        n.name: wrong.sizes.get(str(v.node.expr))
        for n in wrong.module.graph.nodes
        if isinstance(v := n.meta.get("val"), torch.SymInt)
    }
    values |= {name: size for name, size in sizes.items() if size is not None}
    try:
        made = part_of(whole, {n.name for n in wrong.order}, values)
    except KeyError:  # an unknown size
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
    # It may write to leaves, as an optimizer does: Dynamo leaves out the `no_grad` around that.
    if made.differentiates and not made.runs_in_eager(grad=True):
        made = replace(made, inputs=[_plain(v) for v in made.inputs])
    return [made]


def _generated(value: Any) -> Any:
    """A tensor like the traced one: compiling fails with any values."""
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
